"""Going anywhere by what one knows of it: an id, a name, a key, or the word of a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from htpy import Element, div, li, small, ul

from engine.runtime.gather import together
from projections.records import FindingSummary
from vigil.client import Client
from vigil.client.actors import ActorSummary
from vigil.errors import ServerAway, VigilError
from vigil.web.drawing.layout import SECTIONS
from vigil.web.drawing.parts import card, nothing, place, titled
from vigil.web.screen import Drawn, PageRequest, Screen, address

FOUND_MAX: Final = 20
"""Most places of one kind that are listed."""

FINDINGS_MAX: Final = 500
"""Most active findings whose keys are looked through."""

ID_CHARS_MIN: Final = 4
"""Shortest beginning of an id that is looked up."""


class Place(NamedTuple):
    """Somewhere to go."""

    href: str
    says: str
    kind: str


async def draw(client: Client, asked: PageRequest) -> Drawn:
    """Look for what was typed, and list where it may lead."""
    text = (asked.filter("q") or "").strip()
    found = await places(client, text) if text else pages("")
    return Drawn(title="Go to", parts={"found": listed(found, text)})


async def places(client: Client, text: str) -> list[Place]:
    """Return where `text` may lead: pages, actors, findings, and what has such an id."""
    actors, findings, by_id = await together(
        _actors(client), client.findings.list(limit=FINDINGS_MAX), _by_id(client, text)
    )
    return [*by_id, *pages(text), *of_actors(actors, text), *of_findings(findings.items, text)]


def pages(text: str) -> list[Place]:
    """Return the pages whose word has `text` in it."""
    return [Place(href, word, "page") for href, word in SECTIONS if text.lower() in word.lower()]


def of_actors(actors: Sequence[ActorSummary], text: str) -> list[Place]:
    """Return the actors and expectations whose name has `text` in it."""
    found = []
    for each in actors:
        if text.lower() in each.actor_id.lower():
            found.append(Place(place("actors", each.actor_id), each.actor_id, "actor"))
        found += [
            Place(
                address("/episodes", actor=each.actor_id, expectation=name),
                f"{each.actor_id} / {name}",
                "episodes of an expectation",
            )
            for name in each.expectations
            if text.lower() in name.lower()
        ]
    return found[:FOUND_MAX]


def of_findings(findings: Sequence[FindingSummary], text: str) -> list[Place]:
    """Return the active findings whose key or summary has `text` in it."""
    return [
        Place(place("findings", each.finding_key), each.summary, f"finding {each.finding_key}")
        for each in findings
        if text.lower() in f"{each.finding_key} {each.summary}".lower()
    ][:FOUND_MAX]


async def _actors(client: Client) -> Sequence[ActorSummary]:
    try:
        return await client.actors.list()
    except ServerAway:
        return ()


async def _by_id(client: Client, text: str) -> list[Place]:
    """Return the episode and the instance whose id begins with `text`."""
    if len(text) < ID_CHARS_MIN or not set(text.lower()) <= set("0123456789abcdef-"):
        return []
    looked = (("episodes", client.episodes.find), ("workflows", client.workflows.find))
    found = []
    for folder, find in looked:
        try:
            whole = await find(text)
        except VigilError:  # None has such an id, or several have.
            continue
        found.append(Place(place(folder, whole), str(whole), folder.removesuffix("s")))
    return found


def listed(found: Sequence[Place], text: str) -> Element:
    """Return where to go."""
    if not found:
        says = f"Nothing is called {text!r}."
        return card("Nothing", nothing(says, "Ids are found by their first four digits or more."))
    return card(
        "Found",
        ul(".list")[(li[div[titled(each.href, each.says), small[each.kind]]] for each in found)],
        beside=f"{len(found)}",
    )


SCREEN: Final = Screen(path="/go", draw=draw, is_live=False, filters=("q",))
