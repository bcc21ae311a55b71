"""The table: every scenario, whatever it is about."""

from __future__ import annotations

from typing import Final

from tests.gates.causes import CAUSES
from tests.gates.gates import GATES
from tests.gates.limits import LIMITS
from tests.gates.times import TIMES
from tests.gates.triggers import TRIGGERS

SCENARIOS: Final = (*TRIGGERS, *TIMES, *GATES, *CAUSES, *LIMITS)
