"""A doer's crew without a node, for what is easier told of one doer than of a whole node."""

from __future__ import annotations

from itertools import count

from engine.app import App
from engine.runtime.breakers import Breakers
from engine.runtime.crew import Crew
from engine.runtime.outlets import Outlets
from engine.runtime.permit import Permits
from engine.runtime.running import Running
from engine.runtime.slots import Slots
from engine.runtime.turns import Turns
from streams.clock import Clock
from streams.ports import Ports
from tests.engine.runtime.stage import CLOCK


def crew_of(app: App, ports: Ports, node: str = "n1", *, clock: Clock = CLOCK) -> Crew:
    """Return the means that `node` would give to the actor `worker`."""
    actor, running = app.actors["worker"], Running()
    return Crew(
        app=app,
        actor=actor,
        ports=ports,
        clock=clock,
        node=node,
        permits=Permits(),
        running=running,
        breakers=Breakers(actor, ports, clock, node=node, running=running),
        turns=Turns(),
        outlets=Outlets(app.outputs, ports, clock),
        slots=Slots(actor.max_concurrent_episodes),
        pens=(f"{node}.{number}" for number in count(1)),
    )
