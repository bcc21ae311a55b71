"""What gates remember, as it follows from the log: for a bucket that was lost. Pure.

key        follows from
cooldown   the newest opening of its subject that began one
overlap    the episodes of its subject that are open
workflow   the instances of its subject that are open
parked     the episodes that wait for other code
ends       the ends of the episodes of its expectation
breaker    the newest public event about it, and the newest order to close it
spending   the requests to models of the hour, the day and the month
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from engine.app.workflow_plan import START_EXPECTATION, starter_id
from engine.episodes.breakers.breaker import BreakerState, Moment
from engine.episodes.latest_ends import LatestEnds, count, end_to_count, without_published
from engine.episodes.overlap import hold, places
from engine.spending.past import PastSpending
from engine.spending.window import encoded as encoded_spent
from engine.triggers.evaluate import encoded_cooldown
from engine.waits import parked
from engine.workflows.instance import HeldSubject, held_subject
from streams.errors import BadName
from streams.keys import (
    breaker_key,
    cooldown_key,
    ends_key,
    overlap_key,
    parked_key,
    workflow_subject_key,
)
from streams.model.events import (
    BreakerReset,
    EpisodeBlocked,
    EpisodeFinished,
    EpisodeOpened,
    EpisodeResolved,
    EpisodeStarted,
    StepAnnounced,
    StepRecorded,
    WorkflowFinished,
    WorkflowStarted,
)
from streams.model.triggers import Mode
from streams.ports.bucket import TTL_S_MIN
from streams.ports.domain_events import DomainEvent
from streams.ports.log import Recorded

_BREAKERS: Final = "circuit_breaker."


class RememberedKey(NamedTuple):
    """A key of the gates as it must be."""

    key: str
    value: bytes
    ttl_s: int | None = None


class BreakerEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What a public event says of a circuit breaker."""

    actor_id: str
    expectation_id: str
    episode_id: str
    scope: str
    failures: tuple[str, ...] = ()
    at: Moment | None = None


class _Cooldown(NamedTuple):
    at: datetime
    id: str
    until: datetime


