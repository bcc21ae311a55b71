"""`vigil decisions`: who has approved or denied what."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer import Option

from streams.clock import SystemClock
from vigil.commands.call import call
from vigil.options import IsJson, IsWide, Limit, PastTime, read_past
from vigil.printing.columns import SENTENCE, Column, Form, Listing
from vigil.printing.output import show_table
from vigil.printing.tables import Row

if TYPE_CHECKING:
    from projections.records import DecisionSummary
    from vigil.client.client import Client
    from vigil.client.page import Page

DECISIONS: Final = Listing(
    (
        Column("age", "at", Form.AGE, wide="decided"),
        Column("decision", "said"),
        Column("by", "person"),
        Column("asked by", "kind"),
        Column("id", "id", Form.KEY),
        Column("step", "step_id"),
        Column("actor", "actor_id"),
        Column("subject", "subject_id"),
        Column("what was asked", "summary", room=SENTENCE),
        Column("reason", "reason"),
    ),
    spare=("subject", "reason", "step", "actor", "asked by"),
)

_CLOCK: Final = SystemClock()


def decisions(
    ctx: typer.Context,
    *,
    person: Annotated[str | None, Option(help="Only what this person has decided.")] = None,
    actor: Annotated[list[str] | None, Option(help="Only of this actor; repeatable.")] = None,
    at: PastTime = None,
    limit: Limit = 50,
    is_wide: IsWide = False,
    is_json: IsJson = False,
) -> None:
    """List who has approved or denied what, the latest first.

    Of a request that several had to approve, all of them are named. `vigil inbox` lists what waits.
    """
    then = read_past(at, what="--at", now=_CLOCK.now())

    async def decided(client: Client) -> Page[DecisionSummary]:
        return await client.approvals.decided(by=person, actor=actor or None, at=then, limit=limit)

    page = call(ctx, decided)
    print_decisions(page.rows, is_json=is_json, is_wide=is_wide, why_none=page.why_none, now=then)


def print_decisions(
    rows: Sequence[Row],
    *,
    is_json: bool = False,
    is_wide: bool = False,
    why_none: str = "",
    now: datetime | None = None,
) -> None:
    """Print a list of decisions."""
    given = rows if is_json else [{**row, "said": _said(row)} for row in rows]
    why = why_none or "nobody has decided anything"
    show_table(given, DECISIONS, is_json=is_json, is_wide=is_wide, why_none=why, now=now)


def _said(row: Row) -> str:
    said = str(row["decision"]).replace("_", " ")
    return f"{said}, changed" if row["is_changed"] else said
