"""Moving the state of a stack that an earlier version made out of its journal."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import Final

import nats as nats_py
import pytest

from streams.errors import BadName, Incompatible, LeaseLost, VersionConflict
from streams.jetstream import connect, inspect
from streams.jetstream.connection.link import Link
from streams.jetstream.messages import api
from streams.jetstream.ports.configs import PARTITIONS, bucket_stream
from streams.jetstream.ports.leases import JetStreamLeases
from streams.keys import LAYOUT_CLAIM
from streams.layout import AGGREGATE_STREAMS, Kind, Stream
from streams.repartition import copy_commits
from streams.repartition.positions import write_positions
from streams.repartition.repartition import drop_retired, repartition
from streams.subjects import Stack
from tests.contracts.samples import commit, deliveries_of, opened, start
from tests.streams.jetstream.wire import eventually
from tests.streams.repartition.moves import Cut, cut_off_at, operator, settings, told

COMMITS = 3
KEYS = [f"k{n}" for n in range(5)]
OF_STATE = (Kind.DEFINITION, Kind.FINDING, Kind.LANE, Kind.SIGNAL)
OF_JOURNAL = (Kind.EPISODE, Kind.OUTPUT, Kind.WORKFLOW)
EVERY = [(kind, key) for key in KEYS for kind in (*OF_STATE, *OF_JOURNAL)]
BY_EARLIER = "was made by an earlier version"


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(copy_commits, "BATCH_MAX", 7)
    monkeypatch.setattr(copy_commits, "TOLD_EVERY", 10)


async def fill(url, stack, partitions):
    """Make a stack as an earlier version would have, with aggregates of every kind."""
    async with connect(url, stack=stack, settings=settings(partitions)) as ports:
        versions = {ports.stack.aggregate(*each): 0 for each in EVERY}
        for n in range(COMMITS):
            for subject, version in versions.items():
                versions[subject] = await ports.log.append(
                    subject, commit(f"{n}", n + 1, trace="00-aa-bb-01"), after=version
                )
        await ports.commands.send(start("k1"), id="start.k1")
        made = ports.stack
    async with operator(url) as by:
        await by.make_earlier(made)


async def assert_whole(url, stack, partitions):
    """Check that everything that `fill` wrote is there, in order, and can be gone on from."""
    async with connect(url, stack=stack, settings=settings()) as ports:
        assert ports.stack == Stack(stack.name, partitions)
        for subject in (ports.stack.aggregate(*each) for each in EVERY):
            found = await ports.log.read(subject)
            assert [each.commit for each in found] == [
                commit(f"{n}", n + 1, trace="00-aa-bb-01") for n in range(COMMITS)
            ]
            assert await ports.log.last(subject) == found[-1]
        heads = [
            await ports.log.head(Stream.STATE, partition=each)
            for each in ports.stack.partitions_of(Stream.STATE)
        ]
        assert sum(heads) == COMMITS * len(KEYS) * len(OF_STATE)
        async with opened(ports.commands.open("monitor")) as source:
            (command,) = await deliveries_of(source, 1)
            await command.nak()
    assert all(not each.contradictions for each in (await inspect(url, stack=stack)).streams)


async def refusal(url, stack):
    """Return why nobody can connect."""
    with pytest.raises(Incompatible) as refused:
        async with connect(url, stack=stack):
            pass
    said = str(refused.value)
    assert said == (await inspect(url, stack=stack)).problem
    return said


@pytest.mark.parametrize("partitions", [1, 3])
async def test_nobody_connects_to_a_stack_of_an_earlier_version(nats, stack, partitions):
    await fill(nats.url, stack, partitions)
    said = await refusal(nats.url, stack)
    assert BY_EARLIER in said
    assert f"`vigil repartition --to {partitions}` once" in said


@pytest.mark.parametrize("partitions", [1, 3])
async def test_the_state_comes_along_in_order_and_the_journal_stays_as_it_was(
    nats, stack, partitions
):
    await fill(nats.url, stack, partitions)
    made = Stack(stack.name, partitions)
    journals = [made.stream(Stream.JOURNAL, each) for each in range(partitions)]
    async with operator(nats.url) as by:
        before = [await by.messages(name) for name in journals]
        assert await repartition(nats.url, stack=stack, to=partitions, tell=told) == made
        assert [await by.messages(name) for name in journals] == before
        states = [await by.messages(made.stream(Stream.STATE, each)) for each in range(partitions)]
    for journal, state in zip(before, states, strict=True):
        of_state = [each for each in journal if made.holds(Stream.STATE, each[1])]
        assert [each[1:3] for each in state] == [each[1:3] for each in of_state]
    await assert_whole(nats.url, stack, partitions)


async def test_the_versions_of_what_was_moved_are_those_of_the_new_stream(nats, stack):
    await fill(nats.url, stack, 1)
    await repartition(nats.url, stack=stack, to=1, tell=told)
    async with connect(nats.url, stack=stack, settings=settings()) as ports:
        for kind in (Kind.FINDING, Kind.EPISODE):
            subject = ports.stack.aggregate(kind, KEYS[0])
            last = (await ports.log.read(subject))[-1]
            with pytest.raises(VersionConflict):
                await ports.log.append(subject, commit("late"), after=last.seq - 1)
            await ports.log.append(subject, commit("next"), after=last.seq)


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("stage", ["copied, state", "verified, state"])
async def test_one_that_was_cut_off_goes_on_and_loses_or_doubles_nothing(
    nats, stack, partitions, stage
):
    await fill(nats.url, stack, partitions)
    with pytest.raises(Cut):
        await repartition(nats.url, stack=stack, to=partitions, tell=cut_off_at(stage))
    said = await refusal(nats.url, stack)
    assert "is being moved into streams of its own" in said
    assert f"--to {partitions}` goes on" in said
    with pytest.raises(Incompatible, match="is being moved into streams of its own"):
        await repartition(nats.url, stack=stack, to=7, tell=told)
    with pytest.raises(Incompatible, match="is being moved into streams of its own"):
        await drop_retired(nats.url, stack=stack)
    await repartition(nats.url, stack=stack, to=partitions, tell=told)
    await assert_whole(nats.url, stack, partitions)


async def test_it_may_die_before_each_request_and_is_whole_in_the_end(nats, stack, monkeypatch):
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
                await repartition(nats.url, stack=stack, to=1, tell=told, settings=settings())
            except Cut:
                tries += 1
            else:
                is_done = True
    assert tries > 10
    await assert_whole(nats.url, stack, 1)


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


settings = LinkSettings(lease_ttl_s=1.0)
asyncio.run(repartition(url, stack=Stack(name), to=1, tell=die, settings=settings))
"""


