"""What becomes of outputs that are left: by a wish to cancel, by a crash, by a node that is new."""

from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from engine.app.actions import approval
from engine.app.actor import Actor
from engine.app.app import App
from engine.app.findings import raise_finding
from engine.app.outputs import DeliveryFailed, Route, output, propose_output
from engine.app.strategy import Abort
from engine.app.tools import Failure
from engine.app.triggers import event
from engine.episodes.cancel import cancel
from engine.episodes.episode import Status
from engine.outputs.deliver import CLASS_CHARS_MAX, OutputDelivery
from engine.outputs.keys import proposal
from engine.outputs.store import OutputStore
from streams.json import raw
from streams.model.commands import Attend
from streams.model.events import (
    EndStatus,
    EpisodeConverged,
    EpisodeDeferred,
    OutputAttempted,
    OutputCanceled,
    OutputFailed,
    OutputProposed,
)
from streams.model.outputs import OutputStatus
from tests.engine.crew import attempt_of, crew_of, delivery_of
from tests.engine.output_stage import Pager, Proposing, Scene, app_of, busy, play
from tests.engine.stage import (
    CLOCK,
    HAPPENED,
    Scripted,
    all_answered,
    claims,
    eventually,
    kept,
    leave,
    life,
    lived,
    open_episode,
    opening,
    running,
)
from tests.gates.place import Doom
from tests.moments import moments
from tests.simulation.life import Life
from tests.simulation.wire import wired

PAGE = {"text": "disk full"}

MANY = 20
"""More outputs than are carried at a time."""


def page(**said: object):
    return propose_output("pager", PAGE, **said)


async def ends(scene: Scene):
    return await scene.ended(await scene.open())


def courier_of(app: App, ports, writer_id: str, *, id_: str = "x1") -> OutputDelivery:
    """Return a courier of an episode of `app` whose claim holds."""
    context = crew_of(app, ports)
    context.permits.runs.turn(on=True)
    return delivery_of(context, attempt_of(opening(app, id_=id_)), writer_id)


def test_nothing_is_delivered_after_an_episode_was_canceled():
    release = asyncio.Event()

    async def slow(view):
        await release.wait()

    pager = Pager(busy(retry_after_s=600), *[slow] * 16)
    outputs = [page(dedupe_key=f"k{number}") for number in range(MANY)]
    app = app_of(Proposing(outputs=outputs), {"pager": Route(pager, max_concurrent=100)})

    async def story(scene: Scene):
        id_ = await scene.open()

        async def are_called() -> bool:
            return len(pager.views) > 16

        await scene.until(are_called)
        await cancel(scene.ports, "worker", id_, by="bob")
        await scene.clock.sleep(2.0)
        release.set()
        life = await scene.ended(id_)
        put_off = pager.views[0].output_key
        at_end = await scene.output(put_off)
        await scene.clock.sleep(1_200.0)
        return life, at_end, await scene.output(put_off)

    (life, at_end, later), _ = play(story, app)
    assert life.end.status is EndStatus.CANCELED
    assert len(life.end.outputs) == MANY
    assert not life.of(EpisodeDeferred)
    assert (at_end.status, later.status) == (OutputStatus.CANCELED, OutputStatus.CANCELED)


def test_what_a_canceled_episode_is_found_to_have_proposed_is_canceled():
    """A node that stood still proposed it, when the episode had ended."""
    pager = Pager(busy(retry_after_s=600))
    app = app_of(Proposing(outputs=[page(dedupe_key="disk")]), {"pager": pager})

    async def story(scene: Scene):
        id_ = await scene.open()

        async def is_deferred() -> bool:
            return bool((await scene.life(id_)).of(EpisodeDeferred))

        await scene.until(is_deferred)
        await cancel(scene.ports, "worker", id_, by="bob")
        await scene.ended(id_)
        ports, at = wired(Life("zombie"), scene.servers), scene.clock.now()
        output_store = OutputStore(ports, scene.clock, "disk", writer_id="zombie")
        await output_store.read()
        await output_store.append(proposal(page(), "disk", opening(app), proposal_no=2, at=at))
        await scene.ports.commands.send(Attend(actor_id="worker", episode_id=id_), id="attend")
        await scene.clock.sleep(60.0)
        return await scene.output("disk")

    left, _ = play(story, app)
    assert (left.status, left.proposed.proposal_no) == (OutputStatus.CANCELED, 2)
    assert len(pager.views) == 1


def test_a_policy_that_raises_leaves_no_output_behind():
    """Nobody asks for one of an episode that has decided: no strategy is to go on."""

    def policy(orphan):
        raise RuntimeError("no idea")

    pager = Pager()
    actor = Actor("worker", max_concurrent_episodes=10)
    actor.expect("thing", Proposing(outputs=[page(dedupe_key="disk")]), on=event(HAPPENED))
    app = App(actors=[actor], outputs={"pager": pager}, resolve_policy=policy)

    async def story(scene: Scene):
        async def dies(view):
            scene.kill()
            await asyncio.sleep(0)

        pager.plan = [dies]
        return await ends(scene), await scene.output("disk")

    (life, delivered), _ = play(story, app)
    assert (life.end.status, delivered.status) == (EndStatus.DONE, OutputStatus.DELIVERED)


