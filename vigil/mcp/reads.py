"""Tools that read: findings, episodes, events, costs, health, and drafts of definitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, Final, Literal, TypeAlias
from uuid import UUID

import msgspec
from msgspec import Meta

from engine.app.app import on_stack
from projections.records import (
    CostBy,
    CostSummary,
    EpisodeCause,
    FindingCause,
    FindingEventRow,
    RowRecord,
    record_of,
)
from streams.json import JsonObject
from streams.ports.domain_events import DomainEvent
from vigil.errors import Mistake, NotFound, hint
from vigil.mcp.tool import (
    ROWS_MAX,
    ROWS_USUAL,
    After,
    AnyTool,
    Limit,
    ServedCall,
    ServedTool,
    ToolInput,
    ToolKind,
    ToolOutput,
)

DAY_S: Final = 86_400.0

HOURS_MAX: Final = 24 * 31
"""Longest time that is looked back at once, in hours."""

EVENTS_READ_MAX: Final = 200_000
"""Most events among which one is looked for by its id: some seconds."""

Hours: TypeAlias = Annotated[
    float, Meta(gt=0, le=HOURS_MAX, description="How far to look back, in hours.")
]
Actor: Final = Meta(description="Only those of this actor.")


class FindFindings(ToolInput, frozen=True, kw_only=True):
    """Which findings to list."""

    status: Literal["active", "cleared", "expired", "superseded"] | None = "active"
    severity: Literal["critical", "high", "medium", "low"] | None = None
    actor: Annotated[str | None, Actor] = None
    after: After = None
    limit: Limit = ROWS_USUAL


class FindingLine(RowRecord, frozen=True, kw_only=True):
    """A finding, in a list."""

    finding_key: str
    status: str
    severity: str
    class_: str = msgspec.field(name="class")
    confidence: float
    summary: str
    subject_kind: str | None
    subject_id: str | None
    actor_id: str
    caused_by_key: str | None
    raised_by_episode_id: UUID | None
    raised_at: datetime
    updated_at: datetime
    acknowledged_by: str | None


class FoundFindings(ToolOutput, frozen=True, kw_only=True):
    """Findings, the most severe first."""

    items: Sequence[FindingLine]
    next: str | None = None
    """What to give as `after` for more; null: there is no more."""
    why_none: str = ""


async def find(call: ServedCall, asked: FindFindings) -> FoundFindings:
    """Return findings."""
    page = await call.client.findings.list(
        status=asked.status,
        severity=asked.severity,
        actor=asked.actor,
        after=asked.after,
        limit=asked.limit,
    )
    items = [record_of(each, FindingLine) for each in page.rows]
    return FoundFindings(items=items, next=page.next, why_none=page.why_none)


class McpFinding(ToolInput, frozen=True, kw_only=True):
    """Which finding."""

    key: Annotated[str, Meta(description="Its `finding_key`.")]


class FindingFacts(ToolOutput, frozen=True, kw_only=True):
    """A finding, what happened to it, and what explains it."""

    finding: FindingLine
    evidence_refs: object
    history: Sequence[FindingEventRow]
    """The latest first, at most 50."""
    causes: Sequence[FindingCause]
    """The finding itself, then what caused it, and so on."""


async def finding(call: ServedCall, asked: McpFinding) -> FindingFacts:
    """Return one finding."""
    found = await call.client.findings.get(asked.key)
    causes = await call.client.findings.causal_chain(asked.key)
    return FindingFacts(
        finding=msgspec.convert(found, FindingLine, from_attributes=True),
        evidence_refs=found.evidence_refs,
        history=found.history[:ROWS_MAX],
        causes=causes,
    )


class FindEpisodes(ToolInput, frozen=True, kw_only=True):
    """Which episodes to list."""

    status: (
        Literal["queued", "running", "blocked", "done", "failed", "partially_failed", "canceled"]
        | None
    ) = None
    actor: Annotated[str | None, Actor] = None
    expectation: str | None = None
    subject: Annotated[str | None, Meta(description="The id of what they are about.")] = None
    hours: Hours | None = None
    after: After = None
    limit: Limit = ROWS_USUAL


class EpisodeLine(RowRecord, frozen=True, kw_only=True):
    """An episode, in a list."""

    episode_id: UUID
    actor_id: str
    expectation_id: str
    status: str
    mode: str
    subject_kind: str | None
    subject_id: str | None
    summary: str | None
    error_class: str | None
    error_detail: str | None
    cost_usd: Decimal
    blocked_by: str | None
    queued_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class FoundEpisodes(ToolOutput, frozen=True, kw_only=True):
    """Episodes: those that are queued first, then the latest started."""

    items: Sequence[EpisodeLine]
    next: str | None = None
    """What to give as `after` for more; null: there is no more."""
    why_none: str = ""


async def episodes(call: ServedCall, asked: FindEpisodes) -> FoundEpisodes:
    """Return episodes."""
    page = await call.client.episodes.list(
        status=asked.status,
        actor=asked.actor,
        expectation=asked.expectation,
        subject=asked.subject,
        since=None if asked.hours is None else _ago(call, asked.hours),
        after=asked.after,
        limit=asked.limit,
    )
    items = [record_of(each, EpisodeLine) for each in page.rows]
    return FoundEpisodes(items=items, next=page.next, why_none=page.why_none)


class McpEpisode(ToolInput, frozen=True, kw_only=True):
    """Which episode."""

    id: Annotated[str, Meta(description="Its id, or so much of the beginning that it is one.")]


class EpisodeFacts(ToolOutput, frozen=True, kw_only=True):
    """An episode, what led to it, and what it did."""

    episode: EpisodeLine
    trigger_type: str
    opened_by: str | None
    attempts: int
    turns_used: int
    tokens_used: int
    causes: Sequence[EpisodeCause]
    """The episode itself, then what led to it, and so on."""


async def episode(call: ServedCall, asked: McpEpisode) -> EpisodeFacts:
    """Return one episode."""
    found = await call.client.episodes.get(asked.id)
    return EpisodeFacts(
        episode=msgspec.convert(found, EpisodeLine, from_attributes=True),
        trigger_type=found.trigger_type,
        opened_by=found.opened_by,
        attempts=found.attempts,
        turns_used=found.turns_used,
        tokens_used=found.tokens_used,
        causes=await call.client.episodes.causal_chain(found.episode_id),
    )


class FindTimeline(ToolInput, frozen=True, kw_only=True):
    """Of which episode, and from where on."""

    id: Annotated[str, Meta(description="Its id, or so much of the beginning that it is one.")]
    after: After = None
    limit: Limit = ROWS_MAX


class McpTimelineLine(RowRecord, frozen=True, kw_only=True):
    """Something that an episode did, or that happened to it. Results are left out."""

    position: int
    at: datetime
    kind: str
    step_no: int | None
    name: str | None
    says: str
    person: str | None
    node: str | None
    cost_ms: int | None
    error_class: str | None
    error_detail: str | None


class FoundTimeline(ToolOutput, frozen=True, kw_only=True):
    """What an episode did, in order."""

    items: Sequence[McpTimelineLine]
    next: str | None = None
    """What to give as `after` for more; null: there is no more."""


async def timeline(call: ServedCall, asked: FindTimeline) -> FoundTimeline:
    """Return what an episode did."""
    page = await call.client.episodes.timeline(asked.id, after=asked.after, limit=asked.limit)
    items = [record_of(each, McpTimelineLine) for each in page.rows]
    return FoundTimeline(items=items, next=page.next)


class OneEvent(ToolInput, frozen=True, kw_only=True):
    """Which event: by its sequence, which is fast, or by its id."""

    id: Annotated[str, Meta(description="Its id, if it is at most a day old.")] = ""
    seq: Annotated[int, Meta(ge=1, description="Its sequence in the stream.")] | None = None


class EventFacts(ToolOutput, frozen=True, kw_only=True):
    """An event, with its payload."""

    id: str
    name: str
    seq: int
    at: datetime
    payload: JsonObject


async def event(call: ServedCall, asked: OneEvent) -> EventFacts:
    """Return one event, the only tool that returns a payload."""
    if (asked.seq is None) == (not asked.id):
        raise Mistake("event: give its id or its seq, one of the two")
    found = await _event(call, asked)
    if found is None:
        which = f"id {asked.id!r} of the last day" if asked.id else f"sequence {asked.seq}"
        raise NotFound(f"there is no event of {which} in stack {call.client.stack.name}")
    return EventFacts(
        id=found.id, name=found.name, seq=found.seq, at=found.at, payload=found.payload
    )


async def _event(call: ServedCall, asked: OneEvent) -> DomainEvent | None:
    events = call.client.events
    if asked.seq is not None:
        async for each in events.tail(after=asked.seq - 1, idle_s=0.0):
            return each if each.seq == asked.seq else None
        return None
    read = 0
    async for each in events.tail(since=_ago(call, 24.0), idle_s=0.0):
        read += 1
        if each.id == asked.id:
            return each
        if read >= EVENTS_READ_MAX:
            break
    return None


class ExplainEvent(ToolInput, frozen=True, kw_only=True):
    """Which event."""

    event_id: Annotated[str, Meta(min_length=1, description="Its id.")]
    limit: Limit = ROWS_MAX


class EventRuling(ToolOutput, frozen=True, kw_only=True):
    """What one expectation did with an event."""

    actor: str
    expectation: str
    outcome: str
    """`opened`, `refused`, `waits`, or `unknown`."""
    episode_id: str
    why: str


class EventExplained(ToolOutput, frozen=True, kw_only=True):
    """What became of an event."""

    name: str
    """Empty: the event was not found."""
    at: datetime | None
    items: Sequence[EventRuling]
    more: int = 0
    """How many expectations are left out."""
    why_none: str = ""


async def explain_not_fired(call: ServedCall, asked: ExplainEvent) -> EventExplained:
    """Return why an event fired something, or nothing."""
    found = await call.client.events.why(asked.event_id)
    items = [
        msgspec.convert(each, EventRuling, from_attributes=True)
        for each in found.verdicts[: asked.limit]
    ]
    more = len(found.verdicts) - len(items)
    return EventExplained(
        name=found.name, at=found.at, items=items, more=more, why_none=found.why_none
    )


class TryRules(ToolInput, frozen=True, kw_only=True):
    """Which rules to try on which events."""

    hours: Hours = 24.0
    actor: Annotated[str | None, Meta(description="Only the rules of this actor.")] = None
    limit: Limit = ROWS_USUAL


class RulingCount(ToolOutput, frozen=True, kw_only=True):
    """How many events one expectation would have ruled on so."""

    actor: str
    expectation: str
    ruling: str
    """`fire`, or the reason of a refusal."""
    events: int


class RulingLine(ToolOutput, frozen=True, kw_only=True):
    """What one expectation would have done with one event."""

    event_id: str
    event: str
    actor: str
    expectation: str
    subject: str
    at: datetime
    ruling: str
    why: str


class RulesTried(ToolOutput, frozen=True, kw_only=True):
    """What the rules of the server's app would have done with the events that are kept."""

    events: int
    """How many were read."""
    is_whole: bool
    """Whether those were all that there are."""
    counts: Sequence[RulingCount]
    """At most 50."""
    items: Sequence[RulingLine]
    """The first ones that would have fired."""


