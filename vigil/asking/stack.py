"""A stack as its registry shows it: nodes that are up, orders of people, and definitions.

While a node is up, a name that nobody knows is refused as a typo; otherwise any is accepted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, TypeAlias

import msgspec

from engine.app.workflow_plan import PREFIX, starter_id
from engine.cluster import modes
from engine.cluster.members import live_nodes
from engine.cluster.modes import Orders
from engine.cluster.nodes import ExpectationInfo, NodeInfo, known
from engine.definitions.store import DefinitionCommit, definition_history
from engine.triggers import debounce
from projections.errors import PostgresUnavailable, QueryRefused
from projections.postgres.pool import Pool
from projections.postgres.reader import list_episodes
from streams.keys import DEFINITIONS, MODES, PAUSES
from streams.model.definitions import (
    ID_KINDS,
    RegisteredDefinition,
    decode_registered,
    definition_id,
)
from streams.model.events import DefinitionApplied
from streams.model.events.definitions import DefinitionKind
from streams.model.foreign_streams import ForeignStream
from streams.model.modes import NodeMode
from streams.ports.all import Ports
from vigil.errors import NotFound, Trouble, hint
from vigil.printing.tables import Row


class StackView(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes that are up, the orders of people, and the definitions."""

    nodes: Sequence[NodeInfo]
    orders: Orders
    definitions: Sequence[RegisteredDefinition] = ()
    """What is defined as data, also if it is disabled."""

    def actors(self) -> list[str]:
        """Return every actor of the nodes that are up."""
        return sorted({actor for node in self.nodes for actor in node.actors})

    def mentioned(self) -> set[str]:
        """Return every actor that has an order, or is defined."""
        modes = self.orders.modes.values()
        ordered = (actor for order in modes for actor in order.actors)
        defined = (actor_of(each.kind, each.id) for each in self.definitions)
        return {*self.orders.pauses, *ordered, *defined}


async def read_stack(ports: Ports) -> StackView:
    """Return the nodes that are up, the orders of people, and the definitions."""
    nodes = await live_nodes(ports.gates)
    # Only these: the registry also says what every episode waits for.
    when_and_who = [await ports.registry.entries(under=kind) for kind in (MODES, PAUSES)]
    entries = (entry for each in when_and_who for entry in each.values())
    definitions = await read_definitions(ports)
    return StackView(nodes=nodes, orders=modes.orders_of(entries), definitions=definitions)


OpensRows: TypeAlias = Callable[[], AbstractAsyncContextManager[Pool]]
"""Connects to the rows; raises `PostgresUnavailable`."""


async def require_plausible(rows: OpensRows, ports: Ports, seen: StackView, actor: str) -> None:
    """Refuse an actor that nobody knows while a node is up: `NotFound` names those near."""
    if seen.nodes:
        await require_known(rows, ports, seen, actor)


async def require_known(rows: OpensRows, ports: Ports, seen: StackView, actor: str) -> None:
    """Refuse an actor that nobody knows, be a node up or not: `NotFound` names those near."""
    names = {*seen.actors(), *seen.mentioned()}
    if actor in names or await ports.log.last(ports.stack.lane(actor)) is not None:
        return
    try:
        async with rows() as pool:
            has_rows = bool(await list_episodes(pool, ports.stack, actor=actor, limit=1))
    except (PostgresUnavailable, QueryRefused, Trouble):  # There may be no rows to ask at all.
        has_rows = False
    if not has_rows:  # guard: unknown-name-refused
        kind, id_ = defined_by(actor)
        alike = [other for of, other in map(defined_by, names) if of is kind]
        a = "a" if kind is DefinitionKind.WORKFLOW else "an"
        raise NotFound(f"nobody knows {a} {ID_KINDS[kind]} {id_!r}; {hint(id_, alike)}")


