"""`vigil costs`: what requests to models have cost."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer import Option

from streams.clock import SystemClock
from streams.model.money import dollars
from vigil import options
from vigil.commands.call import call
from vigil.options import IsJson, IsWide, Limit
from vigil.printing.columns import Column, Form, Listing
from vigil.printing.output import say_aside, show_record, show_table
from vigil.printing.tables import Row

if TYPE_CHECKING:
    from vigil.client.client import Client
    from vigil.client.stack.costs import CostReport

_CLOCK: Final = SystemClock()


class CostsBy(StrEnum):
    """What costs are summed by."""

    ACTOR = "actor"
    MODEL = "model"
    AGENT = "agent"
    DAY = "day"
    FINDING = "finding"
    EPISODE = "episode"


def listing(by: str) -> Listing:
    """Return the table of what costs are summed by."""
    return Listing(
        (
            Column(by, "shown"),
            Column("cost (USD)", "cost"),
            Column("requests", "requests"),
            Column("of unknown cost", "unknown"),
            Column("tokens", "tokens"),
            Column("last", "until", Form.AGE, wide="last at"),
        ),
        spare=("last", "tokens", "of unknown cost"),
    )


def costs(
    ctx: typer.Context,
    *,
    by: Annotated[CostsBy, Option(help="What to sum costs by.")] = CostsBy.ACTOR,
    since: Annotated[
        str | None,
        Option(metavar="TIME", help="Only requests since then: 2030-01-31T09:00:00Z, or 24h ago."),
    ] = None,
    limit: Limit = 50,
    is_wide: IsWide = False,
    is_json: IsJson = False,
) -> None:
    """List what requests to models have cost, the dearest first.

    Of days the latest comes first. An episode with several findings counts for each of them.
    """
    begins = options.read_past(since, what="--since", now=_CLOCK.now())

    async def asked(client: Client) -> CostReport:
        return await client.costs(by=by.value, since=begins, limit=limit)

    found = call(ctx, asked)
    if is_json:
        total = None if found.total is None else found.total
        show_record({"by": by.value, "costs": found.rows, "total": total}, is_json=True)
        return
    print_costs(found.rows, by=by.value, now=_CLOCK.now(), is_wide=is_wide, why_none=found.why_none)
    if found.total is not None:
        say_total(
            found.total.cost_usd, requests=found.total.requests, unpriced=found.total.unpriced
        )


def print_costs(
    rows: Sequence[Row], *, by: str, now: datetime, is_wide: bool = False, why_none: str = ""
) -> None:
    """Print what requests have cost, by what."""
    shown = [
        {
            **row,
            "shown": row["name"] or "(none)",
            "cost": dollars(Decimal(str(row["cost_usd"]))),
            "unknown": row["unpriced"] or None,
        }
        for row in rows
    ]
    nothing = why_none or "no request to a model was recorded"
    show_table(shown, listing(by), is_wide=is_wide, why_none=nothing, now=now)


def say_total(usd: Decimal, *, requests: int, unpriced: int) -> None:
    """Say what all requests have cost together, each once."""
    unknown = f", {unpriced:,} of them of unknown cost" if unpriced else ""
    plural = "" if requests == 1 else "s"
    say_aside(f"{dollars(usd)} USD for {requests:,} request{plural}{unknown}")