async def what_would_fire(call: ServedCall, asked: TryRules) -> RulesTried:
    """Return what rules would have fired; nothing is fired."""
    assert call.app is not None, "listed only with an app"
    actors = on_stack(call.app, call.client.stack.name).actors
    if asked.actor is not None and asked.actor not in actors:
        raise NotFound(f"the app has no actor {asked.actor!r}", remedy=hint(asked.actor, actors))
    wanted = [each for name, each in actors.items() if asked.actor in (None, name)]
    tried = await call.client.events.would(
        *wanted, since=_ago(call, asked.hours), limit=EVENTS_READ_MAX, kept_max=asked.limit
    )
    fired = [each for each in tried.replay.kept if each.ruling == "fire"]
    return RulesTried(
        events=tried.events,
        is_whole=tried.is_whole,
        counts=[
            RulingCount(actor=actor, expectation=name, ruling=ruling, events=events)
            for (actor, name, ruling), events in tried.replay.counts.most_common(ROWS_MAX)
        ],
        items=[
            msgspec.convert(each, RulingLine, from_attributes=True) for each in fired[: asked.limit]
        ],
    )


class FindCosts(ToolInput, frozen=True, kw_only=True):
    """What to sum by."""

    by: CostBy = "actor"
    hours: Hours | None = None
    limit: Limit = ROWS_USUAL


