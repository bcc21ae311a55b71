"""Spreading a stack over another number of partitions, cut off anywhere, without losing a word."""

from __future__ import annotations

import asyncio
import signal
import sys
from itertools import cycle
from typing import Final

import nats as nats_py
import pytest

from streams.clock import SystemClock
from streams.errors import Incompatible, LeaseLost, Unavailable, VersionConflict
from streams.jetstream import connect, inspect
from streams.jetstream.connection.link import Link
from streams.jetstream.messages import api
from streams.jetstream.ports.bucket import JetStreamBucket
from streams.jetstream.ports.configs import GATES_MARKER_S, PARTITIONS
from streams.keys import LAYOUT_CLAIM, lost_key, published_key
from streams.layout import AGGREGATE_STREAMS, Kind, Stream
from streams.model.followed import Followed, encode_followed
from streams.model.losses import LogLost
from streams.repartition import copy_commits
from streams.repartition.positions import require_followed, write_positions
from streams.repartition.repartition import drop_retired, repartition
from streams.subjects import Stack
from tests.contracts.samples import WAIT_S, commit, deliveries_of, opened, start
from tests.moments import STRIDE
from tests.streams.jetstream.wire import eventually
from tests.streams.repartition.moves import (
    Cut,
    cut_off_at,
    note_followed,
    settings,
    told,
    write_layout,
)
from vigil.serving.loss_watch import LossWatch

EPISODES = [f"e{n}" for n in range(40)]
CALLED = EPISODES[:20]
KEYS = ["disk:web-1", "a.b", "日本"]
AGGREGATES = {
    Stream.JOURNAL: [
        *((Kind.EPISODE, each) for each in EPISODES),
        *((kind, "k1") for kind in (Kind.OUTPUT, Kind.WORKFLOW)),
    ],
    Stream.STATE: [
        *((Kind.FINDING, each) for each in KEYS),
        *((kind, "k1") for kind in (Kind.DEFINITION, Kind.LANE, Kind.ORDER, Kind.SIGNAL)),
    ],
}
COMMITS = 3
MOVES = [(1, 4), (4, 1), (3, 4), (4, 3)]
STAGES = [f"{did}, {it}" for it in ("journal", "state", "work") for did in ("copied", "verified")]


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(copy_commits, "BATCH_MAX", 7)
    monkeypatch.setattr(copy_commits, "TOLD_EVERY", 10)


def subjects(stack):
    return [stack.aggregate(*each) for found in AGGREGATES.values() for each in found]


async def fill(url, stack, partitions):
    """Make a stack with lives of several commits, written in turns, and commands that wait."""
    async with connect(url, stack=stack, settings=settings(partitions)) as ports:
        versions = dict.fromkeys(subjects(ports.stack), 0)
        for n in range(COMMITS):
            for subject in versions:
                versions[subject] = await ports.log.append(
                    subject, commit(f"{n}", n + 1, trace="00-aa-bb-01"), after=versions[subject]
                )
        for episode_id in CALLED:
            await ports.commands.send(start(episode_id), id=f"start.{episode_id}")
        await ports.log.append(ports.stack.dead("o", "c"), commit("dead"), after=0)
        await note_followed(ports)


async def assert_whole(url, stack, partitions):
    """Check that everything that `fill` wrote is there, in order, and can be gone on from."""
    async with connect(url, stack=stack, settings=settings()) as ports:
        assert ports.stack.partitions == partitions
        for subject in subjects(ports.stack):
            found = await ports.log.read(subject)
            assert [each.commit for each in found] == [
                commit(f"{n}", n + 1, trace="00-aa-bb-01") for n in range(COMMITS)
            ]
            assert await ports.log.last(subject) == found[-1]
        assert len(await ports.log.read(ports.stack.dead("o", "c"))) == 1
        for stream, aggregates in AGGREGATES.items():
            partitions = ports.stack.partitions_of(stream)
            heads = [await ports.log.head(stream, partition=each) for each in partitions]
            assert sum(heads) == COMMITS * len(aggregates)
        async with opened(ports.commands.open("monitor")) as source:
            commands = await deliveries_of(source, len(CALLED), spare=len(CALLED))
            for command in commands:
                await command.nak()
        assert sorted(each.content.episode_id for each in commands) == sorted(CALLED)
        assert await ports.commands.is_waiting("monitor", CALLED[0])


