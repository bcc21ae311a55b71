"""Outputs: a list, and one with what is delivered, and each attempt to do so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from htpy import Element, Node, a, code, div, fragment, li, ol, p, small, span, strong

from projections.records import OutputEventRow, OutputRecord, OutputSummary
from streams.model.outputs import OutputStatus
from streams.model.waits import progress
from vigil.client import Client
from vigil.client.page import Page
from vigil.web.drawing.icons import icon
from vigil.web.drawing.parts import (
    Cell,
    act,
    card,
    chips,
    count,
    episode_link,
    facts,
    field,
    fold,
    look,
    many,
    may_order,
    narrowing,
    none_of,
    nothing,
    pager,
    pill,
    place,
    rows_of,
    sheet,
    titled,
    value,
    when,
    why_field,
)
from vigil.web.screen import PAGE_ROWS, Drawn, PageRequest, Screen

FILTERS: Final = ("status", "actor", "adapter", "episode", "after")

STATUSES: Final = tuple(each.value for each in OutputStatus)

OPEN: Final = frozenset({"proposed", "awaiting_approval", "retrying"})
"""The states of an output that may yet be canceled."""

CELLS: Final = (
    Cell("Output", is_main=True),
    Cell("Status"),
    Cell("Adapter", is_spare=True),
    Cell("Attempts", is_number=True, is_spare=True),
    Cell("Proposed", is_number=True),
)


async def draw(client: Client, asked: PageRequest) -> Drawn:
    """Read a page of outputs, and draw it."""
    actor, adapter = asked.filter("actor"), asked.filter("adapter")
    episode = asked.filter("episode")
    page = await client.outputs.list(
        status=asked.filter("status"),
        actor=actor,
        adapter=adapter,
        episode_id=episode,
        at=asked.at,
        after=asked.filter("after"),
        limit=PAGE_ROWS,
    )
    counts = await client.outputs.count(
        actor=actor, adapter=adapter, episode_id=episode, at=asked.at
    )
    return Drawn(
        title="Outputs",
        parts={"filters": filters(asked, counts), "list": list_of(asked, page)},
    )


def filters(asked: PageRequest, counts: Mapping[str, int]) -> Node:
    """Return what the list can be narrowed to, with how many outputs there are of each status."""
    each = ((status, status.replace("_", " "), counts.get(status, 0)) for status in STATUSES)
    return [
        chips(asked, "status", [(None, "All", sum(counts.values())), *each]),
        narrowing(
            asked,
            field("actor", "Actor", asked.filter("actor")),
            field("adapter", "Adapter", asked.filter("adapter")),
            field("episode", "Episode", asked.filter("episode")),
            kept=("status",),
        ),
    ]


def list_of(asked: PageRequest, page: Page[OutputSummary]) -> Element:
    """Return a page of outputs."""
    if not page.items:
        hint = "Episodes propose outputs with propose_output(…), and Vigil delivers them."
        return card("None", nothing(page.why_none or none_of(asked, "output"), hint))
    return card(
        "Latest first",
        rows_of(
            CELLS,
            [_row(each, asked) for each in page.items],
            keys=[each.output_key for each in page.items],
        ),
        pager(asked, page.next),
        beside=f"{len(page.items)} on this page",
    )


def _row(output: OutputSummary, asked: PageRequest) -> tuple[Node, ...]:
    source = f"{output.actor_id} / {output.expectation_id}"
    below = " · ".join(filter(None, (source, output.error_class, output.output_key)))
    return (
        titled(place("outputs", output.output_key), output.summary or output.output_key, below),
        pill(_state(output)),
        output.adapter,
        count(output.attempts or None),
        when(output.created_at, asked.now),
    )


def _state(output: OutputSummary) -> str:
    """Return the status of an output; one that is delivered again after a failure is retried."""
    is_again = output.status == "proposed" and output.attempts > 0
    return "retrying" if is_again else output.status


async def draw_one(client: Client, asked: PageRequest) -> Drawn:
    """Read an output, and draw it."""
    output = await client.outputs.get(asked.words["key"], at=asked.at)
    return Drawn(
        title=output.summary or output.output_key,
        beside=fragment[pill(_state(output)), code(".id")[output.output_key]],
        parts={
            "facts": figures(output, asked),
            "payload": card("What is delivered", div(".pad")[payload(output, asked)]),
            "history": history(output.history, asked),
            "waits": waits(output, asked),
            "actions": actions(output, asked),
            "about": about(output),
        },
        side=("waits", "actions", "about"),
        up=("/outputs", "Outputs"),
    )


def payload(output: OutputRecord, asked: PageRequest) -> Node:
    """Return what is delivered; of the past, it may be that nobody knows it any more."""
    if output.payload is None and asked.at is not None:
        return "Nobody knows any more what it was then: it was proposed anew, or changed, since."
    return value(output.payload)


def figures(output: OutputRecord, asked: PageRequest) -> Element:
    """Return the numbers of an output."""
    return facts(
        [
            ("Proposed", when(output.created_at, asked.now)),
            ("Proposals", count(output.proposal_no)),
            ("Attempts", count(output.attempts)),
            ("Next attempt", when(output.next_attempt_at, asked.now)),
            ("Expires", when(output.expires_at, asked.now)),
            ("Delivered", when(output.delivered_at, asked.now)),
            ("Canceled", when(output.canceled_at, asked.now)),
        ]
    )


_VERBS: Final[Mapping[str, tuple[str, str]]] = {
    "output_proposed": ("Proposed", "proposed"),
    "output_approved": ("Approved", "done"),
    "output_rejected": ("Denied", "rejected"),
    "output_attempted": ("Attempt begun", "running"),
    "output_postponed": ("Failed for now", "retrying"),
    "output_delivered": ("Delivered", "delivered"),
    "output_failed": ("Failed", "failed"),
    "output_canceled": ("Canceled", "canceled"),
    "output_retried": ("To be delivered again", "retrying"),
}
"""Kind of a change → its words, and the state that it looks like."""


def history(changes: Sequence[OutputEventRow], asked: PageRequest) -> Element:
    """Return the decisions about an output and the attempts to deliver it, the latest first."""
    return card(
        "Attempts and decisions",
        ol(".changes")[(_change(each, asked) for each in changes)],
        beside=many(len(changes), "entry", "entries"),
    )


def _change(change: OutputEventRow, asked: PageRequest) -> Element:
    plain = change.kind.removeprefix("output_").replace("_", " ").capitalize()
    verb, state = _VERBS.get(change.kind, (plain, "failed" if change.error_class else "ok"))
    hue, drawn = look(state)
    error = ": ".join(filter(None, (change.error_class, change.error_detail)))
    return li(class_=hue, data_key=f"{change.journal_seq}.{change.event_no}")[
        span(".dot")[icon(drawn)],
        div[
            p[
                strong[verb],
                change.attempt and f", attempt {change.attempt}",
                change.person and f" by {change.person}",
                change.node and f" on {change.node}",
                fragment[" by episode ", episode_link(change.episode_id)]
                if change.episode_id
                else None,
                " ",
                small[when(change.at, asked.now)],
            ],
            change.reason and p[change.reason],
            error and p(".error-text")[error],
            fragment[small["next ", when(change.next_attempt_at, asked.now)]]
            if change.next_attempt_at
            else None,
            change.delivered_ref and small[f"reference {change.delivered_ref}"],
        ],
    ]


def waits(output: OutputRecord, asked: PageRequest) -> Node:
    """Return what an output waits for."""
    if output.status == "awaiting_approval":
        who = ", ".join(output.approvers)
        return div(".note")[
            strong["Waits for approval"],
            small[
                "since ",
                when(output.asked_at, asked.now),
                who and f" · {who} may decide",
                output.quorum > 1 and f" · {progress(output.quorum, output.approved_by)}",
            ],
            asked.at is None
            and a(".btn.primary", href=place("inbox", "output", output.output_key))["Decide"],
        ]
    if output.next_attempt_at is not None and output.status in OPEN:
        return div(".note")[
            strong["Waits for its next attempt"], small[when(output.next_attempt_at, asked.now)]
        ]
    return None


def actions(output: OutputRecord, asked: PageRequest) -> Node:
    """Return what people may order about an output."""
    if not may_order(asked):
        return None
    keys = {"keys": output.output_key}
    if output.status == OutputStatus.FAILED:
        return card(
            "Deliver it again",
            act("outputs.retry", "Retry", keys, why_field(), is_primary=True),
            is_padded=True,
        )
    if output.status in OPEN:
        return card(
            "Stop it",
            p(".muted")["Its episode goes on."],
            act("outputs.cancel", "Cancel", keys, why_field(), is_danger=True),
            is_padded=True,
        )
    return None


def about(output: OutputRecord) -> Element:
    """Return where an output comes from and where it goes."""
    error = ": ".join(filter(None, (output.error_class, output.error_detail)))
    return card(
        "About it",
        sheet(
            [
                ("Adapter", output.adapter),
                ("Reference", output.delivered_ref),
                ("Error", error),
                (
                    "Actor",
                    a(href=place("actors", output.actor_id))[
                        f"{output.actor_id} / {output.expectation_id}"
                    ],
                ),
                ("Episode", episode_link(output.episode_id)),
                ("Decided by", output.decided_by),
                ("Why", output.decided_reason),
                ("Changed", "by who approved it" if output.edited_hash else None),
                ("At expiry", output.on_expiry),
            ]
        ),
        fold("As a command", value(f"vigil outputs show {output.output_key}"), key="command"),
    )


SCREEN: Final = Screen(
    path="/outputs", draw=draw, section="/outputs", filters=FILTERS, has_past=True
)

ONE: Final = Screen(path="/outputs/{key:path}", draw=draw_one, section="/outputs", has_past=True)
