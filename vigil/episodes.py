"""One episode as the rows show it: what it waits for, and what became of its outputs."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

import msgspec

from projections.postgres.pool import Pool
from projections.postgres.query_result import ROWS_MAX
from projections.postgres.reader import list_outputs, show_block, show_episode
from streams.model.events import BlockReason
from streams.model.outputs import OutputOutcome
from streams.subjects import Stack
from vigil.tables import Row

ANYBODY: Final = "anybody"


async def whole(pool: Pool, stack: Stack, episode_id: UUID) -> dict[str, object] | None:
    """Return an episode's row, with `waits_for` (a row or None) and `outputs` (see `came_to`).

    None: the rows show no such episode.
    """
    row = await show_episode(pool, stack, episode_id)
    if row is None:
        return None
    block = await show_block(pool, stack, episode_id) if row["blocked_by"] else None
    is_open = block is not None and block["resolution"] is None
    own = await list_outputs(pool, stack, episode_id=episode_id, limit=ROWS_MAX)
    outcomes = msgspec.convert(row["outputs"] or (), tuple[OutputOutcome, ...])
    return row | {"waits_for": block if is_open else None, "outputs": came_to(outcomes, own)}


def says(row: Row) -> str:
    """Return an episode's summary, else what went wrong; of a traceback, its end."""
    detail = str(row["error_detail"] or "").rstrip().splitlines()[-1:]
    return str(row["summary"] or "".join(detail))


def came_to(outcomes: Iterable[OutputOutcome], own: Iterable[Row]) -> list[Row]:
    """Return a row for each output of an episode, with its `outcome` once that is settled.

    Args:
        outcomes: those that are.
        own: rows of what the episode proposed itself. What is another episode's, or of a dry run,
            is not among them: of that only the outcome is known here.
    """
    settled = {each.output_key: each for each in outcomes}
    rows: list[Row] = []
    for each in own:
        outcome = settled.pop(str(each["output_key"]), None)
        rows.append({**each, "outcome": outcome and outcome.outcome})
    for left in settled.values():
        said = {"output_key": left.output_key, "outcome": left.outcome}
        rows.append({**said, "error_class": left.error_class or None})
    return rows


def asked(block: Mapping[str, object]) -> Row:
    """Return what an episode waits for as people read it, with what to type about it."""
    if block["reason"] == BlockReason.WAIT:
        asks: Row = {"ref": block["ref"]}
        todo = f"resolve {shlex.quote(str(block['ref']))}"
    else:
        asks = {
            "summary": block["summary"],
            "approvers": block["approvers"] or ANYBODY,
            "plan_hash": block["plan_hash"],
            "plan": block["plan"],
        }
        todo = f"approve {block['episode_id']}"
    return {
        "waits_for": block["reason"],
        "since": block["blocked_at"],
        "expires_at": block["expires_at"],
        "on_expiry": block["on_expiry"] if block["expires_at"] else None,
        **asks,
        "what_to_do": f"vigil episodes {todo}",
    }