async def assert_goes_on(url, stack):
    async with connect(url, stack=stack, settings=settings()) as ports:
        for subject in (ports.stack.episode(EPISODES[0]), ports.stack.finding(KEYS[0])):
            last = (await ports.log.read(subject))[-1]
            with pytest.raises(VersionConflict):
                await ports.log.append(subject, commit("late"), after=last.seq - 1)
            await ports.log.append(subject, commit("next"), after=last.seq)


@pytest.mark.parametrize(("old", "new"), MOVES)
async def test_every_life_and_every_command_comes_along_in_order(nats, stack, old, new):
    await fill(nats.url, stack, old)
    moved = await repartition(nats.url, stack=stack, to=new, tell=told, settings=settings())
    assert moved == Stack(stack.name, new)
    await assert_whole(nats.url, stack, new)
    await assert_goes_on(nats.url, stack)


@pytest.mark.parametrize(
    ("stage", "old"), list(zip(STAGES, cycle([1, 3, 3, 1]), strict=False)), ids=str
)
async def test_one_that_was_cut_off_goes_on_and_loses_or_doubles_nothing(nats, stack, stage, old):
    new = 4
    await fill(nats.url, stack, old)
    with pytest.raises(Cut):
        await repartition(nats.url, stack=stack, to=new, tell=cut_off_at(stage))
    with pytest.raises(Incompatible, match=f"is being spread over {new} partitions"):
        async with connect(nats.url, stack=stack):
            pass
    assert f"--to {new}` goes on" in (await inspect(nats.url, stack=stack)).problem
    await repartition(nats.url, stack=stack, to=new, tell=told)
    await assert_whole(nats.url, stack, new)


@pytest.mark.parametrize(("old", "new"), [(1, 4), (4, 3)])
async def test_one_that_was_cut_off_can_be_taken_back(nats, stack, old, new):
    await fill(nats.url, stack, old)
    with pytest.raises(Cut):
        await repartition(nats.url, stack=stack, to=new, tell=cut_off_at("verified, work"))
    with pytest.raises(Incompatible, match=f"is being spread over {new}"):
        await repartition(nats.url, stack=stack, to=7, tell=told)
    with pytest.raises(Incompatible, match=f"is being spread over {new}"):
        await drop_retired(nats.url, stack=stack)
    await repartition(nats.url, stack=stack, to=old, tell=told)
    await assert_whole(nats.url, stack, old)
    await repartition(nats.url, stack=stack, to=new, tell=told)
    await assert_whole(nats.url, stack, new)


async def test_a_held_claim_is_named_and_nothing_is_changed(nats, stack):
    await fill(nats.url, stack, 1)
    async with connect(nats.url, stack=stack, settings=settings()) as ports:
        lease = await ports.leases.acquire("episode.monitor.e1", holder="n7")
        with pytest.raises(Incompatible, match=r"n7 holds episode\.monitor\.e1"):
            await repartition(nats.url, stack=stack, to=4, tell=told)
        await ports.leases.complete(lease)
    await assert_whole(nats.url, stack, 1)
    await repartition(nats.url, stack=stack, to=4, tell=told)


async def until_pulled(url, stack):
    """Wait until the server knows that somebody waits at the queue."""
    connection = await nats_py.connect(url)
    async with asyncio.timeout(WAIT_S):
        work, queue = stack.stream(Stream.WORK), stack.inbox_durable("idle")
        while True:
            if (await connection.jetstream().consumer_info(work, queue)).num_waiting:
                break
    await connection.close()


async def test_an_idle_node_is_found_by_the_queue_that_it_waits_at(nats, stack):
    await fill(nats.url, stack, 1)
    async with (
        connect(nats.url, stack=stack) as ports,
        opened(ports.commands.open("idle")) as source,
    ):
        waiting = asyncio.create_task(source.receive(room=1, wait_s=WAIT_S))
        await until_pulled(nats.url, stack)
        with pytest.raises(Incompatible, match="a node waits at inbox-idle"):
            await repartition(nats.url, stack=stack, to=4, tell=told)
        waiting.cancel()
        await asyncio.wait({waiting})
    await assert_whole(nats.url, stack, 1)


