"""Makes the driver of an episode out of its crew's means."""

from __future__ import annotations

from collections.abc import Callable

from engine import dryrun
from engine.runtime.crew import Crew
from engine.runtime.driver import Driver
from engine.runtime.finder import Finder
from engine.runtime.performer import Performer
from engine.runtime.running import Run
from engine.runtime.scribe import Scribe
from engine.runtime.sender import Sender
from engine.runtime.thinker import Thinker
from streams.events import EpisodeOpened


def driver_of(
    crew: Crew,
    opened: EpisodeOpened,
    *,
    scribe: Scribe,
    sender: Sender,
    run: Run,
    check_claim: Callable[[], None],
) -> Driver:
    """Return what drives an episode.

    Args:
        crew: the actor's.
        opened: the episode.
        scribe: writes its journal.
        sender: delivers what its steps want delivered.
        run: can be canceled.
        check_claim: raises `LeaseLost` once the claim cannot be trusted any more.
    """
    expectation, clock = crew.actor.expectations[opened.expectation_id], crew.clock
    findings = Finder(crew.ports.log, crew.ports.stack, clock, dryrun.prefix_of(opened))
    return Driver(
        scribe=scribe,
        thinker=Thinker(expectation, opened, crew.ports.stack.name, findings),
        performer=Performer(crew.app, crew.actor, expectation, opened, clock),
        sender=sender,
        clock=clock,
        run=run,
        runs=crew.may_go_on,
        check_claim=check_claim,
    )
