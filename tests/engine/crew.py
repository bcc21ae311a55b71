"""A doer's crew without a node, for what is easier told of one doer than of a whole node."""

from __future__ import annotations

from datetime import datetime
from itertools import count

from engine.app.app import App
from engine.definitions.make import in_code
from engine.definitions.resolver import RevisionResolver
from engine.episodes.attempt import Attempt, RunningEpisodes
from engine.episodes.breakers.store import Breakers
from engine.execution.parts import ActorParts
from engine.findings.index import FindingIndex
from engine.outputs.deliver import OutputDelivery
from engine.outputs.pool import AdapterPool
from engine.runtime.catalog import Catalog
from engine.runtime.claim import EpisodeClaim
from engine.runtime.context import ActorContext, NodeContext
from engine.runtime.dropping import DroppingBuffer
from engine.runtime.leases import Keeper
from engine.runtime.node_lease import NodeLease
from engine.runtime.objects import StoreOutage
from engine.runtime.permits import Permits
from engine.runtime.slots import Slots
from engine.runtime.store import Turns
from engine.runtime.tasks import NodeTasks
from engine.triggers.evaluate import Cooldowns, TriggerEvaluator
from engine.usercode.tool_calls import ToolCalls
from streams.clock import Clock
from streams.memory import memory_ports
from streams.model.events import EpisodeOpened
from streams.ports.all import Ports
from streams.ports.refusals import KEPT_MAX
from tests.engine.stage import CLOCK


def node_context_of(
    app: App, ports: Ports, node: str = "n1", *, clock: Clock = CLOCK
) -> NodeContext:
    """Return what the services of `node` would work with."""
    keeper = Keeper(ports.leases, holder=node, clock=clock)
    return NodeContext(
        app=app,
        catalog=Catalog(in_code(app)),
        revisions=RevisionResolver(ports, app),
        ports=ports,
        clock=clock,
        node=node,
        leases=keeper,
        node_lease=NodeLease(keeper, node),
        tasks=NodeTasks(),
        tool_calls=ToolCalls(clock, ports.gates),
        turns=Turns(),
        store_outage=StoreOutage(),
        writer_ids=(f"{node}.{number}" for number in count(1)),
        refusals=DroppingBuffer(line_max=KEPT_MAX),
    )


def crew_of(app: App, ports: Ports, node: str = "n1", *, clock: Clock = CLOCK) -> ActorContext:
    """Return what the services of the actor `worker` would share on `node`."""
    actor, permits = app.actors["worker"], Permits()
    return ActorContext(
        **vars(node_context_of(app, ports, node, clock=clock)),
        actor=actor,
        is_laned=actor.is_laned,
        permits=permits,
        may_go_on=permits.runs,
        slots=Slots(actor.max_concurrent_episodes),
    )


def parts_of(context: ActorContext) -> ActorParts:
    """Return what the services of an actor would be made of."""
    app, ports, clock, running = context.app, context.ports, context.clock, RunningEpisodes()
    return ActorParts(
        context=context,
        running=running,
        breakers=breakers_of(context, running),
        adapters=AdapterPool(app.outputs, ports, clock),
        finding_index=FindingIndex(ports.log, ports.stack),
    )


def breakers_of(context: ActorContext, running: RunningEpisodes | None = None) -> Breakers:
    """Return the breakers of an actor; `running`: what the node runs, if anything."""
    actor, node, running = context.actor, context.node, running or RunningEpisodes()
    return Breakers(actor, context.ports, context.clock, node=node, running=running)


class Unasked:
    """What nobody has sent, and nobody acknowledges."""

    async def ack(self) -> None:
        """Do nothing."""


def attempt_of(
    opened: EpisodeOpened, *, claim: EpisodeClaim | None = None, called_at: datetime | None = None
) -> Attempt:
    """Return an attempt that nothing has called for, with a claim on ports of its own."""
    if claim is None:
        keeper = Keeper(memory_ports(clock=CLOCK).leases, holder="n1", clock=CLOCK)
        claim = EpisodeClaim(keeper, "episode.worker.e1", attempt=1, on_lost=lambda: None)
    return Attempt(opened, claim, Unasked(), called_at=called_at)


def evaluator_of(context: ActorContext) -> TriggerEvaluator:
    """Return what evaluates the causes of an actor."""
    return TriggerEvaluator(context, breakers_of(context))


def cooldowns_of(context: ActorContext) -> Cooldowns:
    """Return the cooldowns of an actor."""
    return Cooldowns(context, breakers_of(context))


def delivery_of(context: ActorContext, attempt: Attempt, writer_id: str) -> OutputDelivery:
    """Return what delivers the outputs of an attempt."""
    adapters = AdapterPool(context.app.outputs, context.ports, context.clock)
    return OutputDelivery(context, adapters, attempt, writer_id)
