"""The read model in a dict: the rules' row changes, applied as the statements in `sql/` say."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice, repeat
from typing import Any, Final, TypeAlias

import msgspec

from projections import definitions, episodes, outputs, workflows
from projections.episodes import ADVANCE, OPEN
from projections.errors import ProjectorFenced
from projections.findings import SUPERSEDE, SUPERSEDED
from projections.lanes import ADMIT, EMPTY, REMOVE
from projections.project import project
from projections.rows import RowChange, Statement, ordered
from streams.json import NOTHING
from streams.layout import Stream
from streams.ports.all import Ports
from streams.ports.log import START, Recorded
from streams.subjects import Stack
from tests.simulation.faults import Weather
from tests.simulation.life import Life

BATCH_MAX: Final = 20
"""Commits in one transaction."""

LOOK_S: Final = 3.0
POSTGRES_S_MAX: Final = 0.5

_COUNTS: Final = {
    "attempts": 0, "takeovers": 0, "turns_used": 0, "tokens_used": 0, "wall_used_ms": 0,
}  # fmt: skip
"""What an episode's row starts from where its opening says nothing."""

_LATER: Final = (
    ADVANCE,
    outputs.ADVANCE,
    episodes.ANSWER,
    episodes.RECORD,
    ADMIT,
    SUPERSEDE,
    workflows.ADVANCE_INSTANCE,
    workflows.ADVANCE,
    definitions.DISABLE_AGENT,
    definitions.DISABLE_WORKFLOW,
)
"""Statements that do nothing where there is no row."""

_FIRST: Final = ("started_at", "first_node", "model")
"""Columns of an episode that stay as they are once they say something."""

_FIRST_OF_INSTANCE: Final = ("stopping_at", "compensating_at")
"""The same of an instance of a workflow."""

_FIRST_OF_ITEM: Final = ("begun_at",)
"""The same of an item of a step."""

_WHOLE: Final = (
    ("status", ("blocked_by",)),
    ("resolution", ("decided_by", "decided_reason", "decision_id")),
    ("delivered_at", ("delivered_ref",)),
)
"""Column → columns that are taken with it, be they NULL, when it says something."""

_LAST: Final = ("next_attempt_at", "error_class", "error_detail")
"""Columns of an output that are as the last event says."""

_DECISION: Final = (
    "resolution", "decided_by", "decided_reason", "decision_id", "decided_at", "edited_hash",
)  # fmt: skip
"""Columns of an output that are as the event says by which people are asked again."""

_LAST_OF_ITEM: Final = ("error_class", "error_detail", "retry_at", "finished_at")
"""Columns of an item of a step that are as the last event says that has a status."""

_ASKED: Final = (
    "plan_hash", "summary", "approvers", "quorum", "barred", "approved_by", "asked_at",
    "expires_at", "decided_by", "decided_reason", "edited_hash", "decided_at",
)  # fmt: skip
"""Columns of an item that stay when it is prepared."""

_ENDS: Final = {"awaiting_approval": "decided_at", "paused": "resumed_at"}
"""Status of an item → the column that says until when it had that, if a person ends it."""

_MADE: Final = {ADMIT.name: {"state": "admitted"}, SUPERSEDE.name: {"status": SUPERSEDED}}
"""What a statement itself says of a row."""


Tables: TypeAlias = dict[tuple[object, ...], Any]
"""Table and keys → row."""


@dataclass
class Rows:
    """Tables and the checkpoint of each partition, which move together."""

    tables: Tables = field(default_factory=dict)
    checkpoints: dict[str, int] = field(default_factory=dict)
    """By projection; without one, nothing of it has been read."""
    fenced: int = 0
    """Transactions that were refused because another projector had moved the checkpoint."""

    def commit(
        self, records: Iterable[Recorded], *, stack: Stack, projection: str, since: int
    ) -> int:
        """Move from checkpoint `since` of a projection past `records`, or do nothing.

        Raises:
            ProjectorFenced: the checkpoint is elsewhere.
        """
        if since != self.checkpoints.get(projection, START):
            self.fenced += 1
            raise ProjectorFenced(projection, expected=since)
        happened = list(records)
        self.change(project(happened, stack=stack))
        self.checkpoints[projection] = max(record.seq for record in happened)
        return self.checkpoints[projection]

    def change(self, changes: Iterable[RowChange]) -> None:
        """Apply row changes, but for parts of something that has no row."""
        for statement, rows in ordered(changes):
            whole = statement.part_of
            for row in map(msgspec.structs.asdict, rows):
                if not whole or (whole, row[statement.keys[0]]) in self.tables:
                    self._change(statement, row)

    def _change(self, statement: Statement, row: dict[str, Any]) -> None:
        place = (statement.table, *(row[key] for key in statement.keys))
        earlier = self.tables.get(place)
        if statement == OPEN:
            self.tables[place] = _advanced(_COUNTS, row | _COUNTS | _said(row))
        elif statement in _LATER:
            if earlier:
                self.tables[place] = _moved(statement, earlier, row)
        elif statement == outputs.PROPOSE:
            self.tables[place] = row | {"attempts": row["attempts"] or 0}
        elif statement == REMOVE:
            self.tables.pop(place, None)
        elif statement == EMPTY:
            self._empty(row)
        elif statement in (definitions.APPLY_AGENT, definitions.APPLY_WORKFLOW):
            first_at = (earlier or row)["first_applied_at"]
            self.tables[place] = row | {"first_applied_at": first_at}
        elif statement == workflows.PLACE:
            self.tables[place] = _placed(earlier or {}, row)
        elif statement in (workflows.RESUME, workflows.STOP):
            self._settle(row, is_stop=statement == workflows.STOP)
        else:
            self.tables[place] = row

    def _empty(self, row: dict[str, Any]) -> None:
        """Take what an older commit put in a lane."""
        for place, ticket in list(self.tables.items()):
            is_of_lane = place[0] == EMPTY.table and ticket["actor_id"] == row["actor_id"]
            if is_of_lane and ticket["journal_seq"] < row["journal_seq"]:
                del self.tables[place]

    def _settle(self, row: dict[str, Any], *, is_stop: bool) -> None:
        """Have the items of an instance that were paused, or had not begun, go on or not."""
        said = {"journal_seq": row["journal_seq"], "status": row.get("status", "canceled")}
        if is_stop:
            said["retry_at"] = None
        statuses = workflows.UNBEGUN if is_stop else {"paused"}
        for place, item in self.tables.items():
            is_of_it = place[:2] == (workflows.PLACE.table, row["instance_id"])
            is_step = is_stop or (is_of_it and item["step_id"] == row["step_id"])
            is_met = is_of_it and is_step and item["status"] in statuses
            if is_met and item["journal_seq"] < row["journal_seq"]:
                ends = _ENDS.get(item["status"])
                self.tables[place] = item | said | ({ends: row["at"]} if ends else {})


