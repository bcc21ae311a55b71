"""Open instances of workflows that no node has: nobody takes the commands to them.

A definition that is disabled still has nodes that see to what is open of it. A workflow that was
declared in code, and is not any more, has none: its instances can be neither canceled nor timed out
until a node has a workflow of that name again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from console.editions import editions_in
from console.settings import Reading
from console.work import connected
from engine.nodes import NodeInfo
from engine.runtime.presence import live_nodes
from engine.workflows.starter import starter_id
from projections.postgres.answers import Row
from projections.postgres.pool import Pool
from projections.postgres.reader import list_silent_instances
from streams.clock import SystemClock
from streams.definitions import Edition
from streams.events.definitions import DefinitionKind

REMEDY: Final = (
    "Deploy it again; or any workflow of that name, and then end it: `vigil workflows cancel`."
)

_CLOCK: Final = SystemClock()


async def open_instances(pool: Pool, reading: Reading) -> list[Row]:
    """Return the rows of instances that have not ended, the longest silent first.

    Raises:
        ProjectionError: the rows cannot be asked.
    """
    return await list_silent_instances(pool, reading.stack, before=_CLOCK.now())


async def without_node(reading: Reading, instances: Sequence[Row]) -> list[Row]:
    """Return those of `instances` whose workflow no node has.

    Raises:
        Unavailable: the log is away.
    """
    if not instances:
        return []
    async with connected(reading, creates=False) as ports:
        nodes, editions = await live_nodes(ports.gates), await editions_in(ports)
    return unserved(instances, nodes, editions)


def unserved(
    instances: Iterable[Row], nodes: Sequence[NodeInfo], editions: Iterable[Edition]
) -> list[Row]:
    """Return those of `instances` whose workflow no node has; none while no node is up at all."""
    if not nodes:
        return []
    had = {actor for node in nodes for actor in node.actors}
    had |= {starter_id(each.id) for each in editions if each.kind is DefinitionKind.WORKFLOW}
    return [each for each in instances if starter_id(str(each["workflow_id"])) not in had]


def told(instance: Row) -> str:
    """Return in one line what is wrong with an instance that no node sees to, and what to do."""
    workflow, id_ = instance["workflow_id"], instance["instance_id"]
    return f"instance {id_}: no node that is up has the workflow {workflow!r}. {REMEDY}"