async def require_in_force(ports: Ports, seen: StackView, actor: str) -> None:
    """Refuse an actor that is, or begins, what was disabled."""
    kind, id_ = defined_by(actor)
    registered = definition_of(seen.definitions, kind, id_)
    # guard: code-fired-though-disabled
    if registered is None or registered.holds or in_code(seen.nodes, kind, id_):
        return
    story = await story_of(ports, kind, id_)
    if story.disabled is not None:  # guard: disabled-not-fired-by-hand
        since = f"{ID_KINDS[kind]} {id_!r} is disabled since {when_and_who(story.disabled)}"
        raise Trouble(f"{since}; apply it again")


def require_expectation(seen: StackView, actor: str, expectation: str) -> None:
    """Refuse an expectation that no node of the actor has: `NotFound` names those near."""
    expectations = known(seen.nodes, actor)
    if expectations and expectation not in expectations:
        near = hint(expectation, expectations)
        raise NotFound(f"actor {actor!r} has no expectation {expectation!r}; {near}")


async def require_revision(ports: Ports, actor: str, revision: int) -> None:
    """Refuse a revision that was never applied; 0 is the one in force."""
    if not revision:
        return
    kind, id_ = defined_by(actor)
    events = [each.event for each in await definition_history(ports, kind, id_)]
    applied = [each.revision for each in events if isinstance(each, DefinitionApplied)]
    if not applied:  # guard: unapplied-revision-refused
        raise Trouble(f"{ID_KINDS[kind]} {id_!r} was never applied, and has no revisions")
    if revision not in applied:
        raise Trouble(
            f"{ID_KINDS[kind]} {id_!r} has no revision {revision}; the newest is {applied[-1]}"
        )


def waking_obstacle(seen: StackView, actor: str) -> str:
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


def running_obstacle(seen: StackView, actor: str) -> str:
    """Return why nothing runs the episodes of `actor` now, in words; empty: something does."""
    infos = [node.actors[actor] for node in seen.nodes if actor in node.actors]
    if _is_closed(seen, actor) or any(info.runs for info in infos):
        return ""
    return "no node that is up runs it" if infos else "no node that is up has it"


def _is_closed(seen: StackView, actor: str) -> bool:
    return any(actor in node.closed for node in seen.nodes)


MODES_MEAN: Final[Mapping[NodeMode, str]] = {
    NodeMode.FULL: "opens episodes and runs them",
    NodeMode.TRIGGER_ONLY: "opens episodes, and leaves them to other nodes",
    NodeMode.DISABLED: "opens no episodes, and runs none",
}
"""Mode → what a node does that has it, in words."""

CODE: Final = "code"
DEFINITION: Final = "definition"
DISABLED: Final = "disabled"
REVISION: Final = "revision"

GROUPS: Final = {DefinitionKind.AGENT: "actors", DefinitionKind.WORKFLOW: "workflows"}


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """What the nodes that are up make of a definition."""

    running: Sequence[str]
    """Those that run this revision, or a later one."""
    failing: Mapping[str, str]
    """Those that cannot → why."""
    silent: Sequence[str]
    """The others."""

    @property
    def is_in_vain(self) -> bool:
        """Whether nodes are up, and none of them runs it."""
        return not self.running and bool(self.failing or self.silent)


async def read_definitions(ports: Ports) -> list[RegisteredDefinition]:
    """Return what is defined, in the order of kinds and ids; not what this version cannot read."""
    entries = await ports.registry.entries(under=DEFINITIONS)
    found = [decode_registered(entry.value) for _, entry in sorted(entries.items()) if entry.value]
    return [registered for registered in found if registered is not None]


def actor_of(kind: DefinitionKind, id_: str) -> str:
    """Return the actor, or the starter, by which a node is seen to run what is defined."""
    return starter_id(id_) if kind is DefinitionKind.WORKFLOW else id_


