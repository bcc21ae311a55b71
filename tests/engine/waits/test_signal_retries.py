"""A signal that nobody waits for is in nobody's way, and reaches whoever waits within the hour."""

from __future__ import annotations

import pytest

from engine.app.actions import wait
from engine.waits import signals
from engine.waits.signal import KEPT_S, RESOLVED
from streams.model.events import EpisodeBlocked
from tests.engine.output_stage import Proposing, Scene, app_of, play
from tests.engine.stage import Life

REF = "payment:42"
MANY = 300
"""More signals than are worked on at a time."""

AT_ONCE_S = 10.0
"""Simulated; the signal's timer is due in minutes."""


def waiting(ref: str = REF):
    return app_of(Proposing(wait(ref)), {})


async def give(scene: Scene, ref: str, result: object, *, id_: str) -> None:
    await scene.ports.domain_events.publish(RESOLVED, {"ref": ref, "result": result}, id=id_)


async def are_put_by(scene: Scene, count: int) -> None:
    async def are() -> bool:
        return len(await scene.ports.timers.keys(signals.QUEUE, signals.SIGNAL)) == count

    await scene.until(are)


def unanswered(scene: Scene) -> int:
    queues = scene.ports.domain_events._durables.items()
    return sum(len(each._unanswered) for name, each in queues if name.endswith(signals.QUEUE))


async def blocked(scene: Scene, id_: str) -> None:
    async def is_blocked() -> bool:
        return bool((await scene.life(id_)).of(EpisodeBlocked))

    await scene.until(is_blocked)


def test_however_much_nobody_waits_for_the_queue_holds_none_of_it():
    async def story(scene: Scene) -> tuple[int, Life]:
        await scene.clock.sleep(1.0)
        for number in range(MANY):
            await give(scene, f"nobody:{number}", number, id_=f"w{number}")
        await are_put_by(scene, MANY)
        await scene.clock.sleep(1.0)
        left = unanswered(scene)
        id_ = await scene.open()
        await blocked(scene, id_)
        await give(scene, REF, "at last", id_="w")
        return left, await scene.ended(id_)

    (left, life), _ = play(story, waiting())
    assert (left, life.seen) == (0, ["at last"])


@pytest.mark.parametrize("after_s", [5.0, 60.0, KEPT_S - 60.0])
def test_whoever_begins_to_wait_within_the_hour_has_it(after_s):
    async def story(scene: Scene) -> tuple[Life, float]:
        await scene.clock.sleep(1.0)
        await give(scene, REF, "early", id_="w1")
        await scene.clock.sleep(after_s)
        since_s = scene.clock.monotonic_s()
        life = await scene.ended(await scene.open())
        took_s = scene.clock.monotonic_s() - since_s
        await scene.clock.sleep(KEPT_S)
        return life, took_s

    (life, took_s), scene = play(story, waiting())
    assert (life.seen, scene.letters) == (["early"], [])
    assert took_s < AT_ONCE_S, "it need not wait for the timer"


def test_what_nobody_has_waited_for_in_an_hour_is_a_dead_letter():
    async def story(scene: Scene) -> int:
        await scene.clock.sleep(1.0)
        await give(scene, REF, "early", id_="w1")
        await scene.clock.sleep(KEPT_S - 60.0)
        before = len(scene.letters)
        await scene.clock.sleep(120.0)
        return before

    before, scene = play(story, waiting())
    (letter,) = scene.letters
    assert (before, letter.reason) == (0, signals.NOBODY_WAITS)
    assert b"early" in letter.payload


def test_of_two_signals_for_one_thing_each_reaches_one_who_waits():
    async def story(scene: Scene) -> list[object]:
        await scene.clock.sleep(1.0)
        await give(scene, REF, "first", id_="w1")
        await give(scene, REF, "second", id_="w2")
        await scene.clock.sleep(10.0)
        lives = [await scene.ended(await scene.open(name)) for name in ("x1", "x2")]
        return [each.seen for each in lives]

    seen, _ = play(story, waiting())
    assert sorted(seen) == [["first"], ["second"]]


def test_a_signal_that_somebody_has_had_is_for_nobody_who_comes_later():
    async def story(scene: Scene) -> Life:
        first = await scene.open("x1")
        await blocked(scene, first)
        await give(scene, REF, "once", id_="w1")
        await scene.ended(first)
        await scene.clock.sleep(30.0)
        second = await scene.open("x2")
        await scene.clock.sleep(60.0)
        return await scene.life(second)

    life, _ = play(story, waiting())
    assert life.episode.status == "blocked"
