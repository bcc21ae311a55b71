"""A function with branches, a side effect, a sleep and an approval, played once per bad moment.

A moment is a request that leaves a node, before it or after: the node dies there.
"""

from __future__ import annotations

from engine.app.findings import raise_finding
from streams.model.events import EpisodeBlocked, EpisodeFinished, EpisodeOpened, StepRecorded
from tests.engine.execution.test_every_crash import Plot, differences
from tests.engine.functions.stage import Ledger, app_of
from tests.engine.output_stage import Scene
from tests.engine.stage import decide
from tests.gates.place import Doom


async def restarted(ctx, trigger):
    first, second = await ctx.gather(
        ctx.call("service.restart", name="a"), ctx.call("service.restart", name="b")
    )
    await ctx.sleep(20)
    if await ctx.approval({"restart": "c"}, approvers=["ops"]):
        await ctx.call("service.restart", name="c", at=ctx.now(), after=[first, second])
    return raise_finding("service", class_="restarted")


def app():
    tools = {"service": Ledger(side_effect=True, idempotent=True)}
    return app_of(restarted, tools=tools, attempts_max=10)


async def approved(scene: Scene) -> None:
    episode_id = await scene.open()

    async def asks() -> bool:
        blocks = (await scene.life(episode_id)).of(EpisodeBlocked)
        return any(block.approval for block in blocks)

    await scene.until(asks)
    await decide(scene.ports, episode_id, by="ops")


def what_came_of_it(ending) -> object:
    counts = ending.count(StepRecorded, EpisodeFinished)
    keys = set(ending.app.tools["service"].keys)
    return counts, len(keys), ending.told, ending.left_behind


def test_a_function_ends_the_same_and_acts_once_whenever_a_node_dies():
    plot = Plot(app, approved, EpisodeOpened)
    assert differences(plot, Doom, what_came_of_it) == []
