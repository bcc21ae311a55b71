"""What a person may do about a dead letter."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from engine.app.actions import observe
from engine.app.workflow import Workflow
from engine.app.workflow_plan import spec_of
from engine.dead_letters.write import DeadLetterWriter
from engine.errors import Rejected
from engine.operations.dead_letters import DeadLetterRequests
from engine.workflows.begin import begin_instance
from engine.workflows.start import start_of, started
from streams.errors import BadName, Unavailable
from streams.layout import Stream
from streams.memory.commands import MemoryCommandQueue
from streams.memory.log import MemoryLog
from streams.model.commands import Advance, ResumeWorkflow
from streams.model.events import DeadDiscarded, EndStatus, EpisodeFinished
from streams.model.triggers import ManualTrigger
from streams.model.workflows import ResumeHow, StepStatus, WorkflowStatus
from streams.ports.delivery import Unreadable
from streams.wire import codec
from tests.engine.stage import (
    CLOCK,
    HAPPENED,
    STARTED,
    Scripted,
    all_answered,
    app_of,
    lived,
    opening,
    running,
    write,
)
from tests.engine.workflow_stage import Script, ended, reached
from tests.engine.workflow_stage import app_of as app_of_workflows

APP = app_of(Scripted(observe("seen")))
FAILED = EpisodeFinished(status=EndStatus.FAILED, error_class="attempts_exhausted")


@pytest.fixture
def settler(ports):
    return DeadLetterRequests(ports, CLOCK)


async def bury_event(ports, *, seq=None):
    """Publish what is no JSON, bury it, and return the letter's key."""
    stream = ports.stack.stream(Stream.EVENTS)
    message = Unreadable(
        reason="unreadable",
        detail="not JSON",
        stream=stream,
        seq=seq or ports.domain_events.publish_raw(HAPPENED, b"{ no", {"ce-id": "c-1"}),
        subject=ports.stack.event(HAPPENED),
        headers={},
        data=b"{ no",
    )
    await DeadLetterWriter(ports, CLOCK).write_message(message, actor_id="worker")
    return f"{stream}.{message.seq}"


async def write_episode(ports, opened=None):
    """Leave an episode whose nodes crashed too often, bury it, and return the letter's key."""
    if opened is None:
        opened = opening(APP)
        await write(ports, opened.episode_id, opened)
    await write(ports, opened.episode_id, STARTED, FAILED)
    dead_letters = DeadLetterWriter(ports, CLOCK)
    await dead_letters.write_episode(opened, reason="attempts_exhausted", detail="3 nodes crashed")
    return f"episode.{opened.episode_id}"


@pytest.fixture(params=[bury_event, write_episode])
async def key(request, ports):
    """The key of a letter, of either sort."""
    return await request.param(ports)


async def life_of(ports, key):
    records = await ports.log.read(ports.stack.dead_letter(key))
    return [event for record in records for event in record.commit.events]


def published(ports):
    (stream,) = (s for s in ports.log._streams.values() if s.name.endswith("-events"))
    return [message for message in stream.past(0) if message.subject.endswith(HAPPENED)]


async def test_an_event_is_published_again_as_it_came(ports, settler):
    key = await bury_event(ports)

    requeued = await settler.requeue(key, by="ann")

    first, again = published(ports)
    assert (again.data, again.seq) == (first.data, requeued.event_seq)
    assert (await life_of(ports, key))[1:] == [requeued]


async def test_an_event_that_opened_an_episode_opens_no_other_when_it_is_requeued(ports, settler):
    """I1, for an event that was too large for one actor and not for another."""
    async with running(APP, ports):
        await (await ports.domain_events.open("worker", [HAPPENED])).close()
        seq = await ports.domain_events.publish(HAPPENED, {}, id="ev-1")
        first = await lived(ports, opening(APP, id_="ev-1").episode_id)
        await settler.requeue(await bury_event(ports, seq=seq), by="ann")
        await all_answered(ports.domain_events)
        await all_answered(ports.commands)
    assert len(published(ports)) == 2
    assert await ports.log.head() == first.records[-1].seq


async def test_for_an_episode_another_one_runs_to_its_end(ports, settler):
    key = await write_episode(ports)

    requeued = await settler.requeue(key, by="ann")

    async with running(APP, ports):
        again = await lived(ports, requeued.episode_id)
    assert again.end.status is EndStatus.DONE
    assert again.episode.opened.generation == 1
    assert again.episode.opened.trigger == opening(APP).trigger
    assert (await life_of(ports, key))[1:] == [requeued]


async def test_a_generation_that_is_given_up_has_a_next_one(ports, settler):
    first = await settler.requeue(await write_episode(ports), by="ann")
    (record,) = await ports.log.read(ports.stack.episode(first.episode_id))

    second = await settler.requeue(await write_episode(ports, *record.commit.events), by="ann")

    (record,) = await ports.log.read(ports.stack.episode(second.episode_id))
    assert record.commit.events[0].generation == 2


async def test_a_letter_is_requeued_once(settler, key):
    await settler.requeue(key, by="ann")
    with pytest.raises(Rejected, match="requeued by ann"):
        await settler.requeue(key, by="bob")
    with pytest.raises(Rejected, match="requeued by ann"):
        await settler.discard(key, by="bob", reason="")


async def test_a_letter_that_was_discarded_stays_so(ports, settler, key):
    await settler.discard(key, by="ann", reason="a typo")

    assert (await life_of(ports, key))[1:] == [DeadDiscarded(by="ann", reason="a typo")]
    before = len(published(ports))
    with pytest.raises(Rejected, match="discarded by ann"):
        await settler.requeue(key, by="bob")
    assert len(published(ports)) == before


