"""Lives to put on a journal, and ways to project them and to look at the rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from projections.postgres import store
from projections.postgres.pool import Pool
from projections.postgres.progress import caught_up, heads
from projections.postgres.projector import project
from projections.project import project as changes_of
from projections.rows import RowChange, arrange
from streams.clock import SystemClock
from streams.json import raw
from streams.layout import AGGREGATE_STREAMS, Stream
from streams.model.events import (
    BlockReason,
    CheckpointSaved,
    DeadLettered,
    DefinitionApplied,
    DefinitionDisabled,
    DefinitionKind,
    EndStatus,
    EpisodeBlocked,
    EpisodeConverged,
    EpisodeFinished,
    EpisodeOpened,
    EpisodeResolved,
    EpisodeStarted,
    FindingCleared,
    FindingRaised,
    FindingUpdated,
    LaneKept,
    LaneMoved,
    LogEvent,
    OutputProposed,
    Resolution,
    StepAnnounced,
    StepKind,
    StepRecorded,
)
from streams.model.findings import Cause, Finding, FindingStatus, Severity
from streams.model.lanes import Ticket
from streams.model.triggers import Budget, EventTrigger
from streams.model.waits import Approval, Wait
from streams.ports.all import Ports
from streams.ports.log import Commit, EventLog, Recorded
from streams.subjects import Stack

AT: Final = datetime(2030, 1, 1, tzinfo=UTC)
WAIT_S: Final = 60.0
"""Longest wait for rows that must come, in seconds."""

LOOKS_MAX: Final = 2_000
"""Most looks at a condition that must come true; 10 ms apart."""

TABLES: Final = (
    "episodes",
    "episode_steps",
    "episode_checkpoints",
    "episode_blocks",
    "episode_attempts",
    "findings",
    "finding_events",
    "outputs",
    "output_events",
    "lane_tickets",
    "workflow_instances",
    "workflow_steps",
    "agent_definitions",
    "workflow_definitions",
    "definition_history",
    "orders",
    "people",
    "tokens",
    "audit",
    "dead_letters",
)


def episode_id(number: int) -> str:
    return str(UUID(int=number))


def opened(number: int = 1, *, payload: dict[str, object] | None = None) -> EpisodeOpened:
    return EpisodeOpened(
        episode_id=episode_id(number),
        actor_id="monitor",
        expectation_id="check_disk",
        trigger=EventTrigger(
            event_id="e1",
            event_type="resource.updated",
            payload=payload or {"host": "h1"},
            entity_id="h1",
        ),
        dedupe_key="e1",
        budget=Budget(turns=5),
        subject_kind="host",
    )


def started(attempt: int = 1, *, node: str = "n1") -> EpisodeStarted:
    return EpisodeStarted(node=node, attempt=attempt, claim_revision=attempt)


def announced(step_no: int = 1) -> StepAnnounced:
    return StepAnnounced(
        step_no=step_no, fingerprint="f1", tool_name="disk.clean", idempotency_key="k1"
    )


def recorded(step_no: int = 1, *, result: object = "done", tokens: int = 0) -> StepRecorded:
    return StepRecorded(
        step_no=step_no,
        kind=StepKind.TOOL_CALL,
        fingerprint="f1",
        tool_name="disk.clean",
        args=raw({"path": "/var"}),
        result=raw(result),
        cost_tokens=tokens,
        cost_ms=7,
        model="m1",
        wall_used_ms=5 * step_no,
    )


def saved(checkpoint_no: int = 1) -> CheckpointSaved:
    return CheckpointSaved(
        checkpoint_no=checkpoint_no, step_no=1, phase="cleaned", state=raw({"left": 2})
    )


def converged(*, summary: str = "the disk is full") -> EpisodeConverged:
    return EpisodeConverged(
        classification=raw({"primary": "disk_full"}), confidence=0.9, summary=summary
    )


def finished(status: EndStatus = EndStatus.DONE, **fields: object) -> EpisodeFinished:
    return EpisodeFinished(status=status, turns_used=3, tokens_used=40, wall_used_ms=9, **fields)


PLAN_HASH: Final = "ab" * 32


def approval(**fields: object) -> Approval:
    given = {"plan_hash": PLAN_HASH, "plan": raw({"wipe": "/var"}), "summary": "wipe the disk"}
    return Approval(**(given | fields))


def blocked(step_no: int = 1, **fields: object) -> EpisodeBlocked:
    """Return a request for approval; with `ref`, a wait."""
    asks = "ref" not in fields
    return EpisodeBlocked(
        step_no=step_no,
        reason=BlockReason.APPROVAL if asks else BlockReason.WAIT,
        fingerprint="f1",
        approval=approval(**fields) if asks else None,
        wait=None if asks else Wait(**fields),
    )


def resolved(
    step_no: int = 1, resolution: Resolution = Resolution.APPROVED, **fields: object
) -> EpisodeResolved:
    return EpisodeResolved(step_no=step_no, resolution=resolution, **fields)


def proposed(number: int = 1, *, key: str = "mail:1", **fields: object) -> OutputProposed:
    given = {"adapter": "mail", "payload": raw({"to": "ann"}), "episode_id": episode_id(number)}
    said = {"actor_id": "monitor", "expectation_id": "check_disk"}
    return OutputProposed(output_key=key, **(given | said | fields))


def finding(key: str = "disk:h1", **fields: object) -> Finding:
    given = {
        "finding_key": key,
        "raise_no": 1,
        "status": FindingStatus.ACTIVE,
        "actor_id": "monitor",
        "expectation_id": "check_disk",
        "class_": "disk_full",
        "severity": Severity.HIGH,
        "summary": "the disk is full",
        "subject_kind": "host",
        "subject_id": "h1",
        "evidence_json": raw({"used": 0.95}),
        "raised_by_episode_id": episode_id(1),
        "raised_at": AT,
        "updated_at": AT,
    }
    return Finding(**(given | fields))


CAUSE: Final = Cause(episode_id=episode_id(1), index=0)


def raised(key: str = "disk:h1", **fields: object) -> FindingRaised:
    return FindingRaised(finding=finding(key, **fields), cause=CAUSE)


def updated(key: str = "disk:h1", **fields: object) -> FindingUpdated:
    return FindingUpdated(finding=finding(key, **fields), cause=CAUSE)


def cleared(key: str = "disk:h1", **fields: object) -> FindingCleared:
    given = {"status": FindingStatus.CLEARED, "cleared_at": AT, "cleared_reason": "cleaned"}
    return FindingCleared(finding=finding(key, **(given | fields)), cause=CAUSE)


def lettered(**fields: object) -> DeadLettered:
    given = {
        "reason": "unreadable",
        "detail": "not JSON",
        "stream": "events",
        "seq": 7,
        "subject": "a.b",
        "payload": b"\x00\xff",
        "payload_size_bytes": 2,
        "headers": {"ce-id": "x"},
    }
    return DeadLettered(**(given | fields))


def applied(
    kind: DefinitionKind, id_: str, revision: int = 1, **fields: object
) -> DefinitionApplied:
    given = {"body": raw({"id": id_}), "by": "ada"}
    return DefinitionApplied(kind=kind, id=id_, revision=revision, **(given | fields))


def disabled(kind: DefinitionKind, id_: str, revision: int = 1) -> DefinitionDisabled:
    return DefinitionDisabled(kind=kind, id=id_, revision=revision, by="bob", reason="too loud")


def ticket(number: int = 1, **fields: object) -> Ticket:
    return Ticket(
        episode_id=episode_id(number), expectation_id="check_disk", number=number, **fields
    )


def placed(*tickets: Ticket) -> LaneMoved:
    return LaneMoved(placed=tickets)


def admitted(*numbers: int) -> LaneMoved:
    return LaneMoved(admitted=tuple(map(episode_id, numbers)))


def kept(*waiting: Ticket, admitted: tuple[Ticket, ...] = ()) -> LaneKept:
    return LaneKept(waiting=waiting, admitted=admitted, newest_number=9)


WHOLE_LIFE: Final = (
    (opened(),),
    (started(),),
    (announced(1),),
    (recorded(1, tokens=40), saved()),
    (blocked(2),),
    (recorded(2), resolved(2)),
    (started(2),),
    (converged(),),
    (finished(),),
)


def commit(*events: LogEvent, name: str = "c", at: datetime = AT) -> Commit:
    return Commit(id=name, at=at, events=events)


def record(stack: Stack, *events: LogEvent, number: int = 1, seq: int = 1) -> Recorded:
    return Recorded(subject=stack.episode(episode_id(number)), seq=seq, commit=commit(*events))


async def append(log: EventLog, subject: str, *lives: Sequence[LogEvent]) -> int:
    """Append commits to an aggregate, a second apart; return the last one's sequence."""
    last = await log.last(subject)
    seq = 0 if last is None else last.seq
    for number, events in enumerate(lives):
        at = AT + timedelta(seconds=seq + number)
        seq = await log.append(
            subject, Commit(id=f"{subject}-{seq}", at=at, events=tuple(events)), after=seq
        )
    return seq


