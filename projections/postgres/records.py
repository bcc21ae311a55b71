"""Questions of programs to the tables, answered with records.

The rows follow the journal some milliseconds behind: to see what was just written, wait for
`caught_up` first. Lists have at most `ROWS_MAX` rows. Whatever is asked may raise
`PostgresUnavailable`.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec
from msgspec import structs

from projections.postgres import reader
from projections.postgres.pool import Pool
from projections.postgres.query_result import ROWS_MAX, Row
from projections.records import (
    BudgetRecommendation,
    CostBy,
    CostSummary,
    DeadLetterRecord,
    DeadLetterSummary,
    EpisodeRecord,
    EpisodeSummary,
    FindingCause,
    FindingRecord,
    FindingSummary,
    InboxItem,
    OutputRecord,
    OutputSummary,
    RowRecord,
    ServiceLevelRecord,
    StepRow,
    TimelineEntry,
    WorkflowRecord,
    WorkflowSummary,
    record_of,
)
from streams.subjects import Stack


async def episodes(
    pool: Pool,
    stack: Stack,
    *,
    status: str | None = None,
    actor: str | None = None,
    expectation: str | None = None,
    subject: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    after: EpisodeSummary | None = None,
    limit: int = 50,
) -> list[EpisodeSummary]:
    """Return the episodes that fit all that is given: queued ones first, then the latest started.

    Args:
        subject: the id of what they are about.
        since: only those that were opened then or later.
        until: only those that were opened before.
        after: the last of a page: only those that come after it.
    """
    rows = await reader.list_episodes(
        pool,
        stack,
        status=status,
        actor=actor,
        expectation=expectation,
        subject=subject,
        since=since,
        until=until,
        past=_past(after),
        limit=min(limit, ROWS_MAX),
    )
    return [record_of(row, EpisodeSummary) for row in rows]


async def count_episodes(
    pool: Pool,
    stack: Stack,
    *,
    actor: str | None = None,
    expectation: str | None = None,
    subject: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> dict[str, int]:
    """Return status → how many of the episodes that fit have it; those that none has are left out.

    The arguments are those of `episodes`.
    """
    return await reader.count_episodes(
        pool,
        stack,
        actor=actor,
        expectation=expectation,
        subject=subject,
        since=since,
        until=until,
    )


async def episode(pool: Pool, stack: Stack, episode_id: UUID) -> EpisodeRecord | None:
    """Return one episode, or None."""
    row = await reader.show_episode(pool, stack, episode_id)
    return None if row is None else record_of(row, EpisodeRecord)


async def steps(
    pool: Pool, stack: Stack, episode_id: UUID, *, limit: int = ROWS_MAX
) -> list[StepRow]:
    """Return an episode's steps, in order, as far as people may see them."""
    rows = await reader.list_steps(pool, stack, episode_id, limit=min(limit, ROWS_MAX))
    return [record_of(row, StepRow) for row in rows]


async def timeline(
    pool: Pool, stack: Stack, episode_id: UUID, *, limit: int = ROWS_MAX
) -> list[TimelineEntry]:
    """Return all that an episode did, in order, as far as people may see it."""
    rows = await reader.list_timeline(pool, stack, episode_id, limit=min(limit, ROWS_MAX))
    return [record_of(row, TimelineEntry) for row in rows]


async def log(
    pool: Pool, stack: Stack, episode_id: UUID, *, strategy: str | None = None
) -> list[str]:
    """Return the log of an episode, as Markdown, by its own log strategy or the given one.

    A line of it may have several lines of text: those below are its details.
    """
    lines = await reader.list_log_lines(pool, stack, episode_id, strategy=strategy)
    return [str(each["line"]) for each in lines]


async def findings(
    pool: Pool,
    stack: Stack,
    *,
    status: str | None = None,
    severity: str | None = None,
    actor: str | None = None,
    after: FindingSummary | None = None,
    limit: int = 50,
) -> list[FindingSummary]:
    """Return findings of any status: the worst first, then the latest changed.

    Args:
        after: the last of a page: only those that come after it.

    Raises:
        QueryRefused: there is no such `severity`.
    """
    rows = await reader.list_findings(
        pool,
        stack,
        status=status,
        severity=severity,
        actor=actor,
        past=_past(after),
        limit=min(limit, ROWS_MAX),
    )
    return [record_of(row, FindingSummary) for row in rows]


async def count_findings(
    pool: Pool, stack: Stack, *, severity: str | None = None, actor: str | None = None
) -> dict[str, int]:
    """Return status → how many findings have it; the arguments are those of `findings`.

    Raises:
        QueryRefused: there is no such `severity`.
    """
    return await reader.count_findings(pool, stack, severity=severity, actor=actor)


async def finding(pool: Pool, stack: Stack, key: str) -> FindingRecord | None:
    """Return the latest raise of a finding, with its history, or None."""
    row = await reader.show_finding(pool, stack, key)
    return None if row is None else record_of(row, FindingRecord)


async def causal_chain(
    pool: Pool, stack: Stack, key: str, *, depth: int = 10
) -> list[FindingCause]:
    """Return a finding and what explains it, step by step; empty: there is no such finding.

    Args:
        depth: most steps.
    """
    rows = await reader.list_causal_chain(pool, stack, key, depth=depth)
    return msgspec.convert(rows, list[FindingCause])


