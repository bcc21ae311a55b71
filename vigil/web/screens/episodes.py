"""Episodes: a list with filters in its address, and failures with the same cause as one row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from htpy import Element, Node, button, form

from projections.records import EpisodeSummary
from vigil.client import Client
from vigil.client.page import EPISODE_STATUSES, Page
from vigil.printing.columns import error_of
from vigil.web.parts import (
    Cell,
    card,
    chips,
    count,
    field,
    lasted,
    money,
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

FILTERS: Final = ("actor", "expectation", "subject", "status", "after")

CELLS: Final = (
    Cell("Episode", is_main=True),
    Cell("Status"),
    Cell("Turns", is_number=True, is_spare=True),
    Cell("Cost", is_number=True, is_spare=True),
    Cell("Took", is_number=True, is_spare=True),
    Cell("Started", is_number=True),
)


async def draw(client: Client, asked: PageRequest) -> Drawn:
    """Read the list and its counts, and draw them."""
    actor, expectation, subject = (asked.filter(each) for each in FILTERS[:3])
    page = await client.episodes.list(
        status=asked.filter("status"),
        actor=actor,
        expectation=expectation,
        subject=subject,
        after=asked.filter("after"),
        limit=PAGE_ROWS,
    )
    counts = await client.episodes.count(actor=actor, expectation=expectation, subject=subject)
    return Drawn(
        title="Episodes",
        parts={"filters": filters(asked, counts), "list": listed(asked, page)},
    )


def filters(asked: PageRequest, counts: Mapping[str, int]) -> Node:
    """Return what the list can be narrowed to, with how many episodes there are of each status."""
    all_ = (None, "All", sum(counts.values()))
    each = (
        (status, status.replace("_", " "), counts.get(status, 0)) for status in EPISODE_STATUSES
    )
    return [
        chips(asked, "status", [all_, *each]),
        form(".row.filters", method="get", action=asked.path)[
            field("actor", "Actor", asked.filter("actor")),
            field("expectation", "Expectation", asked.filter("expectation")),
            field("subject", "Subject", asked.filter("subject")),
            button(type="submit")["Filter"],
        ],
    ]


def listed(asked: PageRequest, page: Page[EpisodeSummary]) -> Element:
    """Return a page of episodes."""
    if not page.items:
        says = page.why_none or "No episode fits these filters."
        return card("None", nothing(says, "An event, a schedule or a person starts episodes."))
    return card(
        "Latest first",
        table_of(page.items, asked),
        pager(asked, page.next),
        beside=f"{len(page.items)} on this page",
    )


def table_of(episodes: Iterable[EpisodeSummary], asked: PageRequest) -> Element:
    """Return a table of episodes."""
    shown = list(episodes)
    return rows_of(CELLS, [_row(each, asked) for each in shown], keys=[e.episode_id for e in shown])


def _row(episode: EpisodeSummary, asked: PageRequest) -> tuple[Node, ...]:
    return (
        titled(
            place("episodes", episode.episode_id),
            f"{episode.actor_id} / {episode.expectation_id}",
            said_of(episode),
        ),
        pill(episode.status, waiting_words(episode)),
        count(episode.turns_used or None),
        money(episode.cost_usd),
        lasted(episode.wall_used_ms or None),
        when(episode.started_at or episode.queued_at, asked.now),
    )


def said_of(episode: EpisodeSummary) -> str:
    """Return an episode in a line: what it is about, and what it has come to."""
    subject = " ".join(each for each in (episode.subject_kind, episode.subject_id) if each)
    row = {"error_class": episode.error_class, "error_detail": episode.error_detail}
    said = (short(episode.episode_id), subject, error_of(row) or episode.summary)
    return " · ".join(each for each in said if each)


def waiting_words(episode: EpisodeSummary) -> str:
    """Return the status of an episode, and if it waits, what for."""
    if episode.status == "queued" and episode.position:
        return f"queued, number {episode.position}"
    if episode.blocked_by is None:
        return ""
    words = {
        "approval": "waits for approval",
        "wait": f"waits for {episode.blocked_ref}" if episode.blocked_ref else "sleeps",
        "nondeterministic_replay": "waits for other code",
    }
    return words.get(episode.blocked_by, f"waits for {episode.blocked_by}")


SCREEN: Final = Screen(path="/episodes", draw=draw, section="/episodes", filters=FILTERS)
