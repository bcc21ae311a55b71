"""Questions people ask of the rows, and any question of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, TypeAlias, cast
from uuid import UUID

from projections.errors import QueryRefused
from projections.postgres.pool import Pool
from projections.postgres.queries import query, reversed_query
from projections.postgres.query_result import (
    QUERY_S_MAX,
    ROWS_MAX,
    Row,
    Table,
    answer,
    require_statement,
)
from streams.subjects import Stack

ORDERS: Final = ("severity", "updated_at", "raised_at", "expires_at")
"""What active findings can be ordered by."""

OneOrMore: TypeAlias = str | Iterable[str]
"""A value, or several of which a row has one."""


async def list_episodes(
    pool: Pool,
    stack: Stack,
    *,
    status: OneOrMore | None = None,
    actor: OneOrMore | None = None,
    expectation: str | None = None,
    subject: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    error_class: str | None = None,
    past: Row | None = None,
    reverse: bool = False,
    limit: int = 50,
) -> list[Row]:
    """Return episodes: queued ones first, then the latest started.

    Args:
        subject: the id of what they are about.
        since: only those that were opened then or later.
        until: only those that were opened before.
        error_class: only those that failed so.
        past: a row of `list_episodes` or `show_episode`: only those that come after it.
        reverse: from the other end of the list.
    """
    said = (_several(status), _several(actor), expectation, subject, since, until)
    place = _place(past, "started_at", "queued_at", "episode_id")
    args = (*said, *place, limit, error_class)
    return await _listed(pool, "list_episodes", stack, *args, reverse=reverse)


async def count_episodes(
    pool: Pool,
    stack: Stack,
    *,
    actor: OneOrMore | None = None,
    expectation: str | None = None,
    subject: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> dict[str, int]:
    """Return status → how many episodes have it; the arguments are those of `list_episodes`."""
    said = (_several(actor), expectation, subject, since, until)
    return await _counted(pool, "count_episodes", stack, *said)


async def count_newest_episodes(
    pool: Pool,
    stack: Stack,
    *,
    statuses: Sequence[str],
    actor: OneOrMore | None = None,
    expectation: str | None = None,
    most: int,
) -> list[Row]:
    """Return `status`, `episodes` and `is_more`: those that fit of the newest `most` of each."""
    said = (list(statuses), _several(actor), expectation, most)
    return await _rows(pool, "count_newest_episodes", stack.name, *said)


async def count_newest_episodes_at(
    pool: Pool,
    stack: Stack,
    *,
    at: datetime,
    actor: OneOrMore | None = None,
    expectation: str | None = None,
    most: int,
) -> list[Row]:
    """Return the same of the `most` that were opened last before `at`, as they were then."""
    said = (at, _several(actor), expectation, most)
    return await _rows(pool, "count_newest_episodes_at", stack.name, *said)


async def list_episodes_at(
    pool: Pool,
    stack: Stack,
    *,
    at: datetime,
    status: OneOrMore | None = None,
    actor: OneOrMore | None = None,
    expectation: str | None = None,
    subject: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    error_class: str | None = None,
    past: Row | None = None,
    reverse: bool = False,
    limit: int = 50,
) -> list[Row]:
    """Return the episodes that there were at a time, as they were then: the latest opened first.

    They have the columns of `list_episodes`; None where nobody knows any more, as the function
    `episodes_at` of the schema says. The other arguments are those of `list_episodes`.
    """
    said = (_several(status), _several(actor), expectation, subject, since, until, error_class)
    place = _place(past, "queued_at", "episode_id")
    args = (at, *said, *place, limit)
    return await _listed(pool, "list_episodes_at", stack, *args, reverse=reverse)


async def count_episodes_at(
    pool: Pool,
    stack: Stack,
    *,
    at: datetime,
    actor: OneOrMore | None = None,
    expectation: str | None = None,
    subject: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> dict[str, int]:
    """Return status → how many episodes had it at a time."""
    said = (at, _several(actor), expectation, subject, since, until)
    return await _counted(pool, "count_episodes_at", stack, *said)


async def count_episodes_over_time(
    pool: Pool,
    stack: Stack,
    *,
    since: datetime,
    span_s: float,
    actor: str | None = None,
    expectation: str | None = None,
) -> list[Row]:
    """Return `since`, `status` and `episodes` of each span of time in which some have started."""
    said = (since, span_s, actor, expectation)
    return await _rows(pool, "count_episodes_over_time", stack.name, *said)


async def list_failures(
    pool: Pool,
    stack: Stack,
    *,
    actor: OneOrMore | None = None,
    expectation: str | None = None,
    since: datetime | None = None,
    episodes_max: int,
    limit: int,
) -> list[Row]:
    """Return the latest `episodes_max` failed episodes: a row for those that failed alike."""
    said = (_several(actor), expectation, since, episodes_max, limit)
    return await _rows(pool, "list_failures", stack.name, *said)


async def list_refusals(
    pool: Pool,
    stack: Stack,
    *,
    actor: str | None = None,
    expectation: str | None = None,
    event: str | None = None,
    reason: str | None = None,
    past: Row | None = None,
    reverse: bool = False,
    limit: int = 50,
) -> list[Row]:
    """Return events that did not fire an expectation: the latest first.

    `past` and `reverse` are as in `list_episodes`.
    """
    said = (actor, expectation, event, reason)
    place = _place(past, "refused_at", "journal_seq")
    return await _listed(pool, "list_refusals", stack, *said, *place, limit, reverse=reverse)


async def show_episode(pool: Pool, stack: Stack, episode_id: UUID) -> Row | None:
    """Return one episode with everything known of it, or None."""
    return _only(await _rows(pool, "show_episode", stack.name, episode_id))


async def show_episode_at(
    pool: Pool, stack: Stack, episode_id: UUID, *, at: datetime
) -> Row | None:
    """Return one episode as it was at a time, or None: it was not opened yet.

    Columns that only its end has set are None if it had not ended, and so are its takeovers, which
    may have come later; those of its use are, too, where nobody knows any more, as the function
    `episodes_at` of the schema says.
    """
    found = await show_episode(pool, stack, episode_id)
    then = _only(await _rows(pool, "show_episode_at", stack.name, episode_id, at))
    if found is None or then is None:
        return None
    is_over = then["finished_at"] is not None
    unset = {} if is_over else dict.fromkeys((*SET_BY_END, *COUNTED_ON))
    return {**found, **unset, **then}


SET_BY_END: Final = ("classification", "outputs", "would_raise", "would_send", "level_outcome")
"""Columns of an episode that its end sets, and that lists lack."""

COUNTED_ON: Final = ("takeovers",)
"""Columns that are counted until its end, and that lists lack."""


async def list_letter_keys(pool: Pool, stack: Stack, *, beginning: str, limit: int) -> list[str]:
    """Return the keys of dead letters that begin so, in order."""
    rows = await _rows(pool, "list_letter_keys", stack.name, beginning, limit)
    return [str(row["letter_key"]) for row in rows]


async def list_episode_ids(
    pool: Pool, stack: Stack, *, first: UUID, last: UUID, limit: int
) -> list[UUID]:
    """Return the ids of episodes from `first` to `last`, in order."""
    rows = await _rows(pool, "list_episode_ids", stack.name, first, last, limit)
    return [UUID(str(row["episode_id"])) for row in rows]


async def is_seen(pool: Pool, stack: Stack, kind: str, name: str) -> bool:
    """Return whether there is a row of an `actor`, of an `episode` or about a `subject`."""
    row = _only(await _rows(pool, "is_seen", stack.name, kind, name))
    return bool(row and row["is_seen"])


async def list_instance_ids(
    pool: Pool, stack: Stack, *, first: UUID, last: UUID, limit: int
) -> list[UUID]:
    """Return the ids of instances of workflows from `first` to `last`, in order."""
    rows = await _rows(pool, "list_instance_ids", stack.name, first, last, limit)
    return [UUID(str(row["instance_id"])) for row in rows]


async def latest_episode(pool: Pool, stack: Stack) -> UUID | None:
    """Return the id of the episode that was opened last; None: there is none."""
    row = _only(await _rows(pool, "latest_episode", stack.name))
    return None if row is None else UUID(str(row["episode_id"]))


async def list_steps(
    pool: Pool, stack: Stack, episode_id: UUID, *, past: Row | None = None, limit: int = ROWS_MAX
) -> list[Row]:
    """Return an episode's steps, in order; with `past`, one of them, those after it."""
    place = _place(past, "step_no")
    return await _rows(pool, "list_steps", stack.name, episode_id, limit, *place)


