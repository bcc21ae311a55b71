"""The episodes that the leases of their nodes stand for, as the commits of a stream tell. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from engine.episodes.attempt import needs_claim
from streams.model.events import EpisodeFinished, EpisodeStarted
from streams.ports.log import Recorded


class NodeLeaseRef(NamedTuple):
    """Names one lease of a node."""

    node: str
    since: datetime


class CoveredAttempt(NamedTuple):
    """The newest attempt at an episode, which the lease of its node stands for."""

    start: Recorded
    attempt: int
    lease: NodeLeaseRef
    seen_s: float
    """On the monotonic clock."""


class CoveredEpisodes:
    """The episodes of one stream that the leases of their nodes stand for. Pure."""

    def __init__(self) -> None:
        self._episodes: dict[str, CoveredAttempt] = {}
        """By subject, oldest first."""

    def note(self, record: Recorded, *, at_s: float) -> None:
        """Take note of a commit that was seen at `at_s` on the monotonic clock."""
        events = record.commit.events
        for event in events:
            if isinstance(event, EpisodeStarted):
                self._episodes.pop(record.subject, None)
                if (since := event.node_lease_since) is not None:
                    lease = NodeLeaseRef(event.node, since)
                    self._episodes[record.subject] = CoveredAttempt(
                        record, event.attempt, lease, at_s
                    )
        if record.subject in self._episodes and (
            isinstance(events[-1], EpisodeFinished) or needs_claim(events, has_outputs_left=False)
        ):
            del self._episodes[record.subject]

    @property
    def first_seq(self) -> int:
        """The oldest start among them; 0: there are none."""
        return next((each.start.seq for each in self._episodes.values()), 0)

    @property
    def leases(self) -> frozenset[NodeLeaseRef]:
        """The leases that stand for them."""
        return frozenset(each.lease for each in self._episodes.values())

    def under(self, lease: NodeLeaseRef) -> list[CoveredAttempt]:
        """Return those that `lease` stands for."""
        return [each for each in self._episodes.values() if each.lease == lease]

    def seen_before(self, at_s: float) -> list[CoveredAttempt]:
        """Return those whose start was seen before `at_s` on the monotonic clock."""
        return [each for each in self._episodes.values() if each.seen_s < at_s]

    def forget(self, covered: Iterable[CoveredAttempt]) -> None:
        """Forget attempts that nothing is to be done for any more."""
        for each in covered:
            if self._episodes.get(each.start.subject) is each:
                del self._episodes[each.start.subject]
