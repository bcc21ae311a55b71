"""Side effects that one approval may have more than once are found in the source."""

from __future__ import annotations

import pytest

from engine.functions.side_effects import REMEDY, overlapping
from vigil import Actor, App, Strategy, approval, event, every, manual, tool, tool_call


@tool(capability="ops", side_effect=True)
async def restart(host: str) -> None:
    raise AssertionError(host)


@tool(capability="ops")
async def look(host: str) -> None:
    raise AssertionError(host)


async def acts(ctx, trigger):
    await ctx.call(restart, host="before")
    if await ctx.approval({"restart": "web"}):
        await ctx.call(look, host="web")
        await ctx.call(restart, host="web")


async def acts_in_each(ctx, trigger):
    if await ctx.approval({"restart": "web"}, per_episode=True):
        await ctx.call(restart, host="web")


class Acts(Strategy):
    State = dict

    def init(self, episode, trigger):
        return {}

    def next_step(self, state, ctx):
        return approval({}) if ctx.turn == 1 else tool_call(restart, host="web")

    def converge(self, state, ctx):
        raise AssertionError


def found(strategy, **options) -> list[str]:
    actor = Actor("worker", tools=[restart, look])
    actor.expect("thing", strategy, **options)
    return [f"{each.found}: {each.instead}" for each in overlapping(App(actors=[actor]))]


WARNING = f"ops.restart behind an approval of overlapping episodes: {REMEDY}"


@pytest.mark.parametrize("strategy", [acts, Acts])
@pytest.mark.parametrize("on", [every("1m"), event("a.b")], ids=["tick", "event"])
def test_a_side_effect_behind_an_approval_of_overlapping_episodes_is_found(strategy, on):
    assert found(strategy, on=on) == [WARNING]


@pytest.mark.parametrize("overlap", ["skip", "buffer_one", "cancel_other"])
def test_episodes_that_do_not_overlap_are_right(overlap):
    assert found(acts, on=every("1m"), overlap=overlap) == []


def test_an_approval_for_each_episode_is_meant_so():
    assert found(acts_in_each, on=every("1m")) == []


def test_what_only_people_fire_is_right():
    assert found(acts, on=manual()) == []