async def list_children(
    pool: Pool, stack: Stack, episode_id: UUID, *, levels: int, limit: int = ROWS_MAX
) -> list[Row]:
    """Return an episode's children, theirs, and so on, each after its parent."""
    return await _rows(pool, "list_children", stack.name, episode_id, levels, limit)


async def list_children_at(
    pool: Pool,
    stack: Stack,
    episode_id: UUID,
    *,
    at: datetime,
    levels: int,
    limit: int = ROWS_MAX,
) -> list[Row]:
    """Return the same as they were at a time, of those that there were then."""
    return await _rows(pool, "list_children_at", stack.name, episode_id, levels, limit, at)


async def list_timeline(
    pool: Pool,
    stack: Stack,
    episode_id: UUID,
    *,
    at: datetime | None = None,
    past: Row | None = None,
    limit: int = ROWS_MAX,
) -> list[Row]:
    """Return all that an episode did, in order; with `past`, a row of it, what follows that.

    With `at`, only what had happened by then.
    """
    place = _place(past, "position")
    return await _rows(pool, "list_timeline", stack.name, episode_id, limit, *place, at)


async def list_log_lines(
    pool: Pool,
    stack: Stack,
    episode_id: UUID,
    *,
    strategy: str | None = None,
    limit: int = ROWS_MAX,
) -> list[Row]:
    """Return the log of an episode, in order: rows of its timeline, with the text in `line`.

    Its own log strategy decides how much there is, unless another `strategy` is given.
    """
    return await _rows(pool, "list_log_lines", stack.name, episode_id, strategy, limit)


