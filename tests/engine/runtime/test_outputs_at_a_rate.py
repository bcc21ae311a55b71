"""What waits for a route costs next to nothing until its time, and nobody is forgotten."""

from __future__ import annotations

import asyncio

from engine.route import Route
from engine.runtime.throttle import AWAY_S, AWAY_S_MAX, Throttle
from streams.events import EpisodeDeferred, EpisodeStarted
from tests.engine.runtime.output_stage import Pager, Proposing, Scene, app_of, play
from tests.engine.runtime.test_outputs_left import page
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
        throttle.send_away_s("a")
        return throttle.try_enter(), await throttle.enter(within_s=1.0, unless=asyncio.Event())

    assert throttled(story, rate_per_s=0.5) == (False, True)
