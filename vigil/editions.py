"""What is defined as data, as the registry has it, and what the nodes that are up make of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from engine.app.workflow_starter import starter_id, workflow_of
from engine.cluster.nodes import NodeInfo
from streams.keys import DEFINITIONS
from streams.model.definitions import Edition, decode_edition, definition_id
from streams.model.events.definitions import DefinitionKind
from streams.ports.all import Ports
from vigil.tables import Row

CODE: Final = "code"
DEFINITION: Final = "definition"
DISABLED: Final = "disabled"
"""Where an actor or a workflow comes from; disabled: from a definition that holds no longer."""

GROUPS: Final = {
    DefinitionKind.AGENT: "actors",
    DefinitionKind.WORKFLOW: "workflows",
}
"""The group of commands about each kind."""

NOTHING_KNOWN: Final[Mapping[str, str]] = {}


class Reception(msgspec.Struct, frozen=True, kw_only=True):
    """What the nodes that are up make of a definition."""

    running: Sequence[str]
    """Those that run this revision, or a later one."""
    failing: Mapping[str, str]
    """Those that cannot, each with its reason."""
    silent: Sequence[str]
    """Those that say neither."""

    @property
    def is_in_vain(self) -> bool:
        """Whether nodes are up, and none of them runs it."""
        return not self.running and bool(self.failing or self.silent)

    def as_row(self) -> Row:
        """Return it in columns, for programs."""
        return {"running": self.running, "failing": self.failing, "silent": self.silent}


async def editions_in(ports: Ports) -> list[Edition]:
    """Return what is defined, in the order of kinds and ids; not what this version cannot read."""
    entries = await ports.registry.entries(under=DEFINITIONS)
    found = [decode_edition(entry.value) for _, entry in sorted(entries.items()) if entry.value]
    return [edition for edition in found if edition is not None]


def actor_of(kind: DefinitionKind, id_: str) -> str:
    """Return the actor by which a node is seen to run what is defined."""
    match kind:
        case DefinitionKind.AGENT:
            return id_
        case DefinitionKind.WORKFLOW:
            return starter_id(id_)


def defined_by(actor: str) -> tuple[DefinitionKind, str]:
    """Return what defines an actor, if anything does: the reverse of `actor_of`."""
    workflow = workflow_of(actor)
    return (
        (DefinitionKind.AGENT, actor) if workflow is None else (DefinitionKind.WORKFLOW, workflow)
    )


def edition_of(editions: Iterable[Edition], kind: DefinitionKind, id_: str) -> Edition | None:
    """Return the edition of a definition, or None if nobody has ever defined it."""
    return next((each for each in editions if (each.kind, each.id) == (kind, id_)), None)


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


def reception(
    nodes: Iterable[NodeInfo],
    edition: Edition,
    *,
    before: Mapping[str, str] = NOTHING_KNOWN,
) -> Reception:
    """Return what `nodes` make of an edition.

    Args:
        nodes: those that are up.
        edition: one that holds.
        before: what they said of earlier ones: node → problem. Who still says so is silent, unless
            it says which revision that is about.
    """
    there = list(nodes)
    revisions = revisions_of(there, edition.kind, edition.id)
    running = [name for name, revision in revisions.items() if revision >= edition.revision]
    failing = {
        node.name: problem
        for node in there
        if node.name not in running
        and (problem := _problem(node, edition, before.get(node.name, "")))
    }
    silent = [node.name for node in there if node.name not in {*running, *failing}]
    return Reception(running=running, failing=failing, silent=silent)


def origin(
    nodes: Sequence[NodeInfo], editions: Iterable[Edition], kind: DefinitionKind, id_: str
) -> Row:
    """Return where an actor or a workflow comes from, in columns of its row."""
    coded, revisions = in_code(nodes, kind, id_), revisions_of(nodes, kind, id_)
    edition = edition_of(editions, kind, id_)
    newest = max([*revisions.values(), 0 if edition is None else edition.revision], default=0)
    source = _source(coded, revisions, edition)
    return {
        "source": source,
        "revision": None if source == CODE else newest or None,
        "revisions": {**dict.fromkeys(coded, 0), **revisions},
        "problems": problems_of(nodes, kind, id_),
    }


def in_short(row: Row) -> Row:
    """Return a row with the columns of `origin` as a table shows it: whose problems there are."""
    problems = row["problems"]
    assert isinstance(problems, Mapping)
    return {**row, "source": source_in_words(row), "problems": sorted(problems)}


def source_in_words(row: Row) -> str | None:
    """Return the source that a row with the columns of `origin` says, for people."""
    source, revision, revisions = row["source"], row["revision"], row["revisions"]
    assert isinstance(revisions, Mapping)
    match source:
        case "disabled":
            return f"{DISABLED} ({DEFINITION} {revision})"
        case "definition" if revision not in revisions.values():
            return f"{DEFINITION} {revision} (nobody runs it)"
        case "definition" if len({*revisions.values()}) > 1:
            return ", ".join(_shares(revisions))
        case "definition":
            return f"{DEFINITION} {revision}"
        case _:
            return CODE if source == CODE else None


def _problem(node: NodeInfo, edition: Edition, before: str) -> str:
    """Return why a node cannot run an edition; empty: it has not said so."""
    key = definition_id(edition.kind, edition.id)
    problem, about = node.problems.get(key, ""), node.problems_at.get(key)
    is_news = problem != before if about is None else about >= edition.revision
    return problem if is_news else ""


def _source(
    coded: Sequence[str], revisions: Mapping[str, int], edition: Edition | None
) -> str | None:
    if edition is not None and not edition.holds and not coded:
        return DISABLED
    if revisions:
        return DEFINITION
    if coded:
        return CODE
    return None if edition is None else DEFINITION


def _shares(revisions: Mapping[str, int]) -> Iterator[str]:
    """Yield which nodes have what, where they do not have the same."""
    for revision in sorted({*revisions.values()}):
        names = sorted(name for name, each in revisions.items() if each == revision)
        yield f"{f'{DEFINITION} {revision}' if revision else CODE} on {' and '.join(names)}"