async def show_block(pool: Pool, stack: Stack, episode_id: UUID) -> Row | None:
    """Return what an episode waits for, or waited for last, with its answer; None: nothing yet."""
    return _only(await _rows(pool, "show_block", stack.name, episode_id))


async def show_block_at(pool: Pool, stack: Stack, episode_id: UUID, *, at: datetime) -> Row | None:
    """Return what an episode waited for at a time, without what is known of its answer."""
    block = _only(await _rows(pool, "show_block_at", stack.name, episode_id, at))
    return block and block | dict.fromkeys(SET_BY_ANSWER)


SET_BY_ANSWER: Final = (
    *("resolution", "resolved_by", "resolved_reason", "decision_id", "resolved_at"),
    *("edited_hash", "acting_episode_id"),
)
"""Columns of what an episode waits for that the answer sets."""


async def list_definition_changes(pool: Pool, stack: Stack, *, since: datetime) -> list[Row]:
    """Return when definitions were applied or disabled since then, in order."""
    return await _rows(pool, "list_definition_changes", stack.name, since, ROWS_MAX)


async def list_service_levels(
    pool: Pool, stack: Stack, *, actor: str | None = None, limit: int = 50
) -> list[Row]:
    """Return what expectations promise, and keep: those below their objective first."""
    return await _rows(pool, "list_service_levels", stack.name, actor, limit)


async def list_budget_recommendations(
    pool: Pool, stack: Stack, *, actor: str | None = None, limit: int = 50
) -> list[Row]:
    """Return what the latest episodes of expectations used, and what budgets would suit them."""
    return await _rows(pool, "list_budget_recommendations", stack.name, actor, limit)


async def list_costs(
    pool: Pool,
    stack: Stack,
    *,
    by: str,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int = 50,
) -> list[Row]:
    """Return what requests to models have cost, by `CostBy`: the dearest first."""
    return await _rows(pool, "list_costs", stack.name, by, since, limit, until)


async def list_findings(
    pool: Pool,
    stack: Stack,
    *,
    status: OneOrMore | None = None,
    severity: OneOrMore | None = None,
    actor: OneOrMore | None = None,
    past: Row | None = None,
    reverse: bool = False,
    limit: int = 50,
) -> list[Row]:
    """Return findings: the worst first, then the latest changed.

    `past` and `reverse` are as in `list_episodes`.

    Raises:
        QueryRefused: there is no such `severity`.
    """
    said = (_several(status), _several(severity), _several(actor))
    place = _place(past, "severity", "updated_at", "finding_key", "raise_no")
    return await _listed(pool, "list_findings", stack, *said, *place, limit, reverse=reverse)


