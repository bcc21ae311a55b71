"""One output is canceled, and its episode goes on; and nobody delivers what is not wanted."""

from __future__ import annotations

import asyncio

import pytest

from engine import telemetry
from engine.app.outputs import Route, output
from engine.episodes.cancel import cancel
from engine.errors import Refused
from engine.outputs.requests import cancel_output
from streams.layout import Stream
from streams.model.commands import CancelOutput
from streams.model.events import (
    EndStatus,
    EpisodeDeferred,
    OutputApproved,
    OutputCanceled,
    OutputFailed,
    OutputForgone,
    OutputProposed,
)
from streams.model.outputs import OutputStatus
from tests.engine.output_stage import Frost, Pager, Proposing, Scene, app_of, busy, play
from tests.engine.outputs.test_outputs_left import PAGE, courier_of, page
from tests.engine.parcels import left
from tests.engine.stage import opening, react, write
from tests.engine.stage import told as told_by
from tests.moments import moments
from tests.simulation.life import Life
from tests.simulation.wire import wired


def paging(*plan, outputs=(), pager: Pager | None = None):
    return app_of(Proposing(*plan, outputs=outputs), {"pager": pager or Pager()})


async def deferred(scene: Scene, id_: str) -> None:
    async def is_deferred() -> bool:
        return bool((await scene.life(id_)).of(EpisodeDeferred))

    await scene.until(is_deferred)


def outcomes(life) -> list[str]:
    return [each.outcome for each in life.end.outputs]


def told(scene: Scene, name: str) -> list[dict]:
    return [said for each, said in scene.told if each == name]


@pytest.mark.parametrize("asks", [False, True])
def test_an_output_is_canceled_alone_and_its_episode_ends_as_the_others_do(asks):
    pager = Pager(busy(retry_after_s=600), busy(retry_after_s=600))

    async def story(scene: Scene):
        id_ = await scene.open()
        await deferred(scene, id_)
        await cancel_output(scene.ports, "disk", by="ann", reason="too late")
        return await scene.ended(id_), await scene.output("disk")

    (life, left_), scene = play(
        story, paging(outputs=[page(dedupe_key="disk", requires_approval=asks)], pager=pager)
    )
    assert (life.end.status, outcomes(life)) == (EndStatus.DONE, ["canceled"])
    assert left_.status is OutputStatus.CANCELED
    assert (left_.canceled.by, left_.canceled.reason) == ("ann", "too late")
    (said,) = told(scene, "output.canceled")
    assert (said["by"], said["reason"]) == ("ann", "too late")


def test_what_is_delivered_cannot_be_canceled_and_that_is_said():
    async def story(scene: Scene):
        await scene.ended(await scene.open())
        with pytest.raises(Refused, match="it is delivered"):
            await cancel_output(scene.ports, "disk", by="ann")
        with pytest.raises(Refused, match="no such output"):
            await cancel_output(scene.ports, "another", by="ann")

    play(story, paging(outputs=[page(dedupe_key="disk")]))


@pytest.mark.parametrize(("plan", "status"), [((), "delivered"), ((busy(),), "canceled")])
def test_an_attempt_that_is_under_way_is_waited_for(plan, status):
    release = asyncio.Event()

    async def slow(view):
        await release.wait()
        if plan:
            raise plan[0]
        return "ref"

    async def story(scene: Scene):
        id_ = await scene.open()

        async def is_called() -> bool:
            return bool(pager.views)

        await scene.until(is_called)
        await cancel_output(scene.ports, "disk", by="ann")
        await scene.clock.sleep(5.0)
        release.set()
        return await scene.ended(id_)

    pager = Pager(slow, *[busy(retry_after_s=600)] * 5)
    life, _ = play(story, paging(outputs=[page(dedupe_key="disk")], pager=pager))
    assert outcomes(life) == [status]


def test_an_output_of_a_step_may_be_canceled_while_its_episode_runs():
    step = output("pager", PAGE, dedupe_key="disk", requires_approval=True)
    release = asyncio.Event()

    class Slow(Proposing):
        async def converge(self, state, ctx):
            await release.wait()
            return super().converge(state, ctx)

    async def story(scene: Scene):
        id_ = await scene.open()
        await scene.reached("disk", "awaiting_approval")
        await cancel_output(scene.ports, "disk", by="ann")
        await scene.reached("disk", "canceled")
        release.set()
        return await scene.ended(id_)

    life, _ = play(story, app_of(Slow(step), {"pager": Pager()}))
    assert (life.end.status, outcomes(life)) == (EndStatus.DONE, ["canceled"])


