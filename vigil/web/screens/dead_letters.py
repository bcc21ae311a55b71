"""Dead letters: what could not be done, and what people decide about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from htpy import Element, Node, a, code, div, fragment, p, strong

from projections.records import DeadLetterRecord, DeadLetterSummary, record_of
from vigil.client import Client
from vigil.client.page import LETTER_STATUSES, Page
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
    may_order,
    narrowing,
    nothing,
    pager,
    pill,
    place,
    rows_of,
    sheet,
    titled,
    value,
    when,
)
from vigil.web.screen import PAGE_ROWS, Drawn, PageRequest, Screen

FILTERS: Final = ("status", "actor", "after")

WAITING: Final = "waiting"

ANY: Final = "any"
"""The filter of who wants dead letters of every status."""

HEX_BYTES_MAX: Final = 2_048
"""Most bytes that are shown in hex."""

HEX_ROW_BYTES: Final = 16

CELLS: Final = (
    Cell("What could not be done", is_main=True),
    Cell("Status"),
    Cell("Actor", is_spare=True),
    Cell("Size", is_number=True, is_spare=True),
    Cell("Since", is_number=True),
)


async def draw(client: Client, asked: PageRequest) -> Drawn:
    """Read a page of dead letters, and draw it."""
    status, actor = asked.filter("status") or WAITING, asked.filter("actor")
    page = await client.dead_letters.list(
        status=None if status == ANY else status,
        actor=actor,
        after=asked.filter("after"),
        limit=PAGE_ROWS,
    )
    counts = await client.dead_letters.count(actor=actor)
    return Drawn(
        title="Dead letters",
        parts={"filters": filters(asked, counts), "list": list_of(asked, page)},
    )


def filters(asked: PageRequest, counts: Mapping[str, int]) -> Node:
    """Return what the list can be narrowed to, with how many letters there are of each status."""
    each = [
        (None if status == WAITING else status, status, counts.get(status, 0))
        for status in LETTER_STATUSES
    ]
    return [
        chips(asked, "status", [*each, (ANY, "any status", sum(counts.values()))]),
        narrowing(asked, field("actor", "Actor", asked.filter("actor")), kept=("status",)),
    ]


def list_of(asked: PageRequest, page: Page[DeadLetterSummary]) -> Element:
    """Return a page of dead letters."""
    if not page.items:
        hint = "What Vigil cannot do is kept here until somebody decides about it."
        return card("None", nothing(page.why_none or "No dead letter fits these filters.", hint))
    return card(
        "Latest first",
        rows_of(
            CELLS,
            [_row(each, asked) for each in page.items],
            keys=[each.letter_key for each in page.items],
        ),
        pager(asked, page.next),
        beside=f"{len(page.items)} on this page",
    )


def _row(letter: DeadLetterSummary, asked: PageRequest) -> tuple[Node, ...]:
    below = " · ".join(filter(None, (letter.detail, letter.letter_key)))
    return (
        titled(place("dead-letters", letter.letter_key), words_of(letter), below),
        pill(letter.status),
        letter.actor_id,
        _size(letter.payload_size_bytes),
        when(letter.lettered_at, asked.now),
    )


def words_of(letter: DeadLetterSummary) -> str:
    """Return what a dead letter is about, in words."""
    reason = letter.reason.replace("_", " ")
    if letter.output_key is not None:
        return f"Output not delivered: {reason}"
    if letter.episode_id is not None:
        return f"Episode ended: {reason}"
    return f"Message rejected: {reason}"


def _size(size_bytes: int) -> str:
    return f"{count(size_bytes)} B" if size_bytes else ""


async def draw_one(client: Client, asked: PageRequest) -> Drawn:
    """Read a dead letter, and draw it."""
    row = await client.dead_letters.describe(asked.words["key"])
    letter = record_of({**row}, DeadLetterRecord)
    return Drawn(
        title=words_of(letter),
        beside=fragment[pill(letter.status), code(".id")[letter.letter_key]],
        parts={
            "facts": figures(letter, asked),
            "why": card("Why", div(".pad")[value(letter.detail)]),
            "payload": payload(letter),
            "actions": actions(letter, asked),
            "about": about(letter, str(row["what_to_do"] or "")),
        },
        side=("actions", "about"),
        up=("/dead-letters", "Dead letters"),
    )


def figures(letter: DeadLetterRecord, asked: PageRequest) -> Element:
    """Return the numbers of a dead letter."""
    return facts(
        [
            ("Since", when(letter.lettered_at, asked.now)),
            ("Reason", letter.reason.replace("_", " ")),
            ("Payload", _size(letter.payload_size_bytes)),
            ("Sequence", count(letter.source_seq)),
            ("Settled", when(letter.settled_at, asked.now)),
        ]
    )


def payload(letter: DeadLetterRecord) -> Node:
    """Return what was rejected, as text if it is any, and in hex, folded."""
    if not letter.payload:
        return None
    try:
        text: str | None = letter.payload.decode()
    except UnicodeDecodeError:
        text = None
    return card(
        "What was rejected",
        fold("Headers", value(letter.headers), key="headers") if letter.headers else None,
        fold("As text", value(text), key="text", is_open=True) if text is not None else None,
        fold("In hex", value(hex_of(letter.payload)), key="hex", is_open=text is None),
        beside=letter.source_subject,
    )


def hex_of(data: bytes) -> str:
    """Return bytes as lines of hex, each with its place; what is longer is cut, and says so."""
    lines = [
        f"{at:06x}  {data[at : at + HEX_ROW_BYTES].hex(' ')}"
        for at in range(0, min(len(data), HEX_BYTES_MAX), HEX_ROW_BYTES)
    ]
    left = len(data) - HEX_BYTES_MAX
    return "\n".join(lines + ([f"… {left:,} more bytes"] if left > 0 else []))


def actions(letter: DeadLetterRecord, asked: PageRequest) -> Node:
    """Return what people may decide about a dead letter, with what that will do."""
    if letter.status != WAITING or not may_order(asked):
        return None
    keys = {"keys": letter.letter_key}
    return card(
        "Decide",
        p[strong["Requeue"], f": {requeued(letter)}"],
        act("dead_letters.requeue", "Requeue", keys, is_primary=True),
        p[strong["Discard"], ": it is settled, and stays in the list."],
        act(
            "dead_letters.discard",
            "Discard",
            keys,
            field("reason", "Why", placeholder="Kept in the journal", required=True),
            is_danger=True,
        ),
        is_padded=True,
    )


def requeued(letter: DeadLetterRecord) -> str:
    """Return what it does to requeue a dead letter, in words."""
    if letter.output_key is not None:
        if letter.output_status not in (None, "failed"):
            return f"refused, for its output is {letter.output_status} by now."
        return "the output is delivered again, with new attempts."
    if letter.episode_id is not None:
        return "another episode is opened for the same cause."
    return "the message is published again, as it is."


def about(letter: DeadLetterRecord, what_to_do: str) -> Element:
    """Return what a dead letter is about."""
    output = letter.output_key
    return card(
        "About it",
        sheet(
            [
                (
                    "Actor",
                    letter.actor_id and a(href=place("actors", letter.actor_id))[letter.actor_id],
                ),
                ("Episode", episode_link(letter.episode_id)),
                ("Output", output and a(href=place("outputs", output))[output]),
                ("Stream", letter.source_stream),
                ("Subject", letter.source_subject),
                ("Settled by", letter.settled_by),
                ("Note", letter.settled_note),
            ]
        ),
        fold("As a command", value(what_to_do), key="command") if what_to_do else None,
    )


SCREEN: Final = Screen(path="/dead-letters", draw=draw, section="/dead-letters", filters=FILTERS)

ONE: Final = Screen(path="/dead-letters/{key:path}", draw=draw_one, section="/dead-letters")
