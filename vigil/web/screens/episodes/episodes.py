"""Episodes: a list with filters in its address, and failures with the same cause as one row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from htpy import Element, Node, a, fragment

from projections.records import EpisodeSummary, FailureGroup
from vigil.client import Client
from vigil.client.page import EPISODE_STATUSES, Page
from vigil.printing.columns import error_of
from vigil.web.drawing.parts import (
    Cell,
    card,
    chips,
    count,
    episode_link,
    field,
    lasted,
    many,
    money,
    narrowing,
    none_of,
    nothing,
    pager,
    pill,
    place,
    rows_of,
    short,
    titled,
    when,
)
from vigil.web.screen import PAGE_ROWS, Drawn, PageRequest, Screen, address
from vigil.web.screens.episodes.bulk_orders import links
from vigil.web.screens.episodes.counts import ALL, NONE, count_episodes
from vigil.web.screens.episodes.waiting import ActorQueue, held, read_queues

FILTERS: Final = ("actor", "expectation", "subject", "status", "error", "group", "after")

FAILED: Final = "failed"

GROUPS_MAX: Final = 100
"""Most rows of failures that are alike."""

GROUPED: Final = {"1": 1_000, "more": 10_000}
"""How failures are grouped → how many are looked at, of those that started last."""

DRY_RUN: Final = "dry run"
"""What marks what has changed nothing outside."""

NO_QUEUES: Final[Mapping[str, ActorQueue]] = {}

GROUP_CELLS: Final = (
    Cell("Cause", is_main=True),
    Cell("Episodes", is_number=True),
    Cell("First", is_number=True, is_spare=True),
    Cell("Last", is_number=True),
    Cell("Example", is_spare=True),
)

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
    at = asked.at
    counts = await count_episodes(
        client, actor=actor, expectation=expectation, subject=subject, at=at
    )
    beside = a(".btn", href=address(asked.path, status=FAILED, group="1"))["Failures by cause"]
    grouped = asked.filter("group")
    if asked.filter("status") == FAILED and grouped and at is None:
        newest = GROUPED.get(grouped, GROUPED["1"])
        groups = await client.episodes.failures(
            actor=actor, expectation=expectation, newest=newest, limit=GROUPS_MAX
        )
        return Drawn(
            title="Episodes",
            parts={"filters": filters(asked, counts), "list": alike(asked, groups, newest)},
        )
    page = await client.episodes.list(
        status=asked.filter("status"),
        actor=actor,
        expectation=expectation,
        subject=subject,
        error_class=asked.filter("error"),
        at=at,
        after=asked.filter("after"),
        limit=PAGE_ROWS,
    )
    queues = NO_QUEUES if at else await read_queues(client, page.items)
    return Drawn(
        title="Episodes",
        beside=at is None and counts.get(FAILED, NONE) != NONE and beside,
        parts={"filters": filters(asked, counts), "list": listed(asked, page, queues)},
    )


def filters(asked: PageRequest, counts: Mapping[str, str]) -> Node:
    """Return what the list can be narrowed to, with how many episodes there are of each status."""
    all_ = (None, "All", counts[ALL])
    each = (
        (status, status.replace("_", " "), counts.get(status, NONE)) for status in EPISODE_STATUSES
    )
    ways = [
        (None, "one by one", None),
        *((way, f"by cause, of the latest {most:,}", None) for way, most in GROUPED.items()),
    ]
    return [
        chips(asked, "status", [all_, *each]),
        asked.filter("status") == FAILED and asked.at is None and chips(asked, "group", ways),
        narrowing(
            asked,
            field("actor", "Actor", asked.filter("actor")),
            field("expectation", "Expectation", asked.filter("expectation")),
            field("subject", "Subject", asked.filter("subject")),
            field("error", "Error", asked.filter("error")),
            kept=("status", "group"),
        ),
        links(asked),
    ]


def alike(asked: PageRequest, groups: Sequence[FailureGroup], newest: int) -> Element:
    """Return failed episodes, those that failed alike as one row, of the `newest`."""
    if not groups:
        return card("None", nothing("No episode that fits these filters has failed."))
    return card(
        "Failed alike, latest first",
        rows_of(
            GROUP_CELLS,
            [_group(each, asked) for each in groups],
            keys=[
                f"{each.actor_id}.{each.expectation_id}.{each.error_class}.{each.tool_name}"
                for each in groups
            ],
        ),
        beside=f"{many(len(groups), 'cause')} among the latest {newest:,}",
    )


def _group(group: FailureGroup, asked: PageRequest) -> tuple[Node, ...]:
    members = address(
        asked.path,
        status=FAILED,
        actor=group.actor_id,
        expectation=group.expectation_id,
        error=group.error_class,
    )
    *_, last = ["", *(group.error_detail or "").strip().splitlines()]
    return (
        titled(
            members,
            f"{group.error_class or 'failed'} in {group.tool_name or 'its own code'}",
            " · ".join(filter(None, (f"{group.actor_id} / {group.expectation_id}", last))),
        ),
        count(group.episodes),
        when(group.first_at, asked.now),
        when(group.last_at, asked.now),
        episode_link(group.example_id),
    )


def listed(
    asked: PageRequest, page: Page[EpisodeSummary], queues: Mapping[str, ActorQueue]
) -> Element:
    """Return a page of episodes."""
    if not page.items:
        says = page.why_none or none_of(asked, "episode")
        return card("None", nothing(says, "An event, a schedule or a person starts episodes."))
    return card(
        "Latest first" if asked.at is None else "Latest opened first",
        table_of(page.items, asked, queues),
        pager(asked, page.next),
        beside=f"{len(page.items)} on this page",
    )


def table_of(
    episodes: Iterable[EpisodeSummary],
    asked: PageRequest,
    queues: Mapping[str, ActorQueue] = NO_QUEUES,
) -> Element:
    """Return a table of episodes, each that waits with what holds it."""
    shown = list(episodes)
    rows = [_row(each, asked, queues) for each in shown]
    return rows_of(CELLS, rows, keys=[each.episode_id for each in shown])


def _row(
    episode: EpisodeSummary, asked: PageRequest, queues: Mapping[str, ActorQueue]
) -> tuple[Node, ...]:
    return (
        fragment[
            titled(
                place("episodes", episode.episode_id),
                f"{episode.actor_id} / {episode.expectation_id}",
                said_of(episode),
            ),
            held(episode, queues) if asked.at is None else None,
        ],
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
    dry = DRY_RUN if episode.mode != "live" else ""
    said = (short(episode.episode_id), dry, subject, error_of(row) or episode.summary)
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
        "outputs": "waits for its outputs",
        "nondeterministic_replay": "waits for other code",
    }
    return words.get(episode.blocked_by, f"waits for {episode.blocked_by}")


SCREEN: Final = Screen(
    path="/episodes", draw=draw, section="/episodes", filters=FILTERS, has_past=True
)
