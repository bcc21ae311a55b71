"""What an episode did, as rows: one for each step and one for each checkpoint. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from projections.statement import Row, Statement
from streams.json import NOTHING
from streams.model.events import CheckpointSaved, StepAnnounced, StepKind, StepRecorded


class Step(Row, omit_defaults=True, kw_only=True):
    """One row of `sql/record_steps.sql`; None leaves a column as it is.

    Not the fingerprint: it is of the arguments before redaction, and a short secret can be
    guessed from a hash.
    """

    episode_id: str
    step_no: int
    journal_seq: int
    kind: str
    state: str
    tool_name: str | None
    created_at: datetime
    announced_at: datetime | None = None
    side_effect_key: str | None = None
    args_redacted: msgspec.Raw = NOTHING
    result: msgspec.Raw = NOTHING
    error_class: str | None = None
    error_detail: str | None = None
    cost_tokens: int | None = None
    cost_ms: int | None = None
    model: str | None = None


class Checkpoint(Row, omit_defaults=True, kw_only=True):
    """One row of `sql/save_checkpoints.sql`.

    Not the state: it may hold results as the strategy saw them, which `redact_result` keeps
    from people. The journal has it.
    """

    episode_id: str
    checkpoint_no: int
    journal_seq: int
    step_no: int
    phase: str
    schema_version: int
    state_size_bytes: int
    created_at: datetime


RECORD: Final = Statement(
    name="record_steps", table="episode_steps", keys=("episode_id", "step_no")
)
SAVE: Final = Statement(
    name="save_checkpoints", table="episode_checkpoints", keys=("episode_id", "checkpoint_no")
)


def announced(event: StepAnnounced, *, episode_id: str, seq: int, at: datetime) -> Step:
    """Return the row of a step whose side effect is about to happen."""
    kind = StepKind.OUTPUT if event.output_key else StepKind.TOOL_CALL
    return Step(
        episode_id=episode_id,
        step_no=event.step_no,
        journal_seq=seq,
        kind=kind.value,
        state="announced",
        tool_name=event.tool_name or None,
        created_at=at,
        announced_at=at,
        side_effect_key=event.idempotency_key or None,
    )


def recorded(event: StepRecorded, *, episode_id: str, seq: int, at: datetime) -> Step:
    """Return the row of a step that is done."""
    return Step(
        episode_id=episode_id,
        step_no=event.step_no,
        journal_seq=seq,
        kind=event.kind.value,
        state="recorded",
        tool_name=event.tool_name or None,
        created_at=at,
        args_redacted=event.args,
        result=event.result if event.result_shown == NOTHING else event.result_shown,
        error_class=event.error_class or None,
        error_detail=event.error_detail or None,
        cost_tokens=event.cost_tokens,
        cost_ms=event.cost_ms,
        model=event.model or None,
    )


def filled_in(earlier: Step, later: Step) -> Step:
    """Return `later`, and where it says nothing, `earlier`."""
    said = msgspec.structs.asdict(later).items()
    return msgspec.structs.replace(
        earlier, **{name: value for name, value in said if value not in (None, NOTHING)}
    )


def checkpoint(event: CheckpointSaved, *, episode_id: str, seq: int, at: datetime) -> Checkpoint:
    """Return the row of a checkpoint."""
    return Checkpoint(
        episode_id=episode_id,
        checkpoint_no=event.checkpoint_no,
        journal_seq=seq,
        step_no=event.step_no,
        phase=event.phase,
        schema_version=event.schema_version,
        state_size_bytes=len(memoryview(event.state)),
        created_at=at,
    )
