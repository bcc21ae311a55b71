"""The read model in a dict: the rules' row changes, applied as the statements in `sql/` say."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, cast

from projections.episodes import ADVANCE, OPEN, RECORD, Advance
from projections.errors import ProjectorFenced
from projections.postgres.feeds import project
from projections.statement import Change, Values, arrange, fill_in
from streams.log import START, Recorded
from streams.ports import Ports
from streams.subjects import Stack
from tests.simulation.faults import Weather
from tests.simulation.life import Life

BATCH_MAX: Final = 20
"""Commits in one transaction."""

LOOK_S: Final = 3.0
POSTGRES_S_MAX: Final = 0.5

_FRESH: Final = {
    "status": "queued", "node": None, "attempts": 0, "started_at": None, "finished_at": None,
    "turns_used": 0, "tokens_used": 0, "classification": None, "confidence": None,
    "summary": None, "error_class": None, "error_detail": None,
}  # fmt: skip


@dataclass
class Rows:
    """Tables and the checkpoint, which move together."""

    tables: dict[tuple[str, Values], Any] = field(default_factory=dict)
    checkpoint: int = START
    fenced: int = 0
    """Transactions that were refused because another projector had moved the checkpoint."""

    def commit(self, records: Iterable[Recorded], *, stack: Stack, since: int) -> int:
        """Move from checkpoint `since` past `records`, or do nothing.

        Raises:
            ProjectorFenced: the checkpoint is elsewhere.
        """
        if since != self.checkpoint:
            self.fenced += 1
            raise ProjectorFenced("journal", expected=since)
        changes = [change for record in records for change in project(record, stack=stack)]
        for batch in arrange(changes):
            for values in batch.rows:
                self.change(Change(batch.statement, values))
        self.checkpoint = max(record.seq for record in records)
        return self.checkpoint

    def change(self, change: Change) -> None:
        """Apply one row change."""
        statement, values = change.statement, change.values
        place = (statement.table, values[: statement.key_size])
        row = self.tables.get(place)
        if statement == OPEN:
            self.tables[place] = {**cast("Any", values)._asdict(), **_FRESH}
        elif statement == ADVANCE:
            self.tables[place] = _advanced(row, cast("Advance", values)) if row else row
        elif statement == RECORD and row:
            self.tables[place] = fill_in(row, values)
        else:
            self.tables[place] = values


def _advanced(row: dict[str, Any], advance: Advance) -> dict[str, Any]:
    said = {name: value for name, value in advance._asdict().items() if value is not None}
    added = said.pop("tokens_added")
    kept = {"started_at": row["started_at"]} if row["started_at"] else {}
    advanced = {**row, **said, **kept}
    return {**advanced, "tokens_used": advanced["tokens_used"] + added}


def folded(records: Iterable[Recorded], *, stack: Stack) -> dict[tuple[str, Values], Any]:
    """Return the tables that the whole journal leads to, one change after the other."""
    rows = Rows()
    for record in records:
        for change in project(record, stack=stack):
            rows.change(change)
    return rows.tables


async def keep_up(rows: Rows, ports: Ports, life: Life, weather: Weather) -> None:
    """Project for as long as the process lives. Others may be doing the same."""
    while True:
        position = rows.checkpoint
        async with ports.log.follow(after=position) as follower:
            while True:
                records = await follower.receive(most=BATCH_MAX, wait_s=LOOK_S)
                await asyncio.sleep(weather.between(0.0, POSTGRES_S_MAX))
                await life.passage()
                if not records:
                    await life.clock.sleep(weather.between(0.0, LOOK_S))
                    continue
                try:
                    position = rows.commit(records, stack=ports.stack, since=position)
                except ProjectorFenced:
                    break