async def test_who_stayed_connected_can_write_nowhere(nats, stack):
    await fill(nats.url, stack, 1)
    async with connect(nats.url, stack=stack, settings=settings()) as stray:
        await repartition(nats.url, stack=stack, to=4, tell=told)
        with pytest.raises(Unavailable):
            await stray.log.append(stray.stack.episode("new"), commit("stray"), after=0)
    await assert_whole(nats.url, stack, 4)


async def test_what_is_left_to_be_followed_up_is_found_however_late_it_was_appended(
    nats, stack, monkeypatch
):
    await fill(nats.url, stack, 1)
    async with connect(nats.url, stack=stack, settings=settings()) as late:

        async def nobody_seems_to_run(link, stack):
            await late.log.append(stack.episode("late"), commit("late"), after=0)

        with monkeypatch.context() as patched:
            patched.setattr("streams.repartition.repartition.require_unused", nobody_seems_to_run)
            with pytest.raises(Incompatible, match="have not followed 1 commits"):
                await repartition(nats.url, stack=stack, to=4, tell=told)
        await note_followed(late)
    await repartition(nats.url, stack=stack, to=4, tell=told)
    async with connect(nats.url, stack=stack, settings=settings()) as ports:
        assert len(await ports.log.read(ports.stack.episode("late"))) == 1


async def test_a_stack_is_not_moved_while_nobody_was_called_to_episodes_of_a_lost_node(nats, stack):
    await fill(nats.url, stack, 1)
    async with connect(nats.url, stack=stack, settings=settings()) as ports:
        head = await ports.log.head(Stream.JOURNAL)
        followed = encode_followed(Followed(head, covered_from=1))
        await ports.gates.put(published_key("journal"), followed)
    with pytest.raises(Incompatible, match="lost their node"):
        await repartition(nats.url, stack=stack, to=4, tell=told)


async def test_nobody_can_append_any_more_once_that_was_looked_for(nats, stack, monkeypatch):
    await fill(nats.url, stack, 1)
    looked = []
    async with connect(nats.url, stack=stack, settings=settings()) as late:

        async def then_append(*asked):
            await require_followed(*asked)
            with pytest.raises(Unavailable):
                await late.log.append(late.stack.episode("late"), commit("late"), after=0)
            looked.append(True)

        monkeypatch.setattr("streams.repartition.repartition.require_followed", then_append)
        await repartition(nats.url, stack=stack, to=4, tell=told)
    assert looked
    await assert_whole(nats.url, stack, 4)


async def test_a_stack_that_is_not_followed_up_is_as_it_was(nats, stack):
    await fill(nats.url, stack, 1)
    async with connect(nats.url, stack=stack, settings=settings()) as ports:
        await ports.gates.delete(published_key("state"))
    with pytest.raises(Incompatible, match="commit, and stop the node"):
        await repartition(nats.url, stack=stack, to=4, tell=told)
    await assert_whole(nats.url, stack, 1)
    await assert_goes_on(nats.url, stack)


async def test_a_position_in_what_is_not_moved_stays(nats, stack):
    await fill(nats.url, stack, 1)
    await repartition(nats.url, stack=stack, to=4, tell=told)
    async with connect(nats.url, stack=stack, settings=settings()) as ports:
        assert await ports.gates.get(published_key("dead")) is None
        for stream in AGGREGATE_STREAMS:
            for partition in range(4):
                head = await ports.log.head(stream, partition=partition)
                entry = await ports.gates.get(published_key(ports.stack.part(stream, partition)))
                assert int(entry.value) == head


@pytest.mark.parametrize("stray", [{}, {"Vigil-Copied-From": "0 999"}])
async def test_what_somebody_else_wrote_among_the_copies_is_found(nats, stack, stray):
    await fill(nats.url, stack, 1)
    with pytest.raises(Cut):
        await repartition(nats.url, stack=stack, to=4, tell=cut_off_at("copied, journal"))
    connection = await nats_py.connect(nats.url)
    subject = Stack(stack.name, 4).episode(EPISODES[0])
    await connection.jetstream().publish(subject, b"{}", headers=stray)
    await connection.close()
    with pytest.raises(Incompatible):
        await repartition(nats.url, stack=stack, to=4, tell=told)
    await repartition(nats.url, stack=stack, to=1, tell=told)
    await assert_whole(nats.url, stack, 1)


