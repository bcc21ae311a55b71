"""What a stack has of its subjects of data is encrypted by keys, and is erased with them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest

from projections.project import project
from streams.clock import SystemClock
from streams.errors import Unwritable
from streams.json import raw
from streams.layout import Stream
from streams.memory import MemoryPorts, memory_ports
from streams.memory.bucket import MemorySubjectKeys
from streams.model.commands import Command, Resolve, WorkflowCommand
from streams.model.events import (
    EpisodeOpened,
    FindingAcknowledged,
    FindingRaised,
    LogEvent,
    OutputProposed,
    StepKind,
    StepRecorded,
)
from streams.model.findings import Cause, Finding, FindingStatus, Person
from streams.model.refusals import AgainstFilter, Refusal
from streams.model.sealed import ERASED_JSON, ERASED_TEXT, key_name
from streams.model.triggers import Budget, EventTrigger
from streams.ports.all import Ports
from streams.ports.log import START, Commit
from streams.ports.timers import Timer
from streams.sealing.contents import CONTENTS, without_contents
from streams.sealing.ports import sealed_ports
from streams.sealing.seals import KEYS_S
from streams.subjects import Stack
from streams.wire import codec
from tests.streams.samples import COMMANDS, EVENTS

AT = datetime(2030, 1, 1, tzinfo=UTC)

SECRET = "Rosalind Franklin"

EPISODE = "a6b6f0a2-0000-8000-8000-000000000001"

STACK = Stack("sealing")


class SetClock(SystemClock):
    """A clock that the test moves."""

    elapsed_s = 0.0

    def now(self) -> datetime:
        return AT + timedelta(seconds=self.elapsed_s)

    def monotonic_s(self) -> float:
        return self.elapsed_s


class World:
    """A stack in memory that encrypts what it has of clients."""

    def __init__(self) -> None:
        self.clock = SetClock()
        self.plain: MemoryPorts = memory_ports(stack=STACK, clock=self.clock)
        self.keys = MemorySubjectKeys()
        self.ports = self.another_process()

    def another_process(self) -> Ports:
        return sealed_ports(self.plain, self.keys, ["client_id"], self.clock)

    def log_bytes(self) -> bytes:
        records = [each for stream in Stream for each in self.plain.log.records(stream)]
        return b"".join(codec.encode_commit(each.commit) for each in records)

    async def erase(self, subject: str) -> None:
        await self.keys.destroy(key_name(subject))
        self.clock.elapsed_s += KEYS_S


@pytest.fixture
def world() -> World:
    return World()


def opened(episode_id: str = EPISODE, client: str = "123", **more: Any) -> EpisodeOpened:
    return EpisodeOpened(
        episode_id=episode_id,
        actor_id="desk",
        expectation_id="contact",
        trigger=EventTrigger(
            event_id="x1",
            event_type="client.called",
            payload={"client_id": client, "name": SECRET},
            entity_id=client,
        ),
        dedupe_key="event:x1",
        budget=Budget(),
        subject_kind="client_id",
        **more,
    )


def step(step_no: int = 1) -> StepRecorded:
    return StepRecorded(
        step_no=step_no,
        kind=StepKind.TOOL_CALL,
        fingerprint="f",
        tool_name="crm.read",
        args=raw({"name": SECRET}),
        result=raw([SECRET]),
        error_detail=f"{SECRET} is away",
    )


def finding() -> FindingRaised:
    made = Finding(
        finding_key="late",
        raise_no=1,
        status=FindingStatus.ACTIVE,
        actor_id="desk",
        expectation_id="contact",
        summary=f"{SECRET} is late",
        evidence_json=raw({"name": SECRET}),
        raised_by_episode_id=EPISODE,
        raised_at=AT,
        updated_at=AT,
    )
    return FindingRaised(finding=made, cause=Cause(episode_id=EPISODE, index=0))


def output() -> OutputProposed:
    return OutputProposed(
        output_key="o1",
        adapter="mail",
        payload=raw({"to": SECRET}),
        episode_id=EPISODE,
        actor_id="desk",
        expectation_id="contact",
    )


def commit(id: str, *events: LogEvent) -> Commit:
    return Commit(id=id, at=AT, events=events)


async def write_life(ports: Ports) -> list[Commit]:
    """Write an episode, its finding and its output; return the commits."""
    stack, log = ports.stack, ports.log
    commits = [commit("c1", opened()), commit("c2", step()), commit("c3", finding())]
    seq = await log.append(stack.episode(EPISODE), commits[0], after=START)
    await log.append(stack.episode(EPISODE), commits[1], after=seq)
    await log.append(stack.finding("late"), commits[2], after=START)
    commits.append(commit("c4", output()))
    await log.append(stack.output("o1"), commits[3], after=START)
    return commits


async def read_life(ports: Ports) -> list[Commit]:
    stack = ports.stack
    subjects = stack.episode(EPISODE), stack.finding("late"), stack.output("o1")
    return [each.commit for subject in subjects for each in await ports.log.read(subject)]


async def test_what_is_written_about_a_client_is_not_on_the_log_and_is_read_as_it_was(world):
    commits = await write_life(world.ports)

    assert SECRET.encode() not in world.log_bytes()
    assert await read_life(world.ports) == commits
    assert await read_life(world.another_process()) == commits


async def test_another_process_knows_whose_an_episode_is(world):
    subject = STACK.episode(EPISODE)
    # The expectation has no subject key: the payload alone says whose it is.
    first = commit("c1", msgspec.structs.replace(opened(), subject_kind=""))
    seq = await world.ports.log.append(subject, first, after=START)

    await world.another_process().log.append(subject, commit("c2", step()), after=seq)

    assert SECRET.encode() not in world.log_bytes()


async def test_a_finding_stays_encrypted_whose_episode_has_left_the_journal(world):
    *_, raised, _ = await write_life(world.ports)
    await world.plain.states.purge(STACK.part(Stream.JOURNAL), below=3)
    [first] = raised.events
    known = FindingAcknowledged(finding=first.finding, cause=Person(by="ada", reason=SECRET))
    ports = world.another_process()

    seq = (await ports.log.last(STACK.finding("late"))).seq
    await ports.log.append(STACK.finding("late"), commit("c5", known), after=seq)
    assert SECRET.encode() not in world.log_bytes()
    assert (await ports.log.last(STACK.finding("late"))).commit.events == (known,)
    told = {"episode_id": EPISODE, "finding_key": "late", "reason": SECRET}
    await ports.domain_events.publish("desk.told", told, id="f1")
    [event] = await world.plain.domain_events.page(after=0)
    assert SECRET not in str(event.payload)


async def test_what_is_about_nobody_is_written_as_ever(world):
    payload = {"name": SECRET}
    trigger = msgspec.structs.replace(opened().trigger, payload=payload, entity_id="")
    other = commit("c1", msgspec.structs.replace(opened(), trigger=trigger))
    await world.ports.log.append(STACK.episode(EPISODE), other, after=START)

    [record] = await world.plain.log.read(STACK.episode(EPISODE))
    assert record.commit == other


async def test_a_commit_without_contents_is_written_as_ever(world):
    started = EVENTS["episode.started@1"]
    await write_life(world.ports)
    subject = STACK.episode(EPISODE)
    await world.ports.log.append(subject, commit("c5", *started), after=2)

    assert (await world.plain.log.read(subject))[-1].commit.sealed is None


async def test_after_a_key_is_destroyed_contents_are_gone_and_all_else_stays(world):
    await write_life(world.ports)
    await world.erase("client_id/123")

    for ports in (world.ports, world.another_process()):
        first, second, third, fourth = await read_life(ports)
        [begun], [done], [raised], [proposed] = (
            each.events for each in (first, second, third, fourth)
        )
        assert begun.trigger.payload == {"$erased": True}
        assert (begun.trigger.entity_id, begun.dedupe_key) == ("123", "event:x1")
        assert (done.result, done.args, done.error_detail) == (
            ERASED_JSON,
            ERASED_JSON,
            ERASED_TEXT,
        )
        assert (done.tool_name, done.fingerprint) == ("crm.read", "f")
        assert (raised.finding.summary, raised.finding.finding_key) == (ERASED_TEXT, "late")
        assert proposed.payload == ERASED_JSON


async def test_another_client_is_not_erased(world):
    await world.ports.log.append(
        STACK.episode("e2"), commit("c1", opened("e2", client="456")), after=START
    )
    await write_life(world.ports)
    await world.erase("client_id/123")

    [record] = await world.another_process().log.read(STACK.episode("e2"))
    assert record.commit.events == (opened("e2", client="456"),)


async def test_a_client_who_comes_again_has_another_key(world):
    await write_life(world.ports)
    await world.erase("client_id/123")
    again = commit("c9", opened("e9"))
    await world.ports.log.append(STACK.episode("e9"), again, after=START)

    ports = world.another_process()
    [record] = await ports.log.read(STACK.episode("e9"))
    assert record.commit == again
    assert (await read_life(ports))[0].events[0].trigger.payload == {"$erased": True}


async def test_rows_are_made_of_what_is_erased(world):
    await write_life(world.ports)
    await world.erase("client_id/123")

    async with world.ports.log.follow() as follower:
        records = await follower.receive(most=100, wait_s=0)
    changes = project(records, stack=STACK)
    assert changes
    assert SECRET.encode() not in msgspec.json.encode([each.row for each in changes])


async def test_large_results_are_encrypted_before_their_digest(world):
    await write_life(world.ports)
    data, about = bytes(raw([SECRET] * 9)), STACK.episode(EPISODE)
    digest = await world.ports.objects.put(data, about=about)

    assert SECRET.encode() not in await world.plain.objects.get(digest)
    assert await world.ports.objects.get(digest) == data
    assert await world.another_process().objects.put(data, about=about) == digest
    await world.erase("client_id/123")
    assert await world.another_process().objects.get(digest) == bytes(ERASED_JSON)


async def test_events_that_are_published_are_encrypted_beside_what_they_are_about(world):
    payload = {"client_id": "123", "name": SECRET}
    await world.ports.domain_events.publish("client.called", payload, id="x1")

    [plain] = await world.plain.domain_events.page(after=0)
    assert SECRET not in str(plain.payload)
    assert plain.payload["client_id"] == "123"
    [event] = await world.ports.domain_events.page(after=0)
    assert event.payload == payload
    await world.erase("client_id/123")
    [event] = await world.another_process().domain_events.page(after=0)
    assert event.payload == {"client_id": "123", "$erased": True}


async def test_public_events_are_encrypted_as_their_episode_is(world):
    await write_life(world.ports)
    payload = {"episode_id": EPISODE, "status": "done", "summary": SECRET}
    await world.ports.domain_events.publish("episode.completed", payload, id="p1")

    [plain] = await world.plain.domain_events.page(after=0)
    assert SECRET not in str(plain.payload)
    assert (plain.payload["episode_id"], plain.payload["status"]) == (EPISODE, "done")


async def test_timers_and_commands_are_encrypted(world):
    await write_life(world.ports)
    fired = {"expectation": "contact", "payload": {"client_id": "123", "name": SECRET}}
    timer = Timer(actor="desk", purpose="fire", key="k", payload=fired)
    await world.ports.timers.arm(timer, at=AT + timedelta(days=1))
    assert SECRET not in str((await world.plain.timers.pending("desk", "fire", "k")).payload)
    assert (await world.ports.timers.pending("desk", "fire", "k")).payload == fired

    told = Resolve(
        actor_id="desk", episode_id=EPISODE, id="r1", ref="call:1", by="ada", result=raw(SECRET)
    )
    await world.ports.commands.send(told, id="m1")
    [delivery] = await (await world.plain.commands.open_attending("desk")).receive(room=1, wait_s=0)
    assert SECRET.encode() not in codec.encode_command(delivery.content)
    await delivery.nak()
    [delivery] = await (await world.ports.commands.open_attending("desk")).receive(room=1, wait_s=0)
    assert delivery.content == told


async def test_refusals_and_caches_keep_no_contents(world):
    against = AgainstFilter(path="name", wanted="x", found=SECRET)
    refused = Refusal(
        event_id="x1",
        event="client.called",
        actor="desk",
        expectation="contact",
        at=AT,
        node="n1",
        reason="filter",
        against=against,
    )
    await world.ports.refusals.store([refused])
    [kept] = await world.ports.refusals.newest("desk", "contact")
    assert kept == msgspec.structs.replace(refused, against=None)

    await world.ports.gates.put("cached.abc", SECRET.encode())
    await world.ports.gates.put("cooldown.a.b.c", b"1")
    assert await world.plain.gates.get("cached.abc") is None
    assert await world.plain.gates.get("cooldown.a.b.c") is not None


def test_what_the_engine_has_made_of_a_step_stays():
    sent = msgspec.structs.replace(step(), kind=StepKind.OUTPUT)
    granted = msgspec.structs.replace(step(), path="granted:1")
    for each in (sent, granted):
        [emptied] = without_contents((each,))
        assert (emptied.result, emptied.args) == (each.result, ERASED_JSON)


async def test_what_nobody_could_read_again_is_not_encrypted(world):
    bad = msgspec.structs.replace(step(), result=msgspec.Raw(b"{ no JSON"))
    with pytest.raises(Unwritable):
        await world.ports.log.append(
            STACK.episode(EPISODE), commit("c1", opened(), bad), after=START
        )


@pytest.mark.parametrize("tag", EVENTS)
def test_each_event_without_contents_can_be_written_and_read(tag):
    emptied = without_contents(EVENTS[tag])
    assert codec.decode_events(codec.encode_events(emptied)) == emptied
    assert without_contents(emptied) is emptied


@pytest.mark.parametrize("tag", COMMANDS)
def test_each_command_without_contents_can_be_written_and_read(tag):
    emptied = without_contents(COMMANDS[tag])
    assert codec.decode_command(codec.encode_command(emptied)) == emptied


NO_CONTENTS = {
    "DefinitionApplied": "what actors are made of is nobody's",
    "WorkflowSpec": "as a definition is",
    "StepSpec": "as a definition is",
    "Sealed": "is encrypted",
}
"""Structs whose fields of any JSON, or of bytes, have no contents, and why."""


def test_no_field_of_any_json_is_forgotten():
    """Whoever adds a field that users fill says whether it has contents."""
    forgotten = [
        f"{struct.__name__}.{name}"
        for struct in structs_of((LogEvent, Command, WorkflowCommand))
        if struct.__name__ not in NO_CONTENTS
        for name, hint in get_type_hints(struct).items()
        if holds_anything(hint) and name not in CONTENTS.get(struct, ())
    ]
    assert forgotten == []


def holds_anything(hint: object) -> bool:
    """Return whether a value may be of any JSON: raw, an object of a user's, or bytes."""
    if hint in {msgspec.Raw, bytes, Any}:
        return True
    if get_origin(hint) is dict:
        return get_args(hint)[1] in {Any, msgspec.Raw}
    return any(map(holds_anything, get_args(hint)))


def structs_of(hints: object) -> Iterator[type[msgspec.Struct]]:
    seen: set[type] = set()
    left = list(hints)
    while left:
        hint = left.pop()
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct) and hint not in seen:
            seen.add(hint)
            yield hint
            left += get_type_hints(hint).values()
        left += [each for each in get_args(hint) if each is not Ellipsis]
