"""The table: every scenario, whatever it is about."""

from __future__ import annotations

from typing import Final

from tests.gates.gates import GATES
from tests.gates.times import TIMES
from tests.gates.triggers import TRIGGERS

SCENARIOS: Final = (*TRIGGERS, *TIMES, *GATES)
