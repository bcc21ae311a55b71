"""What is defined as data, as the registry has it, and what the nodes that are up make of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from console.tables import Row
from engine.nodes import NodeInfo
from engine.workflows.starter import starter_id
from streams.definitions import Edition, decode_edition, definition_id
from streams.events.definitions import DefinitionKind
from streams.keys import DEFINITIONS
from streams.ports import Ports

CODE: Final = "code"
DEFINITION: Final = "definition"
DISABLED: Final = "disabled"
"""Where an actor or a workflow comes from; disabled: from a definition that holds no longer."""

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
        before: what they said of earlier ones: node → problem. Who still says so is silent.
    """
    actor, problems = (
        actor_of(edition.kind, edition.id),
        problems_of(nodes, edition.kind, edition.id),
    )
    running = [
        node.name
        for node in nodes
        if actor in node.actors and node.actors[actor].revision >= edition.revision
    ]
    failing = {
        name: problem
        for name, problem in problems.items()
        if name not in running and before.get(name) != problem
    }
    silent = [node.name for node in nodes if node.name not in {*running, *failing}]
    return Reception(running=running, failing=failing, silent=silent)


def origin(
    nodes: Sequence[NodeInfo], editions: Iterable[Edition], kind: DefinitionKind, id_: str
) -> Row:
    """Return where an actor or a workflow comes from, in columns of its row."""
    actor = actor_of(kind, id_)
    revisions = [node.actors[actor].revision for node in nodes if actor in node.actors]
    edition = next((each for each in editions if (each.kind, each.id) == (kind, id_)), None)
    if revisions:
        source, revision = DEFINITION if max(revisions) else CODE, max(revisions)
    elif edition is not None:
        source, revision = DEFINITION if edition.holds else DISABLED, edition.revision
    else:
        source, revision = None, 0
    return {
        "source": source,
        "revision": revision or None,
        "problems": problems_of(nodes, kind, id_),
    }
