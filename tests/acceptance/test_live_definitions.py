"""Definitions that change under load, on a real server: nothing is lost, doubled or too much."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from engine.app.actions import converge, tool_call
from engine.app.app import App
from engine.app.strategy import ConvergeResult, Strategy
from engine.app.tools import Tool
from engine.cluster.members import live_nodes
from engine.definitions.store import apply_definition, disable_definition
from engine.node.node import Node
from streams.jetstream import connect
from streams.json import raw
from streams.model.events import DefinitionKind, EndStatus, EpisodeFinished, EpisodeOpened
from streams.ports.all import Ports
from tests.standing import standing

WAIT_S: Final = 60.0
"""Longest wait for what must come, in seconds, on a busy machine."""

LOOK_S: Final = 0.05
"""Between two looks for it, in seconds."""

REVISIONS: Final = 5
EVENTS: Final = 40
"""Published under each revision."""

MOST: Final = 3
"""Episodes of the actor that a node may run at a time, whatever revisions they are of."""


class Work(Tool):
    """What the episodes of one node do, and how many did at a time."""

    def __init__(self) -> None:
        self.busy = self.busiest = 0
        self.done: Counter[tuple[str, str]] = Counter()

    async def call(self, action, args, ctx):
        self.busy += 1
        self.busiest = max(self.busiest, self.busy)
        await asyncio.sleep(0.005)
        self.busy -= 1
        self.done[(action, args["event"])] += 1
        return action


class Do(Strategy):
    """Does one thing, as the configuration says."""

    State = dict

    def __init__(self, what: str) -> None:
        self.what = what

    def init(self, episode, trigger):
        return {"event": trigger.event_id, "is_done": False}

    def next_step(self, state, ctx):
        args = {"event": state["event"]}
        return converge() if state["is_done"] else tool_call("work", self.what, args)

    def handle_result(self, state, step, result):
        return {**state, "is_done": True}

    def converge(self, state, ctx):
        return ConvergeResult()


def definition(revision: int):
    strategy = {"template": "do", "config": {"what": f"r{revision}"}}
    expectation = {"strategy": strategy, "on": {"event": "work.came"}}
    return raw({"id": "doer", "max_concurrent_episodes": MOST, "expectations": {"do": expectation}})


@asynccontextmanager
async def node(ports: Ports, work: Work, name: str) -> AsyncIterator[None]:
    app = App(tools={"work": work}, templates={"do": lambda config: Do(config["what"])})
    running = Node(app, ports, name=name, grace_s=10.0)
    task = asyncio.create_task(running.run())
    try:
        yield
    finally:
        running.stop()
        assert await task, "the node stops cleanly"


async def revisions(ports: Ports) -> dict[str, int]:
    """Return by which revision each node runs the actor."""
    found = await live_nodes(ports.gates)
    return {each.name: each.actors["doer"].revision for each in found if "doer" in each.actors}


async def until(condition) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            if await condition():
                return
            await asyncio.sleep(LOOK_S)


async def lives(ports: Ports) -> tuple[dict[str, EpisodeOpened], Counter[str]]:
    """Return the episodes that the journal holds, and how often each has ended as done."""
    opened: dict[str, EpisodeOpened] = {}
    ends: Counter[str] = Counter()
    for record in await standing(ports.log):
        for each in record.commit.events:
            if isinstance(each, EpisodeOpened):
                opened[record.subject] = each
            elif isinstance(each, EpisodeFinished):
                assert each.status is EndStatus.DONE, each
                ends[record.subject] += 1
    return opened, ends


async def test_actors_are_replaced_under_load_and_every_event_is_worked_on_once(nats, stack):
    works = {name: Work() for name in ("n1", "n2")}
    async with connect(nats.url, stack=stack) as first, connect(nats.url, stack=stack) as second:
        # From here on, what is published is kept for the actor's gates.
        await (await first.domain_events.open("doer", frozenset({"work.came"}))).close()
        async with node(first, works["n1"], "n1"), node(second, works["n2"], "n2"):
            for revision in range(1, REVISIONS + 1):
                await apply_definition(
                    first, DefinitionKind.AGENT, "doer", definition(revision), by="ada"
                )
                for number in range(EVENTS):
                    await second.domain_events.publish("work.came", {}, id=f"e{revision}.{number}")
            await until(lambda: _all_at(first, REVISIONS))
            await until(lambda: _have_ended(first, REVISIONS * EVENTS))
            await disable_definition(first, DefinitionKind.AGENT, "doer", by="ada")
            await until(lambda: _has_gone(first))
        opened, ends = await lives(first)
    assert set(ends.values()) == {1}
    assert len({each.trigger.event_id for each in opened.values()}) == REVISIONS * EVENTS
    asked = {(f"r{each.revision}", each.trigger.event_id) for each in opened.values()}
    assert works["n1"].done + works["n2"].done == Counter(asked), "each as it was opened, and once"
    assert max(each.busiest for each in works.values()) <= MOST


async def _all_at(ports: Ports, revision: int) -> bool:
    return await revisions(ports) == {"n1": revision, "n2": revision}


async def _has_gone(ports: Ports) -> bool:
    return not await revisions(ports)


async def _have_ended(ports: Ports, number: int) -> bool:
    return len((await lives(ports))[1]) >= number
