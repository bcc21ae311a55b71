"""Signals that closely follow each other: each serves one wait, in the order of their arrival."""

from __future__ import annotations

from engine.app.actions import wait
from tests.engine.stage import Scripted
from vigil import Actor, App, ConvergeResult, event
from vigil.testing import crash_everywhere, run

REF = "payment:42"


async def three(ctx, trigger):
    return ConvergeResult(classification={"got": [await ctx.wait(REF) for _ in range(3)]})


async def one(ctx, trigger):
    return ConvergeResult(classification={"got": [await ctx.wait(REF)]})


def app_of(**expectations) -> App:
    actor = Actor("worker")
    for name, strategy in expectations.items():
        actor.expect(name, strategy, on=event(f"{name}.happened"))
    return App(actors=[actor])


async def begun(vigil, *names) -> None:
    for name in names:
        await vigil.publish(f"{name}.happened")
    await vigil.run_until_idle()


async def sent(vigil, *results) -> None:
    """Send one signal after the other, and wait for nothing in between."""
    for each in results:
        await vigil.signal(REF, each)


def got(vigil, name) -> list[object]:
    return vigil.episode(expectation=name).classification["got"]


async def test_of_signals_that_follow_each_other_each_serves_one_wait_in_their_order():
    async with run(app_of(three=three)) as vigil:
        await begun(vigil, "three")
        await sent(vigil, 1, 2, 3)
        await vigil.run_until_idle()
        assert got(vigil, "three") == [1, 2, 3]
        await vigil.advance(hours=2)
        assert vigil.dead_letters() == []


async def test_so_it_is_with_a_strategy_class():
    waits = Scripted(wait(REF), wait(REF), wait(REF))
    async with run(app_of(classy=waits)) as vigil:
        await begun(vigil, "classy")
        await sent(vigil, 1, 2, 3)
        await vigil.run_until_idle()
        state = vigil.episode(expectation="classy")
        assert [each.result for each in state.steps] == [1, 2, 3]


async def test_what_came_before_the_first_wait_is_taken_in_the_order_in_which_it_came():
    async with run(app_of(three=three)) as vigil:
        await sent(vigil, 1, 2, 3)
        await begun(vigil, "three")
        assert got(vigil, "three") == [1, 2, 3]


async def test_what_no_wait_takes_is_a_dead_letter_after_its_hour():
    async with run(app_of(one=one)) as vigil:
        await begun(vigil, "one")
        await sent(vigil, 1, 2, 3)
        await vigil.run_until_idle()
        assert got(vigil, "one") == [1]
        await vigil.advance(minutes=59)
        assert vigil.dead_letters() == []
        await vigil.advance(minutes=2)
        assert [each.reason for each in vigil.dead_letters()] == ["nobody_waits"] * 2


async def test_each_of_several_episodes_that_wait_again_and_again_has_all_of_them_in_order():
    async with run(app_of(three=three, others=three)) as vigil:
        await begun(vigil, "three", "others")
        await sent(vigil, 1, 2, 3)
        await vigil.run_until_idle()
        assert (got(vigil, "three"), got(vigil, "others")) == ([1, 2, 3], [1, 2, 3])


async def test_a_crash_at_any_moment_loses_none_and_keeps_their_order():
    async def story(vigil):
        await begun(vigil, "three")
        await sent(vigil, 1, 2, 3)
        await vigil.deliver_again()
        await vigil.run_until_idle()

    await crash_everywhere(lambda: run(app_of(three=three)), story)