async def count_findings(
    pool: Pool,
    stack: Stack,
    *,
    severity: OneOrMore | None = None,
    actor: OneOrMore | None = None,
    most: int | None = None,
) -> dict[str, int]:
    """Return status → how many findings have it, counted up to `most`.

    Raises:
        QueryRefused: there is no such `severity`.
    """
    said = (_several(severity), _several(actor), most)
    return await _counted(pool, "count_findings", stack, *said)


async def count_active_findings(pool: Pool, stack: Stack) -> dict[str, int]:
    """Return severity → how many active findings have it, the worst first."""
    return await _counted(pool, "count_active_findings", stack)


async def list_findings_at(
    pool: Pool,
    stack: Stack,
    *,
    at: datetime,
    status: OneOrMore | None = None,
    severity: OneOrMore | None = None,
    actor: OneOrMore | None = None,
    past: Row | None = None,
    reverse: bool = False,
    limit: int = 50,
) -> list[Row]:
    """Return the findings that there were at a time, as they were then, ordered as now.

    What is as of now the function `findings_at` of the schema says.

    Raises:
        QueryRefused: there is no such `severity`.
    """
    said = (at, _several(status), _several(severity), _several(actor))
    place = _place(past, "severity", "updated_at", "finding_key", "raise_no")
    return await _listed(pool, "list_findings_at", stack, *said, *place, limit, reverse=reverse)


async def count_findings_at(
    pool: Pool,
    stack: Stack,
    *,
    at: datetime,
    severity: OneOrMore | None = None,
    actor: OneOrMore | None = None,
) -> dict[str, int]:
    """Return status → how many findings had it at a time."""
    said = (at, _several(severity), _several(actor))
    return await _counted(pool, "count_findings_at", stack, *said)


async def count_active_findings_at(pool: Pool, stack: Stack, *, at: datetime) -> dict[str, int]:
    """Return severity → how many findings of it were active at a time, the worst first."""
    return await _counted(pool, "count_active_findings_at", stack, at)


async def show_finding(
    pool: Pool, stack: Stack, key: str, *, at: datetime | None = None
) -> Row | None:
    """Return the latest raise of a finding, and under `history` what happened to it.

    With `at`, as it was then; None: it was not raised yet.
    """
    if at is None:
        finding = _only(await _rows(pool, "show_finding", stack.name, key))
    else:
        finding = _only(await _rows(pool, "show_finding_at", stack.name, key, at))
    if finding is None:
        return None
    history = await _rows(pool, "list_finding_events", stack.name, key, ROWS_MAX, at)
    return _with_history(finding, history)


async def list_finding_events_of(pool: Pool, stack: Stack, episode_id: UUID) -> list[Row]:
    """Return what an episode did to findings, in order."""
    return await _rows(pool, "list_finding_events_of_episode", stack.name, episode_id, ROWS_MAX)


async def active_for(
    pool: Pool,
    stack: Stack,
    *,
    actor: str | None = None,
    class_: str | None = None,
    key: str | None = None,
    subject: tuple[str, str | None] | None = None,
    caused_by: str | None = None,
    severity_at_least: str | None = None,
    order_by: str = "severity",
    limit: int = 50,
    offset: int = 0,
) -> list[Row]:
    """Return the active findings that fit every condition that is given.

    The rows follow the journal some milliseconds behind: to see what was just written, wait for
    `caught_up` first.

    Args:
        key: the one of this key.
        subject: kind and id of the thing they are about; an id of None is any.
        caused_by: key of the finding that explains them.
        severity_at_least: this, or worse.
        order_by: `severity`, the worst first; `updated_at` or `raised_at`, the latest first; or
            `expires_at`, the soonest first. Of equal ones the latest changed is first.
        limit: most of them, up to `ROWS_MAX`.
        offset: how many to leave out.

    Raises:
        QueryRefused: a severity or an order that there is not, or a negative number.
    """
    if order_by not in ORDERS:
        raise QueryRefused(f"order_by {order_by!r}: use one of {', '.join(ORDERS)}")
    kind, id_ = (None, None) if subject is None else subject
    said = (actor, class_, key, kind, id_, caused_by, severity_at_least)
    return await _rows(
        pool, "list_active_findings", stack.name, *said, order_by, min(limit, ROWS_MAX), offset
    )


