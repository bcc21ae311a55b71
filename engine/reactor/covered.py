"""The episodes that the leases of their nodes stand for, as the commits of a stream tell. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

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
    """Without its events: a payload may be large."""
    attempt: int
    lease: NodeLeaseRef
    seen_s: float
    """On the monotonic clock."""


class CoveredEpisodes:
    """The episodes of one stream that the leases of their nodes stand for. Pure."""

    def __init__(self) -> None:
        self._episodes: dict[str, CoveredAttempt] = {}
        """By subject, oldest first."""

    def note(self, record: Recorded, *, at_s: float) -> NodeLeaseRef | None:
        """Take note of a commit that was seen at `at_s` on the monotonic clock.

        Return the lease that stands for the attempt which begins there; None: none does.
        """
        covered: CoveredAttempt | None = None
        for event in record.commit.events:
            if isinstance(event, EpisodeStarted):
                covered = _covered(record, event, at_s)
                self._episodes.pop(record.subject, None)
        if covered is not None:
            self._episodes[record.subject] = covered
        if record.subject in self._episodes and _leaves(record):
            del self._episodes[record.subject]
            return None
        return covered.lease if covered is not None else None

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


def _covered(record: Recorded, started: EpisodeStarted, at_s: float) -> CoveredAttempt | None:
    if started.node_lease_since is None:
        return None
    start = replace(record, commit=replace(record.commit, events=()))
    lease = NodeLeaseRef(started.node, started.node_lease_since)
    return CoveredAttempt(start, started.attempt, lease, at_s)


def _leaves(record: Recorded) -> bool:
    """Return whether an attempt is over with a commit, or has a claim since before it."""
    events = record.commit.events
    is_over = any(isinstance(event, EpisodeFinished) for event in events)
    return is_over or needs_claim(events, has_outputs_left=False)
