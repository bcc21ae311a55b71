"""What requests to models have cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final, get_args

import msgspec

from projections.postgres.query_result import Row
from projections.postgres.reader import list_costs
from projections.records import CostBy, CostSummary, record_of
from vigil.asking.rows import why_none_of
from vigil.client.connections import Connections
from vigil.client.page import LIMIT_MAX, check_time, checked_one_of
from vigil.errors import Mistake

ALL: Final = "all"


class CostReport(msgspec.Struct, frozen=True, kw_only=True):
    """What requests to models have cost. `for … in report` goes through its `items`."""

    items: Sequence[CostSummary]
    rows: Sequence[Row]
    """The same with every column, as `--json` of the command prints them."""
    total: CostSummary | None
    """Of all requests, each once; None: there were none."""
    why_none: str = ""
    """Why there is nothing, if nothing was ever projected for the stack; otherwise empty."""

    def __iter__(self) -> Iterator[CostSummary]:
        """Return its items, one after the other."""
        return iter(self.items)


async def report(
    connections: Connections,
    *,
    by: CostBy,
    since: datetime | None,
    until: datetime | None,
    limit: int,
) -> CostReport:
    """Return what requests have cost, by what is asked for; `Mistake`: that cannot be."""
    checked_one_of("by", by, get_args(CostBy))
    given: object = limit
    is_whole = isinstance(given, int) and not isinstance(given, bool)
    if not is_whole or not 1 <= limit <= LIMIT_MAX:
        raise Mistake(f"limit: {limit!r} is not a whole number from 1 to {LIMIT_MAX:,}")
    check_time("since", since)
    check_time("until", until)
    when = {"since": since, "until": until}
    stack = connections.stack
    async with connections.rows() as pool:
        rows = await list_costs(pool, stack, by=by, limit=limit, **when)
        whole = rows if by == ALL else await list_costs(pool, stack, by=ALL, limit=1, **when)
        why_none = await why_none_of(pool, stack, rows)
    return CostReport(
        items=tuple(record_of(each, CostSummary) for each in rows),
        rows=rows,
        total=record_of(whole[0], CostSummary) if whole else None,
        why_none=why_none,
    )