async def list_causal_chain(pool: Pool, stack: Stack, key: str, *, depth: int = 10) -> list[Row]:
    """Return a finding and what explains it, step by step, up to `depth` steps."""
    return await _rows(pool, "list_causal_chain", stack.name, key, depth)


async def list_finding_graph(
    pool: Pool, stack: Stack, key: str, *, depth: int, limit: int
) -> list[Row]:
    """Return a finding, what explains it and what it explains, the nearest first."""
    return await _rows(pool, "list_finding_graph", stack.name, key, depth, limit)


async def list_episode_causes(
    pool: Pool, stack: Stack, episode_id: UUID, *, depth: int = 10
) -> list[Row]:
    """Return an episode and what led to it, step by step, up to `depth` steps."""
    return await _rows(pool, "list_episode_causes", stack.name, episode_id, depth)


async def list_workflows(
    pool: Pool,
    stack: Stack,
    *,
    status: OneOrMore | None = None,
    workflow: str | None = None,
    past: Row | None = None,
    reverse: bool = False,
    limit: int = 50,
) -> list[Row]:
    """Return instances of workflows, and how far each is: the latest begun first.

    `past` and `reverse` are as in `list_episodes`.
    """
    place = _place(past, "started_at", "instance_id")
    said = (_several(status), workflow)
    return await _listed(pool, "list_workflows", stack, *said, *place, limit, reverse=reverse)


async def count_workflows(
    pool: Pool, stack: Stack, *, workflow: str | None = None
) -> dict[str, int]:
    """Return status → how many instances have it."""
    return await _counted(pool, "count_workflows", stack, workflow)


async def list_workflows_at(
    pool: Pool,
    stack: Stack,
    *,
    at: datetime,
    status: OneOrMore | None = None,
    workflow: str | None = None,
    past: Row | None = None,
    reverse: bool = False,
    limit: int = 50,
) -> list[Row]:
    """Return the instances that had begun by a time, as they were then: the latest begun first.

    None where nobody knows any more, as the function `workflows_at` of the schema says.
    """
    place = _place(past, "started_at", "instance_id")
    said = (at, _several(status), workflow)
    return await _listed(pool, "list_workflows_at", stack, *said, *place, limit, reverse=reverse)


async def count_workflows_at(
    pool: Pool, stack: Stack, *, at: datetime, workflow: str | None = None
) -> dict[str, int]:
    """Return status → how many instances had it at a time."""
    return await _counted(pool, "count_workflows_at", stack, at, workflow)


async def show_workflow(
    pool: Pool, stack: Stack, instance_id: UUID, *, at: datetime | None = None
) -> Row | None:
    """Return one instance, and under `items` those of its steps, as far as they are known.

    With `at`, as it was then; None: it had not begun.
    """
    when, suffix = ((), "") if at is None else ((at,), "_at")
    instance = _only(await _rows(pool, f"show_workflow{suffix}", stack.name, instance_id, *when))
    if instance is None:
        return None
    said = (stack.name, instance_id, *when, ROWS_MAX)
    return instance | {"items": await _rows(pool, f"list_workflow_steps{suffix}", *said)}


async def list_outputs(
    pool: Pool,
    stack: Stack,
    *,
    status: OneOrMore | None = None,
    actor: OneOrMore | None = None,
    adapter: str | None = None,
    episode_id: UUID | None = None,
    past: Row | None = None,
    reverse: bool = False,
    limit: int = 50,
) -> list[Row]:
    """Return outputs: the latest proposed first; `past` and `reverse` are as in `list_episodes`."""
    place = _place(past, "created_at", "output_key")
    said = (_several(status), _several(actor), adapter, episode_id)
    return await _listed(pool, "list_outputs", stack, *said, *place, limit, reverse=reverse)


async def count_outputs(
    pool: Pool,
    stack: Stack,
    *,
    actor: OneOrMore | None = None,
    adapter: str | None = None,
    episode_id: UUID | None = None,
) -> dict[str, int]:
    """Return status → how many outputs have it; the arguments are those of `list_outputs`."""
    return await _counted(pool, "count_outputs", stack, _several(actor), adapter, episode_id)


