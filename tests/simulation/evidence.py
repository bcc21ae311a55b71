"""What a world leaves behind, sorted for those who judge it: lives, findings, events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Generic, TypeVar

import msgspec

from engine.app import dedupe
from engine.runtime.publish import PublicEvent
from engine.workflows.instance import OVERLAP
from streams.json import unraw
from streams.layout import Kind
from streams.model.events import (
    CompensationBegun,
    DeadLettered,
    DefinitionEvent,
    EpisodeConverged,
    EpisodeFinished,
    EpisodeOpened,
    FindingEvent,
    LogEvent,
    OutputEvent,
    OutputForgone,
    SignalEvent,
    StepBegun,
    StepEnded,
    StepRecorded,
    WorkflowAborted,
    WorkflowCancelAsked,
    WorkflowFinished,
    WorkflowStarted,
)
from streams.model.findings import Cause
from streams.model.triggers import EventTrigger, Mode
from streams.ports.log import Recorded
from streams.wire.messages import CLOUD_EVENT_ID_HEADER, MESSAGE_ID_HEADER, StreamMessage
from tests.simulation.world import NAME, History
from tests.told import expected

Breaches = Iterator[str]

E_co = TypeVar("E_co", bound=LogEvent, covariant=True)
K = TypeVar("K", bound=LogEvent)


@dataclass(frozen=True)
class Placed(Generic[E_co]):
    """An event and the commit that it came in."""

    event: E_co
    seq: int
    """The place of the commit among all, whatever the partitions: see `Evidence`."""
    commit_id: str


class Life:
    """One episode as its journal has it."""

    def __init__(self, episode_id: str, records: Sequence[Recorded]) -> None:
        self.id, self.records = episode_id, records
        self.events = [
            Placed(event, record.seq, record.commit.id)
            for record in records
            for event in record.commit.events
        ]

    def of(self, kind: type[K]) -> list[Placed[K]]:
        return [
            Placed(placed.event, placed.seq, placed.commit_id)
            for placed in self.events
            if isinstance(placed.event, kind)
        ]

    @property
    def opened(self) -> EpisodeOpened:
        event = self.events[0].event
        assert isinstance(event, EpisodeOpened), f"{self.id} begins with {event}"
        return event

    @cached_property
    def finished(self) -> EpisodeFinished | None:
        ends = self.of(EpisodeFinished)
        return ends[0].event if ends else None

    @property
    def was_given_up(self) -> bool:
        given_up = {"attempts_exhausted", "outcome_unknown"}
        return self.finished is not None and self.finished.error_class in given_up

    @cached_property
    def converged(self) -> EpisodeConverged | None:
        found = self.of(EpisodeConverged)
        return found[0].event if found else None

    @cached_property
    def recorded_at(self) -> dict[int, Placed[StepRecorded]]:
        return {placed.event.step_no: placed for placed in self.of(StepRecorded)}


class Flow:
    """One instance of a workflow as its journal has it."""

    def __init__(self, instance_id: str, records: Sequence[Recorded]) -> None:
        self.id = instance_id
        self.events = [
            Placed(event, record.seq, record.commit.id)
            for record in records
            for event in record.commit.events
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.id}"

    def of(self, kind: type[K]) -> list[Placed[K]]:
        return [
            Placed(placed.event, placed.seq, placed.commit_id)
            for placed in self.events
            if isinstance(placed.event, kind)
        ]

    @property
    def begun(self) -> WorkflowStarted:
        event = self.events[0].event
        assert isinstance(event, WorkflowStarted), f"{self.id} begins with {event}"
        return event

    @property
    def name(self) -> str:
        return self.begun.spec.name

    @property
    def is_dry(self) -> bool:
        return self.begun.mode is Mode.DRY_RUN

    @property
    def went_on(self) -> Sequence[Placed]:
        """Its events from when it had its subject; none, if it never had it."""
        after, stops = self.events[1:], (WorkflowCancelAsked, WorkflowAborted)
        first = after[0].event if after else None
        if self.begun.held_by:
            return () if first is None or isinstance(first, stops) else after
        # One that is begun late, by a node that stood still, may have been displaced before.
        is_displaced = isinstance(first, WorkflowCancelAsked) and first.by == OVERLAP
        return () if is_displaced else self.events

    @property
    def opened(self) -> list[str]:
        """The ids of what it has opened: episodes, and instances of other workflows."""
        begun = StepBegun, CompensationBegun
        return [placed.event.episode_id for kind in begun for placed in self.of(kind)]

    @cached_property
    def finished(self) -> WorkflowFinished | None:
        ends = self.of(WorkflowFinished)
        return ends[0].event if ends else None

    @cached_property
    def results(self) -> dict[str, object]:
        """What the last steps brought, which fan out nowhere: those that nothing depends on."""
        needed = {each for step in self.begun.spec.steps for each in step.depends_on}
        last = {step.id: None for step in self.begun.spec.steps if step.id not in needed}
        said = {placed.event.step: unraw(placed.event.result) for placed in self.of(StepEnded)}
        return last | {name: said[name] for name in last if name in said}


@dataclass(frozen=True)
class Evidence:
    """A history, sorted for those who judge it.

    Sequences of two partitions cannot be compared. So here a commit has the place, from 1, at which
    it was stored in the journal as a whole, instead of its sequence: without partitions, the same.
    """

    history: History

    @cached_property
    def lives(self) -> dict[str, Life]:
        return {key: Life(key, records) for key, records in self._by_key(Kind.EPISODE).items()}

    @cached_property
    def flows(self) -> dict[str, Flow]:
        return {key: Flow(key, records) for key, records in self._by_key(Kind.WORKFLOW).items()}

    @cached_property
    def findings(self) -> dict[str, list[tuple[int, FindingEvent]]]:
        return {
            key: [
                (record.seq, event)
                for record in records
                for event in record.commit.events
                if isinstance(event, FindingEvent)
            ]
            for key, records in self._by_key(Kind.FINDING).items()
        }

    @cached_property
    def by_cause(self) -> dict[tuple[str, int], list[tuple[int, FindingEvent]]]:
        found: dict[tuple[str, int], list[tuple[int, FindingEvent]]] = defaultdict(list)
        for seq, event in (one for events in self.findings.values() for one in events):
            if isinstance(event.cause, Cause):
                found[event.cause.episode_id, event.cause.index].append((seq, event))
        return found

    @cached_property
    def outputs(self) -> dict[str, list[Placed[OutputEvent]]]:
        """What happened to each output, by its key; not who will not propose it any more."""
        return {
            key: [
                Placed(event, record.seq, record.commit.id)
                for record in records
                for event in record.commit.events
                if isinstance(event, OutputEvent) and not isinstance(event, OutputForgone)
            ]
            for key, records in self._by_key(Kind.OUTPUT).items()
        }

    @cached_property
    def definitions(self) -> dict[str, list[Placed[DefinitionEvent]]]:
        """What happened to each definition, by kind and id."""
        return {
            key: [
                Placed(event, record.seq, record.commit.id)
                for record in records
                for event in record.commit.events
                if isinstance(event, DefinitionEvent)
            ]
            for key, records in self._by_key(Kind.DEFINITION).items()
        }

    @cached_property
    def references(self) -> dict[str, list[Placed[SignalEvent]]]:
        """Who waited for each reference, and its signals."""
        return {
            key: [
                Placed(event, record.seq, record.commit.id)
                for record in records
                for event in record.commit.events
                if isinstance(event, SignalEvent)
            ]
            for key, records in self._by_key(Kind.SIGNAL).items()
        }

    @cached_property
    def letters(self) -> list[DeadLettered]:
        """The dead letters."""
        events = (event for record in self.history.dead for event in record.commit.events)
        return [event for event in events if isinstance(event, DeadLettered)]

    @cached_property
    def told(self) -> dict[str, list[StreamMessage]]:
        """What the world was told, by its id."""
        found: dict[str, list[StreamMessage]] = defaultdict(list)
        for message in self.history.events:
            if MESSAGE_ID_HEADER in message.headers:
                found[identity(message)].append(message)
        return found

    @cached_property
    def public_events(self) -> dict[str, list[PublicEvent]]:
        """What follows from the commits of each aggregate, by subject."""
        return expected([*self.history.journal, *self.history.dead], self.history.stack)

    @staticmethod
    def is_dry(life: Life) -> bool:
        return life.opened.mode is Mode.DRY_RUN

    def of(self, *expectations: str) -> list[Life]:
        """Return the episodes of `expectations`, in the order in which they were opened."""
        found = [each for each in self.lives.values() if each.opened.expectation_id in expectations]
        return sorted(found, key=lambda each: each.records[0].seq)

    def opened_s(self, life: Life) -> float:
        """Return when an episode was opened, in simulated seconds."""
        return self.stored_s(life.records[0].seq)

    def stored_s(self, place: int) -> float:
        """Return when the commit at `place` was stored, in simulated seconds."""
        record = self.history.journal[place - 1]
        return self.history.stored_at_s[record.subject, record.seq]

    def committed_at(self, place: int) -> datetime:
        """Return when the commit at `place` was made, by the clock of who made it."""
        return self.history.journal[place - 1].commit.at

    def named(self, *names: str) -> list[StreamMessage]:
        """Return the events called one of `names`, in order."""
        event_name_of = self.history.stack.event_name_of
        return [each for each in self.history.events if event_name_of(each.subject) in names]

    @cached_property
    def lanes(self) -> dict[str, list[Recorded]]:
        """The commits of each lane, by actor."""
        return self._by_key(Kind.LANE)

    def was_paused(self, actor: str) -> bool:
        return any(pause.actor == actor for pause in self.history.pauses)

    def seq_at(self, place: int) -> int:
        """Return the sequence of the commit at `place`, in its own partition."""
        return self.history.journal[place - 1].seq

    def _by_key(self, wanted: Kind) -> dict[str, list[Recorded]]:
        found: dict[str, list[Recorded]] = defaultdict(list)
        for place, record in enumerate(self.history.journal, start=1):
            kind, key = self.history.stack.aggregate_of(record.subject)
            if kind is wanted:
                found[key].append(msgspec.structs.replace(record, seq=place))
        return found


def identity(message: StreamMessage) -> str:
    """Return what makes two messages the same event."""
    given = message.headers.get(MESSAGE_ID_HEADER) or message.headers.get(CLOUD_EVENT_ID_HEADER)
    return given or f"{NAME}-events:{message.seq}"


def payload_of(message: StreamMessage) -> dict[str, object] | None:
    try:
        return msgspec.json.decode(message.data, type=dict)
    except msgspec.DecodeError:
        return None


def event_id_of(life: Life) -> str:
    """Return the event that woke an episode; empty if something else did."""
    trigger = life.opened.trigger
    return trigger.event_id if isinstance(trigger, EventTrigger) else ""


def key_of(message: StreamMessage) -> str:
    return str((payload_of(message) or {}).get("key", ""))


def readable(evidence: Evidence, *names: str) -> list[StreamMessage]:
    """Return the events called one of `names` that hold a JSON object."""
    return [each for each in evidence.named(*names) if payload_of(each) is not None]


def episode_id_of(event: StreamMessage, *, actor: str, expectation: str) -> str:
    """Return the episode that an event opens, if it opens one."""
    key = dedupe.event_key(identity(event))
    return dedupe.episode_id(stack=NAME, actor=actor, expectation=expectation, dedupe_key=key)