async def write(pool: Pool, changes: Sequence[RowChange], *, stack: Stack) -> None:
    """Apply changes as one batch, as the projector does."""
    since = await store.load(pool, stack=stack.name, projection="journal", now=AT)
    to = since.position + 1
    async with pool.acquire() as connection:
        await store.apply(connection, arrange(changes), since=since, position=to, now=AT)


async def write_events(
    pool: Pool, *events: LogEvent, stack: Stack, subject: str, at: datetime = AT
) -> None:
    """Apply one commit at `subject`, as the projector does."""
    made = Recorded(subject=subject, seq=1, commit=commit(*events, at=at))
    await write(pool, changes_of([made], stack=stack), stack=stack)


async def rows_of(pool: Pool, table: str, *, stack: Stack) -> list[dict[str, object]]:
    """Return the stack's rows in a table, in the order of its columns' values."""
    found = await pool.fetch(f"SELECT * FROM {table} WHERE stack = $1", stack.name)  # noqa: S608 - our own words
    rows = [{key: value for key, value in row.items() if key != "stack"} for row in found]
    return sorted(rows, key=repr)


async def all_rows(pool: Pool, *, stack: Stack) -> dict[str, list[dict[str, object]]]:
    """Return what a rebuild must make again."""
    return {table: await rows_of(pool, table, stack=stack) for table in TABLES}


async def only_row(pool: Pool, table: str, *, stack: Stack) -> dict[str, object]:
    (row,) = await rows_of(pool, table, stack=stack)
    return row


class HurriedClock(SystemClock):
    """Real time for an impatient reader: every wait is short."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(min(seconds, 0.05))


@asynccontextmanager
async def projecting(ports: Ports, pool: Pool, *, node: str = "n1") -> AsyncIterator[None]:
    """Run a projector meanwhile."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(project(ports, pool, node=node, clock=HurriedClock(), stop=stop))
        try:
            yield
        finally:
            stop.set()


async def wait_projected(ports: Ports, pool: Pool, *streams: Stream) -> None:
    """Return once the rows show everything that is on the log now, or on some of its streams."""
    newest = await heads(ports, streams or AGGREGATE_STREAMS)
    await caught_up(pool, ports.stack, newest, timeout_s=WAIT_S)


async def wait_until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Return once `condition` holds."""
    clock = SystemClock()
    for _ in range(LOOKS_MAX):
        if await condition():
            return
        await clock.sleep(0.01)
    raise AssertionError("it never came true")
