"""What may go wrong, how often, and how often it did.

Every seed draws a weather of its own: some kinds of fault never, some often. A cluster in
which everything goes wrong at once hides what only one of them can do.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from random import Random
from typing import Final


class Fault(StrEnum):
    """One thing that may go wrong with one call."""

    REFUSED = "refused"
    """The server says no, for now. Nothing happened."""
    LOST_REQUEST = "lost request"
    """No answer. Nothing happened."""
    LOST_ANSWER = "lost answer"
    """No answer. It happened."""
    LATE = "late"
    """No answer. It will happen, perhaps when the one who asked is long gone."""
    STALE = "stale"
    """A read misses the newest commit."""
    SLOW = "slow"
    """The answer takes a while."""
    LOST_ACK = "lost ack"
    """A delivery is answered for, and the server does not hear it."""
    LOST_NAK = "lost nak"
    """A delivery is handed back, and the server does not hear it: it comes again much later."""
    REDELIVERED = "redelivered"
    """A delivery comes a second time while the first is being worked on."""
    IMPATIENT = "impatient"
    """The append gives up at the first trouble, not knowing what became of it."""
    FROZEN = "frozen"
    """The process stands still before the call, for longer than its leases."""
    FROZEN_AFTER = "frozen after"
    """The process stands still after the call."""
    DEAD = "dead"
    """The process dies before the call."""
    DEAD_AFTER = "dead after"
    """The process dies after it sent the call."""
    STOPPED = "stopped"
    """The process is asked to stop."""


_RATES_MAX: Final = {
    Fault.REFUSED: 0.06,
    Fault.LOST_REQUEST: 0.06,
    Fault.LOST_ANSWER: 0.08,
    Fault.LATE: 0.06,
    Fault.STALE: 0.3,
    Fault.SLOW: 0.1,
    Fault.LOST_ACK: 0.3,
    Fault.REDELIVERED: 0.1,
    Fault.IMPATIENT: 0.2,
    Fault.FROZEN: 0.03,
    Fault.FROZEN_AFTER: 0.03,
    Fault.DEAD: 0.03,
    Fault.DEAD_AFTER: 0.03,
    Fault.STOPPED: 1.0,
}
"""Of the calls that can meet it, how many do at most."""


HARMLESS: Final = frozenset({Fault.STALE, Fault.LOST_ACK, Fault.REDELIVERED})
"""What may happen in a world in which nothing comes between a decision and what is done."""


class Weather:
    """The faults of one world, drawn from its seed."""

    def __init__(self, seed: int, *, is_fine: bool = False) -> None:
        self.rng = Random(f"weather {seed}")
        self.met: Counter[Fault] = Counter()
        self._rates = {
            fault: most * self.rng.random() if self.rng.random() < 0.6 else 0.0
            for fault, most in _RATES_MAX.items()
        }
        self._rates[Fault.LOST_NAK] = self._rates[Fault.LOST_ACK]
        if is_fine:
            self._rates |= dict.fromkeys(set(Fault) - HARMLESS, 0.0)

        self._stormy = self._rates

    def gather(self) -> None:
        """Let things go wrong again, as they did at first."""
        self._rates = self._stormy

    def clear_up(self) -> None:
        """Let nothing go wrong from here on."""
        self._rates = dict.fromkeys(Fault, 0.0)

    def draw(self, *kinds: Fault) -> Fault | None:
        """Return which of `kinds` happens now, if one does."""
        left = self.rng.random()
        for kind in kinds:
            left -= self._rates[kind]
            if left < 0:
                self.met[kind] += 1
                return kind
        return None

    def between(self, least: float, most: float) -> float:
        """Return any number between the two."""
        return self.rng.uniform(least, most)
