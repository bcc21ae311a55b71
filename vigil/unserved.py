"""Open instances of workflows that no node runs: nobody takes the commands to them.

A definition that is disabled still has nodes that see to what is open of it. One that holds, and
that no node can run, has none, at best understudies that can stop it. Nor has a workflow that was
declared in code, and is not any more: its instances can be neither canceled nor timed out until a
node has a workflow of that name again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from engine.app.workflow_starter import workflow_of
from engine.cluster.members import live_nodes
from engine.cluster.modes import SWITCHES
from engine.cluster.nodes import NodeInfo
from projections.postgres.query_result import ROWS_MAX, Row
from projections.postgres.reader import list_silent_instances
from streams.clock import SystemClock
from streams.model.definitions import Edition, definition_id
from streams.model.events.definitions import DefinitionKind
from vigil.editions import editions_in
from vigil.settings import Reading
from vigil.work import connected, pooled

REMEDY: Final = (
    "Deploy it again; or what it lacks, if it is defined: `vigil workflows definitions`; or any"
    " workflow of that name, and cancel them: `vigil workflows cancel ID`."
)

_CLOCK: Final = SystemClock()


class Forsaken(msgspec.Struct, frozen=True, kw_only=True):
    """The instances of one workflow that no node sees to."""

    workflow_id: str
    ids: tuple[str, ...]
    """Theirs, the longest silent first."""
    silent_since: str
    """When the first of them last showed something."""
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


async def unserved_instances(reading: Reading) -> list[Row]:
    """Return the rows of open instances whose workflow no node runs, the longest silent first.

    At most `ROWS_MAX`. None while no node is up at all: nobody can say what they run.

    Raises:
        ProjectionError: the rows cannot be asked.
        Unavailable: the log is away.
    """
    async with connected(reading, creates=False) as ports:
        nodes, editions = await live_nodes(ports.gates), await editions_in(ports)
    if not nodes:
        return []
    async with pooled(reading) as pool:
        return await list_silent_instances(
            pool, reading.stack, before=_CLOCK.now(), but=served(nodes, editions)
        )


def served(nodes: Iterable[NodeInfo], editions: Iterable[Edition]) -> list[str]:
    """Return the workflows that a node runs, or that are disabled and seen to, by name."""
    there = list(nodes)
    running = (
        workflow_of(actor) for node in there for actor, info in node.actors.items() if info.runs
    )
    closed = (each.id for each in editions if any(_sees_to(node, each) for node in there))
    return sorted({*filter(None, running), *closed})


def _sees_to(node: NodeInfo, edition: Edition) -> bool:
    """Return whether a node has that go on which is open of a workflow that is disabled.

    Each does that runs anything, unless it says why not: what begins nothing needs none of its
    app. By name a node says only what it begins.
    """
    is_closed = edition.kind is DefinitionKind.WORKFLOW and not edition.holds
    has_problem = definition_id(edition.kind, edition.id) in node.problems
    return is_closed and SWITCHES[node.mode].runs and not has_problem


def by_workflow(rows: Sequence[Row]) -> list[Forsaken]:
    """Return what `unserved_instances` has found, by workflow, the longest silent first."""
    found: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[str(row["workflow_id"])].append(row)
    return [
        Forsaken(
            workflow_id=workflow,
            ids=tuple(str(row["instance_id"]) for row in of_one),
            silent_since=f"{of_one[0]['latest_at']}",
            is_cut=len(rows) >= ROWS_MAX,
        )
        for workflow, of_one in found.items()
    ]


def told(forsaken: Forsaken) -> str:
    """Return in one line what is wrong with these instances, and what to do."""
    which = f"{forsaken.number} of {forsaken.workflow_id!r}"
    return f"{which}, {forsaken.problem}. {REMEDY}"
