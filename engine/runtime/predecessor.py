"""What whoever dispatched before a stint may have done with an event of its backlog.

They may have ruled on any of it: a lane also takes over from gates, which share events among many
nodes, and may be through with one and not with an earlier one. But they opened episodes in the
order of the events, and wrote down how far they were before they opened the next ones.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from engine.runtime.mailbox import ITEMS_MAX, LAG_MAX
from engine.runtime.tracks import Track
from streams.world import Followed

OPENED_MAX: Final = LAG_MAX + ITEMS_MAX
"""Events past a cursor of which a dispatcher may have opened some: those that it passed without
writing that down, and those that it decided on next. What waited behind was only ruled on."""


@dataclass(frozen=True)
class Predecessor:
    """Whoever followed `track` before, as far as anybody can tell."""

    track: Track
    until: int
    """The sequence that its stream went up to when the stint began."""
    _read: Counter[str] = field(default_factory=Counter)
    """Name of a cursor → events past it."""

    def may_have_ruled_on(self, followed: Followed) -> bool:
        """Return whether an event was there before the stint began."""
        return followed.seq <= self.until

    def may_have_opened(self, followed: Followed) -> bool:
        """Return whether an episode that was opened for an event may still be on its way.

        To be asked for each event past its cursor, once and in order.
        """
        name = self.track.name_of(followed)
        self._read[name] += 1
        return self._read[name] <= OPENED_MAX and self.may_have_ruled_on(followed)
