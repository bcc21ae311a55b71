"""A stage for whole workflows: strategies that do what a test says, nodes, and what was done.

What the strategies of a test do is in one `Script`, which all nodes share, as they would share the
outside world.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import msgspec

from engine.app.actions import converge, tool_call
from engine.app.actor import Actor
from engine.app.app import App
from engine.app.strategy import ConvergeResult, Strategy, abort
from engine.app.tools import Failure, Tool, ToolFailed
from engine.app.triggers import workflow as as_a_step
from engine.workflows.instance import Instance, fold_instance
from engine.workflows.requests import start_workflow
from streams.layout import Kind
from streams.memory import MemoryPorts
from streams.model.events import StepBegun, StepEnded
from streams.model.workflows import StepOutcome, WorkflowStatus
from tests.engine.stage import WAIT_S

ENDED = {WorkflowStatus.DONE, WorkflowStatus.FAILED, WorkflowStatus.CANCELED}


class Script(Tool):
    """What the steps do: each call returns its input, fails, or waits, as the test says."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, object]] = []
        self.failures: Counter[str] = Counter()
        """Step → how often it still fails."""
        self.held: dict[str, asyncio.Event] = {}
        """Step → what it waits for."""
        self.results: dict[str, object] = {}
        """Step → what it brings, instead of its input."""
        self.news = asyncio.Event()

    def hold(self, step: str) -> asyncio.Event:
        """Have a step wait until the event that this returns is set."""
        return self.held.setdefault(step, asyncio.Event())

    async def call(self, action, args, ctx):
        self.calls.append((action, args["input"]))
        self.news.set()
        if action in self.held:
            await self.held[action].wait()
        if self.failures[action] > 0:
            self.failures[action] -= 1
            raise ToolFailed("boom", "as the test says")
        return self.results.get(action, {"did": action, "input": args["input"]})

    def called(self, step: str) -> int:
        return sum(action == step for action, _ in self.calls)

    async def wait_called(self, step: str, times: int = 1) -> None:
        async with asyncio.timeout(WAIT_S):
            while self.called(step) < times:
                self.news.clear()
                await self.news.wait()


class Scripted(Strategy):
    """Has the script do one step, and brings what that brought."""

    class State(msgspec.Struct):
        input: dict
        step: str
        result: object = None
        is_done: bool = False

    def init(self, episode, trigger):
        return self.State(input=dict(trigger.payload), step=episode.expectation_id)

    def next_step(self, state, ctx):
        if state.is_done:
            return converge()
        return tool_call("script", state.step, {"input": state.input})

    def handle_result(self, state, step, result):
        if isinstance(result, Failure):
            return abort(result.error_class, result.detail)
        return self.State(state.input, state.step, result, is_done=True)

    def converge(self, state, ctx):
        return ConvergeResult(classification={"primary": "done"}, result=state.result)


def app_of(
    *workflows, script: Script, laned: bool = False, most: int = 100, overflow: str = "queue"
) -> App:
    """Return an app of one actor `act` that can do whatever the steps of `workflows` ask for."""
    actor = Actor(
        "act",
        tools={"script": script},
        max_concurrent_episodes=most,
        max_concurrent_cluster=most if laned else None,
        overflow=overflow,
    )
    tasks = {(step.actor, step.expectation) for each in workflows for step in each.steps.values()}
    tasks |= {step.compensate for each in workflows for step in each.steps.values()} - {None}
    for actor_id, expectation in sorted(tasks):
        if actor_id:
            actor.expect(expectation, Scripted(), on=as_a_step(), loop_detection=False)
    return App(actors=[actor], workflows=workflows)


async def begin(ports: MemoryPorts, workflow: str, payload=None, *, key="k1", dry_run=False) -> str:
    """Begin an instance by hand and return its id."""
    return await start_workflow(ports, workflow, payload, by="ada", key=key, dry_run=dry_run)


async def instance(ports: MemoryPorts, id_: str) -> Instance:
    return fold_instance(await ports.log.read(ports.stack.workflow(id_)))


async def reached(ports: MemoryPorts, id_: str, what: Callable[[Instance], object]) -> Instance:
    """Wait until an instance is as it must get, and return it."""
    partition = ports.stack.partition_of(Kind.WORKFLOW, id_)
    async with asyncio.timeout(WAIT_S), ports.log.follow(partition=partition) as follower:
        while True:
            so_far = await instance(ports, id_)
            if so_far.started is not None and what(so_far):
                return so_far
            await follower.receive(most=100, wait_s=WAIT_S)


async def ended(ports: MemoryPorts, id_: str) -> Instance:
    return await reached(ports, id_, lambda so_far: so_far.phase in ENDED)


async def history(ports: MemoryPorts, id_: str) -> list[object]:
    records = await ports.log.read(ports.stack.workflow(id_))
    return [event for record in records for event in record.commit.events]


async def check_none_doubled(ports: MemoryPorts, id_: str) -> None:
    """No attempt is begun or ended twice, and no item is done twice."""
    events = await history(ports, id_)
    begun = [(e.step, e.item, e.attempt) for e in events if isinstance(e, StepBegun)]
    over = [(e.step, e.item, e.attempt) for e in events if isinstance(e, StepEnded)]
    done = [
        (e.step, e.item)
        for e in events
        if isinstance(e, StepEnded) and e.outcome is StepOutcome.DONE
    ]
    for each in (begun, over, done):
        assert len(each) == len(set(each)), each
