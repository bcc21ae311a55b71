"""Operations on episodes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Final, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from engine.app.actor import Logging
from engine.people.identity import Role
from projections.records import EpisodeCause, EpisodeRecord, EpisodeSummary, FailureGroup, RowRecord
from streams.json import JsonObject
from vigil.client.client import Client
from vigil.client.episodes import FAILURES_MAX, EpisodeSpan
from vigil.client.page import LIMIT_MAX
from vigil.client.types import (
    EpisodeDiff,
    EpisodeReceipt,
    EpisodeToCancel,
    ForkEachOutcome,
    ModelPrompt,
)
from vigil.web.api.operation import (
    PROMPTS,
    READ,
    WAIT_S_MAX,
    After,
    AnyOperation,
    ApiRequest,
    AskedOfList,
    AskedOverrides,
    Counts,
    DryRun,
    Key,
    Keys,
    Limit,
    ListAnswer,
    Operation,
    Past,
    Reason,
    Time,
    Words,
    counted,
    listed,
    said,
)

FIRE: Final = "episodes:fire"
WRITE: Final = "episodes:write"

DEPTH_MAX: Final = 100
"""Longest causal chain that is returned."""


class StepSummary(RowRecord, frozen=True, kw_only=True):
    """A step of an episode, without its arguments and its result."""

    episode_id: UUID
    step_no: int
    kind: str
    state: str
    tool_name: str | None
    created_at: datetime
    announced_at: datetime | None
    side_effect_key: str | None
    error_class: str | None
    error_detail: str | None
    cost_tokens: int | None
    cost_ms: int | None
    model: str | None
    agent: str | None
    result_size_bytes: int | None
    is_override: bool
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    reasoning_tokens: int | None
    cost_usd: Decimal | None


class TimelineRow(RowRecord, frozen=True, kw_only=True):
    """Something that an episode did, or that happened to it, without the details."""

    episode_id: UUID
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


class LogLines(msgspec.Struct, frozen=True, kw_only=True):
    """The log of an episode, as far as people may see it."""

    lines: Sequence[str]
    why_none: str = ""
    """Why there is no line, in words."""


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An event of an episode's journal."""

    number: int
    seq: int
    at: datetime
    event: dict[str, object]


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a step."""

    result: object


class ListEpisodes(AskedOfList, frozen=True, kw_only=True):
    """Which episodes."""

    status: Words = None
    actor: Words = None
    expectation: str | None = None
    subject: str | None = None
    since: Time | None = None
    until: Time | None = None
    error_class: Annotated[
        str | None, Meta(description="Only those that ended with it, such as `crash`.")
    ] = None
    at: Past = None


class FailuresOfEpisodes(ApiRequest, frozen=True, kw_only=True):
    """Which failed episodes."""

    actor: Words = None
    expectation: str | None = None
    since: Time | None = None
    newest: Annotated[int, Meta(ge=1, le=FAILURES_MAX)] = FAILURES_MAX
    limit: Limit = 50


class CountEpisodes(ApiRequest, frozen=True, kw_only=True):
    """Which episodes."""

    actor: Words = None
    expectation: str | None = None
    subject: str | None = None
    since: Time | None = None
    until: Time | None = None
    at: Past = None


class CountOverTime(ApiRequest, frozen=True, kw_only=True):
    """Which spans of time."""

    since: Time
    span_s: Annotated[float, Meta(ge=1, description="The length of a span, in seconds.")]
    actor: str | None = None
    expectation: str | None = None


class EpisodeAsked(ApiRequest, frozen=True, kw_only=True):
    """Which episode."""

    id: Annotated[str, Meta(description="Its id, or so much of the beginning that it is one.")]


class PartsOfEpisode(EpisodeAsked, frozen=True, kw_only=True):
    """Which episode, and which part of its list."""

    after: After = None
    limit: Limit = LIMIT_MAX


class TimelineOfEpisode(PartsOfEpisode, frozen=True, kw_only=True):
    """Which episode, which part of its timeline, and up to when."""

    at: Annotated[Time | None, Meta(description="Only what it did by then; null: all.")] = None


class CausesOfEpisode(EpisodeAsked, frozen=True, kw_only=True):
    """Which episode, and how far back."""

    depth: Annotated[int, Meta(ge=1, le=DEPTH_MAX)] = 10


class LogOfEpisode(EpisodeAsked, frozen=True, kw_only=True):
    """Which episode, and how much of its log."""

    strategy: Logging | None = None


class ResultOfStep(EpisodeAsked, frozen=True, kw_only=True):
    """Which step."""

    step_no: int


class PromptOfStep(EpisodeAsked, frozen=True, kw_only=True):
    """Which step; none: the newest that has asked a model."""

    step_no: int | None = None


class CompareEpisodes(EpisodeAsked, frozen=True, kw_only=True):
    """Which episode, and what it is compared with."""

    other: str


class WaitForEpisode(EpisodeAsked, frozen=True, kw_only=True):
    """Which episode, and how long to wait for its end."""

    timeout_s: Annotated[float, Meta(ge=0, le=WAIT_S_MAX)] = 30.0


class FireEpisode(ApiRequest, frozen=True, kw_only=True):
    """An episode to open by hand."""

    actor: str
    expectation: str
    payload: JsonObject | None = None
    reason: Reason = ""
    key: Key = None
    priority: int = 0
    at: Annotated[Time | None, Meta(description="When; null: now.")] = None
    dry_run: DryRun = None
    overrides: AskedOverrides | None = None
    metadata: JsonObject | None = None
    budget: dict[str, int | float | str] | None = None
    revision: int = 0
    log_strategy: Logging | None = None
    attempts_max: int = 0


class ForkEpisode(EpisodeAsked, frozen=True, kw_only=True):
    """A fork to open."""

    at: Annotated[int, Meta(description="The number of the last step that both have.")]
    payload: JsonObject | None = None
    reason: Reason = ""
    key: Key = None
    dry_run: DryRun = None
    overrides: AskedOverrides | None = None


class ForkEpisodes(ApiRequest, frozen=True, kw_only=True):
    """Episodes to fork, each once however often it is asked for."""

    ids: Keys
    at: int
    reason: Reason = ""
    dry_run: DryRun = None


class SettleEpisode(EpisodeAsked, frozen=True, kw_only=True):
    """What became of a call."""

    settlement: Literal["happened", "not_happened", "again"]
    result: object = None
    call: str = ""
    reason: Reason = ""


class CancelEpisodes(ApiRequest, frozen=True, kw_only=True):
    """Episodes to cancel."""

    ids: Keys
    reason: Reason = ""


class UnendedEpisodes(ApiRequest, frozen=True, kw_only=True):
    """Which episodes that have not ended."""

    actor: str
    expectation: str | None = None
    status: Literal["queued", "running", "blocked", "parked"] | None = None


async def _steps(client: Client, asked: PartsOfEpisode, _: str) -> ListAnswer[StepSummary]:
    page = await client.episodes.steps(**said(asked))
    items = [msgspec.convert(each, StepSummary, from_attributes=True) for each in page]
    return ListAnswer(items=items, next=page.next, why_none=page.why_none)


async def _timeline(client: Client, asked: TimelineOfEpisode, _: str) -> ListAnswer[TimelineRow]:
    page = await client.episodes.timeline(**said(asked))
    items = [msgspec.convert(each, TimelineRow, from_attributes=True) for each in page]
    return ListAnswer(items=items, next=page.next, why_none=page.why_none)


async def _log(client: Client, asked: LogOfEpisode, _: str) -> LogLines:
    log = await client.episodes.log(**said(asked))
    return LogLines(lines=[str(each["line"]) for each in log.rows], why_none=log.why_none)


async def _journal(client: Client, asked: EpisodeAsked, _: str) -> ListAnswer[JournalEntry]:
    frames = await client.episodes.replay(asked.id)
    return ListAnswer(
        items=[
            JournalEntry(
                number=each.number,
                seq=each.seq,
                at=each.at,
                event=msgspec.json.decode(msgspec.json.encode(each.event)),
            )
            for each in frames
        ]
    )


async def _result(client: Client, asked: ResultOfStep, _: str) -> StepResult:
    return StepResult(result=await client.episodes.result(asked.id, asked.step_no))


async def _fork_each(client: Client, asked: ForkEpisodes, by: str) -> ListAnswer[ForkEachOutcome]:
    ids = [await client.episodes.find(each) for each in asked.ids]
    found = await client.episodes.read(ids)
    made = await client.episodes.fork_each(found, **said(asked, "ids"), by=by)
    return ListAnswer(items=made)


OPERATIONS: Final[Sequence[AnyOperation]] = (
    Operation(
        name="episodes.list",
        method="GET",
        path="/episodes",
        does="List episodes: queued ones first, then the latest started.",
        role=Role.VIEWER,
        scope=READ,
        asks=ListEpisodes,
        gives=ListAnswer[EpisodeSummary],
        call=lambda client, asked, _: listed(client.episodes.list(**said(asked))),
        commands=["episodes list"],
    ),
    Operation(
        name="episodes.count",
        method="GET",
        path="/counts/episodes",
        does="Count episodes by their status.",
        role=Role.VIEWER,
        scope=READ,
        asks=CountEpisodes,
        gives=Counts,
        call=lambda client, asked, _: counted(client.episodes.count(**said(asked))),
    ),
    Operation(
        name="episodes.count_over_time",
        method="GET",
        path="/counts/episodes-over-time",
        does="Count the episodes that have started in each span of time, by their status.",
        role=Role.VIEWER,
        scope=READ,
        asks=CountOverTime,
        gives=ListAnswer[EpisodeSpan],
        call=lambda client, asked, _: listed(client.episodes.count_over_time(**said(asked))),
    ),
    Operation(
        name="episodes.failures",
        method="GET",
        path="/failures",
        does="List failed episodes, those that failed alike as one, the last failed first.",
        role=Role.VIEWER,
        scope=READ,
        asks=FailuresOfEpisodes,
        gives=ListAnswer[FailureGroup],
        call=lambda client, asked, _: listed(client.episodes.failures(**said(asked))),
    ),
    Operation(
        name="episodes.get",
        method="GET",
        path="/episodes/{id}",
        does="Return one episode.",
        role=Role.VIEWER,
        scope=READ,
        asks=EpisodeAsked,
        gives=EpisodeRecord,
        call=lambda client, asked, _: client.episodes.get(asked.id),
        commands=["episodes show"],
    ),
    Operation(
        name="episodes.causal_chain",
        method="GET",
        path="/episodes/{id}/causes",
        does="Return an episode and what led to it, step by step.",
        role=Role.VIEWER,
        scope=READ,
        asks=CausesOfEpisode,
        gives=ListAnswer[EpisodeCause],
        call=lambda client, asked, _: listed(client.episodes.causal_chain(**said(asked))),
    ),
    Operation(
        name="episodes.steps",
        method="GET",
        path="/episodes/{id}/steps",
        does="List the steps of one episode, in order, without arguments and results.",
        role=Role.VIEWER,
        scope=READ,
        asks=PartsOfEpisode,
        gives=ListAnswer[StepSummary],
        call=_steps,
        commands=["episodes steps"],
    ),
    Operation(
        name="episodes.result",
        method="GET",
        path="/episodes/{id}/steps/{step_no}/result",
        does="Return the result of a step, however large, as far as people may see it.",
        role=Role.VIEWER,
        scope=READ,
        asks=ResultOfStep,
        gives=StepResult,
        call=_result,
        commands=["episodes result"],
    ),
    Operation(
        name="episodes.timeline",
        method="GET",
        path="/episodes/{id}/timeline",
        does="List all that one episode did, in order, as far as people may see it.",
        role=Role.VIEWER,
        scope=READ,
        asks=TimelineOfEpisode,
        gives=ListAnswer[TimelineRow],
        call=_timeline,
    ),
    Operation(
        name="episodes.log",
        method="GET",
        path="/episodes/{id}/log",
        does="Return what one episode did, as far as its log strategy lets people see it.",
        role=Role.VIEWER,
        scope=READ,
        asks=LogOfEpisode,
        gives=LogLines,
        call=_log,
        commands=["episodes log"],
    ),
    Operation(
        name="episodes.prompt",
        method="GET",
        path="/episodes/{id}/prompt",
        does="Return what an agent asked its model in a step, as far as people may see it.",
        scope=PROMPTS,
        asks=PromptOfStep,
        gives=ModelPrompt,
        call=lambda client, asked, _: client.episodes.prompt(asked.id, asked.step_no),
        commands=["episodes prompt"],
    ),
    Operation(
        name="episodes.replay",
        method="GET",
        path="/episodes/{id}/journal",
        does="Return each event of an episode's journal, what models were asked included.",
        scope=PROMPTS,
        asks=EpisodeAsked,
        gives=ListAnswer[JournalEntry],
        call=_journal,
        commands=["episodes replay"],
    ),
    Operation(
        name="episodes.diff",
        method="GET",
        path="/episodes/{id}/diff",
        does="Return how two episodes differ: the first step that does, what came of them.",
        role=Role.VIEWER,
        scope=READ,
        asks=CompareEpisodes,
        gives=EpisodeDiff,
        call=lambda client, asked, _: client.episodes.diff(asked.id, asked.other),
        commands=["episodes diff"],
    ),
    Operation(
        name="episodes.wait",
        method="GET",
        path="/episodes/{id}/end",
        does="Return an episode once it has ended; it need not be opened yet.",
        role=Role.VIEWER,
        scope=READ,
        asks=WaitForEpisode,
        gives=EpisodeRecord,
        call=lambda client, asked, _: client.episodes.wait(**said(asked)),
    ),
    Operation(
        name="episodes.fire",
        method="POST",
        path="/episodes",
        does="Open an episode by hand, now or later.",
        scope=FIRE,
        asks=FireEpisode,
        gives=EpisodeReceipt,
        call=lambda client, asked, by: client.episodes.fire(**said(asked), by=by),
        key="key",
        commands=["fire"],
    ),
    Operation(
        name="episodes.fork",
        method="POST",
        path="/episodes/{id}/fork",
        does="Open an episode that begins with the first steps of another one.",
        scope=WRITE,
        asks=ForkEpisode,
        gives=EpisodeReceipt,
        call=lambda client, asked, by: client.episodes.fork(**said(asked), by=by),
        key="key",
        commands=["episodes fork"],
    ),
    Operation(
        name="episodes.fork_each",
        method="POST",
        path="/forks",
        does="Open a fork of each of several episodes.",
        scope=WRITE,
        asks=ForkEpisodes,
        gives=ListAnswer[ForkEachOutcome],
        call=_fork_each,
    ),
    Operation(
        name="episodes.settle",
        method="POST",
        path="/episodes/{id}/settle",
        does="Say what became of a call of an episode that ended as outcome_unknown, and go on.",
        scope=WRITE,
        asks=SettleEpisode,
        gives=EpisodeReceipt,
        call=lambda client, asked, by: client.episodes.settle(**said(asked), by=by),
        commands=["episodes settle"],
    ),
    Operation(
        name="episodes.cancel",
        method="POST",
        path="/cancellations",
        does="Request that episodes be canceled; return each as it was.",
        scope=WRITE,
        asks=CancelEpisodes,
        gives=ListAnswer[EpisodeToCancel],
        call=lambda client, asked, by: listed(
            client.episodes.cancel(*asked.ids, reason=asked.reason, by=by)
        ),
        commands=["episodes cancel"],
    ),
    Operation(
        name="episodes.unended",
        method="GET",
        path="/actors/{actor}/unended",
        does="List all episodes of an actor that have not ended, oldest first.",
        role=Role.VIEWER,
        scope=READ,
        asks=UnendedEpisodes,
        gives=ListAnswer[EpisodeToCancel],
        call=lambda client, asked, _: listed(client.episodes.unended(**said(asked))),
    ),
)
