"""A doer's crew without a node, for what is easier told of one doer than of a whole node."""

from __future__ import annotations

from itertools import count

from engine.app.app import App
from engine.definitions.make import in_code
from engine.definitions.resolver import RevisionResolver
from engine.episodes.breaker_store import Breakers
from engine.episodes.cancel import RunningEpisodes
from engine.outputs.pool import AdapterPool, OutputContext
from engine.runtime.catalog import Catalog
from engine.runtime.permits import Permits
from engine.runtime.slots import Slots
from engine.runtime.store import Turns
from streams.clock import Clock
from streams.ports.all import Ports
from tests.engine.stage import CLOCK


def crew_of(app: App, ports: Ports, node: str = "n1", *, clock: Clock = CLOCK) -> OutputContext:
    """Return the means that `node` would give to the actor `worker`."""
    actor, running, permits = app.actors["worker"], RunningEpisodes(), Permits()
    return OutputContext(
        app=app,
        catalog=Catalog(in_code(app)),
        revisions=RevisionResolver(ports, app),
        actor=actor,
        is_laned=actor.is_laned,
        starts_workflow=None,
        ports=ports,
        clock=clock,
        node=node,
        permits=permits,
        may_go_on=permits.runs,
        running=running,
        breakers=Breakers(actor, ports, clock, node=node, running=running),
        turns=Turns(),
        adapters=AdapterPool(app.outputs, ports, clock),
        slots=Slots(actor.max_concurrent_episodes),
        writer_ids=(f"{node}.{number}" for number in count(1)),
    )
