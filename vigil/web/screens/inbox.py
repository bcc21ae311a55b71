"""The inbox: everything that waits for a person, oldest first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from htpy import Element, a, div, fragment, li, ol, small, strong

from projections.records import InboxItem
from vigil.client import Client
from vigil.client.page import INBOX_KINDS, Page
from vigil.web.drawing.parts import card, chips, nothing, pager, place, short, when
from vigil.web.screen import PAGE_ROWS, Drawn, PageRequest, Screen

FILTERS: Final = ("kind", "actor", "after")

WORDS: Final[Mapping[str, str]] = {
    "approval": "Approval",
    "output": "Output",
    "wait": "Answer",
    "workflow_step": "Step of a workflow",
    "nondeterministic_replay": "Parked episode",
    "dead_letter": "Dead letter",
}
"""Kind of what waits → what people call it."""


async def draw(client: Client, asked: PageRequest) -> Drawn:
    """Read what waits, and draw it."""
    kind, actor = asked.filter("kind"), asked.filter("actor")
    page = await client.inbox(
        kind=kind, actor=actor, at=asked.at, after=asked.filter("after"), limit=PAGE_ROWS
    )
    counts = await client.count_inbox(actor=actor, at=asked.at)
    return Drawn(
        title="Inbox",
        beside=a(".btn", href="/decisions")["Who approved what"],
        parts={"filters": filters(asked, counts), "list": listed(asked, page)},
    )


def filters(asked: PageRequest, counts: Mapping[str, int]) -> Element:
    """Return what the list can be narrowed to, with how much there is of each kind."""
    each = ((kind, WORDS[kind], counts.get(kind, 0)) for kind in INBOX_KINDS)
    return chips(asked, "kind", [(None, "All", sum(counts.values())), *each])


def listed(asked: PageRequest, page: Page[InboxItem]) -> Element:
    """Return a page of what waits."""
    if not page.items:
        return card("Nothing", nothing(page.why_none or "Nothing waits for anybody."))
    return card(
        "Oldest first",
        ol(".inbox")[(_row(each, asked) for each in page.items)],
        pager(asked, page.next),
        beside=f"{len(page.items)} on this page",
    )


def _row(item: InboxItem, asked: PageRequest) -> Element:
    who = ", ".join(item.approvers or ())
    about = " ".join(each for each in (item.subject_kind, item.subject_id) if each)
    source = " / ".join(each for each in (item.actor_id, item.expectation_id) if each)
    equals = item.episodes or 1
    page = page_of(item) if asked.at is None else source_of(item)
    may = asked.at is None and is_decided(item)
    key = f"{item.kind}.{item.id}.{item.expectation_id}.{item.item}"
    return li(data_key=key, data_row=True)[
        div[
            small[" · ".join(filter(None, (WORDS[item.kind], source, about, _which(item))))],
            strong[a(href=page)[item.summary or item.id]],
            small[
                "since ",
                when(item.since, asked.now),
                fragment[", until ", when(item.expires_at, asked.now)] if item.expires_at else None,
                who and f" · {who} may decide",
                item.progress and f" · {item.progress}",
                equals > 1 and f" · one decision for {equals} episodes",
            ],
        ],
        a(class_=["btn", {"primary": may}], href=page)["Decide" if may else "Look"],
    ]


def _which(item: InboxItem) -> str:
    """Return the beginning of the id of what asks: two may ask for the same."""
    return item.id if item.kind in {"output", "dead_letter"} else short(item.id)


DECIDED: Final = frozenset({"approval", "output", "workflow_step"})
"""What is decided on by approving or denying it."""


def is_decided(item: InboxItem) -> bool:
    """Return whether it is approved or denied; a step that has failed asks for no approval."""
    return item.kind in DECIDED and (item.kind != "workflow_step" or item.editable)


def page_of(item: InboxItem) -> str:
    """Return the address of the page on which something that waits is answered."""
    match item.kind:
        case "approval":
            return place("inbox", "episode", item.id)
        case "output":
            return place("inbox", "output", item.id)
        case "workflow_step" if item.editable:  # Others have failed, and ask for no approval.
            return place("inbox", "step", item.id, item.expectation_id)
        case _:
            return source_of(item)


def source_of(item: InboxItem) -> str:
    """Return the address of what waits itself, which has a past where its decision has none."""
    match item.kind:
        case "output":
            return place("outputs", item.id)
        case "workflow_step":
            return place("workflows", item.id)
        case "dead_letter":
            return place("dead-letters", item.id)
        case _:
            return place("episodes", item.id)


SCREEN: Final = Screen(path="/inbox", draw=draw, section="/inbox", filters=FILTERS, has_past=True)
