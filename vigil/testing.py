"""What tests of an app need: leases that a test controls.

leases = FakeLeases()
ports = dataclasses.replace(memory_ports(clock=SystemClock()), leases=leases)
leases.set_busy("episode.monitor.e1")    # now nobody can acquire it
leases.lapse("episode.monitor.e1")       # now the next one to ask takes it over
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from vigil.public import public

if TYPE_CHECKING:
    from engine.testing import FakeLeases

__all__ = ["FakeLeases"]

_HOMES: Final = {"engine.testing": "FakeLeases"}

if not TYPE_CHECKING:
    __getattr__, __dir__ = public(__name__, _HOMES)
