"""The ways that are walked: one episode each, on a node on the ports in memory.

Time is simulated, so every walk is the same, and waiting costs nothing. Each story is played twice,
and traced the second time: what a process does only once is not on the way.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from structlog.testing import capture_logs

from streams.memory import MemoryPorts, memory_ports
from streams.model.events import EpisodeDeferred, OutputProposed
from tests.engine.output_stage import Pager, Proposing
from tests.engine.stage import HAPPENED, Counter, Life, Scripted, doomed, lived, opening, running
from tests.simulation.time import SimClock, simulate
from tests.walk.trace import Walk, said, walking
from vigil import Actor, App, event, observe, propose_output, tool_call
from vigil.ports import ApprovalTarget, decide_request

QUIET_S: Final = 2.0
"""After this nothing is under way, in simulated seconds: what is told was told, what is given up
was given up."""

CLOCK: Final = SimClock()


def walks() -> dict[str, Walk]:
    """Return what each way enters, by its name."""
    found: dict[str, Walk] = {}
    with capture_logs():
        for story in (converges, asks_first, is_taken_over):
            simulate(story())
            found |= simulate(story())
    return found


async def converges() -> dict[str, Walk]:
    """An event wakes an actor, and the episode converges at once, without a finding."""
    app, ports = _app(Scripted()), memory_ports(clock=CLOCK)
    async with _up(app, ports):
        with walking() as walk:
            await _happens(app, ports)
    return {"converge": walk}


async def asks_first() -> dict[str, Walk]:
    """An episode proposes an output, somebody approves it, it is delivered, the episode ends."""
    page = propose_output("pager", {}, dedupe_key="page", requires_approval=True, expires_s=3600.0)
    app, ports = _app(Proposing(outputs=[page])), memory_ports(clock=CLOCK)
    async with _up(app, ports):
        with walking() as proposal:
            await _happens(app, ports, lambda life: life.of(EpisodeDeferred))
        (record,) = await ports.log.read(ports.stack.output("page"))
        (proposed,) = record.commit.events
        assert isinstance(proposed, OutputProposed)
        assert proposed.approval is not None
        with walking() as approval:
            with said():
                target, hash_ = ApprovalTarget("output", "page"), proposed.approval.plan_hash
                await decide_request(ports, target, "approve", plan_hash=hash_, by="ann")
            await _reaches(app, ports)
    return {
        "proposal": proposal,
        "approval and delivery": approval,
        "approved output": proposal + approval,
    }


async def is_taken_over() -> dict[str, Walk]:
    """A node dies in the second step of an episode, and another one does that step anew.

    It is walked from the call for recovery on: until the second step has been recorded and the
    third begins, and to the end.
    """
    tool, later = Counter(side_effect=True, idempotent=True), Counter(open_=False)
    plan = [observe("first"), tool_call("tool", "second"), tool_call("later", "third")]
    app, ports = _app(Scripted(*plan), tool=tool, later=later), memory_ports(clock=CLOCK)
    tool.gate.clear()
    async with doomed(app, ports, clock=CLOCK):
        await CLOCK.sleep(QUIET_S)
        await ports.domain_events.publish(HAPPENED, {}, id="x1")
        await tool.called.wait()
    tool.gate.set()
    async with running(app, ports, clock=CLOCK):
        with walking() as to_step:
            await later.called.wait()
        with walking() as to_end:
            later.gate.set()
            await _reaches(app, ports)
    return {"kill to next step": to_step, "kill to end": to_step + to_end}


def _app(strategy: Scripted, **tools: Counter) -> App:
    actor = Actor("worker", tools=tools)
    actor.expect("thing", strategy, on=event(HAPPENED))
    return App(actors=[actor], outputs={"pager": Pager()})


@asynccontextmanager
async def _up(app: App, ports: MemoryPorts) -> AsyncIterator[None]:
    """A node that is up before the context begins."""
    async with running(app, ports, clock=CLOCK):
        await CLOCK.sleep(QUIET_S)
        yield


async def _happens(
    app: App, ports: MemoryPorts, reached: Callable[[Life], object] | None = None
) -> None:
    """Wake the actor, and wait until its episode has ended, or has `reached` something."""
    await ports.domain_events.publish(HAPPENED, {}, id="x1")
    await _reaches(app, ports, reached)


async def _reaches(
    app: App, ports: MemoryPorts, reached: Callable[[Life], object] | None = None
) -> None:
    await lived(ports, opening(app).episode_id, reached)
    await CLOCK.sleep(QUIET_S)