@pytest.mark.parametrize("missing", ["vigil-events.7", "episode.nobody"])
async def test_a_letter_that_is_not_there_cannot_be_settled(settler, missing):
    with pytest.raises(Rejected, match="no such"):
        await settler.requeue(missing, by="ann")
    with pytest.raises(Rejected, match="no such"):
        await settler.discard(missing, by="ann", reason="")


@pytest.mark.parametrize("nonsense", ["", "7", "a.b.c", "a.*", "a b.c", "a."])
async def test_what_is_no_key_is_refused(settler, nonsense):
    with pytest.raises(BadName):
        await settler.requeue(nonsense, by="ann")


async def test_an_event_that_its_stream_does_not_hold_cannot_be_published_again(ports, settler):
    key = await bury_event(ports, seq=99)
    with pytest.raises(Rejected, match="does not hold the message at 99"):
        await settler.requeue(key, by="ann")
    assert len(await life_of(ports, key)) == 1


class CutLog(MemoryLog):
    """The program ends before it settles a letter."""

    async def append(self, subject, commit, *, after):
        if self._stack.stream_of(subject) == self._stack.stream(Stream.DEAD):
            raise Unavailable("append", detail="cut")
        return await super().append(subject, commit, after=after)


class DeafInbox(MemoryCommandQueue):
    """A program that cannot call for a start."""

    async def send(self, command, *, id, trace=""):
        raise Unavailable("send", detail="cut")


async def test_what_was_cut_off_before_its_end_is_completed_and_done_once(ports, settler, key):
    cut = replace(ports, log=CutLog(ports.log._streams, stack=ports.stack))
    with pytest.raises(Unavailable):
        await DeadLetterRequests(cut, CLOCK).requeue(key, by="ann")

    requeued = await settler.requeue(key, by="ann")

    assert (await life_of(ports, key))[1:] == [requeued]
    if requeued.episode_id:
        assert len(await ports.log.read(ports.stack.episode(requeued.episode_id))) == 1
    else:
        assert len(published(ports)) == 2


async def test_an_episode_that_was_opened_again_is_started_by_whoever_follows_the_journal(ports):
    key = await write_episode(ports)
    deaf = replace(ports, commands=DeafInbox(ports.commands._streams, stack=ports.stack))

    requeued = await DeadLetterRequests(deaf, CLOCK).requeue(key, by="ann")

    async with running(APP, ports):
        assert (await lived(ports, requeued.episode_id)).end.status is EndStatus.DONE


class SlowLog(MemoryLog):
    """Somebody else decides between our reading and our writing."""

    async def append(self, subject, commit, *, after):
        overtaking = (DeadDiscarded(by="bob"),)
        theirs = msgspec.structs.replace(commit, id="theirs", events=overtaking)
        await super().append(subject, theirs, after=after)
        return await super().append(subject, commit, after=after)


async def test_of_two_who_decide_at_once_one_is_told_who_was_first(ports, key):
    slow = replace(ports, log=SlowLog(ports.log._streams, stack=ports.stack))

    with pytest.raises(Rejected, match="discarded by bob"):
        await DeadLetterRequests(slow, CLOCK).discard(key, by="ann", reason="")

    assert (await life_of(ports, key))[1:] == [DeadDiscarded(by="bob")]


async def bury_to_instance(ports, command, *, data=None):
    """Bury a command to an instance that no node could follow, and return the letter's key."""
    stream = ports.stack.stream(Stream.WORK)
    message = Unreadable(
        reason="no_such_code",
        detail="an old version",
        stream=stream,
        seq=7,
        subject=ports.stack.workflow_inbox("w", command.instance_id),
        headers={},
        data=codec.encode_command(command) if data is None else data,
    )
    await DeadLetterWriter(ports, CLOCK).write_message(message, actor_id="workflow-w")
    return f"{stream}.7"


async def begun_instance(ports, made) -> str:
    spec = spec_of(made, app_of_workflows(made, script=Script()).actors)
    trigger = ManualTrigger(requested_by="ada")
    event = started(spec, start_of(spec.name, trigger, "manual:k", stack=ports.stack.name))
    await begin_instance(ports, event, at=CLOCK.now())
    return event.instance_id


@pytest.fixture
def paused():
    made = Workflow("w")
    made.step("a", "act", "a", on_failure="pause")
    return made


async def test_a_command_to_an_instance_is_put_to_it_again(ports, settler, paused):
    script = Script()
    script.failures["a"] = 1
    async with running(app_of_workflows(paused, script=script), ports):
        id_ = await begun_instance(ports, paused)
        await reached(ports, id_, lambda so_far: [*so_far.with_status(StepStatus.PAUSED)])
        said = ResumeWorkflow(
            workflow="w", instance_id=id_, id="r1", step="a", how=ResumeHow.RETRY, by="bob"
        )
        key = await bury_to_instance(ports, said)
        assert (await settler.requeue(key, by="ada")).instance_id == id_
        assert (await ended(ports, id_)).status is WorkflowStatus.DONE
    with pytest.raises(Rejected, match="was requeued by ada"):
        await settler.requeue(key, by="ada")


async def test_a_command_whose_instance_is_not_there_is_not_put_to_it(ports, settler):
    nobody = Advance(workflow="w", instance_id="00000000-0000-8000-8000-000000000000")
    key = await bury_to_instance(ports, nobody)
    with pytest.raises(Rejected, match="does not hold its instance"):
        await settler.requeue(key, by="ada")


async def test_what_is_no_command_to_an_instance_is_put_to_none(ports, settler, paused):
    id_ = await begun_instance(ports, paused)
    said = Advance(workflow="w", instance_id=id_)
    key = await bury_to_instance(ports, said, data=b"{ no")
    with pytest.raises(Rejected, match="discard it"):
        await settler.requeue(key, by="ada")
