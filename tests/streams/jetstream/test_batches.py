"""What a real server makes of writes that share a batch: to each its own outcome."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import Final

import nats as nats_py
import pytest

from streams.embedded import EmbeddedNats
from streams.errors import Incompatible, TooLarge, VersionConflict
from streams.jetstream import GroupSettings, LinkSettings, connect
from streams.jetstream.connection.headers import BATCH, BATCH_END
from streams.layout import Stream
from tests.contracts.samples import commit, deliveries_of, start
from tests.streams.jetstream.test_outages import OUTAGES, chain, reached
from tests.streams.jetstream.wire import eventually

SETTINGS: Final = LinkSettings(
    patience_s=20.0, lease_ttl_s=5, group=GroupSettings(least=0, is_fixed=True)
)
"""Each write goes in a batch, with whatever else there is at that moment."""

ALONE: Final = LinkSettings(group=GroupSettings(most=1, least=2, is_fixed=True))


@pytest.fixture
async def ports(nats, stack):
    async with connect(nats.url, stack=stack, settings=SETTINGS) as ports:
        yield ports


@asynccontextmanager
async def raw(url):
    """A plain client, as a stranger would use."""
    client = await nats_py.connect(url)
    yield client.jetstream()
    await client.close()


async def every(*writes):
    """Return what became of writes that are made at the same time."""
    return await asyncio.gather(*writes, return_exceptions=True)


async def test_appends_to_many_aggregates_share_a_batch(nats, ports, stack):
    subjects = [stack.episode(f"e{n}") for n in range(20)]
    seqs = await every(*(ports.log.append(s, commit(s), after=0) for s in subjects))
    assert sorted(seqs) == list(range(1, 21))
    for subject, seq in zip(subjects, seqs, strict=True):
        assert [(r.seq, r.commit.id) for r in await ports.log.read(subject)] == [(seq, subject)]
    async with raw(nats.url) as stranger:
        messages = [await stranger.get_msg(stack.stream(Stream.JOURNAL), seq) for seq in seqs]
    assert len({message.headers[BATCH] for message in messages}) == 1
    assert [message.headers.get(BATCH_END) for message in messages] == [None] * 19 + ["1"]


async def test_a_conflict_in_a_batch_hurts_only_its_owner(ports, stack):
    await ports.log.append(stack.episode("e5"), commit("first"), after=0)
    subjects = [stack.episode(f"e{n}") for n in range(10)]
    outcomes = await every(*(ports.log.append(s, commit(s), after=0) for s in subjects))
    refused = [n for n, outcome in enumerate(outcomes) if isinstance(outcome, VersionConflict)]
    assert refused == [5]
    for subject, outcome in zip(subjects, outcomes, strict=True):
        expected = [] if isinstance(outcome, VersionConflict) else [(outcome, subject)]
        found = [(r.seq, r.commit.id) for r in await ports.log.read(subject)]
        assert [pair for pair in found if pair[1] != "first"] == expected


async def test_a_commit_over_the_limit_fails_alone(ports, stack):
    large = commit("large", tool_name="x" * 2 * 1024 * 1024)
    commits = [commit("a"), large, commit("b")]
    outcomes = await every(*(ports.log.append(stack.episode(c.id), c, after=0) for c in commits))
    assert [type(outcome) for outcome in outcomes] == [int, TooLarge, int]


async def test_an_event_that_was_published_before_keeps_its_sequence_among_new_ones(ports):
    first = await ports.domain_events.publish("disk.checked", {}, id="ev-0")
    seqs = await every(
        *(ports.domain_events.publish("disk.checked", {}, id=f"ev-{n}") for n in range(5))
    )
    assert seqs[0] == first
    assert len(set(seqs)) == 5


async def test_an_event_that_is_published_twice_at_once_is_there_once(ports):
    ids = ["a", "b", "a", "c", "a"]
    seqs = await every(*(ports.domain_events.publish("disk.checked", {}, id=id_) for id_ in ids))
    assert len(set(seqs)) == 3
    assert len({seqs[0], seqs[2], seqs[4]}) == 1


async def test_commands_that_are_sent_twice_at_once_are_there_once(ports):
    source = await ports.commands.open("monitor")
    await every(*(ports.commands.send(start(f"e{n % 4}"), id=f"s{n % 4}") for n in range(12)))
    deliveries = await deliveries_of(source, 4)
    assert sorted(each.content.episode_id for each in deliveries) == ["e0", "e1", "e2", "e3"]
    assert list(await source.receive(room=1, wait_s=0.2)) == []
    await source.close()


async def test_of_claims_that_are_made_at_once_the_free_ones_are_had(ports):
    held = await ports.leases.acquire("episode.a.3", holder="n1")
    leases = await every(*(ports.leases.acquire(f"episode.a.{n}", holder="n2") for n in range(6)))
    assert held is not None
    assert [lease is not None for lease in leases] == [n != 3 for n in range(6)]
    assert all([await ports.leases.owns(lease) for lease in leases if lease is not None])


async def test_a_copied_event_carries_nothing_of_the_batch_it_came_in(nats, ports, stack):
    seqs = await every(
        *(ports.domain_events.publish("disk.checked", {}, id=f"ev-{n}") for n in range(5))
    )
    async with connect(nats.url, stack=stack, settings=ALONE) as alone, raw(nats.url) as stranger:
        copy = await alone.domain_events.republish(seqs[-1], id="again")
        first, second = [
            await stranger.get_msg(stack.stream(Stream.EVENTS), seq) for seq in (seqs[-1], copy)
        ]
    assert BATCH in first.headers
    assert [name for name in second.headers if name.startswith("Nats-Batch-")] == []


async def test_an_append_that_is_cancelled_leaves_the_others_of_its_batch_alone(ports, stack):
    subjects = [stack.episode(f"e{n}") for n in range(10)]
    appends = [asyncio.create_task(ports.log.append(s, commit(s), after=0)) for s in subjects]
    journal = ports.log._groups.to(stack.stream(Stream.JOURNAL))
    while journal._batch is None:  # noqa: ASYNC110 - a batch is sent without telling anybody
        await asyncio.sleep(0)
    appends[4].cancel()
    outcomes = await every(*appends)
    assert [type(o) for n, o in enumerate(outcomes) if n != 4] == [int] * 9
    assert isinstance(outcomes[4], asyncio.CancelledError)
    assert len(await ports.log.read(subjects[4])) <= 1


async def test_after_no_answer_each_append_goes_on_alone(nats, wire, ports, stack):
    subjects = [stack.episode(f"e{n}") for n in range(10)]
    async with (
        connect(wire.url, stack=stack, settings=SETTINGS) as wired,
        raw(nats.url) as stranger,
    ):
        wire.loses_requests = True
        appending = asyncio.gather(*(wired.log.append(s, commit(s), after=0) for s in subjects))
        await asyncio.sleep(0)
        wire.cut()
        seqs = await appending
        found = [await stranger.get_msg(stack.stream(Stream.JOURNAL), seq) for seq in seqs]
    assert [message.subject for message in found] == subjects
    assert [message for message in found if BATCH in message.headers] == []


async def test_what_was_stored_without_an_answer_is_recognized_by_each(wire, ports, stack):
    subjects = [stack.episode(f"e{n}") for n in range(10)]
    async with connect(wire.url, stack=stack, settings=SETTINGS) as wired:
        wire.loses_answers = True
        appending = asyncio.gather(*(wired.log.append(s, commit(s), after=0) for s in subjects))
        await eventually(lambda: reached(ports.log, 10))
        wire.cut()
        assert await appending == list(range(1, 11))
    assert await ports.log.head() == 10


async def test_a_stream_that_takes_no_batches_takes_every_write_alone(nats, stack):
    async with connect(nats.url, stack=stack, settings=ALONE):
        pass  # The streams are there now.
    async with raw(nats.url) as stranger:
        config = (await stranger.stream_info(stack.stream(Stream.JOURNAL))).config
        await stranger.update_stream(config.evolve(allow_atomic=False))
    async with connect(nats.url, stack=stack, settings=SETTINGS) as ports:
        subjects = [stack.episode(f"e{n}") for n in range(10)]
        seqs = await every(*(ports.log.append(s, commit(s), after=0) for s in subjects))
    assert sorted(seqs) == list(range(1, 11))


async def test_a_denied_subject_is_named_to_who_asked_and_to_nobody_else(tmp_path, stack):
    denied = stack.episode("secret")
    may = f'publish: {{ allow: ">", deny: "{denied}" }}'
    users = f"authorization {{ users: [{{ user: node, password: pw, permissions: {{ {may} }} }}] }}"
    settings = LinkSettings(user="node", password="pw", group=SETTINGS.group)
    with EmbeddedNats(tmp_path / "nats", extra_config=users) as server:
        async with connect(server.url, stack=stack, settings=settings) as ports:
            for round_ in range(2):  # The second time it is known before anything is sent.
                subjects = [stack.episode(f"{round_}-{n}") for n in range(4)]
                subjects.insert(2, denied)
                outcomes = await every(*(ports.log.append(s, commit(s), after=0) for s in subjects))
                told = [type(outcome) for outcome in outcomes]
                assert told == [int, int, Incompatible, int, int]


@pytest.mark.parametrize("outage", OUTAGES)
async def test_what_was_under_way_when_the_server_died_is_stored_once(own_nats, stack, outage):
    async with connect(own_nats.url, stack=stack, settings=SETTINGS) as ports:
        subjects = [stack.episode(f"e{number}") for number in range(50)]
        chains = [asyncio.create_task(chain(ports.log, s, length=20)) for s in subjects]
        for least in (250, 600):
            await eventually(lambda least=least: reached(ports.log, least))
            await outage(own_nats)
        acknowledged = await asyncio.gather(*chains)
        for subject, seqs in zip(subjects, acknowledged, strict=True):
            records = await ports.log.read(subject)
            assert [r.seq for r in records] == seqs
            assert [r.commit.id for r in records] == [f"{subject}/{n}" for n in range(20)]
        assert await ports.log.head() == 1_000


async def test_rivals_over_a_dying_server_leave_one_winner_each(own_nats, stack):
    """Two processes append to the same aggregates while the server is killed."""
    subjects = [stack.episode(f"e{number}") for number in range(40)]
    async with (
        connect(own_nats.url, stack=stack, settings=SETTINGS) as one,
        connect(own_nats.url, stack=stack, settings=SETTINGS) as other,
    ):
        await one.log.append(stack.finding("warm"), commit("warm"), after=0)
        racing = [
            asyncio.create_task(ports.log.append(subject, commit(f"{name}/{subject}"), after=0))
            for subject in subjects
            for name, ports in (("one", one), ("other", other))
        ]
        await eventually(lambda: reached(one.log, 2))
        await OUTAGES[0].values[0](own_nats)
        outcomes = await every(*racing)
        for number, subject in enumerate(subjects):
            records = await one.log.read(subject)
            told = outcomes[2 * number : 2 * number + 2]
            won = [outcome for outcome in told if isinstance(outcome, int)]
            assert [type(o) for o in told if o not in won] == [VersionConflict]
            assert [r.seq for r in records] == won
