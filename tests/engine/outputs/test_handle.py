"""What is asked about an output holds for that output, is answered for once, and in its time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import pytest

from engine.app.actions import wait
from engine.app.outputs import output
from engine.episodes.cancel import cancel
from engine.episodes.episode import Status
from engine.errors import Refused, Rejected
from engine.operations.dead_letters import DeadLetterRequests
from engine.outputs.handle import OutputCommands
from engine.outputs.requests import cancel_output, retry_output
from streams.layout import Stream
from streams.model.commands import Decide, RetryOutput, Verdict
from streams.model.events import DeadRequeued, EpisodeStarted
from streams.model.outputs import OutputStatus
from streams.ports.commands import CommandQueue
from tests.engine.crew import crew_of
from tests.engine.output_stage import Pager, Scene, broken, busy, play
from tests.engine.outputs.test_outputs import ASKING, PAGE, ends, outcomes, page, paging
from tests.engine.stage import decide


@pytest.mark.parametrize("terms", [{}, {"expires_s": 600.0, "on_expiry": "approve"}])
def test_a_decision_on_one_episodes_output_holds_for_no_other_that_has_its_key(terms):
    """It was sent while the first one asked, and no node had room for it until now."""
    pager = Pager()

    async def story(scene: Scene):
        first = await scene.open("x1")
        asked = (await scene.reached("disk", OutputStatus.AWAITING_APPROVAL)).proposed
        await cancel(scene.ports, "worker", first, by="bob")
        await scene.ended(first)
        second = await scene.open("x2")
        await scene.reached("disk", OutputStatus.AWAITING_APPROVAL)
        late = Decide(
            actor_id="worker",
            episode_id=first,
            id="d1",
            verdict=Verdict.APPROVE,
            by="ann",
            plan_hash=asked.approval.plan_hash,
            output_key="disk",
        )
        await scene.ports.commands.send(late, id="d1")
        await scene.clock.sleep(60.0)
        return await scene.output("disk"), (await scene.life(second)).episode.status

    app = paging(outputs=[page(dedupe_key="disk", **ASKING, **terms)], pager=pager)
    (asked, status), _ = play(story, app)
    assert (asked.status, status) == (OutputStatus.AWAITING_APPROVAL, Status.DELIVERING)
    assert pager.views == []


async def failed_while_it_waits(scene: Scene) -> str:
    """Return the id of an episode that waits for word, after the output of a step failed."""
    id_ = await scene.open()

    async def waits() -> bool:
        return (await scene.life(id_)).episode.status is Status.BLOCKED

    await scene.until(waits)
    return id_


def test_what_nobody_would_carry_cannot_be_tried_again_and_that_is_said():
    async def story(scene: Scene):
        await failed_while_it_waits(scene)
        with pytest.raises(Refused, match="waits for an answer"):
            await retry_output(scene.ports, "disk", by="ann")
        (letter,) = scene.ports.log._streams["vigil-dead"].past(0)
        _, key = scene.ports.stack.aggregate_of(letter.subject)
        with pytest.raises(Rejected, match="waits for an answer"):
            await DeadLetterRequests(scene.ports, scene.clock).requeue(key, by="ann")

    asks = output("pager", PAGE, dedupe_key="disk")
    play(story, paging(asks, wait("payment:42"), pager=Pager(broken())))


def test_what_was_to_be_tried_again_before_its_episode_waited_is_not_handed_back_for_ever():
    async def story(scene: Scene):
        id_ = await failed_while_it_waits(scene)
        retry = RetryOutput(actor_id="worker", episode_id=id_, id="r1", output_key="disk", by="ann")
        await scene.ports.commands.send(retry, id="r1")
        await scene.clock.sleep(60.0)
        queue = scene.ports.commands._durables["attend-worker", 0]
        return list(queue._unanswered.values()), await scene.output("disk")

    asks = output("pager", PAGE, dedupe_key="disk")
    app = paging(asks, wait("payment:42"), pager=Pager(broken()))
    (unanswered, failed), _ = play(story, app)
    assert (unanswered, failed.status) == ([], OutputStatus.FAILED)


@dataclass
class Unhurried:
    """An inbox that has sent a command only once a node has followed it."""

    commands: CommandQueue
    is_followed: Callable[[], Awaitable[None]]

    async def send(self, command, *, id, trace=""):
        await self.commands.send(command, id=id, trace=trace)
        await self.is_followed()


def test_whoever_requeues_a_letter_is_not_refused_because_a_node_was_faster_at_trying_it_again():
    async def story(scene: Scene):
        await scene.ended(await scene.open())
        (letter,) = scene.ports.log._streams["vigil-dead"].past(0)
        _, key = scene.ports.stack.aggregate_of(letter.subject)

        async def is_followed() -> None:
            await scene.reached("disk", OutputStatus.DELIVERED)

        slow = replace(scene.ports, commands=Unhurried(scene.ports.commands, is_followed))
        return await DeadLetterRequests(slow, scene.clock).requeue(key, by="ann")

    pager = Pager(broken())
    requeued, scene = play(story, paging(outputs=[page(dedupe_key="disk")], pager=pager))
    noted = [each for each in scene.events(Stream.DEAD) if isinstance(each, DeadRequeued)]
    assert noted == [requeued]
    assert requeued.by == "ann"


class Withheld:
    """An inbox that keeps what is sent to it to itself."""

    def __init__(self):
        self.kept = []

    async def send(self, command, *, id, trace=""):
        self.kept.append(command)


@pytest.mark.parametrize("is_new", [False, True], ids=["before", "since"])
@pytest.mark.parametrize("is_decision", [False, True], ids=["cancel", "decision"])
def test_what_was_said_in_one_round_is_not_followed_in_the_next(is_decision, is_new):
    """A node that stood still has it from before, when another one refused it."""

    async def story(scene: Scene):
        async def say():
            if is_decision:
                await decide(withheld, "disk", "deny", kind="output")
            else:
                await cancel_output(withheld, "disk", by="ann")

        episode_id = await scene.open()
        await scene.reached("disk", OutputStatus.AWAITING_APPROVAL)
        withheld = replace(scene.ports, commands=(inbox := Withheld()))
        await say()
        await scene.ended(episode_id)
        await retry_output(scene.ports, "disk", by="bob")
        await scene.reached("disk", OutputStatus.AWAITING_APPROVAL)
        await say()
        clerk = OutputCommands(crew_of(scene.app, scene.ports, clock=scene.clock))
        command = inbox.kept[-1 if is_new else 0]
        if is_decision:
            is_followed = await clerk.decide(command, at=scene.clock.now())
        else:
            is_followed = await clerk.cancel(command)
        return is_followed, await scene.output("disk")

    terms = {**ASKING, "expires_s": 600.0, "on_expiry": "fail"}
    (is_followed, left), _ = play(story, paging(outputs=[page(dedupe_key="disk", **terms)]))
    assert is_followed is is_new
    assert (left.status is OutputStatus.AWAITING_APPROVAL) is not is_new


def test_a_node_whose_clock_is_behind_does_not_defer_over_and_over():
    pager = Pager(busy(retry_after_s=30))
    life, _ = play(ends, paging(outputs=[page()], pager=pager), skew_s=-20.0)
    assert outcomes(life) == ["delivered"]
    assert len(life.of(EpisodeStarted)) <= 3