async def list_outputs_at(
    pool: Pool,
    stack: Stack,
    *,
    at: datetime,
    status: OneOrMore | None = None,
    actor: OneOrMore | None = None,
    adapter: str | None = None,
    episode_id: UUID | None = None,
    past: Row | None = None,
    reverse: bool = False,
    limit: int = 50,
) -> list[Row]:
    """Return the outputs that there were at a time, as they were then: the latest proposed first.

    None where nobody knows any more, as the function `outputs_at` of the schema says.
    """
    place = _place(past, "created_at", "output_key")
    said = (at, _several(status), _several(actor), adapter, episode_id)
    return await _listed(pool, "list_outputs_at", stack, *said, *place, limit, reverse=reverse)


async def count_outputs_at(
    pool: Pool,
    stack: Stack,
    *,
    at: datetime,
    actor: OneOrMore | None = None,
    adapter: str | None = None,
    episode_id: UUID | None = None,
) -> dict[str, int]:
    """Return status → how many outputs had it at a time."""
    said = (at, _several(actor), adapter, episode_id)
    return await _counted(pool, "count_outputs_at", stack, *said)


async def show_output(
    pool: Pool, stack: Stack, key: str, *, at: datetime | None = None
) -> Row | None:
    """Return one output as it was last proposed, and under `history` what happened to it.

    With `at`, as it was then; None: it was not proposed yet.
    """
    if at is None:
        output = _only(await _rows(pool, "show_output", stack.name, key))
    else:
        output = _only(await _rows(pool, "show_output_at", stack.name, key, at))
    if output is None:
        return None
    return _with_history(output, await list_output_events(pool, stack, key, at=at))


async def list_output_events(
    pool: Pool, stack: Stack, key: str, *, at: datetime | None = None, limit: int = ROWS_MAX
) -> list[Row]:
    """Return what happened to one output, over all its proposals: the latest first.

    With `at`, only what had happened by then.
    """
    return await _rows(pool, "list_output_events", stack.name, key, limit, at)


async def list_inbox(
    pool: Pool,
    stack: Stack,
    *,
    kind: OneOrMore | None = None,
    actor: OneOrMore | None = None,
    past: Row | None = None,
    reverse: bool = False,
    limit: int = 50,
) -> list[Row]:
    """Return what waits for a person, and what to type about it: the oldest first.

    `past` and `reverse` are as in `list_episodes`.
    """
    place = _place(past, "since", "kind", "id", "expectation_id", "item")
    said = (_several(kind), _several(actor))
    return await _listed(pool, "list_inbox", stack, *said, *place, limit, reverse=reverse)


async def count_inbox(
    pool: Pool, stack: Stack, *, actor: OneOrMore | None = None
) -> dict[str, int]:
    """Return kind → how much of it waits for a person."""
    return await _counted(pool, "count_inbox", stack, _several(actor))


async def list_inbox_at(
    pool: Pool,
    stack: Stack,
    *,
    at: datetime,
    kind: OneOrMore | None = None,
    actor: OneOrMore | None = None,
    past: Row | None = None,
    reverse: bool = False,
    limit: int = 50,
) -> list[Row]:
    """Return what waited for a person at a time: the oldest first.

    What is as of now, or missing, the function `inbox_at` of the schema says.
    """
    place = _place(past, "since", "kind", "id", "expectation_id", "item")
    said = (at, _several(kind), _several(actor))
    return await _listed(pool, "list_inbox_at", stack, *said, *place, limit, reverse=reverse)


async def count_inbox_at(
    pool: Pool, stack: Stack, *, at: datetime, actor: OneOrMore | None = None
) -> dict[str, int]:
    """Return kind → how much of it waited for a person at a time."""
    return await _counted(pool, "count_inbox_at", stack, at, _several(actor))


async def list_dead_letters(
    pool: Pool,
    stack: Stack,
    *,
    status: OneOrMore | None = None,
    actor: OneOrMore | None = None,
    past: Row | None = None,
    reverse: bool = False,
    limit: int = 50,
) -> list[Row]:
    """Return dead letters: the latest first; `past` and `reverse` are as in `list_episodes`."""
    place = _place(past, "lettered_at", "letter_key")
    said = (_several(status), _several(actor))
    return await _listed(pool, "list_dead_letters", stack, *said, *place, limit, reverse=reverse)


