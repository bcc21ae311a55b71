"""The definitions read model: a row per definition as it stands, and a row per change. Pure.

An applied definition replaces its row; a disabled one only notes by whom. Some columns show parts
of the definition's text. It was checked when it was applied, so a part that cannot be read here was
written by another version: its column stays empty, and the text has its own column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeVar, assert_never, get_args

import msgspec

from projections.rows import Row, RowChange, Statement, events_of, key
from streams.errors import UnreadableEvent
from streams.json import NOTHING, UNDECODABLE
from streams.model.events import (
    DefinitionApplied,
    DefinitionDisabled,
    DefinitionEvent,
    DefinitionKind,
)
from streams.ports.log import Recorded

T = TypeVar("T", "AgentContents", "WorkflowContents")


_AGENTS: Final = "agent_definitions"

_WORKFLOWS: Final = "workflow_definitions"

APPLY_AGENT: Final = Statement(name="apply_agent_definitions", table=_AGENTS, keys=("actor_id",))

DISABLE_AGENT: Final = Statement(
    name="disable_agent_definitions", table=_AGENTS, keys=("actor_id",)
)

APPLY_WORKFLOW: Final = Statement(
    name="apply_workflow_definitions", table=_WORKFLOWS, keys=("workflow_id",)
)

DISABLE_WORKFLOW: Final = Statement(
    name="disable_workflow_definitions", table=_WORKFLOWS, keys=("workflow_id",)
)

RECORD: Final = Statement(
    name="record_definition_history",
    table="definition_history",
    keys=("kind", "definition_id", "journal_seq", "event_no"),
)

_APPLY: Final[Mapping[DefinitionKind, Statement]] = {
    DefinitionKind.AGENT: APPLY_AGENT,
    DefinitionKind.WORKFLOW: APPLY_WORKFLOW,
}

_DISABLE: Final[Mapping[DefinitionKind, Statement]] = {
    DefinitionKind.AGENT: DISABLE_AGENT,
    DefinitionKind.WORKFLOW: DISABLE_WORKFLOW,
}

_CHANGES: Final[Mapping[type[DefinitionEvent], str]] = {
    DefinitionApplied: "applied",
    DefinitionDisabled: "disabled",
}

_EVENTS: Final[frozenset[type[DefinitionEvent]]] = frozenset(get_args(DefinitionEvent))


class AgentContents(msgspec.Struct, frozen=True, kw_only=True):
    """The shown parts of an agent's definition, without defaults."""

    domain: str = "default"
    spec_rev: str = ""
    expectations: dict[str, msgspec.Raw] = {}

    @property
    def expectation_ids(self) -> tuple[str, ...]:
        """The names of its expectations, in order."""
        return tuple(sorted(self.expectations))


class _Step(msgspec.Struct, frozen=True, kw_only=True):
    id: str


class WorkflowContents(msgspec.Struct, frozen=True, kw_only=True):
    """The shown parts of a workflow's definition."""

    on: msgspec.Raw = NOTHING
    subject_key: str = ""
    steps: Sequence[_Step] = ()

    @property
    def step_ids(self) -> tuple[str, ...]:
        """The names of its steps, in the order of their declaration."""
        return tuple(step.id for step in self.steps)


def agent_contents(body: msgspec.Raw) -> AgentContents:
    """Return the shown parts of an agent's definition, as far as this version can read it."""
    return _read(body, _agent_decoder, otherwise=AgentContents())


def workflow_contents(body: msgspec.Raw) -> WorkflowContents:
    """Return the shown parts of a workflow's definition, as far as this version can read it."""
    return _read(body, _workflow_decoder, otherwise=WorkflowContents())


def _read(body: msgspec.Raw, decoder: msgspec.json.Decoder[T], *, otherwise: T) -> T:
    try:
        return decoder.decode(body)
    except UNDECODABLE:  # guard: unreadable-definition-passed
        return otherwise


_agent_decoder: Final = msgspec.json.Decoder(AgentContents)

_workflow_decoder: Final = msgspec.json.Decoder(WorkflowContents)


class DefinitionState(Row, kw_only=True):
    """One row of `sql/disable_agent_definitions.sql`, or of the same for workflows."""

    journal_seq: int
    actor_id: str | None = None
    """None: it is of a workflow."""
    workflow_id: str | None = None
    """None: it is of an agent."""
    disabled_at: datetime | None = None
    """None: it is enabled."""
    disabled_by: str | None = None
    disabled_reason: str | None = None


