"""A place that comes free at a full route goes to whoever has waited longest, and at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from engine.app.outputs import Route
from engine.episodes.cancel import cancel
from engine.outputs.rate_limit import (
    AWAY_S,
    COME_S,
    LATE_S,
    PLACE_S,
    WAITING_MAX,
    Throttle,
    WaitingEpisode,
    WaitQueue,
)
from engine.outputs.requests import retry_output
from streams.model.events import EpisodeDeferred, EpisodeFinished, EpisodeStarted
from tests.engine.output_stage import Pager, Proposing, Scene, app_of, broken, busy, play
from tests.engine.outputs.test_outputs_left import page
from tests.simulation.time import SimClock, simulate

MOMENT_S = 1.0
"""Simulated: longer than a timer takes, and far shorter than anybody is sent away for."""


class Gate:
    """Holds every delivery until it lets one go on."""

    def __init__(self) -> None:
        self.inside: list[asyncio.Event] = []
        self.order: list[str] = []

    async def __call__(self, view) -> str:
        self.order.append(view.episode_id)
        self.inside.append(asyncio.Event())
        await self.inside[-1].wait()
        return "ref"

    def let_go(self) -> None:
        self.inside.pop(0).set()


def full(gate: Gate, *, places: int = 1) -> dict[str, Route]:
    return {"pager": Route(Pager(*[gate] * 100), max_concurrent=places, timeout_s=600)}


async def have_come(scene: Scene, gate: Gate, count: int) -> None:
    async def come() -> bool:
        return len(gate.order) == count

    await scene.until(come)


async def sent_away(scene: Scene, gate: Gate, count: int) -> list[str]:
    """Open an episode that has the only place, and others one after the other; return those."""
    await scene.open("first")
    await have_come(scene, gate, 1)
    ids = []
    for number in range(count):
        ids.append(await scene.open(f"x{number}"))
        await left(scene, ids[-1])
    return ids


async def left(scene: Scene, episode_id: str) -> None:
    await _has(scene, episode_id, EpisodeDeferred)


async def over(scene: Scene, episode_id: str) -> None:
    """Wait until an episode has ended, whatever others do."""
    await _has(scene, episode_id, EpisodeFinished)


async def _has(scene: Scene, episode_id: str, kind: type) -> None:
    async def has() -> bool:
        return bool((await scene.life(episode_id)).of(kind))

    await scene.until(has)
    # Its claim is given up after that.
    await scene.until(lambda: _is_unclaimed(scene, episode_id))


async def _is_unclaimed(scene: Scene, episode_id: str) -> bool:
    return not any(episode_id in key for key in scene.ports.leases._bucket)


def test_a_place_that_comes_free_wakes_who_waits_for_it_at_once():
    gate = Gate()

    async def story(scene: Scene):
        await sent_away(scene, gate, 1)
        await scene.clock.sleep(300.0 + AWAY_S / 2)
        since_s = scene.clock.monotonic_s()
        gate.let_go()
        await have_come(scene, gate, 2)
        return scene.clock.monotonic_s() - since_s

    waited_s, _ = play(story, app_of(Proposing(outputs=[page()]), full(gate)))
    assert waited_s < MOMENT_S


def test_a_place_is_free_for_who_waits_though_its_output_was_only_put_off():
    gate = Gate()

    async def put_off(view):
        await gate(view)
        raise busy(retry_after_s=600.0)

    routes = {"pager": Route(Pager(put_off, gate), max_concurrent=1, timeout_s=600)}

    async def story(scene: Scene):
        await sent_away(scene, gate, 1)
        since_s = scene.clock.monotonic_s()
        gate.let_go()
        await have_come(scene, gate, 2)
        return scene.clock.monotonic_s() - since_s

    waited_s, _ = play(story, app_of(Proposing(outputs=[page()]), routes))
    assert waited_s < MOMENT_S


def test_those_who_wait_get_places_in_the_order_in_which_they_came():
    gate = Gate()

    async def story(scene: Scene):
        ids = await sent_away(scene, gate, 6)
        # Each has come back by itself and was sent away again.
        await scene.clock.sleep(3 * AWAY_S)
        for come in range(2, len(ids) + 2):
            since_s = scene.clock.monotonic_s()
            gate.let_go()
            await have_come(scene, gate, come)
            assert scene.clock.monotonic_s() - since_s < MOMENT_S
        return ids

    ids, _ = play(story, app_of(Proposing(outputs=[page()]), full(gate)))
    assert gate.order[1:] == ids


def test_who_waits_is_taken_up_once_only_however_long_it_waits():
    gate = Gate()

    async def story(scene: Scene):
        (id_,) = await sent_away(scene, gate, 1)
        await scene.clock.sleep(500.0)
        gate.let_go()
        await have_come(scene, gate, 2)
        gate.let_go()
        return await scene.ended(id_)

    life, _ = play(story, app_of(Proposing(outputs=[page()]), full(gate)))
    assert len(life.of(EpisodeStarted)) == 2
    assert len(life.of(EpisodeDeferred)) == 1


def test_who_comes_while_others_are_in_line_stands_behind_them():
    gate = Gate()

    async def story(scene: Scene):
        (waits,) = await sent_away(scene, gate, 1)
        since_s = scene.clock.monotonic_s()
        comes = await scene.open("late")
        await left(scene, comes)
        took_s = scene.clock.monotonic_s() - since_s
        for come in (2, 3):
            gate.let_go()
            await have_come(scene, gate, come)
        return [waits, comes], took_s

    (ids, took_s), _ = play(story, app_of(Proposing(outputs=[page()]), full(gate)))
    assert gate.order[1:] == ids
    # It has a slot of its node for as long as it takes to find that out, and no longer.
    assert took_s < PLACE_S / 2


def test_many_places_that_come_free_are_all_taken_at_once():
    gate = Gate()

    async def story(scene: Scene):
        for number in range(3):
            await scene.open(f"first{number}")
        await have_come(scene, gate, 3)
        ids = [await scene.open(f"x{number}") for number in range(3)]
        for id_ in ids:
            await left(scene, id_)
        since_s = scene.clock.monotonic_s()
        for _ in ids:
            gate.let_go()
        await have_come(scene, gate, 6)
        return scene.clock.monotonic_s() - since_s

    waited_s, _ = play(story, app_of(Proposing(outputs=[page()]), full(gate, places=3)))
    assert waited_s < MOMENT_S


def test_who_is_canceled_while_in_line_keeps_nobody_waiting():
    gate = Gate()

    async def story(scene: Scene):
        ids = await sent_away(scene, gate, 3)
        for id_ in ids[:2]:
            await cancel(scene.ports, "worker", id_, by="ann")
            await over(scene, id_)
        since_s = scene.clock.monotonic_s()
        gate.let_go()
        await have_come(scene, gate, 2)
        return ids, scene.clock.monotonic_s() - since_s

    (ids, waited_s), _ = play(story, app_of(Proposing(outputs=[page()]), full(gate)))
    assert gate.order[1:] == ids[2:]
    assert waited_s < MOMENT_S


def test_what_is_tried_again_after_the_end_of_its_episode_waits_in_line_too():
    gate = Gate()
    pager = Pager(broken(), gate, gate)
    routes = {"pager": Route(pager, max_concurrent=1, timeout_s=600)}

    async def story(scene: Scene):
        over = await scene.open("over")
        (outcome,) = (await scene.ended(over)).end.outputs
        await scene.open("first")
        await have_come(scene, gate, 1)
        await retry_output(scene.ports, outcome.output_key, by="ann")
        # It waits for a place, and then its own time, before it is in line.
        await scene.clock.sleep(PLACE_S + AWAY_S + AWAY_S / 2)
        since_s = scene.clock.monotonic_s()
        gate.let_go()
        await have_come(scene, gate, 2)
        return over, scene.clock.monotonic_s() - since_s

    (over, waited_s), _ = play(story, app_of(Proposing(outputs=[page()]), routes))
    assert gate.order[1:] == [over]
    assert waited_s < MOMENT_S


def test_whom_nobody_can_call_because_their_node_has_died_comes_at_their_time():
    gate = Gate()

    async def story(scene: Scene):
        (id_,) = await sent_away(scene, gate, 1)
        scene.kill()

        async def has_come() -> bool:
            while gate.inside:
                gate.let_go()
            return id_ in gate.order

        await scene.until(has_come)
        return await scene.ended(id_)

    life, _ = play(story, app_of(Proposing(outputs=[page()]), full(gate)))
    assert life.end.status == "done"


A, B, C = (WaitingEpisode("worker", each) for each in "abc")


def line(*waiting: WaitingEpisode, until_s: float = 100.0) -> WaitQueue:
    made = WaitQueue()
    for each in waiting:
        made.join(each.episode_id, each, until_s=until_s)
    return made


def test_as_many_are_called_as_there_are_places():
    assert line(A, B, C).call(2, at_s=0.0) == [A, B]


def test_a_place_to_which_somebody_was_called_is_no_reason_to_call_another():
    waiting = line(A, B)
    assert [waiting.call(1, at_s=at_s) for at_s in (0.0, COME_S)] == [[A], []]


def test_who_does_not_come_when_called_gives_the_turn_to_the_next():
    waiting = line(A, B)
    waiting.call(1, at_s=0.0)
    assert waiting.call(1, at_s=COME_S + 0.1) == [B]


def test_who_has_come_in_vain_keeps_their_turn():
    waiting = line(A, B)
    waiting.call(1, at_s=0.0)
    waiting.join("a", A, until_s=100.0)
    assert waiting.call(1, at_s=0.0) == [A]


def test_who_has_not_come_back_at_their_time_is_not_called():
    waiting = line(A, until_s=5.0)
    waiting.join("b", B, until_s=100.0)
    assert waiting.call(1, at_s=6.0) == [B]


def test_an_episode_with_several_outputs_in_line_is_called_once():
    waiting = line(A)
    waiting.join("another", A, until_s=100.0)
    assert waiting.call(2, at_s=0.0) == [A]


def test_so_many_wait_at_most():
    waiting = WaitQueue()
    for number in range(WAITING_MAX + 1):
        waiting.join(str(number), WaitingEpisode("worker", str(number)), until_s=100.0)
    assert len(waiting.call(WAITING_MAX + 1, at_s=0.0)) == WAITING_MAX


def throttled(story: Callable[[SimClock, Throttle], Awaitable[object]], **said: object):
    async def played():
        clock = SimClock()
        throttle = Throttle(clock, **{"max_concurrent": 1, "rate_per_s": None, **said})
        assert throttle.try_enter("first")
        throttle.send_away_s("a")
        throttle.line_up("a", A)
        throttle.leave()
        return await story(clock, throttle)

    return simulate(played())


def test_a_place_to_which_somebody_was_called_is_kept_for_them():
    async def story(clock, throttle):
        before = throttle.is_open("b", within_s=PLACE_S)
        called = await throttle.wait_called()
        after = [throttle.is_open(key, within_s=PLACE_S) for key in ("b", "a")]
        return before, called, after, throttle.try_enter("new")

    assert throttled(story) == (True, [A], [False, True], False)


def test_a_place_whose_owner_does_not_come_is_free_for_others():
    async def story(clock, throttle):
        await throttle.wait_called()
        await clock.sleep(COME_S + LATE_S)
        return throttle.is_open("b", within_s=PLACE_S)

    assert throttled(story) is True


def test_the_next_is_called_at_once_if_who_was_called_is_settled():
    async def story(clock, throttle):
        throttle.send_away_s("b")
        throttle.line_up("b", B)
        before = await throttle.wait_called()
        waiting = asyncio.create_task(throttle.wait_called())
        await clock.sleep(COME_S / 2)
        throttle.forget("a")
        called = await waiting
        return before, called, clock.monotonic_s()

    assert throttled(story) == ([A], [B], COME_S / 2)


def test_where_a_rate_gives_each_a_time_nobody_is_called_before():
    async def story(clock, throttle):
        return throttle._line.call(1, at_s=clock.monotonic_s())

    assert throttled(story, rate_per_s=100.0) == []


def test_who_was_not_sent_away_is_not_called():
    async def story(clock, throttle):
        throttle.forget("a")
        throttle.line_up("b", B)
        return throttle._line.call(1, at_s=clock.monotonic_s())

    assert throttled(story) == []
