"""What is said to an episode is ruled on at once, though there is no room to run it."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import timedelta
from typing import Final

import pytest

from engine.app.actions import Pause, approval, tool_call, wait
from engine.app.actor import Actor
from engine.app.app import App
from engine.app.findings import raise_finding
from engine.app.outputs import propose_output
from engine.app.triggers import event
from engine.episodes.cancel import cancel
from engine.episodes.episode import Status
from engine.execution.commands import ROOM_MAX
from engine.operations.dead_letters import DeadLetterRequests
from engine.outputs.requests import cancel_output, retry_output
from engine.waits.handle import WaitHandler
from engine.waits.signal import RESOLVED
from engine.waits.signals import QUEUE
from streams.layout import Stream
from streams.model.commands import Attend, Cancel, Carry, Command, Decide, Start, Verdict
from streams.model.events import (
    EndStatus,
    EpisodeConverged,
    EpisodeDeferred,
    EpisodeResolved,
    EpisodeStarted,
    Resolution,
)
from streams.model.outputs import OutputStatus
from streams.model.triggers import Budget
from streams.ports.all import Ports
from streams.ports.delivery import ACK_WAIT_S, Delivery
from streams.wire import codec
from tests.engine.crew import crew_of
from tests.engine.lane_stage import lane_of
from tests.engine.output_stage import Pager, Proposing, Scene, broken, busy, play
from tests.engine.output_stage import app_of as output_app
from tests.engine.stage import (
    CLOCK,
    HAPPENED,
    STARTED,
    Counter,
    Life,
    Scripted,
    all_answered,
    app_of,
    decide,
    eventually,
    lived,
    open_episode,
    opening,
    react,
    running,
    write,
)
from tests.engine.waits.test_replicas import Lagging
from tests.engine.waits.test_wait import blocked, held, say
from tests.gates.place import Doom
from tests.simulation.time import simulate

MOMENT_S: Final = 1.0
"""Simulated: longer than any number of requests takes, and far shorter than a slot is held for."""

HELD_S: Final = 25.0
"""Simulated: for how long the only slot is taken."""

LONG_S: Final = 300.0
"""Simulated: longer than the server remembers ids."""

REF: Final = "payment:42"
BUSY: Final = "work.came"
PAY: Final = tool_call("pay", "out")
HOLD: Final = tool_call("hold", "on")


def with_one_slot(strategy: Scripted, *, in_turn: bool = False, **outputs: object) -> App:
    """Return an app of an actor whose only slot is taken whenever there is `BUSY` work."""
    tools = {"pay": Counter(), "hold": Counter(open_=False)}
    turns = {"max_concurrent_cluster": 1} if in_turn else {}
    actor = Actor("worker", max_concurrent_episodes=1, **turns)
    actor.expect("thing", strategy, on=event(HAPPENED))
    actor.expect("busy", Scripted(HOLD), on=event(BUSY), budget=Budget(wall_s=0))
    return App(actors=[actor], tools=tools, outputs=outputs)


def waiting(action: Pause) -> App:
    return with_one_slot(Scripted(action, PAY))


def proposing(pager: Pager, **asking: object) -> App:
    intent = propose_output("pager", {"text": "full"}, dedupe_key="disk", **asking)
    return with_one_slot(Proposing(outputs=[intent]), pager=pager)


async def take_the_slot(scene: Scene) -> None:
    await scene.ports.domain_events.publish(BUSY, {}, id="busy")

    async def is_taken() -> bool:
        return scene.app.tools["hold"].called.is_set()

    await scene.until(is_taken)


def give_the_slot_back(scene: Scene) -> None:
    scene.app.tools["hold"].gate.set()


async def reached(scene: Scene, id_: str, status: Status) -> Life:
    async def is_there() -> bool:
        # Nobody has an episode that waits.
        is_let_go = not [key for key in scene.ports.leases._bucket if key.endswith(id_)]
        return (await scene.life(id_)).episode.status is status and is_let_go

    await scene.until(is_there)
    return await scene.life(id_)


async def blocked_and_full(scene: Scene) -> Life:
    """Return the life of an episode that waits, while others have taken the only slot."""
    # Word that nobody could hear yet would be no word.
    await (await scene.ports.domain_events.open(QUEUE, [RESOLVED])).close()
    id_ = await scene.open()
    life = await reached(scene, id_, Status.BLOCKED)
    await take_the_slot(scene)
    return life


def told(scene: Scene, name: str) -> list[dict]:
    kept = scene.ports.log._streams[scene.ports.stack.stream(Stream.EVENTS)]
    events = [scene.ports.domain_events._parse(message) for message in kept.past(0)]
    return [one.payload for one in events if one.name == name]


def answer_in(life: Life) -> tuple[EpisodeResolved, object]:
    """Return the answer that an episode has, and when it was written down."""
    (found,) = (
        (each, record.commit.at)
        for record in life.records
        for each in record.commit.events
        if isinstance(each, EpisodeResolved)
    )
    return found


# An episode that waits.


@pytest.mark.parametrize(
    ("action", "resolution"),
    [(approval({}, expires_s=5), "expired"), (wait(REF, expires_s=5), "expired")],
)
def test_what_nobody_answers_expires_on_time(action, resolution):
    async def story(scene: Scene):
        before = await blocked_and_full(scene)
        await scene.clock.sleep(HELD_S)
        return before, await scene.life(before.episode.opened.episode_id)

    (before, after), _ = play(story, waiting(action))
    terms = before.episode.blocked.approval or before.episode.blocked.wait
    resolved, at = answer_in(after)
    assert resolved.resolution == resolution
    assert terms.expires_at <= at <= terms.expires_at + timedelta(seconds=MOMENT_S)


def test_people_are_reminded_each_time_and_no_number_is_left_out():
    async def story(scene: Scene):
        await blocked_and_full(scene)
        await scene.clock.sleep(HELD_S)
        return [each["number"] for each in told(scene, "episode.reminder")]

    numbers, _ = play(story, waiting(approval({}, remind_every_s=2)))
    assert len(numbers) >= HELD_S // 2
    assert numbers == list(range(1, len(numbers) + 1))


async def approved(scene: Scene, life: Life) -> None:
    await decide(scene.ports, life.episode.opened.episode_id)


async def denied(scene: Scene, life: Life) -> None:
    await decide(scene.ports, life.episode.opened.episode_id, "deny")


async def word(scene: Scene, _: Life) -> None:
    await scene.ports.domain_events.publish(
        RESOLVED, {"ref": REF, "result": 7, "by": "bank"}, id="w"
    )


ANSWERS: Final = {
    "approved": (approval({}), approved),
    "denied": (approval({}), denied),
    "resolved": (wait(REF), word),
}


@pytest.mark.parametrize("resolution", ANSWERS)
def test_an_answer_is_written_down_and_told_at_once(resolution):
    action, say = ANSWERS[resolution]

    async def story(scene: Scene):
        before = await blocked_and_full(scene)
        await say(scene, before)
        await scene.clock.sleep(MOMENT_S)
        return await scene.life(before.episode.opened.episode_id), told(scene, "episode.resumed")

    (life, resumed), _ = play(story, waiting(action))
    assert answer_in(life)[0].resolution == resolution
    assert len(resumed) == 1
    assert (life.episode.status, len(life.of(EpisodeStarted))) == (Status.QUEUED, 1)


@pytest.mark.parametrize("resolution", ANSWERS)
def test_it_goes_on_once_as_soon_as_there_is_a_slot(resolution):
    action, say = ANSWERS[resolution]

    async def story(scene: Scene):
        before = await blocked_and_full(scene)
        await say(scene, before)
        await scene.clock.sleep(HELD_S)
        give_the_slot_back(scene)
        await scene.clock.sleep(MOMENT_S)
        soon = await scene.life(before.episode.opened.episode_id)
        await scene.quiet()
        return soon, await scene.life(before.episode.opened.episode_id)

    (soon, later), scene = play(story, waiting(action))
    assert soon.end.status is EndStatus.DONE
    assert (soon, len(soon.of(EpisodeStarted))) == (later, 2)
    assert len(scene.app.tools["pay"].calls) == 1
    assert len(told(scene, "episode.resumed")) == 1


def test_its_place_is_asked_for_at_once_where_turns_are_taken():
    async def story(scene: Scene):
        before = await blocked_and_full(scene)
        await approved(scene, before)
        await scene.clock.sleep(MOMENT_S)
        placed = [each.episode_id for each in (await lane_of(scene.ports)).waiting]
        give_the_slot_back(scene)
        life = await reached(scene, before.episode.opened.episode_id, Status.DONE)
        return placed, life

    (placed, life), _ = play(story, with_one_slot(Scripted(approval({}), PAY), in_turn=True))
    assert placed == [life.episode.opened.episode_id]


def test_it_goes_on_at_a_node_that_has_room():
    async def story(scene: Scene):
        before = await blocked_and_full(scene)
        await approved(scene, before)
        await scene.clock.sleep(MOMENT_S)
        async with scene.node("idle"):
            return await reached(scene, before.episode.opened.episode_id, Status.DONE)

    life, _ = play(story, waiting(approval({})))
    assert [each.node for each in life.of(EpisodeStarted)] == ["n1", "idle"]


def test_it_is_canceled_at_once():
    async def story(scene: Scene):
        before = await blocked_and_full(scene)
        id_ = before.episode.opened.episode_id
        await cancel(scene.ports, "worker", id_, by="ada")
        await scene.clock.sleep(MOMENT_S)
        return await scene.life(id_), told(scene, "episode.canceled")

    (life, canceled), _ = play(story, waiting(approval({})))
    assert life.end.status is EndStatus.CANCELED
    assert len(canceled) == 1


def test_one_that_is_queued_is_canceled_at_once_too():
    async def story(scene: Scene):
        await take_the_slot(scene)
        id_ = await scene.open()
        await reached(scene, id_, Status.QUEUED)
        await cancel(scene.ports, "worker", id_, by="ada")
        await scene.clock.sleep(MOMENT_S)
        return await scene.life(id_)

    life, _ = play(story, waiting(approval({})))
    assert life.end.status is EndStatus.CANCELED


def test_what_an_episode_that_is_canceled_has_found_waits_for_a_slot():
    """To carry it out may run code of the actor."""
    found = raise_finding("disk", class_="full")

    async def story(scene: Scene):
        await take_the_slot(scene)
        opened = opening(scene.app)
        await write(scene.ports, opened.episode_id, opened)
        decided = EpisodeConverged(findings=(found,), outputs=(propose_output("pager", {}),))
        await write(scene.ports, opened.episode_id, STARTED, decided)
        await cancel(scene.ports, "worker", opened.episode_id, by="ada")
        await scene.clock.sleep(HELD_S)
        soon = list(scene.findings)
        give_the_slot_back(scene)
        await scene.clock.sleep(HELD_S)
        return soon, await scene.life(opened.episode_id)

    (soon, life), scene = play(story, with_one_slot(Scripted(), pager=Pager()))
    assert (soon, life.end.status) == ([], EndStatus.CANCELED)
    assert len(scene.findings) == 1


def test_a_decision_does_not_stand_behind_the_episodes_that_wait_for_a_slot():
    async def story(scene: Scene):
        before = await blocked_and_full(scene)
        for number in range(3 * ROOM_MAX):
            await scene.open(f"later-{number}")
        await approved(scene, before)
        await scene.clock.sleep(MOMENT_S)
        return await scene.life(before.episode.opened.episode_id)

    life, _ = play(story, waiting(approval({})))
    assert answer_in(life)[0].resolution is Resolution.APPROVED


def test_what_is_due_later_tells_the_world_of_no_answer_a_second_time():
    """The server knows an event that it is given again for two minutes, and no longer."""

    async def story(scene: Scene):
        before = await blocked_and_full(scene)
        await approved(scene, before)
        await scene.clock.sleep(LONG_S)
        held = scene.ports.commands._durables["inbox-worker", 0].backlog
        return [len(told(scene, each)) for each in ("episode.blocked", "episode.resumed")], held

    (counts, calls), _ = play(story, waiting(approval({}, expires_s=LONG_S - 60)))
    assert (counts, calls) == ([1, 1], 1)


def test_a_decision_long_after_the_expiry_tells_the_world_of_it_no_second_time():
    async def story(scene: Scene):
        before = await blocked_and_full(scene)
        await scene.clock.sleep(LONG_S)
        await scene.ports.commands.send(late_decision(before), id="late")
        await scene.clock.sleep(MOMENT_S)
        return len(told(scene, "episode.resumed"))

    count, _ = play(story, waiting(approval({}, expires_s=5)))
    assert count == 1


@pytest.mark.parametrize("is_decision", [False, True])
def test_of_two_who_write_an_expiry_down_one_does_and_a_node_is_called_once(is_decision):
    """Who stood still has the first delivery; the second was another's, who died of it."""

    async def story():
        scene = Scene(waiting(approval({}, expires_s=5)), Doom())
        await (await scene.ports.domain_events.open("worker", [HAPPENED])).close()
        async with scene.node():
            id_ = await scene.open()
            before = await reached(scene, id_, Status.BLOCKED)
            await scene.published()
        await scene.clock.sleep(HELD_S)
        source = await scene.ports.commands.open_attending("worker")
        due = Attend(actor_id="worker", episode_id=id_)
        await scene.ports.commands.send(late_decision(before) if is_decision else due, id="said")
        (held,) = await source.receive(room=1, wait_s=0)
        (dies,) = await source.receive(room=1, wait_s=2 * ACK_WAIT_S)
        await attend(scene, dies, await scene.life(id_), scene.ports)
        answered = await scene.life(id_)
        assert await attend(scene, held, answered, scene.ports)
        await react(scene.ports, clock=scene.clock)
        calls = await scene.ports.commands.open("worker")
        received = await calls.receive(room=9, wait_s=0)
        return answer_in(answered)[0].resolution, answered, await scene.life(id_), received

    resolution, answered, later, calls = simulate(story())
    assert resolution is Resolution.EXPIRED
    assert later == answered
    assert [each.content.answered_step for each in calls] == [1]


