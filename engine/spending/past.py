"""What has been spent, as it follows from the log: for windows whose keys were lost. Pure.

A request counts in the windows of the time at which it was announced, or else recorded. That is a
moment after it was reserved, so at the end of a window a cost may count in the next one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from engine.spending.window import Spent, Window, every_window, window_at
from streams.model.events import StepAnnounced, StepRecorded
from streams.model.money import NO_USD


class _Reserved(NamedTuple):
    actor: str
    at: datetime
    usd: Decimal


@dataclass
class PastSpending:
    """The sums of all steps that were given, each episode's in their order."""

    _used: dict[tuple[str, str], Decimal] = field(
        default_factory=lambda: defaultdict(lambda: NO_USD)
    )
    """Actor and hour → what its requests have cost."""
    _reserved: dict[str, _Reserved] = field(default_factory=dict)
    """Reference → what was announced, and is not recorded."""

    def announce(self, event: StepAnnounced, *, actor: str, episode_id: str, at: datetime) -> None:
        """Take what was announced, if it is a request to a model."""
        if event.reserved_usd is not None:
            ref = f"{episode_id}:{event.path}"
            self._reserved[ref] = _Reserved(actor, at, event.reserved_usd)

    def record(self, event: StepRecorded, *, actor: str, episode_id: str, at: datetime) -> None:
        """Take what was recorded; what its child has spent counts where that is recorded."""
        reserved = self._reserved.pop(f"{episode_id}:{event.path}", None)
        usd = event.cost_usd  # guard: rebuilt-child-counts-once
        if usd is None and reserved is not None:
            usd = reserved.usd  # guard: rebuilt-unknown-cost-is-most
        if usd:
            begun_at = reserved.at if reserved is not None else at
            self._used[actor, window_at(actor, "hour", begun_at).begins] += usd

    def windows(self, now: datetime) -> Iterator[tuple[Window, Spent]]:
        """Yield the windows that `now` lies in, of every actor and the stack, with what is spent.

        Those in which nothing is are left out.
        """
        actors = {actor for actor, _ in self._used} | {
            each.actor for each in self._reserved.values()
        }
        found = {each.key: each for actor in sorted(actors) for each in every_window(actor, now)}
        for window in found.values():
            spent = self._within(window)
            if spent.total:
                yield window, spent

    def _within(self, window: Window) -> Spent:
        used = (
            usd
            for (actor, hour), usd in self._used.items()
            if window.actor in ("", actor) and hour.startswith(window.begins)
        )
        reserved = {
            ref: each.usd
            for ref, each in self._reserved.items()
            if window.actor in ("", each.actor)
            and window_at(each.actor, window.per, each.at).begins == window.begins
        }
        return Spent(used=sum(used, NO_USD), reserved=reserved)
