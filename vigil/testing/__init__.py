"""What tests of an app need: ports in memory, and leases that a test controls.

    ports = dataclasses.replace(memory_ports(clock=SystemClock()), leases=FakeLeases())
    ports.leases.set_busy("episode.monitor.e1")    # now nobody can acquire it
    ports.leases.lapse("episode.monitor.e1")       # now the next one to ask takes it over

The events are those of the journal that tests look for most often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from vigil.public import public

if TYPE_CHECKING:
    from streams.clock import SystemClock
    from streams.memory import memory_ports
    from streams.memory.fake_leases import FakeLeases
    from streams.model.events import EpisodeFinished, FindingRaised, StepRecorded

__all__ = [
    "EpisodeFinished",
    "FakeLeases",
    "FindingRaised",
    "StepRecorded",
    "SystemClock",
    "memory_ports",
]

_HOMES: Final = {
    "streams.memory.fake_leases": "FakeLeases",
    "streams.clock": "SystemClock",
    "streams.memory": "memory_ports",
    "streams.model.events": "EpisodeFinished FindingRaised StepRecorded",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = public(__name__, _HOMES)