def late_decision(life: Life) -> Decide:
    """Return a decision that was made in time, and is heard of late."""
    return Decide(
        actor_id="worker",
        episode_id=life.episode.opened.episode_id,
        verdict=Verdict.APPROVE,
        plan_hash=life.episode.blocked.approval.plan_hash,
        step_no=1,
        by="ada",
        id="late",
    )


async def attend(scene: Scene, delivery: Delivery[Command], life: Life, ports: Ports) -> bool:
    context = crew_of(scene.app, ports, clock=scene.clock)
    return await WaitHandler(context).attend(delivery, delivery.content, life.episode, life.records)


# Outputs of an episode that nobody has.


async def output_and_full(scene: Scene) -> None:
    """Have an episode whose output waits, and others that have taken the only slot."""
    await reached(scene, await scene.open(), Status.DELIVERING)
    await take_the_slot(scene)


def test_an_output_is_approved_at_once_and_delivered_once_when_there_is_a_slot():
    async def story(scene: Scene):
        await output_and_full(scene)
        await decide(scene.ports, "disk", kind="output")
        await scene.clock.sleep(MOMENT_S)
        soon = (await scene.output("disk")).status
        await scene.clock.sleep(HELD_S)
        give_the_slot_back(scene)
        await scene.reached("disk", OutputStatus.DELIVERED)
        await scene.quiet()
        return soon

    pager = Pager()
    soon, _ = play(story, proposing(pager, requires_approval=True))
    assert soon is OutputStatus.PROPOSED
    assert len(pager.views) == 1


