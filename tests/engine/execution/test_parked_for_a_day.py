"""Episodes that sleep for a day meet a renamed tool, and go on when its old name is back."""

from __future__ import annotations

from streams.model.events import EpisodeBlocked
from tests.engine.functions.stage import Ledger
from tests.moments import STRIDE
from vigil import Actor, App, event
from vigil.testing import crash_everywhere, run


async def charges(ctx, trigger):
    await ctx.call("shop.charge")
    await ctx.sleep(24 * 3600)
    await ctx.call("shop.charge")


async def bills(ctx, trigger):
    await ctx.call("shop.bill")
    await ctx.sleep(24 * 3600)
    await ctx.call("shop.bill")


def version(strategy) -> App:
    orders = Actor("orders")
    orders.expect("paid", strategy, on=event("order.placed"))
    return App(actors=[orders], tools={"shop": Ledger(side_effect=True, idempotent=True)})


def running():
    return run(version(charges), tools={"shop.*": {}})


async def story(vigil, *, orders: int) -> None:
    for _ in range(orders):
        await vigil.publish("order.placed")
    await vigil.run_until_idle()
    await vigil.deploy(version(bills))
    await vigil.advance(hours=25)
    episodes = vigil.episodes()
    newest = [
        (await vigil.ports.log.last(vigil.ports.stack.episode(each.id))).commit.events[-1]
        for each in episodes
    ]
    assert len(episodes) == orders
    assert all(isinstance(each, EpisodeBlocked) and each.parked for each in newest)

    await vigil.deploy(version(charges))
    await vigil.advance(minutes=1)
    assert {each.status for each in vigil.episodes()} == {"done"}
    assert vigil.calls("shop.bill") == []


async def test_a_hundred_are_parked_and_go_on_and_no_step_of_theirs_runs_twice():
    async with running() as vigil:
        await story(vigil, orders=100)
        assert len(vigil.calls("shop.charge")) == 200


async def test_one_is_parked_and_goes_on_wherever_a_node_dies():
    async def one(vigil):
        await story(vigil, orders=1)

    await crash_everywhere(running, one, every=STRIDE)
