"""Events: which fired nothing lately and why, what became of one, and forms to publish and fire."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from secrets import token_urlsafe
from typing import Final

import msgspec
from htpy import Element, Node, a, button, div, form, fragment, small, strong

from engine.operations.events.why_event import EventVerdict, EventVerdicts
from engine.operations.events.would_rule import WouldVerdict
from engine.people.identity import Role
from projections.records import RefusalSummary
from streams.model.refusals import (
    AgainstBreaker,
    AgainstCooldown,
    AgainstEpisode,
    AgainstHolder,
    AgainstLane,
    Refusal,
)
from vigil.asking.would import WouldVerdicts
from vigil.client import Client
from vigil.client.events import PublishedEvent
from vigil.client.page import Page
from vigil.errors import Mistake, NotFound
from vigil.printing.tables import as_json
from vigil.web.drawing.parts import (
    Cell,
    act,
    card,
    copied,
    episode_link,
    facts,
    field,
    fold,
    long_field,
    many,
    may_order,
    narrowing,
    nothing,
    pager,
    pill,
    place,
    rows_of,
    short,
    tick,
    titled,
    value,
    when,
    why_field,
)
from vigil.web.screen import PAGE_ROWS, Drawn, PageRequest, Screen

FILTERS: Final = ("actor", "expectation", "event", "reason", "after")

KEY_BYTES: Final = 12
"""Random bytes of the key of a form: pressed twice, it fires once."""

CELLS: Final = (
    Cell("Event", is_main=True),
    Cell("Reason"),
    Cell("Expectation", is_spare=True),
    Cell("When", is_number=True),
)


async def draw(client: Client, asked: PageRequest) -> Drawn:
    """Read which events fired nothing lately, and draw them."""
    page = await client.events.refusals(
        actor=asked.filter("actor"),
        expectation=asked.filter("expectation"),
        event=asked.filter("event"),
        reason=asked.filter("reason"),
        after=asked.filter("after"),
        limit=PAGE_ROWS,
    )
    published = await client.events.latest(limit=SHOWN)
    return Drawn(
        title="Events",
        beside=may_order(asked)
        and fragment[a(".btn", href="/publish")["Publish"], a(".btn", href="/fire")["Fire"]],
        parts={
            "why": asking(),
            "filters": filters(asked),
            "list": list_of(asked, page),
            "latest": lately(published, asked),
        },
    )


SHOWN: Final = 15
"""How many of the events that were published last the page has."""


def lately(events: Sequence[PublishedEvent], asked: PageRequest) -> Element:
    """Return the events that were published last, each with a link to what became of it."""
    if not events:
        return card("Published lately", nothing("Nothing was published lately."))
    return card(
        "Published lately",
        rows_of(
            (Cell("Event", is_main=True), Cell("When", is_number=True)),
            [
                (titled(place("events", each.id), each.name, each.id), when(each.at, asked.now))
                for each in events
            ],
            keys=[f"p{each.seq}" for each in events],
        ),
        beside="of whatever became of them",
    )


def asking(id_: str = "") -> Element:
    """Return the form that asks what became of an event."""
    return card(
        "Why did an event not fire?",
        form(".row", method="get", action="/events/why")[
            field("id", "Id of the event", id_, placeholder="As it was published", required=True),
            button(".primary", type="submit")["Ask"],
        ],
        is_padded=True,
    )


def filters(asked: PageRequest) -> Element:
    """Return what the list can be narrowed to."""
    return narrowing(
        asked,
        field("actor", "Actor", asked.filter("actor")),
        field("event", "Event", asked.filter("event")),
        field("reason", "Reason", asked.filter("reason")),
    )


def list_of(asked: PageRequest, page: Page[RefusalSummary]) -> Element:
    """Return a page of events that did not fire an expectation."""
    if not page.items:
        hint = "Events that no expectation watches are among those that were published lately."
        return card("Not fired", nothing(page.why_none or "No event was refused lately.", hint))
    return card(
        "Not fired, latest first",
        rows_of(
            CELLS,
            [_row(each, asked) for each in page.items],
            keys=[f"{each.journal_seq}" for each in page.items],
        ),
        pager(asked, page.next),
        beside="kept for a day",
    )


def _row(refusal: RefusalSummary, asked: PageRequest) -> tuple[Node, ...]:
    about = " ".join(filter(None, (refusal.event, refusal.subject_id)))
    return (
        titled(place("events", refusal.event_id), about, refusal.compared_with),
        pill("refused", refusal.reason.replace("_", " ")),
        f"{refusal.actor_id} / {refusal.expectation_id}",
        when(refusal.refused_at, asked.now),
    )


async def draw_why(client: Client, asked: PageRequest) -> Drawn:
    """Read what became of an event, and draw it."""
    id_ = asked.words.get("id") or asked.filter("id") or ""
    if not id_:
        return Drawn(title="Why did an event not fire?", parts={"ask": asking()})
    found = await client.events.why(id_)
    if not found.name:
        return unknown(id_, found)
    states = await states_of(client, found.verdicts)
    return Drawn(
        title=f"{found.name or 'Event'}",
        beside=small(".id")[id_],
        parts={
            "facts": facts(
                [
                    ("Published", when(found.at, asked.now)),
                    ("Fired", str(sum(each.outcome == "opened" for each in found.verdicts))),
                    ("Failed", str(failed) if (failed := _failed(states)) else None),
                    ("Refused", str(sum(each.outcome == "refused" for each in found.verdicts))),
                    ("Expectations", str(len(found.verdicts))),
                ]
            ),
            "verdicts": verdicts(found, states, asked),
            "copies": card(
                "Copy it",
                copied("As a command", shlex.join(["vigil", "events", "why", id_])),
                copied("As JSON", as_json({"event_id": id_, "event": msgspec.to_builtins(found)})),
            ),
            "ask": asking(id_),
        },
        up=("/events", "Events"),
    )


def unknown(id_: str, found: EventVerdicts) -> Drawn:
    """Return a page of an id of which nothing is known any more, if it ever was one."""
    hint = "It may be older than that, or called otherwise: its id is what it was published with."
    return Drawn(
        title="No such event",
        beside=small(".id")[id_],
        parts={
            "none": card("Nothing is known of it", nothing(found.why_none, hint)),
            "ask": asking(id_),
        },
        up=("/events", "Events"),
    )


VERDICTS: Final = (
    Cell("Expectation", is_main=True),
    Cell("Verdict"),
    Cell("What came of it, or holds it"),
)


STATES_MAX: Final = 50
"""Most episodes and instances of an event whose state is read."""


async def states_of(client: Client, told: Sequence[EventVerdict]) -> Mapping[str, str]:
    """Return the states of what an event has opened, by id, as far as the rows have it."""
    states: dict[str, str] = {}
    for each in [each for each in told if each.outcome == "opened"][:STATES_MAX]:
        with suppress(NotFound):  # The rows follow in a moment.
            if each.instance_id:
                states[each.instance_id] = (await client.workflows.get(each.instance_id)).status
            else:
                states[each.episode_id] = (await client.episodes.get(each.episode_id)).status
    return states


def _failed(states: Mapping[str, str]) -> int:
    return sum(each in {"failed", "partially_failed"} for each in states.values())


def verdicts(found: EventVerdicts, states: Mapping[str, str], asked: PageRequest) -> Element:
    """Return what each expectation did with an event, with a link to what kept it from firing."""
    if not found.verdicts:
        return card("Nobody watches it", nothing(found.why_none))
    return card(
        "What each expectation did with it",
        rows_of(
            VERDICTS,
            [_verdict(each, states, asked) for each in found.verdicts],
            keys=[f"{each.actor}.{each.expectation}" for each in found.verdicts],
        ),
        (
            fold(
                f"{each.actor} / {each.expectation}: what it was compared with",
                value(msgspec.to_builtins(each.refusal.against)),
                key=f"a.{each.actor}.{each.expectation}",
            )
            for each in found.verdicts
            if each.refusal is not None and each.refusal.against is not None
        ),
        beside=many(len(found.verdicts), "expectation"),
    )


def _verdict(
    verdict: EventVerdict, states: Mapping[str, str], asked: PageRequest
) -> tuple[Node, ...]:
    return (
        titled(
            place("actors", verdict.actor), f"{verdict.actor} / {verdict.expectation}", verdict.why
        ),
        pill(verdict.outcome, _word(verdict)),
        fragment[_holder(verdict, asked), _state(verdict, states)],
    )


def _state(verdict: EventVerdict, states: Mapping[str, str]) -> Node:
    """Return what has become of what an event has opened."""
    state = states.get(verdict.instance_id or verdict.episode_id)
    return fragment[" ", pill(state)] if state else None


def _word(verdict: EventVerdict) -> str:
    if verdict.outcome == "refused" and verdict.refusal is not None:
        return verdict.refusal.reason.replace("_", " ")
    return {"opened": "fired", "waits": "waits for calm"}.get(verdict.outcome, "")


def _holder(verdict: EventVerdict, asked: PageRequest) -> Node:
    """Return a link to what came of an event, or to what kept it from firing."""
    if verdict.instance_id:
        return a(".id", href=place("workflows", verdict.instance_id))[short(verdict.instance_id)]
    if verdict.episode_id:
        return episode_link(verdict.episode_id)
    return holder_of(verdict.refusal, asked) if verdict.refusal is not None else None


def holder_of(refusal: Refusal, asked: PageRequest) -> Node:
    """Return a link to what kept an event from firing; None: nothing that has a page."""
    match refusal.against:
        case AgainstCooldown(episode_id=id_, until=until):
            return fragment[
                episode_link(id_), fragment[", until ", when(until, asked.now)] if until else None
            ]
        case AgainstHolder(episode_id=id_) | AgainstEpisode(episode_id=id_) if id_:
            return episode_link(id_)
        case AgainstBreaker(failures=failures):
            return _several(failures)
        case AgainstLane():
            return a(href=place("actors", refusal.actor))["its lane"]
        case _:
            return None


def _several(ids: Sequence[str]) -> Node:
    return [[number > 0 and ", ", episode_link(each)] for number, each in enumerate(ids)]


async def draw_publish(client: Client, asked: PageRequest) -> Drawn:
    """Draw the form that publishes an event, and what it would fire if that was asked."""
    id_ = asked.filter("id") or f"console-{token_urlsafe(KEY_BYTES)}"
    name, payload = asked.filter("name"), asked.filter(PAYLOAD)
    parts: dict[str, Node] = {"form": publish(asked, id_)}
    if name is not None and payload is not None:
        try:
            found = await client.events.would_fire(name, payload.encode(), id=id_)
            parts["would"] = would(found, asked)
        except Mistake as error:  # What was typed stays where it is.
            parts["would"] = div(".note", role="alert")[
                strong["That cannot be published."], str(error)
            ]
    return Drawn(title="Publish an event", parts=parts, up=("/events", "Events"))


PAYLOAD: Final = "payload:json"


def publish(asked: PageRequest, id_: str) -> Element:
    """Return the form that publishes an event, once however often it is pressed."""
    name = field("name", "Name", asked.filter("name"), placeholder="disk.measured", required=True)
    return card(
        "An event of the outside",
        act(
            "events.publish",
            "Publish",
            {"id": id_, "back": place("events", id_)},
            name,
            long_field(PAYLOAD, "Payload", asked.filter(PAYLOAD) or "{}", hint="A JSON object."),
            button(type="submit", formaction="/publish")["What would it fire?"],
            is_primary=True,
            is_tall=True,
        ),
        beside=id_,
    )


def would(found: WouldVerdicts, asked: PageRequest) -> Element:
    """Return what each expectation would do with an event."""
    title = "What it would fire; nothing is published"
    if not found.verdicts:
        return card(title, nothing("Nobody watches it.", found.why_none))
    return card(
        title,
        rows_of(
            VERDICTS,
            [
                (
                    titled(
                        place("actors", each.actor), f"{each.actor} / {each.expectation}", each.why
                    ),
                    pill(WOULD_LOOKS[each.outcome], _would_word(each)),
                    holder_of(each.refusal, asked) if each.refusal is not None else None,
                )
                for each in found.verdicts
            ],
            keys=[f"{each.actor}.{each.expectation}" for each in found.verdicts],
        ),
        beside=many(len(found.verdicts), "expectation"),
    )


WOULD_LOOKS: Final[Mapping[str, str]] = {
    "fires": "opened",
    "refused": "refused",
    "waits": "waits",
    "unknown": "unknown",
}
"""Outcome → the state that it looks like."""


def _would_word(verdict: WouldVerdict) -> str:
    if verdict.refusal is not None:
        return verdict.refusal.reason.replace("_", " ")
    return {"fires": "would fire", "waits": "would wait"}.get(verdict.outcome, "")


async def draw_fire(client: Client, asked: PageRequest) -> Drawn:  # noqa: ARG001 - as screens are
    """Draw the form that opens an episode by hand."""
    return Drawn(
        title="Fire an expectation",
        parts={"form": fire(asked, f"console-{token_urlsafe(KEY_BYTES)}")},
        up=("/events", "Events"),
    )


def fire(asked: PageRequest, key: str) -> Element:
    """Return the form that opens an episode by hand, once however often it is pressed."""
    return card(
        "An episode by hand",
        act(
            "episodes.fire",
            "Fire",
            {"key": key, "back": place("episodes") + "/{episode_id}"},
            field("actor", "Actor", asked.filter("actor"), required=True),
            field("expectation", "Expectation", asked.filter("expectation"), required=True),
            long_field(
                "payload:json", "Payload", "{}", hint="A JSON object: what the trigger brings."
            ),
            why_field(),
            tick("dry_run", "Dry run: it reads, and changes nothing outside"),
            is_primary=True,
            is_tall=True,
        ),
        beside=key,
    )


SCREEN: Final = Screen(path="/events", draw=draw, section="/events", filters=FILTERS)

WHY: Final = Screen(path="/events/why", draw=draw_why, section="/events", filters=("id",))

ONE: Final = Screen(path="/events/{id:path}", draw=draw_why, section="/events")

PUBLISH: Final = Screen(
    path="/publish",
    draw=draw_publish,
    section="/events",
    role=Role.OPERATOR,
    is_live=False,
    is_form=True,
    orders=True,
    filters=("name",),
)

FIRE: Final = Screen(
    path="/fire",
    draw=draw_fire,
    section="/events",
    role=Role.OPERATOR,
    is_live=False,
    orders=True,
    filters=("actor", "expectation"),
)
