"""`FakeLeases` for users' tests: leases that a test makes busy or lapse.

leases = FakeLeases()
ports = dataclasses.replace(memory_ports(clock=SystemClock()), leases=leases)
leases.set_busy("episode.monitor.e1")    # now nobody can acquire it
leases.lapse("episode.monitor.e1")       # now the next to ask takes it over
"""

from __future__ import annotations

from typing import Final

from streams.clock import Clock, SystemClock
from streams.memory import LEASE_TTL_S
from streams.memory.leases import MARKER_KEPT_S, MemoryLeases
from streams.ports.leases import Lease

STRANGER: Final = "stranger"
"""The holder of a key that was set busy."""

FOR_EVER_S: Final = 100 * 365 * 24 * 3600.0
"""How long it holds it, in seconds, if no test lets it lapse."""


class FakeLeases(MemoryLeases):
    """`Leases` in memory with the whole contract, and two controls."""

    def __init__(self, clock: Clock | None = None, *, ttl_s: float = LEASE_TTL_S) -> None:
        """Create leases that last `ttl_s` seconds on `clock`, by default the machine's."""
        super().__init__(clock or SystemClock(), ttl_s=ttl_s)

    def set_busy(self, key: str) -> None:
        """Give `key` to a stranger until `lapse`; a present holder loses it."""
        self._settle()
        lease = Lease(
            key=key,
            holder=STRANGER,
            attempt=1,
            revision=0,
            lapse_revision=0,
            trusted_until_s=0.0,
            acquired_at=self._clock.now(),
        )
        self._hold(lease, life_s=FOR_EVER_S)

    def lapse(self, key: str) -> None:
        """End the claim of `key` now, as if nobody had renewed it; `KeyError` if it is free."""
        self._settle()
        stored = self._bucket.get(key)
        if stored is None or stored.change.claim is None:
            raise KeyError(key)
        self._lapse(key, late_s=0.0, ends_s=self._clock.monotonic_s() + MARKER_KEPT_S)