@dataclass
class Remembered:
    """What follows from the commits and events that were given, each stream's in its order."""

    _cooldowns: dict[str, _Cooldown] = field(default_factory=dict)
    _open: dict[str, tuple[datetime, EpisodeOpened]] = field(default_factory=dict)
    """Episode → when it was opened, and how, without what only its strategy needs."""
    _instances: dict[str, tuple[datetime, HeldSubject, str]] = field(default_factory=dict)
    """Instance → when it began, what it holds, and after which one."""
    _parked: dict[str, datetime] = field(default_factory=dict)
    _ends: dict[str, LatestEnds] = field(default_factory=dict)
    _breakers: dict[str, BreakerState] = field(default_factory=dict)
    _resets: dict[str, tuple[datetime, str]] = field(default_factory=dict)
    """Breaker → when people have last had it closed, and the id of that commit."""
    _spending: PastSpending = field(default_factory=PastSpending)

    def add(self, record: Recorded, *, part: str) -> None:
        """Take a commit of the stream `part`."""
        id_, at = record.subject.rpartition(".")[2], record.commit.at
        for event in record.commit.events:
            match event:
                case EpisodeOpened():
                    self._opened(event, record)
                case EpisodeBlocked(parked=said, wait=wait) if said and wait and wait.expires_at:
                    self._parked[id_] = wait.expires_at
                case EpisodeResolved():
                    self._parked.pop(id_, None)
                case StepAnnounced() | StepRecorded():
                    self._step(id_, event, record)
                case EpisodeFinished():
                    self._finished(id_, event, record, part=part)
                case WorkflowStarted():
                    self._started(event, at)
                case WorkflowFinished():
                    self._instances.pop(id_, None)  # guard: rebuilt-ended-instance-holds-nothing
                case BreakerReset():
                    key = breaker_key(event.actor_id, event.expectation_id)
                    self._resets[key] = (at, record.commit.id)
                case _:
                    pass

    def note(self, event: DomainEvent) -> None:
        """Take an event, if it is about a circuit breaker of the cluster."""
        if not event.name.startswith(_BREAKERS):
            return
        try:
            said = msgspec.convert(event.payload, BreakerEvent)
        except msgspec.ValidationError:
            return  # No event of ours: anybody may publish.
        if said.scope != "cluster":  # guard: rebuilt-node-breaker-left-out
            return
        try:
            key = breaker_key(said.actor_id, said.expectation_id)
        except BadName:
            return
        match event.name.removeprefix(_BREAKERS):
            case "opened":
                at = said.at or event.at
                self._breakers[key] = BreakerState(
                    status="open", failures=said.failures, opened_at=at
                )
            case "half_opened":
                before = self._breakers.get(key, BreakerState(failures=said.failures))
                self._breakers[key] = replace(
                    before, status="half_open", probe=said.episode_id, probe_since=event.at
                )
            case "closed":
                self._breakers.pop(key, None)  # guard: rebuilt-closed-breaker-closed
            case _:
                pass

    def ends(self, positions: dict[str, int]) -> Iterator[RememberedKey]:
        """Yield what was counted of ends, with changes past the positions of the reactors."""
        for key, counted in self._ends.items():
            ends = counted
            for part, seq in positions.items():
                ends = without_published(ends, part=part, published=seq)
            yield RememberedKey(key, msgspec.json.encode(ends))

    def keys(self, now: datetime) -> Iterator[RememberedKey]:
        """Yield all other keys that stand at `now`."""
        for key, cooled in self._cooldowns.items():
            left_s = math.ceil((cooled.until - now).total_seconds())
            if left_s >= TTL_S_MIN:  # guard: rebuilt-cooldown-over
                yield RememberedKey(key, encoded_cooldown(cooled.id, cooled.until), left_s)
        yield from self._holds()
        for id_, until in self._parked.items():
            if id_ in self._open:
                left_s = math.ceil((until - now).total_seconds()) + parked.KEPT_S
                key = parked_key(self._open[id_][1].actor_id, id_)
                yield RememberedKey(key, b"", max(TTL_S_MIN, left_s))
        for key, told in self._breakers.items():
            since = told.probe_since or told.opened_at
            reset_at, reset = self._resets.get(key, (None, ""))
            # guard: rebuilt-breaker-reset-since
            is_reset = since is not None and reset_at is not None and reset_at >= since
            state = BreakerState() if is_reset else told
            yield RememberedKey(key, msgspec.json.encode(replace(state, reset=reset)))
        for window, spent in self._spending.windows(now):
            yield RememberedKey(window.key, encoded_spent(spent), window.ttl_s(now))

    def _step(self, id_: str, event: StepAnnounced | StepRecorded, record: Recorded) -> None:
        first = record.commit.events[0]
        # guard: rebuilt-forks-past-counts-once
        if id_ not in self._open or (isinstance(first, EpisodeOpened) and first.fork is not None):
            return
        actor, at = self._open[id_][1].actor_id, record.commit.at
        if isinstance(event, StepAnnounced):
            self._spending.announce(event, actor=actor, episode_id=id_, at=at)
        else:
            self._spending.record(event, actor=actor, episode_id=id_, at=at)

    def _opened(self, opened: EpisodeOpened, record: Recorded) -> None:
        at, first = record.commit.at, record.commit.events
        # What only its strategy needs goes, but not what it is held by.
        self._open[opened.episode_id] = (at, replace(hold.slim(opened), held_by=opened.held_by))
        is_over = isinstance(first[-1], EpisodeFinished)
        was_refused = is_over and not any(isinstance(each, EpisodeStarted) for each in first)
        # guard: rebuilt-cooldown-of-live-cause
        if was_refused or opened.mode is Mode.DRY_RUN or opened.fork is not None:
            return
        key = cooldown_key(opened.actor_id, opened.expectation_id, opened.trigger.entity_id)
        self._cool(key, opened.episode_id, at, opened.cooldown_s)

    def _finished(self, id_: str, end: EpisodeFinished, record: Recorded, *, part: str) -> None:
        # guard: rebuilt-ended-episode-holds-nothing
        _, opened = self._open.pop(id_, (None, None))
        counted = end_to_count(opened, end, seq=record.seq) if opened is not None else None
        if counted is not None and opened is not None:
            key = ends_key(opened.actor_id, opened.expectation_id)
            self._ends[key] = count(self._ends.get(key, LatestEnds()), counted, part=part)

    def _started(self, started: WorkflowStarted, at: datetime) -> None:
        held, id_ = held_subject(started), started.instance_id
        if held is not None:
            self._instances[id_] = (at, held, started.held_by)
        actor, about = starter_id(started.spec.name), started.trigger.entity_id
        self._cool(cooldown_key(actor, START_EXPECTATION, about), id_, at, started.cooldown_s)

    def _cool(self, key: str, id_: str, at: datetime, cooldown_s: int) -> None:
        if not cooldown_s:
            return
        before = self._cooldowns.get(key)
        if before is None or before.at <= at:  # guard: rebuilt-cooldown-of-newest
            self._cooldowns[key] = _Cooldown(at, id_, at + timedelta(seconds=cooldown_s))

    def _holds(self) -> Iterator[RememberedKey]:
        held: defaultdict[str, list[EpisodeOpened]] = defaultdict(list)
        for _, opened in sorted(self._open.values(), key=_begun):
            if opened.holds_subject:
                about = opened.trigger.entity_id
                held[overlap_key(opened.actor_id, opened.expectation_id, about)].append(opened)
        for key, those in held.items():
            yield RememberedKey(key, hold.encoded(hold.of_open(those)) or b"")
        busy: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        for id_, (_, subject, held_by) in sorted(self._instances.items(), key=_taken):
            busy[workflow_subject_key(subject.workflow, subject.subject)].append((id_, held_by))
        for key, ids in busy.items():
            yield RememberedKey(key, msgspec.json.encode(places.of_open(ids)))


def _begun(opened: tuple[datetime, EpisodeOpened]) -> datetime:
    return opened[0]


def _taken(instance: tuple[str, tuple[datetime, HeldSubject, str]]) -> datetime:
    return instance[1][0]