def _placed(earlier: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """Return an item as it is prepared, with what people were asked about it before."""
    asked = {name: earlier.get(name) for name in _ASKED}
    if row["asked_at"] is not None:
        asked = {}
    kept = {name: value for name, value in asked.items() if row[name] is None}
    first = min(row["placed_at"], earlier.get("placed_at") or row["placed_at"])
    return row | kept | {"attempts": row["attempts"] or 0, "placed_at": first}


def _moved(statement: Statement, earlier: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """Return a row after what happened to it."""
    if statement == ADVANCE:
        return _advanced(earlier, _said(row))
    if statement == outputs.ADVANCE:
        last = (*_LAST, *_DECISION) if row["asked_at"] is not None else _LAST
        return earlier | _said(row) | {name: row[name] for name in last}
    if statement == episodes.ANSWER:
        return earlier | row
    if statement == workflows.ADVANCE:
        said = _said(row) | _kept(earlier, _FIRST_OF_ITEM)
        if row["status"] is not None:
            return earlier | said | {name: row[name] for name in _LAST_OF_ITEM}
        return earlier | said | {"journal_seq": max(earlier["journal_seq"], row["journal_seq"])}
    if statement == workflows.ADVANCE_INSTANCE:
        return earlier | _said(row) | _kept(earlier, _FIRST_OF_INSTANCE)
    return earlier | _said(row) | _MADE.get(statement.name, {})


def _kept(earlier: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: earlier[name] for name in names if earlier.get(name)}


def _said(row: dict[str, Any]) -> dict[str, Any]:
    said = {name: value for name, value in row.items() if value not in (None, NOTHING)}
    for leading, others in _WHOLE:
        if leading in said:
            said |= {name: row[name] for name in others if name in row}
    return said


def _advanced(row: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    turns, tokens = said.pop("turns_added"), said.pop("tokens_added")
    takeovers, if_running = said.pop("takeovers_added"), said.pop("is_takeover_if_running")
    advanced = {**row, **said, **_kept(row, _FIRST)}
    advanced["metadata"] = {**(row.get("metadata") or {}), **(said.get("metadata") or {})} or None
    advanced["turns_used"] += turns
    advanced["tokens_used"] += tokens
    advanced["takeovers"] += takeovers + (if_running and row["status"] == "running")
    return advanced


def folded(
    records: Iterable[Recorded], *, stack: Stack, sizes: Iterable[int] = repeat(1)
) -> Tables:
    """Return the tables that the whole journal leads to, so many commits at a time."""
    rows, left = Rows(), iter(records)
    for size in sizes:
        part = list(islice(left, size))
        if not part:
            break
        rows.change(project(part, stack=stack))
    return rows.tables


async def keep_up(
    rows: Rows, ports: Ports, life: Life, weather: Weather, stream: Stream, *, partition: int
) -> None:
    """Project a partition for as long as the process lives. Others may be doing the same."""
    projection = ports.stack.part(stream, partition)
    while True:
        position = rows.checkpoints.get(projection, START)
        async with ports.log.follow(stream, after=position, partition=partition) as follower:
            while True:
                records = await follower.receive(most=BATCH_MAX, wait_s=LOOK_S)
                await asyncio.sleep(weather.between(0.0, POSTGRES_S_MAX))
                await life.passage()
                if not records:
                    await life.clock.sleep(weather.between(0.0, LOOK_S))
                    continue
                try:
                    position = rows.commit(
                        records, stack=ports.stack, projection=projection, since=position
                    )
                except ProjectorFenced:
                    break