async def count_dead_letters(
    pool: Pool, stack: Stack, *, actor: OneOrMore | None = None
) -> dict[str, int]:
    """Return status → how many dead letters have it."""
    return await _counted(pool, "count_dead_letters", stack, _several(actor))


async def list_orders(
    pool: Pool,
    stack: Stack,
    *,
    node: str | None = None,
    actor: str | None = None,
    at: datetime | None = None,
    past: Row | None = None,
    reverse: bool = False,
    limit: int = 50,
) -> list[Row]:
    """Return what people ordered of the running stack: the latest first.

    With `at`, only what they had ordered by then. `past` and `reverse` are as in `list_episodes`.
    """
    place = _place(past, "at", "journal_seq", "event_no", "order_key")
    said = (node, actor)
    return await _listed(pool, "list_orders", stack, *said, *place, limit, at, reverse=reverse)


async def count_orders(
    pool: Pool,
    stack: Stack,
    *,
    node: str | None = None,
    actor: str | None = None,
    at: datetime | None = None,
) -> dict[str, int]:
    """Return change → how many orders there were of it; with `at`, by then."""
    return await _counted(pool, "count_orders", stack, node, actor, at)


async def list_decisions(
    pool: Pool,
    stack: Stack,
    *,
    by: str | None = None,
    actor: OneOrMore | None = None,
    episode_ids: Sequence[UUID] | None = None,
    at: datetime | None = None,
    past: Row | None = None,
    reverse: bool = False,
    limit: int = 50,
) -> list[Row]:
    """Return what people have decided on: the latest first.

    With `at`, only what they had decided by then. `past` and `reverse` are as in `list_episodes`.
    """
    place = _place(past, "at", "id", "kind")
    said = (by, _several(actor), episode_ids, at)
    return await _listed(pool, "list_decisions", stack, *said, *place, limit, reverse=reverse)


async def list_tokens(
    pool: Pool,
    stack: Stack,
    *,
    at: datetime,
    is_good: bool | None = None,
    past: Row | None = None,
    reverse: bool = False,
    limit: int = 50,
) -> list[Row]:
    """Return tokens: the latest first.

    Args:
        at: the time now, for what has expired.
        is_good: only those that are good then, or only those that are not; None: all.
        past: as `reverse`, as in `list_episodes`.
    """
    place = _place(past, "issued_at", "token_id")
    return await _listed(pool, "list_tokens", stack, is_good, at, *place, limit, reverse=reverse)


async def list_audit(
    pool: Pool,
    stack: Stack,
    *,
    name: str | None = None,
    change: OneOrMore | None = None,
    past: Row | None = None,
    reverse: bool = False,
    limit: int = 50,
) -> list[Row]:
    """Return who signed in or was refused, and who changed what about people: the latest first.

    `past` and `reverse` are as in `list_episodes`.
    """
    place = _place(past, "at", "journal_seq", "event_no", "person_key")
    said = (name, _several(change))
    return await _listed(pool, "list_audit", stack, *said, *place, limit, reverse=reverse)


async def show_dead_letter(pool: Pool, stack: Stack, key: str) -> Row | None:
    """Return one dead letter with everything known of it, or None."""
    return _only(await _rows(pool, "show_dead_letter", stack.name, key))


async def list_silent_episodes(
    pool: Pool, stack: Stack, *, before: datetime, limit: int = ROWS_MAX
) -> list[Row]:
    """Return episodes that wait or run and have shown nothing since `before`, longest first."""
    return await _rows(pool, "list_silent_episodes", stack.name, before, limit)


async def list_silent_instances(
    pool: Pool,
    stack: Stack,
    *,
    before: datetime,
    but: Sequence[str] = (),
    limit: int = ROWS_MAX,
) -> list[Row]:
    """Return instances, not of `but`, that go on and show nothing since `before`, longest first."""
    return await _rows(pool, "list_silent_instances", stack.name, before, limit, but)


