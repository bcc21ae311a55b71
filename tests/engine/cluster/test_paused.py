"""What has been woken goes on while its actor is paused; nothing else does."""

from __future__ import annotations

from engine.app.actions import approval
from engine.app.actor import Actor
from engine.app.app import App
from engine.app.outputs import propose_output
from engine.app.triggers import manual
from engine.episodes.fire import fire
from streams.keys import pause_key
from streams.model.events import EndStatus, EpisodeBlocked, EpisodeDeferred
from tests.engine.output_stage import Pager, Proposing, Scene, app_of, busy, play
from tests.engine.stage import Scripted

PAGE = {"text": "disk full"}


async def pause(scene: Scene) -> None:
    await scene.ports.registry.put(pause_key("worker"), b"{}")
    await scene.clock.sleep(1.0)


async def reached(scene: Scene, id_: str, event: type) -> None:
    async def has() -> bool:
        return bool((await scene.life(id_)).of(event))

    await scene.until(has)


def test_a_wait_ends_in_time_while_its_actor_is_paused():
    asks = approval({"x": 1}, expires_s=60, on_expiry="approve", remind_every_s=20)

    async def story(scene: Scene):
        id_ = await scene.open()
        await reached(scene, id_, EpisodeBlocked)
        await pause(scene)
        return await scene.ended(id_)

    life, scene = play(story, app_of(Proposing(asks), {}))
    assert life.end.status is EndStatus.DONE
    kept = scene.ports.log._streams["vigil-events"].past(0)
    names = [scene.ports.domain_events._parse(message).name for message in kept]
    assert names.count("episode.reminder") == 2


def test_what_is_put_off_is_tried_again_while_its_actor_is_paused():
    pager = Pager(busy(retry_after_s=60))
    wanted = propose_output("pager", PAGE)

    async def story(scene: Scene):
        id_ = await scene.open()
        await reached(scene, id_, EpisodeDeferred)
        await pause(scene)
        return await scene.ended(id_)

    life, _ = play(story, app_of(Proposing(outputs=[wanted]), {"pager": pager}))
    assert (life.end.status, len(pager.views)) == (EndStatus.DONE, 2)


def test_nothing_wakes_an_actor_that_is_paused_before_it_is_resumed():
    actor = Actor("worker")
    actor.expect("thing", Scripted(), on=manual())

    async def story(scene: Scene):
        await scene.clock.sleep(1.0)
        await pause(scene)
        id_ = await fire(scene.ports, "worker", "thing", by="ann", key="k")
        await scene.clock.sleep(1_200.0)
        before = (await scene.life(id_)).records
        await scene.ports.registry.delete(pause_key("worker"))
        return before, await scene.ended(id_)

    (before, life), scene = play(story, App(actors=[actor]))
    assert (before, life.end.status, scene.letters) == ((), EndStatus.DONE, [])