@pytest.mark.parametrize("last", ["copied, state 50", "copied, state 105", "verified, state 50"])
async def test_a_process_that_is_killed_is_followed_by_another_one(nats, stack, last):
    await fill(nats.url, stack, 1)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", DYING, nats.url, stack.name, last
    )
    assert await process.wait() == -signal.SIGKILL
    assert "is being moved" in await refusal(nats.url, stack)

    async def is_moved():
        try:
            await repartition(nats.url, stack=stack, to=1, tell=told, settings=settings())
        except Incompatible:  # What the dead one held has not lapsed yet.
            return False
        return True

    await eventually(is_moved)
    await assert_whole(nats.url, stack, 1)


async def test_a_second_time_changes_nothing(nats, stack):
    await fill(nats.url, stack, 1)
    await repartition(nats.url, stack=stack, to=1, tell=told)
    reports = []
    await repartition(nats.url, stack=stack, to=1, tell=lambda *said: reports.append(said))
    assert reports == []
    assert await drop_retired(nats.url, stack=stack) == []
    await assert_whole(nats.url, stack, 1)


async def test_a_stack_in_use_is_left_alone(nats, stack):
    await fill(nats.url, stack, 1)
    async with Link(nats.url, settings()) as link:
        leases = JetStreamLeases(link, stack)
        lease = await leases.acquire("episode.monitor.e1", holder="n7")
        with pytest.raises(Incompatible, match=r"n7 holds episode\.monitor\.e1"):
            await repartition(nats.url, stack=stack, to=1, tell=told)
        assert BY_EARLIER in await refusal(nats.url, stack)
        await leases.complete(lease)
    await repartition(nats.url, stack=stack, to=1, tell=told)
    await assert_whole(nats.url, stack, 1)


