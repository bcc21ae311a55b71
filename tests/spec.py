"""given(past).when(command).then(event): tests that read as specifications.

A past event stands for a commit of its own, one second after the one before it; `at` says
another time, or puts several events in one commit.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final

import pytest

from engine.episodes import episode
from engine.errors import Rejected
from engine.findings import finding as finding_rules
from streams.model.events import EpisodeEvent, FindingEvent
from streams.model.findings import Cause, Finding, FindingIntent
from streams.ports.log import Commit, Recorded

EPOCH: Final = datetime(2030, 1, 1, tzinfo=UTC)
"""When every specified life begins."""


def at(seconds: float, *events: EpisodeEvent) -> Recorded:
    """Return `events` as one commit, `seconds` after the epoch."""
    when = EPOCH + timedelta(seconds=seconds)
    commit = Commit(id=f"c{seconds}", at=when, events=events)
    return Recorded(subject="an.episode", seq=1, commit=commit)


class given:
    """An episode with this past."""

    def __init__(self, *past: EpisodeEvent | Recorded):
        records = [
            one if isinstance(one, Recorded) else at(seconds, one)
            for seconds, one in enumerate(past)
        ]
        assert all(a.commit.at <= b.commit.at for a, b in pairwise(records)), "time runs forward"
        self.episode = episode.fold(records)

    def when(self, command: episode.Command) -> _When:
        return _When(self.episode, command)


class _When:
    def __init__(self, subject: episode.Episode, command: episode.Command):
        self._episode, self._command = subject, command

    def then(self, expected: EpisodeEvent) -> None:
        assert episode.decide(self._episode, self._command) == expected

    def then_rejected(self, match: str) -> None:
        with pytest.raises(Rejected, match=match):
            episode.decide(self._episode, self._command)


class given_finding:
    """What became of one key after these intents: of episodes e1, e2, …, one second apart."""

    def __init__(self, *past: FindingIntent, ttl_s: float = 0.0, finding: Finding | None = None):
        """Begin with `finding`, of an expectation whose findings live for `ttl_s` seconds."""
        self.finding = finding
        self.event: FindingEvent | None = None
        self._episodes, self._ttl_s = 0, ttl_s
        for intent in past:
            self._put(intent)

    def when(self, intent: FindingIntent) -> _FindingWhen:
        return _FindingWhen(self._put(intent))

    def _put(self, intent: FindingIntent) -> FindingEvent | None:
        self._episodes += 1
        event = finding_rules.decide(
            self.finding,
            intent,
            cause=Cause(episode_id=f"e{self._episodes}", index=0),
            actor_id="monitor",
            expectation_id="limits",
            at=EPOCH + timedelta(seconds=self._episodes),
            ttl_s=self._ttl_s,
        )
        self.finding = event.finding if event else self.finding
        self.event = event
        return event


class _FindingWhen:
    def __init__(self, event: FindingEvent | None):
        self._event = event

    def then(self, kind: type, **said: object) -> None:
        """Expect an event of this `kind` whose finding says at least this."""
        assert isinstance(self._event, kind)
        assert {name: getattr(self._event.finding, name) for name in said} == said

    def then_nothing(self) -> None:
        assert self._event is None
