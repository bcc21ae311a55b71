"""A scenario is played once for each moment at which a node may die."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta

import pytest

from streams.layout import Stream
from streams.model.events import EpisodeStarted
from tests.engine.stage import HAPPENED, Scripted
from tests.testing.apps import ASKS, KEY, LOOKS, Proposing, app_with
from vigil import Actor, App, ConvergeResult, Failure, Tool, event, raise_finding, tool
from vigil.testing import crash_everywhere, deliver_twice, in_turn, run

PLAN = (LOOKS, ASKS, LOOKS)


class Scene(Proposing):
    def __init__(self):
        super().__init__(*PLAN, findings=[raise_finding(KEY, class_="full", severity="high")])


async def story(vigil):
    await vigil.publish(HAPPENED, {"host": "web-1"})
    await vigil.run_until_idle()
    await vigil.approve()
    await vigil.run_until_idle()
    assert vigil.finding(KEY).severity == "high"


async def happening(vigil):
    await vigil.publish(HAPPENED)
    await vigil.run_until_idle()


class Effect(Tool):
    side_effect = True

    def __init__(self, *, idempotent):
        self.idempotent = idempotent


def effecting(*, idempotent):
    actor = Actor("worker", tools={"disk": Effect(idempotent=idempotent)})
    actor.expect("thing", Scripted(LOOKS), on=event(HAPPENED))
    app = App(actors=[actor])
    return lambda: run(app, tools={"disk.largest": "done"})


async def test_it_ends_the_same_whenever_a_node_dies():
    moments = await crash_everywhere(
        lambda: run(app_with(Scene()), tools={"disk.largest": in_turn(1, 2)}), story
    )
    assert moments >= 12


async def test_a_side_effect_that_can_be_repeated_is():
    assert await crash_everywhere(effecting(idempotent=True), happening) >= 4


async def test_one_that_cannot_be_repeated_is_told():
    with pytest.raises(AssertionError, match=r"(?s)died at moment .* outcome_unknown: a tool that"):
        await crash_everywhere(effecting(idempotent=False), happening)


async def test_a_test_may_accept_that_nobody_knows():
    assert await crash_everywhere(effecting(idempotent=False), happening, may_be_unknown=True)


@tool
async def look(seconds: int) -> int:
    await asyncio.sleep(seconds)
    return seconds


async def in_branches(ctx, trigger):
    ctx.now()

    async def twice(seconds: int) -> None:
        await ctx.call(look, seconds=seconds)
        await ctx.call(look, seconds=seconds)

    # A crash after 2 s lets the second call of the shorter branch end before the longer one.
    await ctx.gather(ctx.call(look, seconds=3), twice(2))


def branching():
    actor = Actor("worker", tools=[look])
    actor.expect("thing", in_branches, on=event(HAPPENED))
    return run(App(actors=[actor]), allow=["look.*"])


async def test_when_a_function_was_and_which_branch_came_first_is_no_difference():
    assert await crash_everywhere(branching, happening) >= 6


class Forgetful(Scripted):
    """Counts in the process what it should keep in its state."""

    calls = 0

    def next_step(self, state, ctx):
        type(self).calls += 1
        return super().next_step(state, ctx)

    def converge(self, state, ctx):
        result = super().converge(state, ctx)
        return type(result)(classification={"calls": self.calls})


async def test_an_app_that_ends_in_another_way_is_told_with_the_moment():
    def anew():
        Forgetful.calls = 0
        return run(app_with(Forgetful(LOOKS)), tools={"disk.*": 1})

    with pytest.raises(AssertionError, match=r"(?s)died at moment \d+ of \d+, (before|after) .*"):
        await crash_everywhere(anew, happening)


async def test_what_a_scenario_asserts_must_hold_each_time():
    lives = []

    async def fails_later(vigil):
        lives.append(vigil)
        await happening(vigil)
        assert len(lives) < 4, "the fourth one"

    with pytest.raises(AssertionError, match=r"(?s)moment 2 of .*the fourth one"):
        await crash_everywhere(lambda: run(app_with(Scripted())), fails_later)


async def test_whatever_a_scenario_raises_names_the_moment():
    lives = []

    async def finds_later(vigil):
        lives.append(vigil)
        await happening(vigil)
        if len(lives) == 4:
            with pytest.raises(KeyError):
                vigil.episode()

    with pytest.raises(pytest.fail.Exception) as failed:
        await crash_everywhere(lambda: run(app_with(Scripted())), finds_later)
    assert re.match(r"with a node that died at moment 2 of \d+, ", failed.value.__notes__[0])


async def test_messages_that_come_twice_change_nothing():
    await deliver_twice(
        lambda: run(app_with(Scene()), tools={"disk.largest": in_turn(1, 2)}), story
    )


async def test_a_node_that_died_does_nothing_more():
    async with run(app_with(Scripted())) as vigil:
        vigil.crash_at(1)
        await happening(vigil)
        starts = [
            each.node
            for record in vigil.ports.log.records(Stream.JOURNAL)
            for each in record.commit.events
            if isinstance(each, EpisodeStarted)
        ]
    assert starts == ["node-2"]
    assert vigil.crashed.startswith("before EpisodeOpened")


async def test_a_scenario_that_is_not_the_same_each_time_is_told():
    lives = []

    async def shorter(vigil):
        lives.append(vigil)
        for _ in range(3 if len(lives) == 1 else 1):
            await happening(vigil)

    with pytest.raises(AssertionError, match=r"not the same each time|ends in another way"):
        await crash_everywhere(lambda: run(app_with(Scripted())), shorter)


async def test_a_second_side_effect_is_told_however_it_ends():
    async def doubled(vigil):
        await happening(vigil)
        if vigil.crashed:
            vigil._stubs.calls.append(vigil.calls("disk.largest")[0])

    with pytest.raises(AssertionError, match=r"disk\.largest was called twice"):
        await crash_everywhere(effecting(idempotent=False), doubled, may_be_unknown=True)


async def failing(ctx, trigger):
    await ctx.call("disk.largest")


def busy():
    actor = Actor("worker", tools={"disk": Effect(idempotent=True)})
    actor.expect("thing", failing, on=event(HAPPENED))
    return run(App(actors=[actor]), tools={"disk.largest": Failure("busy", "try later")})


async def test_an_episode_that_fails_without_a_crash_is_told_with_why():
    with pytest.raises(AssertionError, match=r"without a crash, .* busy: .*may_fail=\['busy'\]"):
        await crash_everywhere(busy, happening)


async def test_a_test_may_want_that_it_fails():
    assert await crash_everywhere(busy, happening, may_fail=["busy"]) >= 4


async def test_what_is_not_the_same_when_it_is_played_again_is_told():
    lives = []

    async def other(vigil):
        lives.append(vigil)
        await vigil.publish(HAPPENED, {"host": f"web-{len(lives)}"})
        await vigil.run_until_idle()

    with pytest.raises(AssertionError, match=r"(?s)even without a crash: played again, .*web-2"):
        await crash_everywhere(lambda: run(app_with(Scripted())), other)
    assert len(lives) == 2


async def by_hash(ctx, trigger):
    await ctx.observe(hash("web-1"))


async def test_it_replays_in_other_processes_if_a_test_wants_that():
    def anew():
        return run(app_with(by_hash))

    with pytest.raises(AssertionError, match=r"(?s)even without a crash: .*in another process"):
        await crash_everywhere(anew, happening, processes=1)


async def waiting(ctx, trigger):
    return ConvergeResult(summary=f"{await ctx.wait('dns:web')}")


def heard():
    actor = Actor("worker")
    actor.expect("thing", waiting, on=event(HAPPENED))
    return run(App(actors=[actor]))


async def signalled(vigil):
    await happening(vigil)
    await vigil.signal("dns:web", "up")
    await vigil.run_until_idle()
    assert vigil.episode().summary == "up"


async def test_a_signal_that_a_dying_node_had_comes_again():
    assert await crash_everywhere(heard, signalled) >= 6


async def test_a_signal_that_nobody_waits_for_keeps_nobody_busy():
    async with heard() as vigil:
        before = vigil.now
        await vigil.signal("dns:web", "up")
        await vigil.run_until_idle()
        assert vigil.now - before < timedelta(seconds=1)
        await vigil.advance(minutes=59)
        await happening(vigil)
        assert vigil.episode().summary == "up"


@pytest.mark.parametrize("tried", [crash_everywhere, deliver_twice])
async def test_one_run_in_place_of_what_makes_runs_is_refused(tried):
    with pytest.raises(TypeError, match=r"anew each time, such as lambda: run\(app, …\)"):
        await tried(run(app_with(Scripted())), happening)