@pytest.mark.parametrize("apart_ms", range(0, 300, 10))
def test_outputs_that_are_approved_soon_after_one_another_are_all_delivered(apart_ms):
    """Whoever carries the first may have looked at the second before that was approved."""
    keys = ("a", "b")
    asked = [propose_output("pager", {}, dedupe_key=key, requires_approval=True) for key in keys]

    async def story(scene: Scene):
        await reached(scene, await scene.open(), Status.DELIVERING)
        await scene.quiet()
        for key in keys:
            await decide(scene.ports, key, kind="output")
            await scene.clock.sleep(apart_ms / 1_000)
        for key in keys:
            await scene.reached(key, OutputStatus.DELIVERED)

    play(story, output_app(Proposing(outputs=asked), {"pager": Pager()}))


def test_an_output_that_nobody_approves_expires_on_time_and_people_are_reminded_until_then():
    async def story(scene: Scene):
        await output_and_full(scene)
        await scene.clock.sleep(HELD_S)
        numbers = [said["number"] for name, said in scene.told if name == "output.reminder"]
        return numbers, (await scene.output("disk")).status

    asking = {"requires_approval": True, "expires_s": 11, "remind_every_s": 2}
    (numbers, status), _ = play(story, proposing(Pager(), **asking))
    assert (numbers, status) == ([1, 2, 3, 4, 5], OutputStatus.REJECTED)


