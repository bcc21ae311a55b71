"""A doer's crew without a node, for what is easier told of one doer than of a whole node."""

from __future__ import annotations

from itertools import count

from engine.app import App
from engine.definitions.casting import in_code
from engine.runtime.breakers import Breakers
from engine.runtime.cast import Cast
from engine.runtime.editions import Editions
from engine.runtime.outlets import Outlets
from engine.runtime.output_crew import OutputCrew
from engine.runtime.permit import Permits
from engine.runtime.running import Running
from engine.runtime.slots import Slots
from engine.runtime.turns import Turns
from streams.clock import Clock
from streams.ports import Ports
from tests.engine.runtime.stage import CLOCK


def crew_of(app: App, ports: Ports, node: str = "n1", *, clock: Clock = CLOCK) -> OutputCrew:
    """Return the means that `node` would give to the actor `worker`."""
    actor, running, permits = app.actors["worker"], Running(), Permits()
    return OutputCrew(
        app=app,
        cast=Cast(in_code(app)),
        editions=Editions(ports, app),
        actor=actor,
        is_laned=actor.is_laned,
        ports=ports,
        clock=clock,
        node=node,
        permits=permits,
        may_go_on=permits.runs,
        running=running,
        breakers=Breakers(actor, ports, clock, node=node, running=running),
        turns=Turns(),
        outlets=Outlets(app.outputs, ports, clock),
        slots=Slots(actor.max_concurrent_episodes),
        pens=(f"{node}.{number}" for number in count(1)),
    )