def defined_by(actor: str) -> tuple[DefinitionKind, str]:
    """Return what defines an actor, if anything does: the reverse of `actor_of`."""
    if actor.startswith(PREFIX):
        return DefinitionKind.WORKFLOW, actor.removeprefix(PREFIX)
    return DefinitionKind.AGENT, actor


def definition_of(
    definitions: Iterable[RegisteredDefinition], kind: DefinitionKind, id_: str
) -> RegisteredDefinition | None:
    """Return the registered of a definition, or None if nobody has ever defined it."""
    return next((each for each in definitions if (each.kind, each.id) == (kind, id_)), None)


def in_code(nodes: Iterable[NodeInfo], kind: DefinitionKind, id_: str) -> list[str]:
    """Return the nodes whose apps declare in code what is, or would be, defined."""
    actor = actor_of(kind, id_)
    return [node.name for node in nodes if actor in node.actors and not node.actors[actor].revision]


def revisions_of(nodes: Iterable[NodeInfo], kind: DefinitionKind, id_: str) -> dict[str, int]:
    """Return node → the revision that it has of a definition, of those that have any."""
    actor = actor_of(kind, id_)
    had = {node.name: node.actors[actor].revision for node in nodes if actor in node.actors}
    return {name: revision for name, revision in had.items() if revision}


def problems_of(nodes: Iterable[NodeInfo], kind: DefinitionKind, id_: str) -> dict[str, str]:
    """Return node → why it cannot run what is defined, of those that cannot."""
    key = definition_id(kind, id_)
    return {node.name: node.problems[key] for node in nodes if key in node.problems}


def rollout_of(
    nodes: Iterable[NodeInfo],
    registered: RegisteredDefinition,
    *,
    before: Mapping[str, str] | None = None,
) -> Rollout:
    """Return what `nodes`, which are up, make of a definition that is not disabled.

    Args:
        before: node → the problem that it had with earlier ones. One that still reports the same is
            silent, unless it names the revision.
    """
    there, earlier = list(nodes), before or {}
    revisions = revisions_of(there, registered.kind, registered.id)
    running = [name for name, revision in revisions.items() if revision >= registered.revision]
    failing = {
        node.name: problem
        for node in there
        if node.name not in running
        and (problem := _problem(node, registered, earlier.get(node.name, "")))
    }
    silent = [node.name for node in there if node.name not in {*running, *failing}]
    return Rollout(running=running, failing=failing, silent=silent)


def origin(
    nodes: Sequence[NodeInfo],
    definitions: Iterable[RegisteredDefinition],
    kind: DefinitionKind,
    id_: str,
) -> Row:
    """Return where an actor or a workflow comes from, in columns of its row."""
    coded, revisions = in_code(nodes, kind, id_), revisions_of(nodes, kind, id_)
    registered = definition_of(definitions, kind, id_)
    newest = max([*revisions.values(), 0 if registered is None else registered.revision], default=0)
    source = _source(coded, revisions, registered)
    return {
        "source": source,
        "revision": None if source == CODE else newest or None,
        "revisions": {**dict.fromkeys(coded, 0), **revisions},
        "problems": problems_of(nodes, kind, id_),
    }


def in_short(row: Row) -> Row:
    """Return a row with the columns of `origin` as a table shows it."""
    problems = row["problems"]
    assert isinstance(problems, Mapping)
    why = [f"{node}: {problem}" for node, problem in sorted(problems.items())]
    return {**row, "source": source_in_words(row), "problems": why}


def source_in_words(row: Row) -> str | None:
    """Return the source of a row with the columns of `origin`, for people."""
    source, revision, revisions = row["source"], row["revision"], row["revisions"]
    assert isinstance(revisions, Mapping)
    match source:
        case "disabled":
            return f"{REVISION} {revision}, {DISABLED}"
        case "definition" if revision not in revisions.values():
            return f"{REVISION} {revision} (nobody runs it)"
        case "definition" if len({*revisions.values()}) > 1:
            return ", ".join(_shares(revisions))
        case "definition":
            return f"{REVISION} {revision}"
        case _:
            return CODE if source == CODE else None


