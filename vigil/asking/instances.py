"""Instances of workflows that no node runs.

Nobody handles commands to an instance whose workflow no node has, in code or as a definition that
it can run, in force or disabled: it can be neither canceled nor timed out until one has it again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from engine.cluster.members import live_nodes
from engine.cluster.modes import SWITCHES
from engine.cluster.nodes import NodeInfo
from projections.postgres.pool import Pool
from projections.postgres.query_result import ROWS_MAX, Row
from projections.postgres.reader import list_silent_instances
from streams.clock import SystemClock
from streams.model.definitions import RegisteredDefinition, definition_id
from streams.model.events.definitions import DefinitionKind
from streams.ports.all import Ports
from vigil.asking import stack as stacks

_CLOCK: Final = SystemClock()

REMEDY: Final = (
    "Deploy it again; or what it lacks, if it is defined: `vigil workflows definitions`; or any"
    " workflow of that name, and cancel them: `vigil workflows cancel ID`."
)


class UnservedInstances(msgspec.Struct, frozen=True, kw_only=True):
    """The instances of one workflow that no node runs."""

    workflow_id: str
    ids: tuple[str, ...]
    silent_since: str
    is_cut: bool
    """There may be more of them than the rows name in one answer."""

    @property
    def number(self) -> str:
        """How many there are, in words."""
        words = f"{len(self.ids):,} instance{'s' if len(self.ids) > 1 else ''}"
        return f"at least {words}" if self.is_cut else words

    @property
    def problem(self) -> str:
        """What is wrong with them, in words."""
        silent = f"the longest silent since {self.silent_since}"
        return f"{silent}: no node that is up runs the workflow"


async def unserved_instances(ports: Ports, pool: Pool) -> list[Row]:
    """Return the rows of open instances whose workflow no node runs, the longest silent first.

    At most `ROWS_MAX`. None while no node is up at all: nobody can tell what they run.
    """
    nodes, definitions = await live_nodes(ports.gates), await stacks.read_definitions(ports)
    if not nodes:  # guard: no-node-says-unserved
        return []
    return await list_silent_instances(
        pool, ports.stack, before=_CLOCK.now(), but=served(nodes, definitions)
    )


def served(nodes: Iterable[NodeInfo], definitions: Iterable[RegisteredDefinition]) -> list[str]:
    """Return the workflows that a node runs, or finishes as they are disabled, by name."""
    there = list(nodes)
    # guard: idle-holder-serves-none
    running = (info.workflow for node in there for info in node.actors.values() if info.runs)
    closed = (each.id for each in definitions if any(_sees_to(node, each) for node in there))
    return sorted({*filter(None, running), *closed})  # guard: lacking-told-from-disabled


def _sees_to(node: NodeInfo, registered: RegisteredDefinition) -> bool:
    """Return whether a node finishes what is open of a workflow that is disabled.

    Each does that runs anything, unless it reports why not; by name it tells only what it begins.
    """
    # guard: defined-served-by-holders
    is_closed = registered.kind is DefinitionKind.WORKFLOW and not registered.holds
    has_problem = definition_id(registered.kind, registered.id) in node.problems
    # guard: told-lack-does-not-serve
    return is_closed and SWITCHES[node.mode].runs and not has_problem


def by_workflow(rows: Sequence[Row]) -> list[UnservedInstances]:
    """Return what `unserved_instances` has found, by workflow, the longest silent first."""
    found: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[str(row["workflow_id"])].append(row)
    return [
        UnservedInstances(
            workflow_id=workflow,
            ids=tuple(str(row["instance_id"]) for row in of_one),
            silent_since=f"{of_one[0]['latest_at']}",
            is_cut=len(rows) >= ROWS_MAX,  # guard: unserved-page-full
        )
        for workflow, of_one in found.items()
    ]


def advice(forsaken: UnservedInstances) -> str:
    """Return in one line what is wrong with these instances, and what to do."""
    which = f"{forsaken.number} of {forsaken.workflow_id!r}"
    return f"{which}, {forsaken.problem}. {REMEDY}"
