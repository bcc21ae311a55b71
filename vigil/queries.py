"""Queries: what a program asks of the tables in Postgres.

async with await connect("postgresql://127.0.0.1/vigil") as pool:
await caught_up(pool, ports.stack, await heads(ports), timeout_s=5)
rows = await active_for(pool, ports.stack, subject=("host", None))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from vigil.public import public

if TYPE_CHECKING:
    from projections.postgres.pool import Pool, connect
    from projections.postgres.progress import caught_up, heads
    from projections.postgres.query_result import Row
    from projections.postgres.reader import active_for

__all__ = ["Pool", "Row", "active_for", "caught_up", "connect", "heads"]

_HOMES: Final = {
    "projections.postgres.pool": "Pool connect",
    "projections.postgres.progress": "caught_up heads",
    "projections.postgres.query_result": "Row",
    "projections.postgres.reader": "active_for",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = public(__name__, _HOMES)
