"""A doer's crew without a node, for what is easier told of one doer than of a whole node."""

from __future__ import annotations

from itertools import count

from engine.app.app import App
from engine.definitions.make import in_code
from engine.definitions.resolver import RevisionResolver
from engine.episodes.breakers.store import Breakers
from engine.episodes.cancel import RunningEpisodes
from engine.findings.index import FindingIndex
from engine.outputs.pool import AdapterPool, OutputContext
from engine.runtime.catalog import Catalog
from engine.runtime.context import NodeContext
from engine.runtime.dropping import DroppingBuffer
from engine.runtime.leases import Keeper, LeaseEvents
from engine.runtime.permits import Permits
from engine.runtime.slots import Slots
from engine.runtime.store import Turns
from engine.runtime.tasks import NodeTasks
from engine.usercode.tool_calls import ToolCalls
from streams.clock import Clock
from streams.ports.all import Ports
from streams.ports.refusals import KEPT_MAX
from tests.engine.stage import CLOCK


def node_context_of(
    app: App, ports: Ports, node: str = "n1", *, clock: Clock = CLOCK
) -> NodeContext:
    """Return what the services of `node` would work with."""
    return NodeContext(
        app=app,
        catalog=Catalog(in_code(app)),
        revisions=RevisionResolver(ports, app),
        ports=ports,
        clock=clock,
        node=node,
        leases=Keeper(ports.leases, holder=node, clock=clock),
        lease_events=LeaseEvents(),
        tasks=NodeTasks(),
        tool_calls=ToolCalls(clock, ports.gates),
        turns=Turns(),
        writer_ids=(f"{node}.{number}" for number in count(1)),
        refusals=DroppingBuffer(line_max=KEPT_MAX),
    )


def crew_of(app: App, ports: Ports, node: str = "n1", *, clock: Clock = CLOCK) -> OutputContext:
    """Return what the services of the actor `worker` would work with on `node`."""
    actor, running, permits = app.actors["worker"], RunningEpisodes(), Permits()
    return OutputContext(
        **vars(node_context_of(app, ports, node, clock=clock)),
        actor=actor,
        is_laned=actor.is_laned,
        permits=permits,
        may_go_on=permits.runs,
        running=running,
        breakers=Breakers(actor, ports, clock, node=node, running=running),
        adapters=AdapterPool(app.outputs, ports, clock),
        finding_index=FindingIndex(ports.log, ports.stack),
        slots=Slots(actor.max_concurrent_episodes),
    )