class FoundCosts(ToolOutput, frozen=True, kw_only=True):
    """What requests to models have cost, the dearest first."""

    items: Sequence[CostSummary]
    total: CostSummary | None
    """Of all requests; null: there were none."""
    why_none: str = ""


async def costs(call: ServedCall, asked: FindCosts) -> FoundCosts:
    """Return what requests to models have cost."""
    since = None if asked.hours is None else _ago(call, asked.hours)
    found = await call.client.costs(by=asked.by, since=since, limit=asked.limit)
    return FoundCosts(items=found.items, total=found.total, why_none=found.why_none)


class AskHealth(ToolInput, frozen=True, kw_only=True):
    """Nothing is asked for."""


class NodeLine(ToolOutput, frozen=True, kw_only=True):
    """A node."""

    node: str
    state: str
    """`up` or `not up`."""
    mode: str | None
    runs: Sequence[str] | None
    """The actors whose episodes it runs."""


class Health(ToolOutput, frozen=True, kw_only=True):
    """How a stack is."""

    stack: str
    nodes: Sequence[NodeLine]
    """At most 50."""
    paused: Mapping[str, str]
    """Actor → why it is paused."""
    inbox: Mapping[str, int]
    """Kind → how much of it waits for a person."""
    episodes: Mapping[str, int]
    """Status → how many of the episodes of the last 24 hours have it."""
    findings: Mapping[str, int]
    """Status → how many findings have it."""


