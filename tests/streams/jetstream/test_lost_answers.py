"""What becomes of a write whose answer is lost: the caller learns the truth, never a guess."""

from __future__ import annotations

import asyncio

import pytest

from streams.errors import RevisionConflict, UnknownOutcome, VersionConflict
from streams.jetstream import LinkSettings, connect
from streams.ports.timers import Timer
from tests.contracts.samples import commit, deliveries_of, next_of, start
from tests.streams.jetstream.wire import eventually


@pytest.fixture
def subject(stack):
    return stack.episode("e1")


async def lengthens(log, subject, *, to):
    async def is_there():
        return len(await log.read(subject)) >= to

    await eventually(is_there)


async def test_an_append_that_was_stored_is_recognized(wire, wired, direct, subject):
    wire.loses_answers = True
    appending = asyncio.create_task(wired.log.append(subject, commit("ours"), after=0))
    await lengthens(direct.log, subject, to=1)
    wire.cut()
    seq = await appending
    (record,) = await direct.log.read(subject)
    assert (record.seq, record.commit.id) == (seq, "ours")


async def test_an_append_is_recognized_even_when_others_went_on_from_it(
    wire, wired, direct, subject
):
    wire.loses_answers = True
    appending = asyncio.create_task(wired.log.append(subject, commit("ours"), after=0))
    await lengthens(direct.log, subject, to=1)
    (ours,) = await direct.log.read(subject)
    await direct.log.append(subject, commit("theirs"), after=ours.seq)
    wire.cut()
    assert await appending == ours.seq


async def test_an_append_that_never_arrived_is_stored_later(wire, wired, direct, subject):
    wire.loses_requests = True
    appending = asyncio.create_task(wired.log.append(subject, commit("ours"), after=0))
    await asyncio.sleep(0)
    wire.cut()
    seq = await appending
    assert [r.seq for r in await direct.log.read(subject)] == [seq]


async def test_an_append_that_a_rival_overtook_is_a_conflict(wire, wired, direct, subject):
    wire.loses_requests = True
    appending = asyncio.create_task(wired.log.append(subject, commit("ours"), after=0))
    await direct.log.append(subject, commit("theirs"), after=0)
    wire.cut()
    with pytest.raises(VersionConflict):
        await appending
    assert [r.commit.id for r in await direct.log.read(subject)] == ["theirs"]


async def test_an_append_without_an_answer_ends_as_unknown_when_patience_ends(
    wire, direct, stack, subject
):
    settings = LinkSettings(patience_s=0.5, request_timeout_s=0.2)
    async with connect(wire.url, stack=stack, settings=settings) as wired:
        wire.loses_answers = True
        with pytest.raises(UnknownOutcome):
            await wired.log.append(subject, commit("ours"), after=0)
        wire.cut()
    assert len(await direct.log.read(subject)) == 1


async def test_a_cancelled_append_may_be_stored_and_blocks_nobody(wire, wired, direct, subject):
    wire.loses_answers = True
    appending = asyncio.create_task(wired.log.append(subject, commit("ours"), after=0))
    await lengthens(direct.log, subject, to=1)
    appending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await appending
    wire.cut()
    (ours,) = await direct.log.read(subject)
    assert await wired.log.append(subject, commit("next"), after=ours.seq) > ours.seq


async def test_an_event_published_twice_for_a_lost_answer_is_there_once(wire, wired, direct):
    source = await direct.domain_events.open("monitor", ["disk.checked"])
    wire.loses_answers = True
    publishing = asyncio.create_task(wired.domain_events.publish("disk.checked", {}, id="ev-1"))
    (delivery,) = await deliveries_of(source, 1)
    wire.cut()
    assert await publishing == delivery.seq
    await delivery.ack()
    assert list(await source.receive(room=1, wait_s=0.2)) == []
    await source.close()


async def test_a_command_sent_twice_for_a_lost_answer_is_there_once(wire, wired, direct):
    source = await direct.commands.open("monitor")
    wire.loses_answers = True
    sending = asyncio.create_task(wired.commands.send(start("e1"), id="start-e1"))
    (delivery,) = await deliveries_of(source, 1)
    wire.cut()
    await sending
    await delivery.ack()
    assert list(await source.receive(room=1, wait_s=0.2)) == []
    await source.close()


async def test_a_claim_that_was_stored_is_ours(wire, wired, direct):
    async with direct.leases.watch() as watch:
        wire.loses_answers = True
        acquiring = asyncio.create_task(wired.leases.acquire("episode.a.1", holder="n1"))
        (claimed,) = await next_of(watch, 1)
        wire.cut()
        lease = await acquiring
    assert lease is not None
    assert lease.revision == claimed.revision


async def test_a_claim_that_someone_else_got_is_not_ours(wire, wired, direct):
    wire.loses_requests = True
    acquiring = asyncio.create_task(wired.leases.acquire("episode.a.1", holder="n1"))
    assert await direct.leases.acquire("episode.a.1", holder="n2") is not None
    wire.cut()
    assert await acquiring is None


async def test_a_renewal_that_was_stored_can_be_renewed_from_the_lease_we_know(wire, wired, direct):
    lease = await wired.leases.acquire("episode.a.1", holder="n1")
    async with direct.leases.watch(after=lease.revision) as watch:
        wire.loses_answers = True
        renewing = asyncio.create_task(wired.leases.renew(lease))
        (renewed,) = await next_of(watch, 1)
        wire.cut()
        with pytest.raises(UnknownOutcome):
            await renewing
    again = await wired.leases.renew(lease)
    assert again.revision > renewed.revision


async def test_a_put_that_was_stored_keeps_its_revision(wire, wired, direct):
    async with direct.gates.watch() as watch:
        wire.loses_answers = True
        putting = asyncio.create_task(wired.gates.put("node.n1", b"1", after=0, ttl_s=60))
        (entry,) = await next_of(watch, 1)
        wire.cut()
        assert await putting == entry.revision


async def test_a_put_that_a_rival_overtook_is_a_conflict(wire, wired, direct):
    first = await direct.gates.put("breaker.a.e", b"0")
    wire.loses_requests = True
    putting = asyncio.create_task(wired.gates.put("breaker.a.e", b"ours", after=first))
    await direct.gates.put("breaker.a.e", b"theirs", after=first)
    wire.cut()
    with pytest.raises(RevisionConflict):
        await putting
    assert (await direct.gates.get("breaker.a.e")).value == b"theirs"


async def test_a_put_without_an_answer_ends_as_unknown_when_patience_ends(wire, direct, stack):
    settings = LinkSettings(patience_s=0.5, request_timeout_s=0.2)
    async with connect(wire.url, stack=stack, settings=settings) as wired:
        wire.loses_answers = True
        with pytest.raises(UnknownOutcome):
            await wired.gates.put("node.n1", b"1", after=0)
        wire.cut()
    assert (await direct.gates.get("node.n1")).value == b"1"


async def test_a_timer_sent_twice_for_a_lost_answer_comes_once(wire, wired, direct):
    timer = Timer(actor="monitor", purpose="fire", key="k", payload={})
    source = await direct.timers.open("monitor")
    wire.loses_answers = True
    sending = asyncio.create_task(wired.timers.send(timer, id="fire-1"))
    (delivery,) = await deliveries_of(source, 1)
    wire.cut()
    await sending
    await delivery.ack()
    assert list(await source.receive(room=1, wait_s=0.2)) == []
    await source.close()
