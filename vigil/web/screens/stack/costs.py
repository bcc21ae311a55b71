"""Costs: what requests to models have cost, by actor, model, agent, day, finding or episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from htpy import Element, Node, a, p, span, strong

from projections.records import CostBy, CostSummary
from vigil.client import Client
from vigil.client.stack.costs import CostReport
from vigil.errors import Mistake
from vigil.web.drawing.charts import share
from vigil.web.drawing.parts import (
    Cell,
    card,
    chips,
    count,
    facts,
    many,
    money,
    nothing,
    place,
    rows_of,
    titled,
    when,
)
from vigil.web.screen import Drawn, PageRequest, Screen, address

FILTERS: Final = ("by", "since", "day")

WAYS: Final[Mapping[str, CostBy]] = {
    "actor": "actor",
    "model": "model",
    "agent": "agent",
    "day": "day",
    "finding": "finding",
    "episode": "episode",
}

SPANS: Final[Mapping[str, tuple[str, timedelta | None]]] = {
    "1d": ("last day", timedelta(days=1)),
    "7d": ("7 days", timedelta(days=7)),
    "30d": ("30 days", timedelta(days=30)),
    "all": ("all", None),
}
"""Filter → its words, and how long ago."""

DAY: Final = "%Y-%m-%d"

DEFAULT_SPAN: Final = "7d"

ROWS_MAX: Final = 100
"""Most rows, the dearest first."""


async def draw(client: Client, asked: PageRequest) -> Drawn:
    """Read what requests have cost, and draw it."""
    by, since_when = asked.filter("by") or "actor", asked.filter("since") or DEFAULT_SPAN
    for name, text, known in (("by", by, WAYS), ("since", since_when, SPANS)):
        if text not in known:
            raise Mistake(f"{name}: {text!r} is not one of {', '.join(known)}")
    day = asked.filter("day")
    since, until = _span_of(asked.now, since_when) if day is None else _bounds_of(day)
    report = await client.costs(by=WAYS[by], since=since, until=until, limit=ROWS_MAX)
    return Drawn(
        title="Costs",
        parts={
            "filters": filters(asked),
            "facts": figures(report.total),
            "list": list_of(asked, report, by),
        },
    )


def _span_of(now: datetime, since_when: str) -> tuple[datetime | None, None]:
    ago = SPANS[since_when][1]
    return (None if ago is None else now - ago), None


def _bounds_of(day: str) -> tuple[datetime, datetime]:
    """Return when a day in UTC begins, and when the next one does; `Mistake`: it is no day."""
    try:
        begins = datetime.strptime(day, DAY).replace(tzinfo=UTC)
        return begins, begins + timedelta(days=1)
    except (ValueError, OverflowError) as error:
        raise Mistake(f"day: {day!r} is no day such as 2030-01-31") from error


def filters(asked: PageRequest) -> Node:
    """Return what costs are summed by, and since when, or of which day."""
    day = asked.filter("day")
    return [
        chips(asked, "by", [(None if each == "actor" else each, each, None) for each in WAYS]),
        chips(
            asked,
            "since",
            [
                (None if each == DEFAULT_SPAN else each, words, None)
                for each, (words, _) in SPANS.items()
            ],
        )
        if day is None
        else p(".row")[
            span["Of ", strong[day], " in UTC"],
            a(".btn", href=asked.link(day=None, by="day"))["All days"],
        ],
    ]


def figures(total: CostSummary | None) -> Node:
    """Return the sums of all requests, each once."""
    if total is None:
        return None
    return facts(
        [
            ("Cost", priced(total)),
            ("Requests", count(total.requests)),
            ("Tokens", count(total.tokens)),
            ("Without a price", count(total.unpriced or None)),
        ]
    )


def priced(cost: CostSummary) -> str:
    """Return what requests have cost; if none of their models has a price, that nobody knows it."""
    if cost.unpriced and cost.unpriced == cost.requests:  # guard: unpriced-is-not-free
        return "not priced"
    return money(cost.cost_usd) or "$0"


def list_of(asked: PageRequest, report: CostReport, by: str) -> Element:
    """Return what each has cost, with a bar as long as its share of the dearest."""
    if not report.items:
        hint = "Agents ask models, and Vigil knows the prices of most."
        return card("None", nothing(report.why_none or "No model was asked.", hint))
    cells = (
        Cell(by.capitalize(), is_main=True),
        Cell("", is_spare=True),
        Cell("Cost", is_number=True),
        Cell("Requests", is_number=True, is_spare=True),
        Cell("Tokens", is_number=True),
        Cell("Last", is_number=True, is_spare=True),
    )
    is_priced = any(each.cost_usd for each in report.items)
    sizes = [float(each.cost_usd) if is_priced else float(each.tokens) for each in report.items]
    note = "A finding has the cost of each episode that changed it" if by == "finding" else ""
    return card(
        "Latest first" if by == "day" else "Dearest first",
        rows_of(
            cells,
            [
                _row(each, share(size, max(sizes)), asked, by)
                for each, size in zip(report.items, sizes, strict=True)
            ],
            keys=[each.name or "" for each in report.items],
        ),
        beside=note or many(len(report.items), by),
    )


def _row(cost: CostSummary, bar: Node, asked: PageRequest, by: str) -> Sequence[Node]:
    name = cost.name or "none"
    href = _page_of(by, cost.name)
    unpriced = f"{many(cost.unpriced, 'request')} without a price" if cost.unpriced else ""
    title = f"{cost.actor_id} / {cost.expectation_id}" if by == "episode" else name
    below = " · ".join(filter(None, (name if title != name else "", unpriced)))
    return (
        titled(href, title, below) if href else [a[name]],
        bar,
        priced(cost),
        count(cost.requests),
        count(cost.tokens),
        when(cost.until, asked.now),
    )


def _page_of(by: str, name: str | None) -> str | None:
    if name is None:
        return None
    match by:
        case "actor":
            return place("actors", name)
        case "finding":
            return place("findings", name)
        case "episode":
            return place("episodes", name)
        case "day":
            return address("/costs", by="episode", day=name)
        case _:
            return address("/costs", by=by)


SCREEN: Final = Screen(path="/costs", draw=draw, section="/costs", filters=FILTERS)