def test_an_output_that_waits_for_its_next_attempt_is_canceled_at_once():
    async def story(scene: Scene):
        await output_and_full(scene)
        await cancel_output(scene.ports, "disk", by="ada")
        await scene.clock.sleep(MOMENT_S)
        return (await scene.output("disk")).status

    status, _ = play(story, proposing(Pager(busy(retry_after_s=600))))
    assert status is OutputStatus.CANCELED


def test_an_output_of_an_episode_that_has_ended_is_tried_again_when_there_is_a_slot():
    async def story(scene: Scene):
        life = await scene.ended(await scene.open())
        await take_the_slot(scene)
        await retry_output(scene.ports, "disk", by="ada")
        await scene.clock.sleep(MOMENT_S)
        soon = (await scene.output("disk")).status
        give_the_slot_back(scene)
        await scene.reached("disk", OutputStatus.DELIVERED)
        return soon, life, await scene.life(life.episode.opened.episode_id)

    pager = Pager(broken())
    (soon, before, after), _ = play(story, proposing(pager))
    assert soon is OutputStatus.PROPOSED
    assert before == after
    assert len(pager.views) == 2


def test_an_output_is_tried_again_each_time_that_somebody_wants_it():
    async def story(scene: Scene):
        await scene.ended(await scene.open())
        for calls in (2, 3):
            await retry_output(scene.ports, "disk", by="ada")
            await scene.clock.sleep(MOMENT_S)
            assert len(pager.views) == calls
            await scene.ended(opening(scene.app).episode_id)

    pager = Pager(broken(), broken(), broken())
    play(story, proposing(pager))