async def list_unended_episodes(
    pool: Pool,
    stack: Stack,
    *,
    actor: str,
    expectation: str | None = None,
    status: str | None = None,
    past: Row | None = None,
    limit: int = ROWS_MAX,
) -> list[Row]:
    """Return an actor's episodes that have not ended, oldest first, or those after `past`."""
    place = _place(past, "queued_at", "episode_id")
    return await _rows(
        pool, "list_unended_episodes", stack.name, actor, expectation, status, *place, limit
    )


async def list_checkpoints(pool: Pool, stack: Stack) -> list[Row]:
    """Return how far each projection has come."""
    return await _rows(pool, "list_checkpoints", stack.name)


async def measure_tables(pool: Pool, stack: Stack, *, since: datetime) -> Row:
    """Return how large the tables are, and how many episodes a stack got since a time."""
    (row,) = await _rows(pool, "measure_tables", stack.name, since)
    return row


async def oldest_row(pool: Pool, stack: Stack) -> datetime | None:
    """Return when the oldest episode, output or instance began that the tables have; or None."""
    (row,) = await _rows(pool, "oldest_row", stack.name)
    return cast("datetime | None", row["began_at"])


async def oldest_dead_letter(pool: Pool, stack: Stack) -> datetime | None:
    """Return when the first one was settled of the dead letters that have a row; or None."""
    (row,) = await _rows(pool, "oldest_dead_letter", stack.name)
    return cast("datetime | None", row["settled_at"])


async def list_lost_rows(
    pool: Pool, stack: Stack, *, kinds: Sequence[str], first_seq: int, last_seq: int, limit: int
) -> list[Row]:
    """Return what the rows show of commits outside of `first_seq` to `last_seq`, oldest first.

    `kinds` are those of the aggregates that their stream has, such as `episode`.
    """
    return await _rows(pool, "list_lost_rows", stack.name, list(kinds), first_seq, last_seq, limit)


async def list_stacks(pool: Pool, *, limit: int) -> list[str]:
    """Return the stacks that anything was ever projected for, by name."""
    return [str(row["stack"]) for row in await _rows(pool, "list_stacks", limit)]


async def list_expectations(pool: Pool, stack: Stack, *, limit: int) -> list[tuple[str, str]]:
    """Return actor and expectation of each that a stack has had episodes of, in order."""
    rows = await _rows(pool, "list_expectations", stack.name, limit)
    return [(str(row["actor_id"]), str(row["expectation_id"])) for row in rows]


async def has_stack(pool: Pool, stack: Stack) -> bool:
    """Return whether anything was ever projected for a stack."""
    return bool(await list_checkpoints(pool, stack))


async def run_sql(pool: Pool, text: str, *args: object, query_s_max: float = QUERY_S_MAX) -> Table:
    """Return the answer to somebody's own SQL statement; `$1` in it is the first of `args`.

    Raises:
        QueryRefused: it is wrong, writes, has no statement or several, or takes too long.
    """
    require_statement(text)  # guard: empty-statement-refused
    return await answer(pool, text, *args, query_s_max=query_s_max)


def _several(wanted: OneOrMore | None) -> list[str] | None:
    if wanted is None:
        return None
    return [wanted] if isinstance(wanted, str) else list(dict.fromkeys(wanted))


def _place(past: Row | None, *columns: str) -> list[object]:
    """Return where a row stands in a list that is ordered by `columns`."""
    return [None if past is None else past[each] for each in columns]


async def _listed(pool: Pool, name: str, stack: Stack, *args: object, reverse: bool) -> list[Row]:
    text = reversed_query(name) if reverse else query(name)
    return (await answer(pool, text, stack.name, *args)).as_rows()


async def _counted(pool: Pool, name: str, stack: Stack, *args: object) -> dict[str, int]:
    table = await answer(pool, query(name), stack.name, *args)
    return {str(what): int(str(count)) for what, count in table.rows}


async def _rows(pool: Pool, name: str, *args: object) -> list[Row]:
    return (await answer(pool, query(name), *args)).as_rows()


def _only(rows: list[Row]) -> Row | None:
    return rows[0] if rows else None


def _with_history(row: Row, history: list[Row]) -> Row | None:
    """Return a row with what happened; None: it has left since the row was read, with all of it."""
    return row | {"history": history} if history else None  # guard: gone-while-read-is-gone