async def test_a_copy_is_stored_only_behind_the_one_before(nats, stack):
    await fill(nats.url, stack, 1)
    with pytest.raises(Cut):
        await repartition(nats.url, stack=stack, to=4, tell=cut_off_at("copied, journal"))
    async with Link(nats.url, settings()) as link:
        old, new = Stack(stack.name, 1), Stack(stack.name, 4)
        work = copy_commits.CommitCopy(link=link, stream=Stream.JOURNAL, old=old, new=new)
        both = (work.copy(lambda done: None) for _ in range(2))
        outcomes = await asyncio.gather(*both, return_exceptions=True)
        assert all(each is None or isinstance(each, Incompatible) for each in outcomes), outcomes
    await repartition(nats.url, stack=stack, to=4, tell=told)
    await assert_whole(nats.url, stack, 4)


async def test_a_batch_whose_answer_was_lost_is_not_stored_twice(nats, wire, stack):
    await fill(nats.url, stack, 1)
    is_lossy = asyncio.Event()

    def lose_answers(stage, done, total):
        if not is_lossy.is_set():  # At the first report, nothing is stored yet.
            wire.loses_answers = True
            is_lossy.set()

    moving = asyncio.create_task(repartition(wire.url, stack=stack, to=4, tell=lose_answers))
    await is_lossy.wait()
    connection = await nats_py.connect(nats.url)
    names = [Stack(stack.name, 4).stream(Stream.JOURNAL, each) for each in range(4)]

    async def something_is_stored():
        infos = [await connection.jetstream().stream_info(name) for name in names]
        return sum(info.state.messages for info in infos) > 0

    await eventually(something_is_stored)
    await connection.close()
    wire.cut()
    await moving
    await assert_whole(nats.url, stack, 4)


async def test_commands_that_have_the_same_id_all_come_along(nats, stack):
    """A stream keeps one of each id, for a while; two streams, or a while later, make it two."""
    async with connect(nats.url, stack=stack, settings=settings(4)) as ports:
        inboxes = {each: ports.stack.episode_inbox("monitor", each) for each in EPISODES}
        of_each = {ports.stack.stream_of(inbox): each for each, inbox in inboxes.items()}
        for episode_id in of_each.values():
            await ports.commands.send(start(episode_id), id="the same")
    await repartition(nats.url, stack=stack, to=1, tell=told, settings=settings())
    async with (
        connect(nats.url, stack=stack) as ports,
        opened(ports.commands.open("monitor")) as source,
    ):
        commands = await deliveries_of(source, len(of_each))
    assert sorted(each.content.episode_id for each in commands) == sorted(of_each.values())


async def lose_the_layout(url, stack):
    """Take the right to change the layout from whoever has it."""
    connection = await nats_py.connect(url)
    bucket = await connection.jetstream().key_value(stack.claims_bucket())
    await bucket.purge(LAYOUT_CLAIM)
    await connection.close()


async def test_who_loses_the_lease_stops_wherever_it_is(nats, stack, monkeypatch):
    await fill(nats.url, stack, 1)
    is_copying = asyncio.Event()

    async def copy_for_ever(self, tell):
        is_copying.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patched:
        patched.setattr("streams.repartition.repartition.RENEWALS_PER_LEASE", 100)
        patched.setattr(copy_commits.CommitCopy, "copy", copy_for_ever)
        moving = asyncio.create_task(repartition(nats.url, stack=stack, to=4, tell=told))
        await is_copying.wait()
        await lose_the_layout(nats.url, stack)
        with pytest.raises(LeaseLost):
            await asyncio.wait_for(moving, WAIT_S)
    await repartition(nats.url, stack=stack, to=4, tell=told)
    await assert_whole(nats.url, stack, 4)


