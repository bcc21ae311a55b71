"""Decisions: who has approved or denied what, when and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from htpy import Element, Node, a, fragment

from projections.records import DecisionSummary
from vigil.client import Client
from vigil.client.page import Page
from vigil.web.drawing.parts import (
    Cell,
    card,
    episode_link,
    field,
    many,
    narrowing,
    nothing,
    pager,
    pill,
    place,
    rows_of,
    short,
    titled,
    when,
)
from vigil.web.screen import PAGE_ROWS, Drawn, PageRequest, Screen

FILTERS: Final = ("by", "actor", "after")

CELLS: Final = (
    Cell("What was asked", is_main=True),
    Cell("Decision"),
    Cell("By"),
    Cell("Episode", is_spare=True),
    Cell("When", is_number=True),
)

DECIDED: Final = {"approved": "done", "denied": "rejected", "approval_given": "waits"}
"""Decision → the state that it looks like."""


async def draw(client: Client, asked: PageRequest) -> Drawn:
    """Read a page of decisions, and draw it."""
    page = await client.approvals.decided(
        by=asked.filter("by"),
        actor=asked.filter("actor"),
        at=asked.at,
        after=asked.filter("after"),
        limit=PAGE_ROWS,
    )
    return Drawn(
        title="Decisions",
        beside=a(href="/orders")["Orders"],
        parts={"filters": filters(asked), "list": list_of(asked, page)},
        up=("/orders", "Orders"),
    )


def filters(asked: PageRequest) -> Element:
    """Return what the list can be narrowed to."""
    return narrowing(
        asked,
        field("by", "Who", asked.filter("by")),
        field("actor", "Actor", asked.filter("actor")),
    )


def list_of(asked: PageRequest, page: Page[DecisionSummary]) -> Element:
    """Return a page of decisions."""
    if not page.items:
        hint = "Who approves or denies what waits in the inbox stands here."
        return card("None", nothing(page.why_none or "Nobody has decided anything.", hint))
    return card(
        "Latest first",
        table_of(page.items, asked),
        pager(asked, page.next),
        beside=f"{len(page.items)} on this page",
    )


def table_of(decisions: Sequence[DecisionSummary], asked: PageRequest) -> Element:
    """Return a table of decisions."""
    return rows_of(
        CELLS,
        [_row(each, asked) for each in decisions],
        keys=[f"{each.kind}.{each.id}.{each.step_id}.{each.at}" for each in decisions],
    )


def behind(decisions: Sequence[DecisionSummary], asked: PageRequest) -> Node:
    """Return what people had decided in episodes; None: nothing."""
    if not decisions:
        return None
    title = "Approvals behind it"
    return card(title, table_of(decisions, asked), beside=many(len(decisions), "decision"))


def _row(decision: DecisionSummary, asked: PageRequest) -> tuple[Node, ...]:
    source = f"{decision.actor_id} / {decision.expectation_id}"
    return (
        titled(
            _page(decision),
            decision.summary or decision.id,
            _said((source, decision.subject_id, decision.reason)),
        ),
        pill(
            DECIDED.get(decision.decision, "ok"),
            f"{decision.decision.replace('_', ' ')}{', changed' if decision.is_changed else ''}",
        ),
        decision.person,
        fragment[episode_link(decision.episode_id)] if decision.episode_id else short(decision.id),
        when(decision.at, asked.now),
    )


def _said(words: Iterable[str | None]) -> str:
    return " · ".join(each for each in words if each)


def _page(decision: DecisionSummary) -> str:
    match decision.kind:
        case "output":
            return place("outputs", decision.id)
        case "step":
            return place("workflows", decision.id)
        case _:
            return place("episodes", decision.id)


SCREEN: Final = Screen(
    path="/decisions", draw=draw, section="/orders", filters=FILTERS, has_past=True
)