async def health(call: ServedCall, asked: AskHealth) -> Health:
    """Return how the stack is."""
    del asked
    client = call.client
    seen = await client.nodes.read()
    return Health(
        stack=client.stack.name,
        nodes=[
            NodeLine(node=each.node, state=each.state, mode=each.mode, runs=each.runs)
            for each in seen.nodes[:ROWS_MAX]
        ],
        paused={each.actor_id: each.reason for each in seen.paused[:ROWS_MAX]},
        inbox=await client.count_inbox(),
        episodes=await client.episodes.count(since=_ago(call, 24.0)),
        findings=await client.findings.count(),
    )


class CheckDefinition(ToolInput, frozen=True, kw_only=True):
    """What to check."""

    definition: Annotated[
        JsonObject,
        Meta(description="An actor or a workflow, as `vigil://schema/definition` describes it."),
    ]


class DefinitionChecked(ToolOutput, frozen=True, kw_only=True):
    """What a definition would change, if a person applied it with `vigil apply`."""

    kind: str
    id: str
    would_change: bool
    difference: Sequence[str]
    """What differs from the one in force, in lines for people."""
    gone: Sequence[str]
    """The expectations and schedules that would be gone."""
    unchecked: Sequence[str]
    """What it names of an app, where the server has none."""
    lacks: Sequence[str]
    """What a workflow names that nobody has."""


async def check_definition(call: ServedCall, asked: CheckDefinition) -> DefinitionChecked:
    """Return what a definition would change; nothing is applied."""
    (found,) = await call.client.definitions.apply(asked.definition, app=call.app, dry_run=True)
    return DefinitionChecked(
        kind=str(found.as_row()["kind"]),
        id=found.registered.id,
        would_change=found.happened,
        difference=found.difference,
        gone=found.removed,
        unchecked=found.unchecked,
        lacks=found.lacks,
    )


def _ago(call: ServedCall, hours: float) -> datetime:
    return call.client.connections.clock.now() - timedelta(hours=hours)


READS: Final[Sequence[AnyTool]] = (
    ServedTool(
        name="find",
        about="List findings: what is wrong, the most severe first. Begin here.",
        kind=ToolKind.READ,
        input=FindFindings,
        output=FoundFindings,
        call=find,
    ),
    ServedTool(
        name="finding",
        about="One finding: its history, and the chain of findings that explains it.",
        kind=ToolKind.READ,
        input=McpFinding,
        output=FindingFacts,
        call=finding,
    ),
    ServedTool(
        name="episodes",
        about="List episodes: runs of an expectation of an actor, each with its end and its cost.",
        kind=ToolKind.READ,
        input=FindEpisodes,
        output=FoundEpisodes,
        call=episodes,
    ),
    ServedTool(
        name="episode",
        about="One episode: how it is, what it used, and what led to it. Says whether one that was"
        " fired has ended.",
        kind=ToolKind.READ,
        input=McpEpisode,
        output=EpisodeFacts,
        call=episode,
    ),
    ServedTool(
        name="timeline",
        about="What one episode did, step by step, without payloads and results.",
        kind=ToolKind.READ,
        input=FindTimeline,
        output=FoundTimeline,
        call=timeline,
    ),
    ServedTool(
        name="event",
        about="One event with its payload. No other tool returns payloads.",
        kind=ToolKind.READ,
        input=OneEvent,
        output=EventFacts,
        call=event,
    ),
    ServedTool(
        name="explain_not_fired",
        about="What each expectation did with an event of the last day: the episode that it opened,"
        " or why it opened none.",
        kind=ToolKind.READ,
        input=ExplainEvent,
        output=EventExplained,
        call=explain_not_fired,
    ),
    ServedTool(
        name="what_would_fire",
        about="What the rules of the server's app would have fired for the events that are kept. It"
        " fires nothing.",
        kind=ToolKind.READ,
        input=TryRules,
        output=RulesTried,
        call=what_would_fire,
        needs_app=True,
    ),
    ServedTool(
        name="costs",
        about="What requests to models have cost, in US dollars, by actor, model, agent, day or"
        " finding.",
        kind=ToolKind.READ,
        input=FindCosts,
        output=FoundCosts,
        call=costs,
    ),
    ServedTool(
        name="health",
        about="How the stack is: nodes, paused actors, what waits for people, and how the episodes"
        " of the last day went.",
        kind=ToolKind.READ,
        input=AskHealth,
        output=Health,
        call=health,
    ),
    ServedTool(
        name="check_definition",
        about="Check a definition of an actor or a workflow, and say what it would change. It"
        " applies nothing: a person does, with `vigil apply`.",
        kind=ToolKind.READ,
        input=CheckDefinition,
        output=DefinitionChecked,
        call=check_definition,
    ),
)
"""All tools that read."""