async def outputs(
    pool: Pool,
    stack: Stack,
    *,
    status: str | None = None,
    actor: str | None = None,
    adapter: str | None = None,
    episode_id: UUID | None = None,
    after: OutputSummary | None = None,
    limit: int = 50,
) -> list[OutputSummary]:
    """Return outputs, the latest proposed first; `after`: only those that come after this one."""
    rows = await reader.list_outputs(
        pool,
        stack,
        status=status,
        actor=actor,
        adapter=adapter,
        episode_id=episode_id,
        past=_past(after),
        limit=min(limit, ROWS_MAX),
    )
    return [record_of(row, OutputSummary) for row in rows]


async def count_outputs(
    pool: Pool,
    stack: Stack,
    *,
    actor: str | None = None,
    adapter: str | None = None,
    episode_id: UUID | None = None,
) -> dict[str, int]:
    """Return status → how many outputs have it; the arguments are those of `outputs`."""
    return await reader.count_outputs(
        pool, stack, actor=actor, adapter=adapter, episode_id=episode_id
    )


async def output(pool: Pool, stack: Stack, key: str) -> OutputRecord | None:
    """Return one output, with its history, or None."""
    row = await reader.show_output(pool, stack, key)
    return None if row is None else record_of(row, OutputRecord)


async def workflows(
    pool: Pool,
    stack: Stack,
    *,
    status: str | None = None,
    workflow: str | None = None,
    after: WorkflowSummary | None = None,
    limit: int = 50,
) -> list[WorkflowSummary]:
    """Return runs of workflows, the latest started first; `after`: only those after this one."""
    rows = await reader.list_workflows(
        pool,
        stack,
        status=status,
        workflow=workflow,
        past=_past(after),
        limit=min(limit, ROWS_MAX),
    )
    return [record_of(row, WorkflowSummary) for row in rows]


async def count_workflows(
    pool: Pool, stack: Stack, *, workflow: str | None = None
) -> dict[str, int]:
    """Return status → how many runs of workflows have it."""
    return await reader.count_workflows(pool, stack, workflow=workflow)


async def workflow(pool: Pool, stack: Stack, instance_id: UUID) -> WorkflowRecord | None:
    """Return one run of a workflow, with the items of its steps, or None."""
    row = await reader.show_workflow(pool, stack, instance_id)
    return None if row is None else record_of(row, WorkflowRecord)


async def inbox(
    pool: Pool,
    stack: Stack,
    *,
    actor: str | None = None,
    after: InboxItem | None = None,
    limit: int = 50,
) -> list[InboxItem]:
    """Return what waits for a person, the oldest first; `after`: only what comes after this."""
    rows = await reader.list_inbox(
        pool, stack, actor=actor, past=_past(after), limit=min(limit, ROWS_MAX)
    )
    return [record_of(row, InboxItem) for row in rows]


async def count_inbox(pool: Pool, stack: Stack, *, actor: str | None = None) -> dict[str, int]:
    """Return kind → how much of it waits for a person."""
    return await reader.count_inbox(pool, stack, actor=actor)


async def service_levels(
    pool: Pool, stack: Stack, *, actor: str | None = None, limit: int = 50
) -> list[ServiceLevelRecord]:
    """Return what expectations promise, and keep: those below their objective first."""
    rows = await reader.list_service_levels(pool, stack, actor=actor, limit=min(limit, ROWS_MAX))
    return [record_of(row, ServiceLevelRecord) for row in rows]


async def budget_recommendations(
    pool: Pool, stack: Stack, *, actor: str | None = None, limit: int = 50
) -> list[BudgetRecommendation]:
    """Return what the latest episodes of expectations used, and what budgets would suit them."""
    most = min(limit, ROWS_MAX)
    rows = await reader.list_budget_recommendations(pool, stack, actor=actor, limit=most)
    return [record_of(row, BudgetRecommendation) for row in rows]


async def costs(
    pool: Pool, stack: Stack, *, by: CostBy, since: datetime | None = None, limit: int = 50
) -> list[CostSummary]:
    """Return what requests to models have cost, the dearest first; days with the latest first.

    By `all` there is one row, or none if nothing was asked.
    """
    rows = await reader.list_costs(pool, stack, by=by, since=since, limit=min(limit, ROWS_MAX))
    return [record_of(row, CostSummary) for row in rows]


async def dead_letters(
    pool: Pool,
    stack: Stack,
    *,
    status: str | None = None,
    after: DeadLetterSummary | None = None,
    limit: int = 50,
) -> list[DeadLetterSummary]:
    """Return dead letters, the latest first; `after`: only those that come after this one."""
    rows = await reader.list_dead_letters(
        pool, stack, status=status, past=_past(after), limit=min(limit, ROWS_MAX)
    )
    return [record_of(row, DeadLetterSummary) for row in rows]


async def count_dead_letters(pool: Pool, stack: Stack) -> dict[str, int]:
    """Return status → how many dead letters have it."""
    return await reader.count_dead_letters(pool, stack)


async def dead_letter(pool: Pool, stack: Stack, key: str) -> DeadLetterRecord | None:
    """Return one dead letter, or None."""
    row = await reader.show_dead_letter(pool, stack, key)
    return None if row is None else record_of(row, DeadLetterRecord)


def _past(last: RowRecord | None) -> Row | None:
    return None if last is None else structs.asdict(last)
