"""What waits for a route costs next to nothing until its time, and nobody is forgotten."""

from __future__ import annotations

import asyncio

import pytest

from engine.app.outputs import Route
from engine.episodes.cancel import cancel
from engine.outputs.rate_limit import AWAY_S, AWAY_S_MAX, LATE_S, PLACE_S, Throttle
from streams.model.events import EpisodeDeferred, EpisodeStarted
from tests.engine.output_stage import Pager, Proposing, Scene, app_of, play
from tests.engine.outputs.test_outputs_left import page
from tests.simulation.time import SimClock, simulate

MANY = 40
"""More than begin within the time that an episode waits for a place."""

EVERY_S = 2.0


def rated(**said: object) -> dict[str, Route]:
    return {"pager": Route(Pager(), rate_per_s=1 / EVERY_S, **said)}


def test_of_many_who_wait_for_a_rate_each_is_started_a_few_times_only():
    async def story(scene: Scene):
        ids = [await scene.open(f"x{number}") for number in range(MANY)]
        lives = [await scene.ended(id_) for id_ in ids]
        return lives, scene.clock.monotonic_s()

    app = app_of(Proposing(outputs=[page()]), rated(), most=MANY)
    (lives, took_s), _ = play(story, app)
    assert {each.end.status for each in lives} == {"done"}
    starts = [len(each.of(EpisodeStarted)) for each in lives]
    assert max(starts) <= 3
    assert sum(starts) <= 2 * MANY + 5
    assert took_s < 2 * MANY * EVERY_S


def test_many_outputs_of_one_episode_keep_a_rate_busy():
    async def story(scene: Scene):
        life = await scene.ended(await scene.open())
        return life, scene.clock.monotonic_s()

    app = app_of(Proposing(outputs=[page() for _ in range(MANY)]), rated())
    (life, took_s), _ = play(story, app)
    assert len(life.end.outputs) == MANY
    assert took_s < 2 * MANY * EVERY_S
    assert len(life.of(EpisodeDeferred)) <= MANY * EVERY_S / AWAY_S


def test_what_waits_for_a_place_that_others_have_for_long_costs_no_commits():
    release = asyncio.Event()

    async def slow(view):
        await release.wait()

    pager = Pager(slow)
    app = app_of(
        Proposing(outputs=[page()]), {"pager": Route(pager, max_concurrent=1, timeout_s=600)}
    )

    async def story(scene: Scene):
        first = await scene.open("x1")
        await scene.until(lambda: _are_called(pager))
        second = await scene.open("x2")
        await scene.clock.sleep(300.0)
        release.set()
        for id_ in (first, second):
            await scene.ended(id_)
        return await scene.life(second)

    life, _ = play(story, app)
    assert len(life.of(EpisodeStarted)) <= 3


async def _are_called(pager: Pager) -> bool:
    return bool(pager.views)


def test_who_comes_when_all_others_were_canceled_need_not_wait_for_them():
    async def story(scene: Scene):
        ids = [await scene.open(f"x{number}") for number in range(MANY)]

        async def have_come() -> bool:
            lives = [await scene.life(id_) for id_ in ids]
            return all(each.of(EpisodeDeferred) or each.episode.finished for each in lives)

        await scene.until(have_come)
        for id_ in ids:
            await cancel(scene.ports, "worker", id_, by="ann")
            await scene.ended(id_)
        since_s = scene.clock.monotonic_s()
        for id_ in [await scene.open(f"new{number}") for number in range(MANY // 2)]:
            await scene.ended(id_)
        return scene.clock.monotonic_s() - since_s

    app = app_of(Proposing(outputs=[page()]), rated(), most=MANY)
    waited_s, _ = play(story, app)
    assert waited_s < MANY // 2 * EVERY_S + 2 * PLACE_S


def throttled(story, **said):
    async def played():
        clock = SimClock()
        return await story(clock, Throttle(clock, max_concurrent=5, **said))

    return simulate(played())


def test_who_is_sent_away_comes_back_one_after_the_other():
    async def story(clock, throttle):
        return [throttle.send_away_s(key) for key in "abc"]

    first, second, third = throttled(story, rate_per_s=0.5)
    assert first >= AWAY_S
    assert (second - first, third - second) == (EVERY_S, EVERY_S)


def test_who_comes_back_too_early_is_told_the_same_time():
    async def story(clock, throttle):
        before = throttle.send_away_s("a")
        throttle.send_away_s("b")
        await clock.sleep(5.0)
        return before, throttle.send_away_s("a")

    before, later = throttled(story, rate_per_s=0.5)
    assert later == before - 5.0


def test_nobody_is_sent_away_for_longer_than_an_hour():
    async def story(clock, throttle):
        return [throttle.send_away_s(str(number)) for number in range(5)]

    assert max(throttled(story, rate_per_s=0.001)) == AWAY_S_MAX


def test_who_comes_first_does_not_overtake_those_who_were_sent_away():
    async def story(clock, throttle):
        for key in "abc":
            throttle.send_away_s(key)
        await clock.sleep(AWAY_S + EVERY_S / 2)
        first = throttle.try_enter("new")
        return first, await throttle.enter("a", within_s=1.0, unless=asyncio.Event())

    assert throttled(story, rate_per_s=0.5) == (False, True)


def test_a_place_is_free_for_all_until_those_who_were_sent_away_need_it():
    async def story(clock, throttle):
        throttle.send_away_s("a")
        entered = []
        while throttle.queue_s:
            entered.append(throttle.try_enter("new"))
            throttle.leave()
            await clock.sleep(EVERY_S)
        return entered

    assert throttled(story, rate_per_s=0.5) == [True] * 6


@pytest.mark.parametrize(("free", "may"), [(1, False), (2, True)])
def test_the_last_place_of_few_is_kept_for_those_who_were_sent_away(free, may):
    async def story(clock, throttle):
        for _ in range(5 - free):
            assert throttle.try_enter("x")
        throttle.send_away_s("a")
        return throttle.try_enter("new")

    assert throttled(story, rate_per_s=None) is may


def test_nobody_waits_behind_who_is_settled():
    async def story(clock, throttle):
        for key in "abc":
            throttle.send_away_s(key)
        throttle.forget("c")
        before_s = throttle.queue_s
        for key in "ab":
            throttle.forget(key)
        return before_s, throttle.queue_s, throttle.try_enter("new")

    assert throttled(story, rate_per_s=0.5) == (AWAY_S + 2 * EVERY_S, 0.0, True)


def test_the_place_of_who_has_not_come_is_free_for_one_other():
    async def story(clock, throttle):
        throttle.send_away_s("a")
        await clock.sleep(AWAY_S / 2 + LATE_S / 2)
        throttle.send_away_s("b")
        entered = []
        for pause_s in (AWAY_S / 2 + EVERY_S, LATE_S, EVERY_S):
            await clock.sleep(pause_s)
            entered.append(throttle.try_enter("new"))
        return entered

    assert throttled(story, rate_per_s=0.5) == [False, True, False]


def test_places_of_those_who_have_not_come_are_no_reason_to_overtake_who_came_later():
    async def story(clock, throttle):
        for number in range(100):
            throttle.send_away_s(str(number))
        await clock.sleep(100 * EVERY_S + 2 * AWAY_S)
        throttle.send_away_s("a")
        await clock.sleep(AWAY_S + EVERY_S / 2)
        return throttle.try_enter("new")

    assert throttled(story, rate_per_s=0.5) is False