def _problem(node: NodeInfo, registered: RegisteredDefinition, before: str) -> str:
    """Return why a node cannot run a definition; empty: it has not reported so."""
    key = definition_id(registered.kind, registered.id)
    problem, about = node.problems.get(key, ""), node.problems_at.get(key)
    # guard: old-word-not-about-revision
    is_new = problem != before if about is None else about >= registered.revision
    return problem if is_new else ""


def _source(
    coded: Sequence[str], revisions: Mapping[str, int], registered: RegisteredDefinition | None
) -> str | None:
    if registered is not None and not registered.holds and not coded:
        return DISABLED
    if revisions:
        return DEFINITION
    if coded:
        return CODE
    return None if registered is None else DEFINITION


def _shares(revisions: Mapping[str, int]) -> Iterator[str]:
    for revision in sorted({*revisions.values()}):
        names = sorted(name for name, each in revisions.items() if each == revision)
        yield f"{f'{REVISION} {revision}' if revision else CODE} on {' and '.join(names)}"


class DefinitionStory(msgspec.Struct, frozen=True, kw_only=True):
    """How a definition came to stand as it does."""

    applied: DefinitionCommit | None = None
    """What was applied last; None: nobody has ever defined it."""
    disabled: DefinitionCommit | None = None
    """None: it is in force."""


async def story_of(ports: Ports, kind: DefinitionKind, id_: str) -> DefinitionStory:
    """Return how a definition came to stand as it does."""
    story = DefinitionStory()
    for chapter in await definition_history(ports, kind, id_):
        if isinstance(chapter.event, DefinitionApplied):
            story = DefinitionStory(applied=chapter)
        else:
            story = DefinitionStory(applied=story.applied, disabled=chapter)
    return story


def when_and_who(chapter: DefinitionCommit) -> str:
    """Return when something was done, and by whom, in words."""
    return f"{chapter.record.commit.at:%Y-%m-%d %H:%M:%S} by {chapter.event.by}"


async def story_columns(ports: Ports, kind: DefinitionKind, id_: str) -> Row:
    """Return the same in columns, and where to see the definition; nothing: there is none."""
    story = await story_of(ports, kind, id_)
    if story.applied is None:
        return {}
    return {
        **_columns("applied", story.applied),
        **_columns("disabled", story.disabled),
        "definition": f"vigil {GROUPS[kind]} definition {id_}",
    }


def _columns(change: str, chapter: DefinitionCommit | None) -> Row:
    return {
        f"{change}_at": None if chapter is None else chapter.record.commit.at,
        f"{change}_by": None if chapter is None else chapter.event.by,
        f"{change}_reason": None if chapter is None else chapter.event.reason or None,
    }


UNREADABLE: Final = "unreadable"


async def backlog_of(ports: Ports, actor: str, expectations: Iterable[ExpectationInfo]) -> Row:
    """Return how many events, due messages and commands wait, or are being worked on.

    `expectations` are what the nodes that are up know of it; none if none is.
    """
    return {
        "events": await _events(ports, actor, list(expectations)),
        "due": await ports.timers.backlog(actor),
        "commands": await ports.commands.backlog(actor),
    }


async def debounced_of(ports: Ports, actor: str) -> Mapping[str, int]:
    """Return expectation → of how many subjects an event waits until they are calm."""
    keys = await ports.timers.keys(actor, debounce.PURPOSE)
    return Counter(key.partition("/")[0] for key in keys)


async def _events(ports: Ports, actor: str, expectations: list[ExpectationInfo]) -> int:
    said = [text.split() for each in expectations for text in each.triggers]
    streams = sorted({(words[1], words[2]) for words in said if words[0] == "stream"})
    feeds = [ForeignStream(stream=stream, subject=subject) for stream, subject in streams]
    return await ports.domain_events.backlog(actor, feeds)