def test_people_are_reminded_of_one_output_while_another_waits_for_a_slot():
    first = propose_output("pager", {}, dedupe_key="disk")
    second = propose_output("pager", {}, dedupe_key="fan", requires_approval=True, remind_every_s=5)
    pager = Pager(busy(retry_after_s=2))

    async def story(scene: Scene):
        await output_and_full(scene)
        await scene.clock.sleep(HELD_S)
        numbers = [said["number"] for name, said in scene.told if name == "output.reminder"]
        return numbers, scene.ports.commands._durables["inbox-worker", 0].backlog

    outputs = [first, second]
    (numbers, calls), _ = play(story, with_one_slot(Proposing(outputs=outputs), pager=pager))
    assert calls == 1
    assert len(numbers) >= HELD_S // 5
    assert numbers == list(range(1, len(numbers) + 1))


# The room.


class Stuck:
    """A log that answers no read before it is let go."""

    def __init__(self, log):
        self._log, self.may = log, asyncio.Event()

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def read(self, subject, **how):
        await self.may.wait()
        return await self._log.read(subject, **how)


async def test_no_more_is_ruled_on_at_a_time_than_there_is_room_for(ports):
    """The rest is for other nodes."""
    app, log = app_of(Scripted()), Stuck(ports.log)
    ids = [await open_episode(ports, app, id_=f"e{number}") for number in range(2 * ROOM_MAX)]
    async with running(app, ports):
        for id_ in ids:
            await lived(ports, id_)
    for id_ in ids:
        await ports.commands.send(Attend(actor_id="worker", episode_id=id_), id=f"attend.{id_}")
    queue = ports.commands._durables["attend-worker", 0]
    async with running(app, dataclasses.replace(ports, log=log)):
        await eventually(lambda: len(queue._unanswered) == ROOM_MAX)
        assert queue.pending == ROOM_MAX
        log.may.set()
        await all_answered(ports.commands)