async def test_who_has_lost_the_lease_writes_no_position(nats, stack, monkeypatch):
    """Another run has moved the stack meanwhile, and a reactor is not done with what is new."""
    await fill(nats.url, stack, 1)
    behind, new = published_key(Stack(stack.name, 4).part(Stream.JOURNAL, 0)), b"1"

    async def too_late(link, gates, *given, **more):
        await lose_the_layout(nats.url, stack)
        await gates.put(behind, new)
        await write_positions(link, gates, *given, **more)

    with monkeypatch.context() as patched:
        patched.setattr("streams.repartition.repartition.write_positions", too_late)
        with pytest.raises(LeaseLost):
            await repartition(nats.url, stack=stack, to=4, tell=told)
    async with Link(nats.url, settings()) as link:
        assert (await gates_of(link, stack).get(behind)).value == new


async def test_who_has_lost_the_lease_does_not_put_the_copies_to_use(nats, stack, monkeypatch):
    await fill(nats.url, stack, 1)

    async def then_lose_the_lease(*given, **more):
        await write_positions(*given, **more)
        await lose_the_layout(nats.url, stack)

    with monkeypatch.context() as patched:
        patched.setattr("streams.repartition.repartition.write_positions", then_lose_the_lease)
        with pytest.raises(LeaseLost):
            await repartition(nats.url, stack=stack, to=4, tell=told)
    assert "is being spread over 4" in (await inspect(nats.url, stack=stack)).problem
    await repartition(nats.url, stack=stack, to=4, tell=told)
    await assert_whole(nats.url, stack, 4)


async def test_a_position_that_changes_after_the_lease_was_looked_at_stays(nats, stack):
    await fill(nats.url, stack, 1)
    key, looked = published_key(stack.part(Stream.JOURNAL, 0)), []
    async with Link(nats.url, settings()) as link:
        gates = gates_of(link, stack)

        async def lose_the_lease_after_it_was_looked_at():
            if looked:
                raise LeaseLost(LAYOUT_CLAIM, revision=1)
            looked.append(await gates.put(key, b"1"))

        with pytest.raises(LeaseLost):
            await write_positions(link, gates, stack, check=lose_the_lease_after_it_was_looked_at)
        assert (await gates.get(key)).value == b"1"


def gates_of(link, stack):
    return JetStreamBucket(link, stack.gates_bucket(), marker_s=GATES_MARKER_S)


async def test_what_went_wrong_is_said_when_the_lease_cannot_be_given_up_either(nats, wire, stack):
    await fill(nats.url, stack, 1)

    def lose_the_server(stage, done, total):
        wire.is_blocked = True
        wire.cut()
        raise Cut

    with pytest.raises(Cut):
        await repartition(wire.url, stack=stack, to=4, tell=lose_the_server, settings=settings())


async def test_of_two_that_move_at_once_none_doubles_what_the_other_wrote(nats, stack):
    await fill(nats.url, stack, 1)
    both = (repartition(nats.url, stack=stack, to=4, tell=told) for _ in range(2))
    outcomes = await asyncio.gather(*both, return_exceptions=True)
    assert all(isinstance(each, Stack | Incompatible) for each in outcomes), outcomes
    await repartition(nats.url, stack=stack, to=4, tell=told)
    await assert_whole(nats.url, stack, 4)


async def test_the_old_streams_stay_until_they_are_dropped(nats, stack):
    await fill(nats.url, stack, 1)
    await repartition(nats.url, stack=stack, to=2, tell=told)
    with pytest.raises(Incompatible, match="--drop-old"):
        await repartition(nats.url, stack=stack, to=1, tell=told)
    dropped = await drop_retired(nats.url, stack=stack)
    assert dropped == [f"{stack.name}-{each}" for each in ("journal", "state", "work")]
    assert await drop_retired(nats.url, stack=stack) == []
    await repartition(nats.url, stack=stack, to=1, tell=told)
    await assert_whole(nats.url, stack, 1)


async def test_streams_that_are_replaced_on_purpose_are_not_lost(nats, stack):
    """Of a name that was used before, too."""
    await fill(nats.url, stack, 1)
    for to in (2, 1):
        async with connect(nats.url, stack=stack) as ports:
            await LossWatch(ports, SystemClock(), node="n1").begin()
        await repartition(nats.url, stack=stack, to=to, tell=told)
        await drop_retired(nats.url, stack=stack)
    async with connect(nats.url, stack=stack) as ports:
        await LossWatch(ports, SystemClock(), node="n1").begin()


