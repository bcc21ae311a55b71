"""A look at a stack: who is up, what people said, and whom anybody knows.

An actor may be spoken of while no node has it: it may be retired, or its nodes may be down for a
while. As long as a node is up, only a name that nobody knows is refused, for it is a typo: no node
that is up has such an actor, nothing is said about it, it was never defined as data, it has no
lane, and the rows show no episode of it. While none is up nobody can say, so that any name is
taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Final

import msgspec

from engine.cluster import modes
from engine.cluster.members import live_nodes
from engine.cluster.modes import Orders
from engine.cluster.nodes import NodeInfo, known
from projections.errors import PostgresUnavailable, QueryRefused
from projections.postgres.reader import list_episodes
from streams.keys import MODES, PAUSES
from streams.model.definitions import ID_KINDS, Edition
from streams.model.events.definitions import DefinitionKind
from streams.ports.all import Ports
from vigil.editions import actor_of, defined_by, edition_of, editions_in, in_code
from vigil.errors import Trouble
from vigil.settings import Reading
from vigil.stories import said, story_of
from vigil.work import pooled

NAMES_SHOWN_MAX: Final = 12
"""Most names that a hint lists."""

NEAREST: Final = 3
"""Most names that a hint takes for what was meant."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """Who is up, and what people said."""

    nodes: Sequence[NodeInfo]
    orders: Orders
    editions: Sequence[Edition] = ()
    """What is defined as data, also if it is disabled."""

    def actors(self) -> list[str]:
        """Return every actor of the nodes that are up."""
        return sorted({actor for node in self.nodes for actor in node.actors})

    def spoken_of(self) -> set[str]:
        """Return every actor that people said something about, or have defined."""
        modes = self.orders.modes.values()
        ordered = (actor for order in modes for actor in order.actors)
        defined = (actor_of(each.kind, each.id) for each in self.editions)
        return {*self.orders.pauses, *ordered, *defined}


async def look_at(ports: Ports) -> Look:
    """Return who is up, and what people said."""
    nodes = await live_nodes(ports.gates)
    # Only these: the registry also says what every episode waits for.
    said = [await ports.registry.entries(under=kind) for kind in (MODES, PAUSES)]
    entries = (entry for each in said for entry in each.values())
    editions = await editions_in(ports)
    return Look(nodes=nodes, orders=modes.orders_of(entries), editions=editions)


async def require_plausible(reading: Reading, ports: Ports, seen: Look, actor: str) -> None:
    """Refuse an actor that nobody knows while a node is up; without any, nobody can say.

    Raises:
        BadName: `actor` cannot name an actor.
        Trouble: says which names are near.
    """
    if seen.nodes:
        await require_known(reading, ports, seen, actor)


async def require_known(reading: Reading, ports: Ports, seen: Look, actor: str) -> None:
    """Refuse an actor that nobody knows, be a node up or not.

    Raises:
        BadName: `actor` cannot name an actor.
        Trouble: says which names are near.
    """
    names = {*seen.actors(), *seen.spoken_of()}
    if actor in names or await ports.log.last(ports.stack.lane(actor)) is not None:
        return
    try:
        async with pooled(reading) as pool:
            has_rows = bool(await list_episodes(pool, ports.stack, actor=actor, limit=1))
    except (PostgresUnavailable, QueryRefused):
        has_rows = False
    if not has_rows:
        kind, id_ = defined_by(actor)
        alike = [other for of, other in map(defined_by, names) if of is kind]
        a = "a" if kind is DefinitionKind.WORKFLOW else "an"
        raise Trouble(f"nobody knows {a} {ID_KINDS[kind]} {id_!r}; {hint(id_, alike)}")


async def require_in_force(ports: Ports, seen: Look, actor: str) -> None:
    """Refuse an actor that is, or begins, what was disabled.

    Raises:
        BadName: `actor` cannot name an actor.
        Trouble: says since when, and by whom.
        UnreadableEvent: a newer version has written it.
        Unavailable: the log is away.
    """
    kind, id_ = defined_by(actor)
    edition = edition_of(seen.editions, kind, id_)
    if edition is None or edition.holds or in_code(seen.nodes, kind, id_):
        return
    story = await story_of(ports, kind, id_)
    if story.disabled is not None:
        since = f"{ID_KINDS[kind]} {id_!r} is disabled since {said(story.disabled)}"
        raise Trouble(f"{since}; apply it again")


def require_expectation(seen: Look, actor: str, expectation: str) -> None:
    """Refuse an expectation that no node knows which is up and has the actor.

    Raises:
        Trouble: says which names are near.
    """
    expectations = known(seen.nodes, actor)
    if expectations and expectation not in expectations:
        near = hint(expectation, expectations)
        raise Trouble(f"actor {actor!r} has no expectation {expectation!r}; {near}")


def waking_obstacle(seen: Look, actor: str) -> str:
    """Return why nothing wakes `actor` now, or runs it, in words; empty: something does."""
    infos = [node.actors[actor] for node in seen.nodes if actor in node.actors]
    pause = seen.orders.pauses.get(actor)
    if pause is not None:
        paused = f"it is paused ({pause.reason or f'by {pause.by}'})"
        why = running_obstacle(seen, actor)
        return f"{paused}, and {why}" if why else paused
    if (infos or _is_closed(seen, actor)) and not any(info.wakes for info in infos):
        return "no node that is up wakes it"
    return running_obstacle(seen, actor)


def running_obstacle(seen: Look, actor: str) -> str:
    """Return why nothing runs the episodes of `actor` now, in words; empty: something does."""
    infos = [node.actors[actor] for node in seen.nodes if actor in node.actors]
    if _is_closed(seen, actor) or any(info.runs for info in infos):
        return ""
    return "no node that is up runs it" if infos else "no node that is up has it"


def _is_closed(seen: Look, actor: str) -> bool:
    """Return whether a node has only that go on which is open of `actor`."""
    return any(actor in node.closed for node in seen.nodes)


def hint(wanted: str, names: Iterable[str]) -> str:
    """Return which of `names` may have been meant, or which there are."""
    there = sorted(names)
    if meant := near_hint(wanted, there):
        return meant
    more = ", …" if len(there) > NAMES_SHOWN_MAX else ""
    return f"known: {', '.join(there[:NAMES_SHOWN_MAX])}{more}" if there else "none is known"


def near_hint(wanted: str, names: Iterable[str]) -> str:
    """Return which of `names` may have been meant, in words; empty: none is near."""
    near = get_close_matches(wanted, sorted(names), n=NEAREST)
    return f"did you mean {' or '.join(near)}?" if near else ""
