"""What an episode waited for, as rows: one for each request for approval and each wait. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from projections.statement import Row, Statement
from streams.json import NOTHING
from streams.model.events import EpisodeBlocked, EpisodeResolved
from streams.model.waits import Approval


class Answer(Row, omit_defaults=True, kw_only=True):
    """One row of `sql/answer_episode_blocks.sql`."""

    episode_id: str
    step_no: int
    journal_seq: int
    resolution: str | None = None
    resolved_by: str | None = None
    resolved_reason: str | None = None
    decision_id: str | None = None
    resolved_at: datetime | None = None


class Block(Answer, omit_defaults=True, kw_only=True):
    """One row of `sql/save_episode_blocks.sql`, with its answer as far as there is one.

    Not the fingerprint, for the reason that a step's is in no row.
    """

    reason: str
    blocked_at: datetime
    plan: msgspec.Raw = NOTHING
    plan_hash: str | None = None
    summary: str | None = None
    approvers: tuple[str, ...] = ()
    ref: str | None = None
    expires_at: datetime | None = None
    on_expiry: str | None = None
    remind_every_s: float | None = None


_KEYS: Final = ("episode_id", "step_no")

SAVE: Final = Statement(name="save_episode_blocks", table="episode_blocks", keys=_KEYS)
ANSWER: Final = Statement(name="answer_episode_blocks", table="episode_blocks", keys=_KEYS)


def blocked(event: EpisodeBlocked, *, episode_id: str, seq: int, at: datetime) -> Block:
    """Return the row of a block that nobody has answered."""
    block = Block(
        episode_id=episode_id,
        step_no=event.step_no,
        journal_seq=seq,
        reason=event.reason.value,
        blocked_at=at,
    )
    if event.approval is not None:
        _request(block, event.approval)
    if event.wait is not None:
        block.ref = event.wait.ref
    terms = event.approval or event.wait
    if terms is not None:
        block.expires_at = terms.expires_at
        block.on_expiry = terms.on_expiry.value
        block.remind_every_s = terms.remind_every_s or None
    return block


def answered(
    event: EpisodeResolved, *, earlier: Answer | None, episode_id: str, seq: int, at: datetime
) -> Answer:
    """Return `earlier`, the row of the same block if it is at hand, with its answer."""
    row = earlier or Answer(episode_id=episode_id, step_no=event.step_no, journal_seq=seq)
    row.journal_seq = seq
    row.resolution = event.resolution.value
    row.resolved_by = event.by or None
    row.resolved_reason = event.reason or None
    row.decision_id = event.decision_id or None
    row.resolved_at = at
    return row


def _request(block: Block, approval: Approval) -> None:
    block.plan = approval.plan
    block.plan_hash = approval.plan_hash
    block.summary = approval.summary or None
    block.approvers = approval.approvers
