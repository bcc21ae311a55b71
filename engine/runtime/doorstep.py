"""Keeps outside what has come due for an actor while no more of its episodes may wait.

Ticks, calm and fires by hand share a queue with the ends of episodes, which make room. So they
are taken from it all the same, and handed back, to come again. What is outside comes in before any
newer event does: room is kept for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from engine import calm, firing
from engine.runtime import ticker
from engine.runtime.gate import leave
from engine.runtime.mailbox import Mailbox
from streams.clock import Clock
from streams.delivery import Delivery, Unreadable
from streams.timers import Due

OUTSIDE_MAX: Final = 1_000
"""Due messages that are outside at a time; beyond that they are let in, and the line gets longer
than it may be. For the server gives out 10,000 unanswered ones, and an end may be behind them."""

EXPECTED_S: Final = 30.0
"""How long room is kept for one that does not come again: six times as long as it is told to stay
away. It may have been removed, or another node may have it."""

CAUSES: Final = frozenset({ticker.PURPOSE, calm.PURPOSE, firing.PURPOSE})
"""Purposes of what may open an episode."""

Incoming: TypeAlias = Delivery[Due | Unreadable]


@dataclass
class Doorstep:
    """Who is outside, for one stint."""

    mailbox: Mailbox
    clock: Clock
    _outside: dict[str, float] = field(default_factory=dict)
    """Id of a due message → until when it is expected, on the monotonic clock."""

    async def let_in(self, deliveries: Sequence[Incoming]) -> list[Incoming]:
        """Return those that may come in; the others are to come again.

        Room is kept for both, until `shut`.
        """
        now_s, room, coming = self.clock.monotonic_s(), self.mailbox.room, 0
        inside: list[Incoming] = []
        for delivery in deliveries:
            due = delivery.content
            if not isinstance(due, Due) or due.purpose not in CAUSES:
                inside.append(delivery)
            elif room > coming or not self._has_room_for(due.id):
                coming += 1
                self._outside.pop(due.id, None)
                inside.append(delivery)
            else:
                self._outside[due.id] = now_s + EXPECTED_S
                await leave(delivery)
        self._outside = {id_: until for id_, until in self._outside.items() if until > now_s}
        self.mailbox.expect(len(self._outside) + coming)
        return inside

    def shut(self) -> None:
        """Take note that those who came in have asked for what they want."""
        self.mailbox.expect(len(self._outside))

    def _has_room_for(self, id_: str) -> bool:
        return id_ in self._outside or len(self._outside) < OUTSIDE_MAX