async def test_a_stack_that_has_lost_its_past_is_not_moved(nats, stack):
    await fill(nats.url, stack, 1)
    async with connect(nats.url, stack=stack) as ports:
        await ports.registry.put(lost_key("journal"), b"{}")
    with pytest.raises(LogLost):
        await repartition(nats.url, stack=stack, to=2, tell=told)


async def test_the_number_that_a_stack_has_changes_nothing(nats, stack):
    await fill(nats.url, stack, 4)
    assert await repartition(nats.url, stack=stack, to=4, tell=told) == Stack(stack.name, 4)
    assert await drop_retired(nats.url, stack=stack) == []


async def test_a_stack_of_an_unreleased_version_is_not_moved(nats, stack):
    await fill(nats.url, stack, 3)
    await write_layout(nats.url, stack, {PARTITIONS: "3"})
    for to in (3, 4):
        with pytest.raises(Incompatible, match="was made by an unreleased version"):
            await repartition(nats.url, stack=stack, to=to, tell=told)
    with pytest.raises(Incompatible, match="was made by an unreleased version"):
        await drop_retired(nats.url, stack=stack)


async def test_a_stack_that_was_never_made_is_not_made(nats, stack):
    with pytest.raises(Incompatible, match="there is no stream"):
        await repartition(nats.url, stack=stack, to=4, tell=told)


async def test_progress_is_told_up_to_the_end(nats, stack):
    await fill(nats.url, stack, 1)
    reports = []
    await repartition(nats.url, stack=stack, to=4, tell=lambda *said: reports.append(said))
    stages = {stream.value: COMMITS * len(found) for stream, found in AGGREGATES.items()}
    for stage, total in (
        (f"{did}, {it}", stages[it]) for did in ("copied", "verified") for it in stages
    ):
        done = [(done, of) for said, done, of in reports if said == stage]
        assert done == sorted(done)
        assert done[-1] == (total, total)


async def test_it_may_die_before_any_request_and_is_whole_in_the_end(nats, stack, monkeypatch):
    await fill(nats.url, stack, 1)
    left, call = [0], api.call

    async def dying(*args, **options):
        if left[0] == 0:
            raise Cut
        left[0] -= 1
        return await call(*args, **options)

    tries, is_done = 0, False
    while not is_done:
        left[0] = tries
        with monkeypatch.context() as patched:
            patched.setattr(api, "call", dying)
            try:
                await repartition(nats.url, stack=stack, to=3, tell=told, settings=settings())
            except Cut:
                tries += STRIDE
            else:
                is_done = True
    assert tries > 100
    await assert_whole(nats.url, stack, 3)


DYING: Final = """
import asyncio, os, signal, sys

from streams.jetstream import LinkSettings
from streams.repartition import copy_commits
from streams.repartition.repartition import repartition
from streams.subjects import Stack

url, name, last = sys.argv[1:]
copy_commits.BATCH_MAX, copy_commits.TOLD_EVERY = 7, 10


def die(stage, done, total):
    if f"{stage} {done}" == last:
        os.kill(os.getpid(), signal.SIGKILL)


settings = LinkSettings(lease_ttl_s=1)
asyncio.run(repartition(url, stack=Stack(name), to=3, tell=die, settings=settings))
"""


@pytest.mark.parametrize(
    "last",
    [
        "copied, journal 50",
        pytest.param("verified, state 10", marks=pytest.mark.nightly),
        pytest.param("copied, work 10", marks=pytest.mark.nightly),
    ],
)
async def test_a_process_that_is_killed_is_followed_by_another_one(nats, stack, last):
    await fill(nats.url, stack, 1)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", DYING, nats.url, stack.name, last
    )
    assert await process.wait() == -signal.SIGKILL

    async def is_moved():
        try:
            await repartition(nats.url, stack=stack, to=3, tell=told, settings=settings())
        except Incompatible:  # What the dead one held has not lapsed yet.
            return False
        return True

    await eventually(is_moved)
    await assert_whole(nats.url, stack, 3)
