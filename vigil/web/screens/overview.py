"""The overview: what is wrong, what waits, what runs, and how it was over the last day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from htpy import Element, Node, a, div, fragment, li, p, small, span, ul

from engine.runtime.gather import together
from projections.records import CostSummary, EpisodeSummary, FindingSummary
from vigil.client import Client
from vigil.client.episodes import EpisodeSpan
from vigil.client.stack.definitions import DefinitionMoment
from vigil.client.stack.nodes import NodesView, StreamPosition
from vigil.errors import ServerAway
from vigil.web.drawing.charts import Bar, columns
from vigil.web.drawing.parts import (
    card,
    count,
    facts,
    look,
    many,
    money,
    nothing,
    pill,
    place,
    titled,
    when,
)
from vigil.web.screen import Drawn, PageRequest, Screen, address
from vigil.web.screens.episodes.counts import NONE, count_episodes
from vigil.web.screens.episodes.episodes import NO_QUEUES, table_of
from vigil.web.screens.episodes.waiting import ActorQueue, read_queues

SPAN_S: Final = 1_800
"""The length of time that a column of the chart stands for, in seconds."""

SPANS: Final = 48
"""Columns of the chart: a day."""

SHOWN: Final = 8
"""How many findings and episodes the overview lists."""

STACKED: Final = ("failed", "partially_failed", "blocked", "canceled", "queued", "running", "done")
"""The states of episodes as a column stacks them, from above."""


async def draw(client: Client, asked: PageRequest) -> Drawn:
    """Read what counts most, and draw it."""
    if asked.at is not None:
        return await draw_past(client, asked)
    nodes, positions = await _read_nodes(client)
    numbers, chart, latest, findings = await together(
        _numbers(client, asked),
        _day(client, asked, nodes),
        _latest(client, asked),
        _worst(client, asked),
    )
    return Drawn(
        title="Overview",
        parts={
            "facts": numbers,
            "chart": chart,
            "latest": latest,
            "findings": findings,
            "nodes": running_nodes(nodes, positions, asked),
        },
        side=("findings", "nodes"),
    )


async def draw_past(client: Client, asked: PageRequest) -> Drawn:
    """Read what counts most as it was, and draw it; charts, costs and nodes have no past."""
    numbers, latest, findings = await together(
        _numbers(client, asked), _latest(client, asked), _worst(client, asked)
    )
    return Drawn(
        title="Overview",
        parts={
            "facts": numbers,
            "latest": latest,
            "findings": findings,
            "unknown": p(".muted")["The chart, costs and nodes have no past, and are left out."],
        },
        side=("findings", "unknown"),
    )


async def _read_nodes(client: Client) -> tuple[NodesView | None, Sequence[StreamPosition]]:
    try:
        return await client.nodes.read(), await client.nodes.positions()
    except ServerAway:
        return None, ()


async def _numbers(client: Client, asked: PageRequest) -> Element:
    findings = await client.findings.count_active(at=asked.at)
    counts = await count_episodes(client, at=asked.at)
    waiting = await client.count_inbox(at=asked.at)
    cost: CostSummary | None = None
    if asked.at is None:
        costs = await client.costs(by="all", since=asked.now - timedelta(days=1), limit=1)
        cost = costs.total
    return figures(findings, counts, waiting, cost)


async def _day(client: Client, asked: PageRequest, nodes: NodesView | None) -> Element:
    since = first_span(asked.now)
    spans = await client.episodes.count_over_time(since=since, span_s=SPAN_S)
    changes = await client.definitions.changes(since=since)
    return activity(spans, deploys(changes, nodes, since), since)


async def _latest(client: Client, asked: PageRequest) -> Element:
    found = await client.episodes.list(limit=SHOWN, at=asked.at)
    queues = NO_QUEUES if asked.at else await read_queues(client, found.items)
    return lately(found.items, asked, queues)


async def _worst(client: Client, asked: PageRequest) -> Element:
    found = await client.findings.list(limit=SHOWN, at=asked.at)
    return wrong(found.items, asked)


def first_span(now: datetime) -> datetime:
    """Return when the first column of the chart begins: a day ago, at a whole span."""
    whole = int(now.timestamp()) // SPAN_S * SPAN_S
    return datetime.fromtimestamp(whole - (SPANS - 1) * SPAN_S, tz=UTC)


def figures(
    findings: Mapping[str, int],
    episodes: Mapping[str, str],
    waiting: Mapping[str, int],
    cost: CostSummary | None,
) -> Element:
    """Return the numbers that say whether all is well, each with a link to what it counts."""
    active, asking = sum(findings.values()), sum(waiting.values())
    counted = (
        ("Active findings", count(active), "/findings"),
        ("Waiting for people", count(asking), "/inbox"),
        ("Running", episodes.get("running", NONE), address("/episodes", status="running")),
        ("Queued", episodes.get("queued", NONE), address("/episodes", status="queued")),
        ("Blocked", episodes.get("blocked", NONE), address("/episodes", status="blocked")),
        ("Failed", episodes.get("failed", NONE), address("/episodes", status="failed")),
    )
    said: list[tuple[str, Node]] = [(word, a(href=href)[number]) for word, number, href in counted]
    spent = money(cost.cost_usd) if cost is not None else ""
    return facts([*said, ("Models, last day", spent and a(href="/costs")[spent])])


def deploys(
    changes: Sequence[DefinitionMoment], view: NodesView | None, since: datetime
) -> list[tuple[datetime, str]]:
    """Return what was deployed since then, and when: definitions, and nodes that are up.

    When those started that are gone, nobody knows any more.
    """
    nodes = () if view is None else view.nodes
    started = [
        (each.since, f"node {each.node} started, Vigil {each.version or 'unknown'}")
        for each in nodes
        if each.since is not None and each.since >= since
    ]
    applied = [
        (each.at, f"{each.kind} {each.definition_id} {each.change}, revision {each.revision}")
        for each in changes
    ]
    return sorted([*applied, *started])


def activity(
    spans: Sequence[EpisodeSpan], deployed: Sequence[tuple[datetime, str]], since: datetime
) -> Element:
    """Return how many episodes started in each half hour of a day, by what became of them."""
    by_time = {each.since: each.counts for each in spans}
    begins = [since + timedelta(seconds=number * SPAN_S) for number in range(SPANS)]
    marks: dict[int, list[str]] = {}
    for at, says in deployed:
        marks.setdefault(_span_of(at, since), []).append(f"{at:%H:%M} UTC: {says}")
    bars = [
        Bar(
            _says(begin, by_time.get(begin, {})),
            {look(status).hue: number for status, number in _stacked(by_time.get(begin, {}))},
            mark="\n".join(marks.get(number, ())),
        )
        for number, begin in enumerate(begins)
    ]
    total = sum(sum(counts.values()) for counts in by_time.values())
    label = f"{total:,} episodes started in the last day, by half hours"
    return card(
        "Episodes over the last day",
        div(".pad")[
            columns(bars, label),
            div(".axis")[
                span[f"{since:%H:%M}"], span[f"{begins[SPANS // 2]:%H:%M}"], span["now, UTC"]
            ],
        ],
        beside=f"{total:,} started"
        + (f" · {many(len(deployed), 'deploy')} marked" if deployed else ""),
    )


def _stacked(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return [(status, counts[status]) for status in reversed(STACKED) if counts.get(status)]


def _span_of(at: datetime, since: datetime) -> int:
    return int((at - since).total_seconds() // SPAN_S)


def _says(begin: datetime, counts: Mapping[str, int]) -> str:
    end = begin + timedelta(seconds=SPAN_S)
    said = ", ".join(f"{number:,} {status}" for status, number in sorted(counts.items()))
    return f"{begin:%H:%M} to {end:%H:%M} UTC: {said or 'none'}"


def lately(
    episodes: Sequence[EpisodeSummary], asked: PageRequest, queues: Mapping[str, ActorQueue]
) -> Element:
    """Return the latest episodes."""
    if not episodes:
        return card("Latest episodes", nothing("No episode yet.", _first_steps()))
    return card(
        "Latest episodes",
        table_of(episodes, asked, queues),
        beside=a(href="/episodes")["All"],
    )


def _first_steps() -> Node:
    return fragment[
        "Publish an event that an actor waits for, or ", a(href="/events")["fire one"], "."
    ]


def wrong(findings: Sequence[FindingSummary], asked: PageRequest) -> Element:
    """Return the worst findings that are active."""
    if not findings:
        return card("Active findings", nothing("Nothing is wrong that anybody has found."))
    return card(
        "Active findings",
        ul(".list")[
            (
                li(data_key=each.finding_key)[
                    div[
                        titled(place("findings", each.finding_key), each.summary),
                        small[each.actor_id, " · ", when(each.raised_at, asked.now)],
                    ],
                    pill(each.severity),
                ]
                for each in findings
            )
        ],
        beside=a(href="/findings")["All"],
    )


def running_nodes(
    view: NodesView | None, positions: Sequence[StreamPosition], asked: PageRequest
) -> Element:
    """Return the nodes and how far the rows are behind, or that nobody knows of any."""
    if view is None:
        return card("Nodes", p(".pad")["NATS is away, so nobody knows which nodes are up."])
    if not view.nodes:
        return card("Nodes", nothing("No node is up.", "Start one with vigil node."))
    return card(
        "Nodes",
        ul(".list")[
            (
                li[
                    div[
                        titled(place("nodes"), each.node),
                        small[
                            each.host,
                            fragment[" · since ", when(each.since, asked.now)]
                            if each.since
                            else None,
                        ],
                    ],
                    pill(each.state),
                ]
                for each in view.nodes
            )
        ],
        beside=a(href=place("nodes"))[lag(positions)],
    )


def lag(positions: Sequence[StreamPosition]) -> str:
    """Return how far the rows are behind the streams of commits, in words."""
    stopped = [each.part for each in positions if each.trouble]
    if stopped:
        return f"rows of {', '.join(stopped)} stopped"
    behind = sum(max(each.head - each.rows, 0) for each in positions if each.rows is not None)
    return f"rows {many(behind, 'commit')} behind" if behind else "rows are current"


SCREEN: Final = Screen(path="/", draw=draw, section="/", has_past=True)