class DefinitionRevisionAdded(DefinitionState, kw_only=True):
    """One row of `sql/apply_agent_definitions.sql`, or of the same for workflows."""

    revision: int
    definition: msgspec.Raw
    applied_at: datetime
    applied_by: str
    applied_reason: str | None
    first_applied_at: datetime
    """By these commits; an existing row knows better."""
    domain: str | None = None
    """Of agents, as the next two."""
    spec_rev: str | None = None
    expectations: tuple[str, ...] = ()
    triggers: msgspec.Raw = NOTHING
    """Of workflows, as the next two."""
    subject_key: str | None = None
    steps: tuple[str, ...] = ()


class DefinitionHappened(Row, kw_only=True):
    """One row of `sql/record_definition_history.sql`."""

    kind: str
    definition_id: str
    journal_seq: int
    event_no: int
    change: str
    revision: int
    definition: msgspec.Raw
    at: datetime
    person: str
    reason: str | None


class DefinitionFold:
    """The fold of some consecutive commits of one definition."""

    def __init__(self, aggregate: str) -> None:
        self._name = key(aggregate)
        self._kind = DefinitionKind.AGENT
        """As the events say; of no meaning before there is one."""
        self._row: DefinitionState | None = None
        """What is to happen to the definition's row; an `Applied`, if they apply it."""
        self._happened: list[DefinitionHappened] = []

    def add(self, record: Recorded) -> None:
        """Take the next commit; `UnreadableEvent`: it is not this definition's, and left out."""
        events = events_of(record, _EVENTS, whose="a definition")
        for event in events:
            # guard: change-of-one-definition
            if key(f"{event.kind.value}.{event.id}") != self._name:
                detail = f"it is about the {event.kind.value} {event.id!r}"
                raise UnreadableEvent(record.subject, seq=record.seq, detail=detail)
        for event_no, event in enumerate(events):
            self._add(event, seq=record.seq, at=record.commit.at)
            self._happened.append(_happened(event, record, event_no=event_no))

    def changes(self) -> Iterator[RowChange]:
        """Yield each row once."""
        if self._row is not None:
            statements = _APPLY if isinstance(self._row, DefinitionRevisionAdded) else _DISABLE
            yield RowChange(statements[self._kind], self._row)
        for each in self._happened:
            yield RowChange(RECORD, each)

    def _add(self, event: DefinitionEvent, *, seq: int, at: datetime) -> None:
        self._kind = event.kind
        match event:
            case DefinitionApplied():
                # guard: first-applied-stays
                known = (
                    self._row.first_applied_at
                    if isinstance(self._row, DefinitionRevisionAdded)
                    else at
                )
                self._row = _applied(event, seq=seq, at=at, first_applied_at=known)
            case DefinitionDisabled():
                row = self._row or DefinitionState(journal_seq=seq)
                row.journal_seq = seq
                row.disabled_at = at
                row.disabled_by, row.disabled_reason = event.by, event.reason or None
                self._row = row
            case _:
                assert_never(event)
        _name(self._row, event)


def _applied(
    event: DefinitionApplied, *, seq: int, at: datetime, first_applied_at: datetime
) -> DefinitionRevisionAdded:
    row = DefinitionRevisionAdded(
        journal_seq=seq,
        revision=event.revision,
        definition=event.body,
        applied_at=at,
        applied_by=event.by,
        applied_reason=event.reason or None,
        first_applied_at=first_applied_at,
    )
    match event.kind:
        case DefinitionKind.AGENT:
            agent = agent_contents(event.body)
            row.domain, row.spec_rev = agent.domain, agent.spec_rev or None
            row.expectations = agent.expectation_ids
        case DefinitionKind.WORKFLOW:
            workflow = workflow_contents(event.body)
            row.triggers, row.subject_key = workflow.on, workflow.subject_key or None
            row.steps = workflow.step_ids
    return row


def _name(row: DefinitionState, event: DefinitionEvent) -> None:
    match event.kind:
        case DefinitionKind.AGENT:
            row.actor_id = key(event.id)
        case DefinitionKind.WORKFLOW:
            row.workflow_id = key(event.id)


def _happened(event: DefinitionEvent, record: Recorded, *, event_no: int) -> DefinitionHappened:
    return DefinitionHappened(
        kind=event.kind.value,
        definition_id=key(event.id),
        journal_seq=record.seq,
        event_no=event_no,
        change=_CHANGES[type(event)],
        revision=event.revision,
        definition=event.body if isinstance(event, DefinitionApplied) else NOTHING,
        at=record.commit.at,
        person=event.by,
        reason=event.reason or None,
    )
