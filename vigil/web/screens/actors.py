"""Actors: who runs them and what waits for them; one of them with each of its expectations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec
from htpy import Element, Node, a, code, div, fragment, h3, li, p, small, span, ul

from engine.app.triggers import next_tick, schedule_in
from projections.records import EpisodeSummary, RefusalSummary, ServiceLevelRecord
from vigil.client import Client
from vigil.client.actors import ActorRecord, ActorSummary, ExpectationSummary
from vigil.client.episodes import EpisodeSpan
from vigil.printing.columns import length
from vigil.web.drawing.charts import sparkline
from vigil.web.drawing.parts import (
    Cell,
    act,
    card,
    count,
    facts,
    fold,
    lasted,
    listed,
    many,
    may_order,
    nothing,
    pill,
    place,
    rows_of,
    sheet,
    titled,
    value,
    when,
    why_field,
)
from vigil.web.screen import Drawn, PageRequest, Screen, address
from vigil.web.screens.episodes.episodes import said_of, waiting_words

ACTORS_MAX: Final = 500
"""Most actors that the list has; who has more narrows it by a name."""

EXPECTATIONS_MAX: Final = 20
"""Most expectations of which the page tells the latest firings and refusals."""

SHOWN: Final = 5
"""How many firings, refusals and ticks of each expectation are told."""

HOUR_S: Final = 3_600

HOURS: Final = 24

CELLS: Final = (
    Cell("Actor", is_main=True),
    Cell("State"),
    Cell("Queued", is_number=True),
    Cell("Running", is_number=True),
    Cell("Blocked", is_number=True, is_spare=True),
    Cell("Events", is_number=True, is_spare=True),
    Cell("Slots", is_number=True, is_spare=True),
)


async def draw(client: Client, asked: PageRequest) -> Drawn:  # noqa: ARG001 - as screens are
    """Read the actors, and draw them."""
    return Drawn(title="Actors", parts={"list": list_of(await client.actors.list())})


def list_of(actors: Sequence[ActorSummary]) -> Element:
    """Return the actors, each with what waits for it."""
    if not actors:
        return card("None", nothing("Nobody knows an actor.", "Start a node that has an app."))
    shown = actors[:ACTORS_MAX]
    return card(
        "By name",
        rows_of(CELLS, [_row(each) for each in shown], keys=[each.actor_id for each in shown]),
        beside=many(len(actors), "actor"),
    )


def _row(actor: ActorSummary) -> tuple[Node, ...]:
    nodes = ", ".join(actor.nodes)
    below = " · ".join(
        filter(None, (actor.description, many(len(actor.expectations), "expectation"), nodes))
    )
    return (
        titled(place("actors", actor.actor_id), actor.actor_id, below),
        pill(*state_of(actor)),
        _number(actor.queued),
        _number(actor.running),
        _number(actor.blocked),
        _number(actor.events),
        count(actor.slots),
    )


def _number(of: object) -> str:
    """Return how many; what cannot be known stands as it is told."""
    return of if isinstance(of, str) else count(of)


def state_of(actor: ActorSummary) -> tuple[str, str]:
    """Return the state of an actor, and its word."""
    if actor.paused:
        return "paused", ""
    if actor.problems:
        return "problem", ""
    if not actor.waking and not actor.running_on:
        return "not up", "no node"
    if not actor.waking or not actor.running_on:
        return "partly", "opens none" if not actor.waking else "runs none"
    return "up", ""


async def draw_one(client: Client, asked: PageRequest) -> Drawn:
    """Read an actor and what its expectations did lately, and draw them."""
    actor = asked.words["id"]
    record = await client.actors.get(actor)
    levels = {each.expectation_id: each for each in await client.actors.service_levels(actor=actor)}
    told = [
        await _told(client, actor, each, asked.now)
        for each in record.expectations[:EXPECTATIONS_MAX]
    ]
    return Drawn(
        title=actor,
        beside=fragment[pill(*state_of(record.summary)), code(".id")[record.summary.domain or ""]],
        parts={
            "facts": figures(record.summary),
            **{
                f"e-{each.expectation.expectation}": expectation_of(
                    actor, each, levels.get(each.expectation.expectation), asked
                )
                for each in told
            },
            "more": _more(record),
            "state": state(record, asked),
            "about": about(record),
        },
        side=("state", "about"),
        up=("/actors", "Actors"),
    )


class ToldExpectation(msgspec.Struct, frozen=True, kw_only=True):
    """An expectation, and what became of the latest events."""

    expectation: ExpectationSummary
    fired: Sequence[EpisodeSummary]
    refused: Sequence[RefusalSummary]
    by_hour: Sequence[int]
    """How many episodes started in each hour of the last day."""


async def _told(
    client: Client, actor: str, expectation: ExpectationSummary, now: datetime
) -> ToldExpectation:
    name, since = expectation.expectation, first_hour(now)
    fired = await client.episodes.list(actor=actor, expectation=name, limit=SHOWN)
    refused = await client.events.refusals(actor=actor, expectation=name, limit=SHOWN)
    spans = await client.episodes.count_over_time(
        since=since, span_s=HOUR_S, actor=actor, expectation=name
    )
    return ToldExpectation(
        expectation=expectation,
        fired=fired.items,
        refused=refused.items,
        by_hour=by_hour(spans, since),
    )


def first_hour(now: datetime) -> datetime:
    """Return when the first hour of the last day began."""
    whole = int(now.timestamp()) // HOUR_S * HOUR_S
    return datetime.fromtimestamp(whole - (HOURS - 1) * HOUR_S, tz=UTC)


def by_hour(spans: Sequence[EpisodeSpan], since: datetime) -> list[int]:
    """Return how many episodes started in each hour since then."""
    found = [0] * HOURS
    for each in spans:
        hour = int((each.since - since).total_seconds() // HOUR_S)
        if 0 <= hour < HOURS:
            found[hour] += sum(each.counts.values())
    return found


def figures(actor: ActorSummary) -> Element:
    """Return the numbers of an actor."""
    return facts(
        [
            ("Queued", _number(actor.queued)),
            ("Running", _number(actor.running)),
            ("Blocked", _number(actor.blocked)),
            ("Events", _number(actor.events)),
            ("Due", _number(actor.due)),
            ("Commands", _number(actor.commands)),
        ]
    )


def expectation_of(
    actor: str, told: ToldExpectation, level: ServiceLevelRecord | None, asked: PageRequest
) -> Element:
    """Return an expectation: when it fires, when it did, and when and why it did not."""
    said = told.expectation
    name = said.expectation
    total = sum(told.by_hour)
    return card(
        name,
        div(".pad.expectation")[
            ul(".tags")[(li[each] for each in said.triggers)],
            div[
                sparkline(
                    told.by_hour, f"{many(total, 'episode')} of {name} in the last day, by hours"
                ),
                small[f"{many(total, 'episode')} in the last day"],
            ],
        ],
        sheet(
            [
                ("Next", _ticks(said.next_ticks, asked.now)),
                ("Breaker", _breaker(actor, said, asked)),
                ("Cooling down", count(said.cooling_down or None)),
                ("Waiting for calm", count(said.waiting_for_calm or None)),
                ("Service level", _level(level)),
                *_options(said.options),
            ]
        ),
        h3["Last firings"],
        listed([_fired(each, asked) for each in told.fired])
        if told.fired
        else nothing("It has opened no episode yet."),
        fragment[h3["Last refusals"], listed([_refused(each, asked) for each in told.refused])]
        if told.refused
        else None,
        div(".pager")[
            a(".btn", href=address("/events/why"))["Why did it not fire?"],
            a(".btn", href=address("/episodes", actor=actor, expectation=name))["All episodes"],
            may_order(asked)
            and a(".btn", href=address("/fire", actor=actor, expectation=name))["Fire it"],
        ],
        beside=many(len(said.triggers), "trigger"),
    )


def _ticks(next_ticks: Mapping[str, object], now: datetime) -> Node:
    """Return when the schedules of an expectation are due next, in order."""
    if not next_ticks:
        return None
    return ul(".items")[
        (
            li[
                code[spec.split(" #")[0]],
                ": ",
                _times(spec, due, now)
                if isinstance(due, datetime)
                else str(due or "due now, or not armed"),
            ]
            for spec, due in next_ticks.items()
        )
    ]


def _times(spec: str, due: datetime, now: datetime) -> Node:
    times = firings(spec, due)
    return [[number > 0 and ", ", when(each, now)] for number, each in enumerate(times)]


def firings(spec: str, due: datetime) -> list[datetime]:
    """Return the next times at which a schedule fires, the first of which is known."""
    schedule, times = schedule_in(spec), [due]
    while schedule is not None and len(times) < SHOWN:
        try:
            times.append(next_tick(schedule, times[-1]))
        except ValueError:
            break
    return times


def _breaker(actor: str, said: ExpectationSummary, asked: PageRequest) -> Node:
    if said.breaker is None:
        return None
    is_shut = said.breaker in {"closed", "per node"}
    return fragment[
        pill(said.breaker),
        not is_shut
        and may_order(asked)
        and act(
            "actors.reset",
            "Close it",
            {"actor": actor, "expectation": said.expectation},
            why_field(),
        ),
    ]


def _level(level: ServiceLevelRecord | None) -> Node:
    if level is None:
        return None
    wanted = (
        f"{level.ratio:.1%} of {many(level.episodes, 'episode')}, of {level.success:.1%} promised"
    )
    return fragment[
        pill("ok" if level.is_kept else "problem", "kept" if level.is_kept else "missed"),
        f" {wanted}",
    ]


UNSAID: Final = frozenset({"breaker", "service_level"})
"""The options that the page tells otherwise."""


def _options(options: Mapping[str, object]) -> list[tuple[str, Node]]:
    return [
        _option(name, said)
        for name, said in options.items()
        if name not in UNSAID and said is not None
    ]


def _option(name: str, said: object) -> tuple[str, Node]:
    if name.endswith("_s") and isinstance(said, int | float):
        name, said = name.removesuffix("_s"), length(said)
    shown = said if isinstance(said, str) else code[json.dumps(said, ensure_ascii=False)]
    return name.replace("_", " ").capitalize(), shown


def _fired(episode: EpisodeSummary, asked: PageRequest) -> Node:
    return fragment[
        div[
            titled(place("episodes", episode.episode_id), said_of(episode)),
            small[
                when(episode.started_at or episode.queued_at, asked.now),
                f" · took {lasted(episode.wall_used_ms)}" if episode.wall_used_ms else None,
            ],
        ],
        pill(episode.status, waiting_words(episode)),
    ]


def _refused(refusal: RefusalSummary, asked: PageRequest) -> Node:
    return fragment[
        div[
            titled(
                place("events", refusal.event_id),
                f"{refusal.event} {refusal.subject_id or ''}",
                refusal.compared_with,
            ),
            small[when(refusal.refused_at, asked.now)],
        ],
        pill("refused", refusal.reason.replace("_", " ")),
    ]


def _more(record: ActorRecord) -> Node:
    left = len(record.expectations) - EXPECTATIONS_MAX
    return left > 0 and p(".muted")[f"{many(left, 'more expectation')} not shown."]


def state(record: ActorRecord, asked: PageRequest) -> Node:
    """Return whether an actor is paused and what keeps it from running, and the forms for that."""
    summary, actor = record.summary, {"actor": record.summary.actor_id}
    trouble = [f"{node}: {why}" for node, why in summary.problems.items()]
    return fragment[
        div(".note")[
            span[f"Paused: {summary.paused}"],
            small["Nodes open no episode of it: events wait, and what is open goes on."],
            may_order(asked)
            and act("actors.resume", "Resume", actor, why_field(), is_primary=True),
        ]
        if summary.paused
        else None,
        div(".note")[(p[each] for each in [*trouble, *record.differences])]
        if trouble or record.differences
        else None,
        card(
            "Pause it",
            p(".muted")["No node opens episodes of it then. Open ones go on, and events wait."],
            act("actors.pause", "Pause", actor, why_field()),
            is_padded=True,
        )
        if not summary.paused and may_order(asked)
        else None,
    ]


def about(record: ActorRecord) -> Element:
    """Return what an actor is for, and where it runs."""
    summary = record.summary
    revision = summary.revision
    return card(
        "About it",
        sheet(
            [
                ("For", summary.description),
                ("Source", summary.source),
                (
                    "Definition",
                    a(href=place("definitions", "actor", summary.actor_id))[f"revision {revision}"]
                    if revision
                    else None,
                ),
                ("Version", summary.spec_rev),
                ("Opens on", ", ".join(summary.waking)),
                ("Runs on", ", ".join(summary.running_on)),
                ("Slots", count(summary.slots)),
            ]
        ),
        fold("Limits", value(summary.limits), key="limits") if summary.limits else None,
        fold("As a command", value(f"vigil actors show {summary.actor_id}"), key="command"),
        beside=a(href=address("/orders", actor=summary.actor_id))["Orders"],
    )


SCREEN: Final = Screen(path="/actors", draw=draw, section="/actors")

ONE: Final = Screen(path="/actors/{id}", draw=draw_one, section="/actors")