@pytest.mark.parametrize("stray", [{}, {"Vigil-Copied-From": "0 999"}])
async def test_copies_that_differ_are_not_used_and_can_be_made_anew(nats, stack, stray):
    await fill(nats.url, stack, 1)
    with pytest.raises(Cut):
        await repartition(nats.url, stack=stack, to=1, tell=cut_off_at("copied, state"))
    connection = await nats_py.connect(nats.url)
    await connection.jetstream().publish(stack.finding("k1"), b"{}", headers=stray)
    await connection.close()
    with pytest.raises(Incompatible, match="Delete the new streams of the state"):
        await repartition(nats.url, stack=stack, to=1, tell=told)
    assert "is being moved" in await refusal(nats.url, stack)
    async with operator(nats.url) as by:
        await by.ask(f"STREAM.DELETE.{stack.stream(Stream.STATE)}")
    await repartition(nats.url, stack=stack, to=1, tell=told)
    await assert_whole(nats.url, stack, 1)


async def test_who_has_lost_the_lease_does_not_put_the_copies_to_use(nats, stack, monkeypatch):
    await fill(nats.url, stack, 1)

    async def then_lose_the_lease(*given, **more):
        await write_positions(*given, **more)
        connection = await nats_py.connect(nats.url)
        bucket = await connection.jetstream().key_value(stack.claims_bucket())
        await bucket.purge(LAYOUT_CLAIM)
        await connection.close()

    with monkeypatch.context() as patched:
        patched.setattr("streams.repartition.repartition.write_positions", then_lose_the_lease)
        with pytest.raises(LeaseLost):
            await asyncio.wait_for(repartition(nats.url, stack=stack, to=1, tell=told), 30)
    assert "is being moved" in await refusal(nats.url, stack)
    await repartition(nats.url, stack=stack, to=1, tell=told)
    await assert_whole(nats.url, stack, 1)


@pytest.mark.parametrize(("old", "new"), [(1, 3), (3, 1)])
async def test_another_number_gives_the_state_its_streams_as_well(nats, stack, old, new):
    await fill(nats.url, stack, old)
    with pytest.raises(Cut):
        await repartition(nats.url, stack=stack, to=new, tell=cut_off_at("verified, state"))
    await repartition(nats.url, stack=stack, to=new, tell=told)
    await assert_whole(nats.url, stack, new)
    async with connect(nats.url, stack=stack) as ports:
        for stream in AGGREGATE_STREAMS:
            for partition in ports.stack.partitions_of(stream):
                async with ports.log.follow(stream, partition=partition) as follower:
                    found = await follower.receive(most=1_000, wait_s=1)
                assert all(ports.stack.holds(stream, each.subject) for each in found)


async def test_a_move_to_another_number_can_be_taken_back_to_what_it_was(nats, stack):
    await fill(nats.url, stack, 1)
    async with operator(nats.url) as by:
        before = await by.messages(stack.stream(Stream.JOURNAL))
        with pytest.raises(Cut):
            await repartition(nats.url, stack=stack, to=3, tell=cut_off_at("verified, state"))
        await repartition(nats.url, stack=stack, to=1, tell=told)
        assert BY_EARLIER in await refusal(nats.url, stack)
        assert await by.messages(stack.stream(Stream.JOURNAL)) == before
    await repartition(nats.url, stack=stack, to=1, tell=told)
    await assert_whole(nats.url, stack, 1)


async def test_what_a_journal_keeps_of_the_state_is_left_behind_by_the_next_move(nats, stack):
    await fill(nats.url, stack, 1)
    await repartition(nats.url, stack=stack, to=1, tell=told)
    await repartition(nats.url, stack=stack, to=3, tell=told)
    await assert_whole(nats.url, stack, 3)
    async with connect(nats.url, stack=stack) as ports:
        heads = [await ports.log.head(partition=each) for each in range(3)]
    assert sum(heads) == COMMITS * len(KEYS) * len(OF_JOURNAL)


async def test_what_says_the_layout_is_no_number_for_earlier_versions(nats, stack):
    """They would take the journal for the whole, and find no partitions instead."""
    async with connect(nats.url, stack=stack), operator(nats.url) as by:
        name = bucket_stream(stack.registry_bucket())
        said = (await by.config(name))["metadata"][PARTITIONS]
    assert said == "1+state"
    with pytest.raises(BadName):
        Stack(stack.name, int(said) if said.isdecimal() else 0)