def test_a_request_that_comes_again_is_one_and_the_world_is_told_of_it():
    """Whoever followed it first died at once."""

    async def story(scene: Scene):
        id_ = await scene.open()
        await scene.reached("disk", "awaiting_approval")
        said = OutputCanceled(by="ann", cancel_id="c1")
        await left(wired(Life("who died"), scene.servers), "disk", said)
        of = {"actor_id": "worker", "episode_id": id_, "output_key": "disk", "round_no": 1}
        again = CancelOutput(**of, id="c1", by="ann")
        await scene.ports.commands.send(again, id="c1")
        return await scene.ended(id_)

    _, scene = play(story, paging(outputs=[page(dedupe_key="disk", requires_approval=True)]))
    assert len(told(scene, "output.canceled")) == 1
    canceled = [each for each in scene.events(Stream.JOURNAL) if isinstance(each, OutputCanceled)]
    assert len(canceled) == 1


# What the world is told.


@pytest.fixture
def counted(monkeypatch):
    """Outcomes of outputs, as the metrics count them."""
    found: list[str] = []

    class Counted:
        def add(self, _amount: int, labels: dict[str, str]) -> None:
            found.append(labels["outcome"])

    monkeypatch.setattr(telemetry, "outputs", Counted())
    return found


async def test_an_outcome_is_counted_once_however_often_it_is_found(ports, counted):
    for node in ("first", "next"):
        await courier_of(paging(), ports, node).carry("disk", page(dedupe_key="disk"))
    assert counted == ["delivered"]


def test_of_what_is_canceled_while_it_waits_for_its_turn_all_is_told(counted):
    async def story(scene: Scene):
        id_ = await scene.open()
        await scene.reached("disk", "proposed")
        await cancel_output(scene.ports, "disk", by="ann")
        return await scene.ended(id_)

    outputs = Proposing(outputs=[page(), page(dedupe_key="disk")])
    life, scene = play(story, app_of(outputs, {"pager": Route(Pager(), rate_per_s=0.5)}))
    names = [each for each, said in scene.told if said["output_key"] == "disk"]
    assert sorted(outcomes(life)) == ["canceled", "delivered"]
    assert names == ["output.proposed", "output.canceled"]
    assert sorted(counted) == ["canceled", "delivered"]


async def test_the_world_is_told_of_an_approval_though_whoever_wrote_it_down_died_at_once(ports):
    app = paging()
    opened = opening(app)
    await write(ports, opened.episode_id, opened)
    asked = page(dedupe_key="disk", requires_approval=True)
    await courier_of(app, ports, "first").carry("disk", asked)
    await left(ports, "disk", OutputApproved(by="ann"))
    await courier_of(app, ports, "next").carry("disk", asked)
    await react(ports)
    assert [name for name, _ in told_by(ports)] == [
        "output.proposed", "output.approved", "output.delivered",
    ]  # fmt: skip


# Whoever stood still finds that nothing is to be proposed any more.


async def test_what_was_announced_and_is_not_wanted_is_not_proposed_by_who_stood_still(ports):
    pager = Pager()
    app = paging(pager=pager)
    await courier_of(app, ports, "next").cancel("disk", None, reason="by bob")
    carried = await courier_of(app, ports, "zombie").carry("disk", page(), is_new=True)
    (record,) = await ports.log.read(ports.stack.output("disk"))
    assert record.commit.events == (OutputForgone(episode_id=opening(app).episode_id),)
    assert (carried.status, pager.views) == ("canceled", [])


async def test_what_was_announced_and_came_to_nothing_is_not_proposed_by_who_stood_still(ports):
    app = paging()
    dropped = await courier_of(app, ports, "next").carry("disk", None)
    carried = await courier_of(app, ports, "zombie").carry("disk", page(), is_new=True)
    assert (dropped.status, carried.status) == ("canceled", "canceled")


async def test_what_has_failed_for_others_stays_theirs_and_free_for_the_next(ports):
    app, other = paging(), "another"
    writer_id = courier_of(app, ports, "others")
    theirs = OutputProposed(
        output_key="disk",
        adapter="pager",
        payload=page().payload,
        episode_id=other,
        actor_id="worker",
        expectation_id="thing",
    )
    await left(ports, "disk", theirs, OutputFailed(attempt=0, error_class="gone"))
    await writer_id.cancel("disk", page(), reason="by bob")
    carried = await courier_of(app, ports, "zombie").carry("disk", page())
    assert carried.status == "canceled"
    third = courier_of(app, ports, "third", id_="x3")
    assert (await third.carry("disk", page())).status == "delivered"


def test_a_node_that_stood_still_before_it_proposed_leaves_nothing_behind_wherever_it_does():
    """Its episode is canceled meanwhile by another one."""
    step = output("pager", PAGE, dedupe_key="disk")

    def frozen(fatal: int):
        pager = Pager()

        async def story(scene: Scene):
            async with scene.node("n2"):
                id_ = await scene.open()
                await scene.clock.sleep(5.0)
                await cancel(scene.ports, "worker", id_, by="bob")
                await scene.ended(id_)
                await scene.quiet()
                return await scene.output("disk")

        return play(story, paging(step, pager=pager), weather=Frost(fatal))

    _, expected = frozen(0)
    for fatal in moments(expected.weather.chances):
        output_, _ = frozen(fatal)
        assert output_.status in (None, "delivered", "canceled"), fatal