async def test_a_node_that_lacks_its_expectation_cancels_an_episode_that_delivers(ports):
    asking = page(dedupe_key="disk", requires_approval=True)
    app = app_of(Proposing(outputs=[asking]), {"pager": Pager()})
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await lived(ports, id_, lambda so_far: so_far.of(EpisodeDeferred))
        await all_answered(ports.commands)
    actor = Actor("worker")
    actor.expect("another", Scripted(), on=event(HAPPENED))
    async with running(App(actors=[actor]), ports, "newer"):
        await cancel(ports, "worker", id_, by="ada")
        done = await lived(ports, id_)
    assert done.end.status is EndStatus.CANCELED


async def test_a_node_that_lacks_its_expectation_leaves_findings_to_one_that_has_it(ports):
    """They are carried out though the episode is canceled, as its expectation says."""
    app = app_of(Proposing(outputs=[page(dedupe_key="disk")], finds=True), {"pager": Pager()})
    found = raise_finding("disk", class_="full", severity="low")
    decided = EpisodeConverged(
        classification=raw({}), summary="", findings=(found,), outputs=(page(dedupe_key="disk"),)
    )
    id_ = await leave(ports, app, kept(), decided)
    await cancel(ports, "worker", id_, by="ada")
    actor = Actor("worker")
    actor.expect("another", Scripted(), on=event(HAPPENED))
    with capture_logs() as logs:
        async with running(App(actors=[actor]), ports, "newer"):
            await eventually(lambda: any(each["event"] == "command handed back" for each in logs))
            await eventually(lambda: not claims(ports))
    assert not [each for each in logs if each["log_level"] == "error"]
    assert (await life(ports, id_)).episode.status is Status.CONVERGING
    async with running(app, ports):
        done = await lived(ports, id_)
    assert (done.end.status, len(done.end.findings)) == (EndStatus.CANCELED, 1)


async def test_whoever_looks_at_what_has_failed_sees_to_its_dead_letter(ports):
    """Whoever saw it fail may have died before they did."""
    app = app_of(Proposing(), {"pager": Pager()})
    await OutputStore(ports, CLOCK, "disk", writer_id="who died").append(
        proposal(page(), "disk", opening(app), proposal_no=1, at=CLOCK.now()),
        OutputAttempted(attempt=1, node="n1"),
        OutputFailed(attempt=1, error_class="gone", error_detail="for good"),
    )
    await courier_of(app, ports, "next").state("disk")
    assert len(ports.log._streams["vigil-dead"].past(0)) == 1


async def test_who_stood_still_before_they_proposed_finds_it_canceled(ports):
    pager = Pager()
    app = app_of(Proposing(), {"pager": pager})
    await courier_of(app, ports, "next").cancel("disk", page(), reason="by bob")
    carried = await courier_of(app, ports, "zombie").carry("disk", page(), is_new=True)
    (record,) = await ports.log.read(ports.stack.output("disk"))
    assert [type(each) for each in record.commit.events] == [OutputProposed, OutputCanceled]
    assert (carried.status, pager.views) == ("canceled", [])


def told_of_outputs(scene: Scene) -> list[list[str]]:
    """Return the ids of the public events of each output, in order."""
    return [ids for ids in scene.told_of.values() if ids[0].startswith("output.")]


def test_the_world_is_told_of_what_is_canceled_wherever_the_node_dies():
    class GivesUp(Proposing):
        def handle_result(self, state, step, result):
            if isinstance(result, Failure):
                return Abort(result.error_class, result.detail)
            return super().handle_result(state, step, result)

    def denied(fatal: int):
        plan = output("pager", PAGE, dedupe_key="in"), approval({"x": 1}, expires_s=20)
        pager = Pager(*[busy(retry_after_s=3_000)] * 9)

        async def story(scene: Scene):
            life = await ends(scene)
            await scene.quiet()
            return life

        return play(story, app_of(GivesUp(*plan), {"pager": pager}), weather=Doom(fatal))

    life, expected = denied(0)
    assert life.end.error_class == "denied"
    assert [name for name, _ in expected.told] == ["output.proposed", "output.canceled"]
    for fatal in moments(expected.weather.chances):
        life, scene = denied(fatal)
        assert life.end.error_class == "denied", fatal
        assert told_of_outputs(scene) == told_of_outputs(expected), fatal


def test_the_world_is_told_what_a_dead_node_proposed_in_a_step_though_it_is_canceled():
    """No other node goes on with the step."""
    pager = Pager()

    async def story(scene: Scene):
        async def is_canceled_and_dies(view):
            await cancel(scene.ports, "worker", view.episode_id, by="bob")
            scene.kill()
            await asyncio.sleep(0)

        pager.plan = [is_canceled_and_dies]
        return await ends(scene)

    plan = output("pager", PAGE, dedupe_key="in")
    life, scene = play(story, app_of(Proposing(plan), {"pager": pager}))
    assert (life.end.status, len(pager.views)) == (EndStatus.CANCELED, 1)
    assert [name for name, _ in scene.told] == ["output.proposed", "output.canceled"]


def test_long_error_classes_do_not_keep_an_episode_from_ending():
    said = DeliveryFailed("\N{OCTOPUS}" * 4_000, permanent=True)
    outputs = [page() for _ in range(100)]
    app = app_of(Proposing(outputs=outputs), {"pager": Pager(*[said] * 100)})
    life, _ = play(ends, app)
    assert {len(each.error_class) for each in life.end.outputs} == {CLASS_CHARS_MAX}