# Calls to run an episode.


async def test_a_command_in_the_wrong_queue_is_a_dead_letter_that_can_be_requeued(ports):
    app = app_of(Scripted(approval({})))
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await blocked(ports, id_)
        canceling = Cancel(actor_id="worker", episode_id=id_, by="ada")
        subject, said = ports.stack.episode_inbox("worker", id_), codec.encode_command(canceling)
        seq = ports.commands.publish_raw(subject, said, {})
        await all_answered(ports.commands)
        letter = f"{ports.stack.stream(Stream.WORK)}.{seq}"
        (record,) = await ports.log.read(ports.stack.dead_letter(letter))
        await DeadLetterRequests(ports, CLOCK).requeue(letter, by="ada")
        life = await lived(ports, id_)
        await all_answered(ports.commands)
    (buried,) = record.commit.events
    assert (buried.reason, buried.subject) == (
        "wrong_queue", ports.stack.attending_inbox("worker", id_),
    )  # fmt: skip
    assert life.end.status is EndStatus.CANCELED


async def test_a_call_to_go_on_with_an_answer_that_others_follow_is_answered_for(ports):
    """It does not come again until the episode has ended, which may be in months."""
    tool = Counter(open_=False)
    app = app_of(Scripted(approval({}), PAY), tools={"pay": tool})
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await say(ports, id_, await blocked(ports, id_))
        await tool.called.wait()
        late = Start(actor_id="worker", episode_id=id_, answered_step=1)
        await ports.commands.send(late, id="late")
        await all_answered(ports.commands)
        tool.gate.set()
        assert len((await lived(ports, id_)).of(EpisodeStarted)) == 2


async def test_a_call_to_carry_outputs_comes_again_while_a_replica_does_not_know_of_them(ports):
    pager = Pager(busy(retry_after_s=3600))
    app = output_app(Proposing(outputs=[propose_output("pager", {})]), {"pager": pager})
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        deferred = lambda so_far: so_far.episode.status is Status.DELIVERING  # noqa: E731
        await lived(ports, id_, deferred)
        await eventually(lambda: not held(ports))
    await ports.commands.send(Carry(actor_id="worker", episode_id=id_), id="carry")
    async with running(app, dataclasses.replace(ports, log=Lagging(ports.log, EpisodeDeferred))):
        await lived(ports, id_, lambda so_far: len(so_far.of(EpisodeStarted)) == 2)
