"""Queries: what a program asks of the tables in Postgres.

    async with await connect("postgresql://127.0.0.1/vigil") as pool:
        await caught_up(pool, ports.stack, await heads(ports), timeout_s=5)
        for failed in await episodes(pool, ports.stack, status="failed", limit=10):
            print(failed.episode_id, failed.error_class)
            for entry in await timeline(pool, ports.stack, failed.episode_id):
                print(entry.at, entry.says)

| of | a list | one |
| --- | --- | --- |
| episodes | `episodes`, `count_episodes` | `episode`, `steps`, `timeline`, `log` |
| findings | `findings`, `count_findings`; `active_for`, untyped | `finding`, `causal_chain` |
| outputs | `outputs`, `count_outputs` | `output` |
| runs of workflows | `workflows`, `count_workflows` | `workflow` |
| what waits for people | `inbox`, `count_inbox` | |
| dead letters | `dead_letters`, `count_dead_letters` | `dead_letter` |
| service levels | `service_levels` | |
| what budgets would suit | `budget_recommendations` | |
| what requests to models have cost | `costs` | |

Lists return `…Summary`, and questions for one a `…Record`, or None if there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from vigil.public import public

if TYPE_CHECKING:
    from projections.errors import PostgresUnavailable, QueryRefused
    from projections.postgres.pool import Pool, connect
    from projections.postgres.progress import caught_up, heads
    from projections.postgres.query_result import Row
    from projections.postgres.reader import active_for
    from projections.postgres.records import (
        budget_recommendations,
        causal_chain,
        costs,
        count_dead_letters,
        count_episodes,
        count_findings,
        count_inbox,
        count_outputs,
        count_workflows,
        dead_letter,
        dead_letters,
        episode,
        episodes,
        finding,
        findings,
        inbox,
        log,
        output,
        outputs,
        service_levels,
        steps,
        timeline,
        workflow,
        workflows,
    )
    from projections.records import (
        BudgetRecommendation,
        CostSummary,
        DeadLetterRecord,
        DeadLetterSummary,
        EpisodeRecord,
        EpisodeSummary,
        FindingCause,
        FindingEventRow,
        FindingRecord,
        FindingSummary,
        InboxItem,
        OutputEventRow,
        OutputRecord,
        OutputSummary,
        ServiceLevelRecord,
        StepRow,
        TimelineEntry,
        WorkflowItem,
        WorkflowRecord,
        WorkflowSummary,
    )

__all__ = [
    "BudgetRecommendation", "CostSummary", "DeadLetterRecord", "DeadLetterSummary", "EpisodeRecord",
    "EpisodeSummary", "FindingCause", "FindingEventRow", "FindingRecord", "FindingSummary",
    "InboxItem", "OutputEventRow", "OutputRecord", "OutputSummary", "Pool", "PostgresUnavailable",
    "QueryRefused", "Row", "ServiceLevelRecord", "StepRow", "TimelineEntry", "WorkflowItem",
    "WorkflowRecord", "WorkflowSummary", "active_for", "budget_recommendations", "caught_up",
    "causal_chain", "connect", "costs", "count_dead_letters", "count_episodes", "count_findings",
    "count_inbox", "count_outputs", "count_workflows", "dead_letter", "dead_letters", "episode",
    "episodes", "finding", "findings", "heads", "inbox", "log", "output", "outputs",
    "service_levels", "steps", "timeline", "workflow", "workflows",
]  # fmt: skip

_HOMES: Final = {
    "projections.errors": "PostgresUnavailable QueryRefused",
    "projections.postgres.pool": "Pool connect",
    "projections.postgres.progress": "caught_up heads",
    "projections.postgres.query_result": "Row",
    "projections.postgres.reader": "active_for",
    "projections.postgres.records": (
        "budget_recommendations causal_chain costs count_dead_letters count_episodes "
        "count_findings count_inbox count_outputs count_workflows dead_letter dead_letters episode "
        "episodes finding findings inbox log output outputs service_levels steps timeline "
        "workflow workflows"
    ),
    "projections.records": (
        "BudgetRecommendation CostSummary DeadLetterRecord DeadLetterSummary EpisodeRecord "
        "EpisodeSummary FindingCause FindingEventRow FindingRecord FindingSummary InboxItem "
        "OutputEventRow OutputRecord OutputSummary ServiceLevelRecord StepRow TimelineEntry "
        "WorkflowItem WorkflowRecord WorkflowSummary"
    ),
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = public(__name__, _HOMES)
