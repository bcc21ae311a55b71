"""What must hold of an actor that is data, however it is defined anew and whatever goes wrong.

As in `invariants.py`, each finds its own breaches in what a world has left behind. What is about
time is strict in worlds that are fine (`themes.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Final

from engine.cluster import nodes
from streams.json import unraw
from streams.keys import node_key
from streams.model.definitions import RegisteredDefinition, decode_registered, definition_key
from streams.model.events import (
    DefinitionApplied,
    DefinitionDisabled,
    DefinitionEvent,
    DefinitionKind,
    StepRecorded,
)
from tests.simulation.defining import ACTOR, EVENT, EXPECTATION, config_of
from tests.simulation.evidence import (
    Breaches,
    Evidence,
    Life,
    Placed,
    event_id_of,
    identity,
    readable,
)
from tests.simulation.themes import Theme
from tests.simulation.time import EPOCH
from tests.simulation.world import SKEW_S_MAX

SOON_S: Final = 1.0
"""In a world that is fine, every node has what was applied by then."""

SURE_S: Final = 40.0
"""In any other, what was under way when a node heard of it is over by then: a freeze, and as long
as a write keeps trying."""

Changes = Sequence[Placed[DefinitionEvent]]


def i1_an_event_opens_exactly_one_episode_of_what_is_defined(evidence: Evidence) -> Breaches:
    """Also one that came while nothing was defined: it waits until something is."""
    opened = Counter(event_id_of(life) for life in _lives(evidence))
    wanted = {identity(message) for message in readable(evidence, EVENT)} if _has(evidence) else ()
    if opened != Counter(wanted):
        yield f"{opened} for {wanted}"


def revisions_are_gapless(evidence: Evidence) -> Breaches:
    number = 0
    for before, placed in pairwise([None, *_changes(evidence)]):
        assert placed is not None, "only the first has none before it"
        match placed.event:
            case DefinitionApplied(revision=revision):
                number += 1
                if revision != number:
                    yield f"@{placed.seq}: revision {revision} is the {number}th"
            case DefinitionDisabled(revision=revision):
                if revision != number or not _is_applied(before):
                    yield f"@{placed.seq}: {placed.event} after {before}"


def an_episode_is_opened_under_what_was_applied_before(evidence: Evidence) -> Breaches:
    places = {placed.event.revision: placed.seq for placed in _applied(evidence)}
    for life in _lives(evidence):
        place = places.get(life.opened.revision)
        if place is None or place > life.records[0].seq:
            yield f"{life.id}: opened under {life.opened.revision}, applied at {place}"


def an_episode_goes_on_and_ends_under_its_own_revision(evidence: Evidence) -> Breaches:
    """Whoever took it over, and whatever held by then."""
    bodies = {placed.event.revision: placed.event.body for placed in _applied(evidence)}
    for life in _lives(evidence):
        config = config_of(bodies[life.opened.revision])
        wanted = [{"mark": config["mark"], "n": n, "token": "***"} for n in range(config["steps"])]
        took = [unraw(placed.event.args) for placed in life.of(StepRecorded)]
        said = unraw(life.converged.classification) if life.converged else {}
        if took != wanted or said.get("mark") != config["mark"]:
            yield f"{life.id}: {took} and {said}, revision {life.opened.revision} says {config}"


def a_node_opens_nothing_under_less_than_it_had_loaded(evidence: Evidence) -> Breaches:
    """By what it said of itself; what it was about to open by then is not counted."""
    leeway_s = SOON_S if evidence.history.programme.is_fine else SURE_S
    loaded = {node: list(_loaded(evidence, node)) for node in _nodes(evidence)}
    for life in _lives(evidence):
        decided_s = _s(life.records[0].commit.at) - SKEW_S_MAX - leeway_s
        known = [revision for at_s, revision in loaded[life.opened.opened_by] if at_s < decided_s]
        if known and life.opened.revision < max(known):
            yield f"{life.id}: opened under {life.opened}, its node had {max(known)}"


def in_fine_weather_an_episode_is_opened_under_what_holds(evidence: Evidence) -> Breaches:
    """And none is while it is disabled."""
    if not evidence.history.programme.is_fine:
        return
    said = list(_said(evidence))
    for life in _lives(evidence):
        at_s = evidence.opened_s(life)
        before = [each for put_s, each in said if put_s <= at_s - SOON_S][-1:]
        since = [each for put_s, each in said if at_s - SOON_S < put_s <= at_s]
        held = {each.revision for each in (*before, *since) if each.holds}
        if life.opened.revision not in held:
            yield f"{life.id}: opened under {life.opened.revision}, and {held} held"


def the_registry_says_what_the_journal_does(evidence: Evidence) -> Breaches:
    changes = _changes(evidence)
    if not changes:
        if _has(evidence):
            yield "nothing was ever applied"
        return
    newest = changes[-1].event
    _, stands = list(_said(evidence))[-1]
    if (stands.revision, stands.holds) != (newest.revision, _is_applied(changes[-1])):
        yield f"{stands} though {newest}"


def _has(evidence: Evidence) -> bool:
    return Theme.DEFINITIONS in evidence.history.programme.themes


def _lives(evidence: Evidence) -> Sequence[Life]:
    return evidence.of(EXPECTATION)


def _changes(evidence: Evidence) -> Changes:
    return evidence.definitions.get(f"{DefinitionKind.AGENT}.{ACTOR}", [])


def _applied(evidence: Evidence) -> Iterator[Placed[DefinitionApplied]]:
    for placed in _changes(evidence):
        if isinstance(placed.event, DefinitionApplied):
            yield Placed(placed.event, placed.seq, placed.commit_id)


def _is_applied(placed: Placed[DefinitionEvent] | None) -> bool:
    return placed is not None and isinstance(placed.event, DefinitionApplied)


def _said(evidence: Evidence) -> Iterator[tuple[float, RegisteredDefinition]]:
    """Yield what the registry said of the actor, with when it was put there, in order."""
    key = definition_key(DefinitionKind.AGENT, ACTOR)
    for kept in evidence.history.kept:
        edition = decode_registered(kept.value) if kept.key == key else None
        if edition is not None:
            yield kept.at_s, edition


def _nodes(evidence: Evidence) -> set[str]:
    return {life.opened.opened_by for life in _lives(evidence)}


def _loaded(evidence: Evidence, node: str) -> Iterator[tuple[float, int]]:
    """Yield when a node said which revision it has."""
    for kept in evidence.history.kept:
        info = nodes.decoded(kept.value) if kept.key == node_key(node) else None
        if info is not None and ACTOR in info.actors:
            yield kept.at_s, info.actors[ACTOR].revision


def _s(at: datetime) -> float:
    return (at - EPOCH).total_seconds()


INVARIANTS: Final[Sequence[Callable[[Evidence], Breaches]]] = (
    i1_an_event_opens_exactly_one_episode_of_what_is_defined,
    revisions_are_gapless,
    an_episode_is_opened_under_what_was_applied_before,
    an_episode_goes_on_and_ends_under_its_own_revision,
    a_node_opens_nothing_under_less_than_it_had_loaded,
    in_fine_weather_an_episode_is_opened_under_what_holds,
    the_registry_says_what_the_journal_does,
)
