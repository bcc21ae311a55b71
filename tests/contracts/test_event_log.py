"""What every `EventLog` promises, be its journal one stream or spread over three."""

from __future__ import annotations

import asyncio

import pytest

from streams.errors import BadName, TooLarge, UnreadableEvent, VersionConflict
from streams.layout import Kind, Stream
from streams.ports.log import START
from streams.subjects import Stack
from tests.contracts.samples import SILENCE_S, WAIT_S, commit, next_of

DOES = ("begins", "ends")


def ids(records):
    return [record.commit.id for record in records]


async def append_all(ports, subject, count, *, begin=0, after=START):
    for n in range(begin, begin + count):
        after = await ports.log.append(subject, commit(f"c{n}", n), after=after)
    return after


@pytest.fixture
def stack(stack, partitions):
    return Stack(stack.name, partitions=partitions)


@pytest.fixture
def log(ports):
    return ports.log


@pytest.fixture
def home(stack):
    """The partition that most of what these tests write lives in."""
    return stack.partition_of(Kind.EPISODE, "e1")


@pytest.fixture
def neighbour(stack, home):
    """An output whose life is in the same partition of the same stream."""
    return stack.output(key_in(stack, Kind.OUTPUT, home))


def key_in(stack, kind, partition):
    keys = (f"k{n}" for n in range(100))
    return next(key for key in keys if stack.partition_of(kind, key) == partition)


@pytest.fixture
def subject(stack):
    return stack.episode("e1")


async def test_a_read_returns_the_commits_that_were_appended_in_order(log, subject):
    first, second = commit("c1", 1), commit("c2", 2)
    version = await log.append(subject, first, after=START)
    await log.append(subject, second, after=version)
    assert [record.commit for record in await log.read(subject)] == [first, second]


async def test_the_version_is_the_sequence_of_the_last_commit(log, subject):
    first = await log.append(subject, commit("c1"), after=START)
    second = await log.append(subject, commit("c2"), after=first)
    assert [record.seq for record in await log.read(subject)] == [first, second]
    assert first < second


@pytest.mark.parametrize("ref", ["payment:42", "ü" * 256])
async def test_a_reference_of_any_length_is_an_aggregate(log, stack, ref):
    first = await log.append(stack.signal(ref), commit("c1"), after=START)
    await log.append(stack.signal(f"{ref}."), commit("c2"), after=START)
    assert ids(await log.read(stack.signal(ref))) == ["c1"]
    with pytest.raises(VersionConflict):
        await log.append(stack.signal(ref), commit("c3"), after=first - 1)


async def test_a_commit_keeps_its_trace(log, subject):
    traced = commit("c1", trace="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    await log.append(subject, traced, after=START)
    assert [record.commit for record in await log.read(subject)] == [traced]


async def test_the_events_of_a_commit_stay_together_and_in_order(log, subject):
    await log.append(subject, commit("c1", 3, 1, 2), after=START)
    (record,) = await log.read(subject)
    assert [event.step_no for event in record.commit.events] == [3, 1, 2]


async def test_an_aggregate_that_does_not_exist_reads_as_nothing(log, subject):
    assert list(await log.read(subject)) == []
    assert await log.last(subject) is None


async def test_a_read_after_a_version_returns_what_follows_it(log, subject):
    first = await log.append(subject, commit("c1"), after=START)
    await log.append(subject, commit("c2"), after=first)
    assert ids(await log.read(subject, after=first)) == ["c2"]


async def test_a_read_after_the_last_version_returns_nothing(log, subject):
    last = await log.append(subject, commit("c1"), after=START)
    assert list(await log.read(subject, after=last)) == []


async def test_last_returns_the_newest_commit_of_the_aggregate_alone(log, subject, stack):
    first = await log.append(subject, commit("c1"), after=START)
    second = await log.append(subject, commit("c2"), after=first)
    await log.append(stack.episode("e2"), commit("other"), after=START)
    last = await log.last(subject)
    assert last is not None
    assert (last.subject, last.seq, last.commit.id) == (subject, second, "c2")


async def test_the_newest_commits_of_many_aggregates_are_read_together(log, stack):
    subjects = [stack.finding(f"disk:{number}") for number in range(250)]
    versions = [await log.append(each, commit("c1"), after=START) for each in subjects[:3]]
    newest = await log.append(subjects[0], commit("c2"), after=versions[0])
    neighbour = stack.episode("e1")
    await log.append(neighbour, commit("other"), after=START)

    found = await log.newest([*subjects, neighbour])

    assert found.keys() == {*subjects[:3], neighbour}
    assert [(found[each].seq, found[each].commit.id) for each in subjects[:3]] == [
        *[(newest, "c2"), (versions[1], "c1"), (versions[2], "c1")]
    ]
    assert found[neighbour].commit.id == "other"


async def test_of_aggregates_that_do_not_exist_there_is_no_newest_commit(log, stack):
    assert await log.newest([stack.finding("disk"), stack.finding("memory")]) == {}
    assert await log.newest([]) == {}


async def test_all_aggregates_of_a_kind_are_told_and_no_others(log, stack):
    keys = [f"k{number}" for number in range(7)]
    for key in keys:
        await log.append(stack.order(key), commit("c1"), after=START)
    await log.append(stack.definition("k1"), commit("c1"), after=START)
    again = await log.append(stack.episode("e1"), commit("c1"), after=START)
    await log.append(stack.episode("e1"), commit("c2"), after=again)

    assert await log.subjects(Kind.ORDER) == sorted(map(stack.order, keys))
    assert await log.subjects(Kind.EPISODE) == [stack.episode("e1")]
    assert await log.subjects(Kind.LANE) == []


async def test_the_head_is_zero_before_the_first_commit(log):
    assert await log.head() == 0


async def test_the_head_is_the_newest_commit_of_any_aggregate(log, subject, home, neighbour):
    await log.append(subject, commit("c1"), after=START)
    newest = await log.append(neighbour, commit("c2"), after=START)
    assert await log.head(partition=home) == newest == 2


async def test_the_commit_at_a_sequence_is_told_whatever_its_aggregate_is(
    log, subject, home, neighbour
):
    await log.append(subject, commit("c1"), after=START)
    second = await log.append(neighbour, commit("c2"), after=START)
    found = await log.at(second, partition=home)
    assert found is not None
    assert (found.subject, found.seq, found.commit.id) == (neighbour, second, "c2")
    assert await log.at(second + 1, partition=home) is None
    assert await log.at(1, Stream.DEAD) is None


async def test_a_stale_append_is_refused_and_changes_nothing(log, subject, home):
    first = await log.append(subject, commit("c1"), after=START)
    await log.append(subject, commit("c2"), after=first)
    head = await log.head(partition=home)
    with pytest.raises(VersionConflict):
        await log.append(subject, commit("late"), after=first)
    assert ids(await log.read(subject)) == ["c1", "c2"]
    assert await log.head(partition=home) == head


async def test_version_zero_is_refused_once_the_aggregate_exists(log, subject):
    await log.append(subject, commit("c1"), after=START)
    with pytest.raises(VersionConflict):
        await log.append(subject, commit("c2"), after=START)


async def test_a_version_that_never_was_is_refused(log, subject):
    with pytest.raises(VersionConflict):
        await log.append(subject, commit("c1"), after=7)
    assert list(await log.read(subject)) == []


async def test_the_version_of_another_aggregate_is_refused(log, subject, neighbour):
    await log.append(subject, commit("c1"), after=START)
    other = await log.append(neighbour, commit("c2"), after=START)
    with pytest.raises(VersionConflict):
        await log.append(subject, commit("c3"), after=other)


async def test_of_many_appends_at_one_version_exactly_one_wins(log, subject):
    first = await log.append(subject, commit("c0"), after=START)
    rivals = [log.append(subject, commit(f"r{n}"), after=first) for n in range(20)]
    outcomes = await asyncio.gather(*rivals, return_exceptions=True)
    winners = [n for n, outcome in enumerate(outcomes) if isinstance(outcome, int)]
    losers = [outcome for outcome in outcomes if isinstance(outcome, VersionConflict)]
    assert (len(winners), len(losers)) == (1, 19)
    assert ids(await log.read(subject)) == ["c0", f"r{winners[0]}"]


async def test_the_same_commit_appended_again_is_a_conflict(log, subject):
    await log.append(subject, commit("c1"), after=START)
    with pytest.raises(VersionConflict):
        await log.append(subject, commit("c1"), after=START)
    assert ids(await log.read(subject)) == ["c1"]


async def test_aggregates_do_not_hold_each_other_up(log, stack):
    subjects = [stack.episode(f"e{n}") for n in range(50)]
    await asyncio.gather(*(log.append(s, commit("c"), after=START) for s in subjects))
    heads = [await log.head(partition=each) for each in stack.partitions_of(Stream.JOURNAL)]
    assert sum(heads) == 50


async def test_a_finding_may_have_any_text_as_its_key(log, stack):
    keys = ["host:disk:münchen-1", "a.b", "a b", "*", ">", "日本", "=41"]
    for key in keys:
        await log.append(stack.finding(key), commit(key), after=START)
    for key in keys:
        assert ids(await log.read(stack.finding(key))) == [key]


async def test_a_life_of_2500_commits_reads_whole(ports, plain_ports, log, subject):
    """Stored alone, as that is fast, and at last as these ports do."""
    version = await append_all(plain_ports, subject, 2_450)
    await append_all(ports, subject, 50, begin=2_450, after=version)
    records = await log.read(subject)
    assert ids(records) == [f"c{n}" for n in range(2_500)]


async def test_a_commit_over_the_limit_is_refused_and_changes_nothing(log, subject):
    with pytest.raises(TooLarge):
        await log.append(subject, commit("c1", tool_name="x" * 2 * 1024 * 1024), after=START)
    assert list(await log.read(subject)) == []
    await log.append(subject, commit("c2"), after=START)


async def test_dead_letters_are_kept_apart_from_the_journal(log, stack):
    await log.append(stack.dead("events", "7"), commit("c1"), after=START)
    assert await log.head() == 0
    assert await log.head(Stream.DEAD) == 1
    assert ids(await log.read(stack.dead("events", "7"))) == ["c1"]
    async with log.follow(Stream.DEAD) as follower:
        assert ids(await next_of(follower, 1)) == ["c1"]


async def test_journal_and_state_have_sequences_of_their_own(log, stack, subject, home):
    finding = stack.finding(key_in(stack, Kind.FINDING, home))
    assert await log.append(subject, commit("c1"), after=START) == 1
    first = await log.append(finding, commit("c2"), after=START)
    second = await log.append(finding, commit("c3"), after=first)
    assert (first, second) == (1, 2)
    assert await log.head(partition=home) == 1
    assert await log.head(Stream.STATE, partition=home) == 2
    assert (await log.at(1, partition=home)).subject == subject
    assert (await log.at(1, Stream.STATE, partition=home)).subject == finding
    for stream, wanted in ((Stream.JOURNAL, ["c1"]), (Stream.STATE, ["c2", "c3"])):
        async with log.follow(stream, partition=home) as follower:
            assert ids(await next_of(follower, len(wanted))) == wanted
            assert follower.pending == 0


async def test_a_follower_gets_every_aggregate_in_the_order_of_the_log(
    log, subject, home, neighbour
):
    subjects = [subject, neighbour]
    versions = dict.fromkeys(subjects, START)
    for each in subjects * 4:
        versions[each] = await log.append(each, commit("c"), after=versions[each])
    async with log.follow(partition=home) as follower:
        records = await next_of(follower, 8)
    assert [record.seq for record in records] == list(range(1, 9))
    assert [record.subject for record in records] == subjects * 4


async def test_followers_of_all_partitions_get_every_life_once_and_whole(log, stack):
    names = [f"e{n}" for n in range(30)]
    for name in names:
        first = await log.append(stack.episode(name), commit(f"{name} begins"), after=START)
        await log.append(stack.episode(name), commit(f"{name} ends"), after=first)
    found = []
    for partition in stack.partitions_of(Stream.JOURNAL):
        head = await log.head(partition=partition)
        async with log.follow(partition=partition) as follower:
            found += await next_of(follower, head)
    assert sorted(ids(found)) == sorted(f"{name} {does}" for name in names for does in DOES)
    for name in names:
        subject = stack.episode(name)
        assert ids(record for record in found if record.subject == subject) == [
            f"{name} {does}" for does in DOES
        ]


async def test_a_partition_that_is_not_there_is_refused(log, stack):
    with pytest.raises(BadName, match=f"no partition {stack.partitions}"):
        await log.head(partition=stack.partitions)


async def test_a_follower_starts_just_past_its_position(ports, log, subject, home):
    await append_all(ports, subject, 5)
    async with log.follow(after=3, partition=home) as follower:
        assert [record.seq for record in await next_of(follower, 2)] == [4, 5]


async def test_a_follower_returns_no_more_than_was_asked_for(ports, log, subject, home):
    await append_all(ports, subject, 5)
    async with log.follow(partition=home) as follower:
        seqs = []
        while len(seqs) < 5:
            records = await follower.receive(most=2, wait_s=WAIT_S)
            assert 1 <= len(records) <= 2
            seqs += [record.seq for record in records]
    assert seqs == [1, 2, 3, 4, 5]


async def test_a_follower_says_how_much_is_left(ports, log, subject, home):
    await append_all(ports, subject, 5)
    async with log.follow(partition=home) as follower:
        await next_of(follower, 2)
        assert follower.pending == 3
        await next_of(follower, 3)
        assert follower.pending == 0


async def test_a_follower_at_the_end_returns_nothing_after_its_wait(ports, log, subject, home):
    last = await append_all(ports, subject, 1)
    async with log.follow(after=last, partition=home) as follower:
        assert list(await follower.receive(most=10, wait_s=SILENCE_S)) == []


async def test_a_follower_at_the_end_gets_what_comes_next(ports, log, subject, home):
    last = await append_all(ports, subject, 1)
    async with log.follow(after=last, partition=home) as follower:
        waiting = asyncio.create_task(next_of(follower, 1))
        await log.append(subject, commit("live"), after=last)
        assert ids(await waiting) == ["live"]


async def test_followers_do_not_take_from_each_other(ports, log, subject, home):
    await append_all(ports, subject, 3)
    async with log.follow(partition=home) as one, log.follow(partition=home) as other:
        assert ids(await next_of(one, 3)) == ids(await next_of(other, 3)) == ["c0", "c1", "c2"]


async def test_followers_from_anywhere_get_what_comes_later_once_each(ports, log, subject, home):
    last = await append_all(ports, subject, 4)
    async with (
        log.follow(after=1, partition=home) as one,
        log.follow(after=3, partition=home) as other,
        log.follow(after=last, partition=home) as newest,
    ):
        assert ids(await next_of(one, 3)) == ["c1", "c2", "c3"]
        assert ids(await next_of(other, 1)) == ["c3"]
        for n in range(4, 8):
            waiting = [asyncio.create_task(next_of(each, 1)) for each in (one, other, newest)]
            last = await append_all(ports, subject, 1, begin=n, after=last)
            assert [ids(await each) for each in waiting] == [[f"c{n}"]] * 3
            assert [each.pending for each in (one, other, newest)] == [0, 0, 0]


async def test_a_follower_that_closes_takes_nothing_from_another(ports, log, subject, home):
    last = await append_all(ports, subject, 2)
    async with log.follow(partition=home) as one:
        async with log.follow(partition=home) as other:
            for _ in range(2):
                assert ids(await next_of(one, 1)) == ids(await next_of(other, 1))
        await append_all(ports, subject, 2, begin=2, after=last)
        assert ids(await next_of(one, 2)) == ["c2", "c3"]


async def test_a_follower_that_rests_holds_no_other_up_and_misses_nothing(
    ports, plain_ports, log, subject, home
):
    """More than may wait for it: here it returns to what it has not seen yet by itself."""
    last = await append_all(ports, subject, 2)
    async with log.follow(partition=home) as slow, log.follow(partition=home) as quick:
        for _ in range(2):
            assert ids(await next_of(slow, 1)) == ids(await next_of(quick, 1))
        reading = asyncio.create_task(next_of(quick, 2_500))
        last = await append_all(plain_ports, subject, 2_500, begin=2, after=last)
        assert ids(await reading) == [f"c{n}" for n in range(2, 2_502)]
        assert ids(await next_of(slow, 2_500)) == [f"c{n}" for n in range(2, 2_502)]
        await append_all(ports, subject, 1, begin=2_502, after=last)
        assert ids(await next_of(slow, 1)) == ids(await next_of(quick, 1)) == ["c2502"]


async def pages(log, stream, *, after, up_to, most, partition):
    found = []
    while page := await log.page(stream, after=after, up_to=up_to, most=most, partition=partition):
        assert 1 <= len(page) <= most
        found += page
        after = page[-1].seq
    return found


async def test_pages_have_every_commit_of_a_partition_once_and_in_order(
    ports, log, subject, home, neighbour
):
    await append_all(ports, subject, 5)
    await append_all(ports, neighbour, 4, begin=5)
    found = await pages(log, Stream.JOURNAL, after=START, up_to=9, most=2, partition=home)
    assert ids(found) == [f"c{n}" for n in range(9)]
    assert [record.seq for record in found] == list(range(1, 10))
    assert {record.subject for record in found} == {subject, neighbour}


async def test_pages_begin_just_past_a_position_and_end_with_the_last_asked_for(
    ports, log, subject, home
):
    await append_all(ports, subject, 6)
    found = await pages(log, Stream.JOURNAL, after=2, up_to=4, most=10, partition=home)
    assert [record.seq for record in found] == [3, 4]


async def test_a_whole_log_begins_with_the_first_sequence(ports, log, subject, home):
    assert await log.first_seq(Stream.JOURNAL, partition=home) == 1
    await append_all(ports, subject, 2)
    assert await log.first_seq(Stream.JOURNAL, partition=home) == 1


async def test_past_the_newest_commit_there_is_no_page(ports, log, subject, home):
    await append_all(ports, subject, 2)
    for after in (2, 7):
        assert (
            list(await log.page(Stream.JOURNAL, after=after, up_to=9, most=10, partition=home))
            == []
        )


async def test_bytes_that_are_no_commit_are_reported_with_their_place(log, subject, publish_raw):
    await publish_raw(subject, b"what?", {})
    with pytest.raises(UnreadableEvent) as read:
        await log.read(subject)
    assert (read.value.subject, read.value.seq) == (subject, 1)
    with pytest.raises(UnreadableEvent):
        await log.last(subject)


async def test_a_follower_stays_before_a_commit_it_cannot_read(log, subject, publish_raw, home):
    await log.append(subject, commit("c1"), after=START)
    await publish_raw(subject, b"what?", {})
    async with log.follow(partition=home) as follower:
        assert ids(await follower.receive(most=10, wait_s=WAIT_S)) == ["c1"]
        for _ in range(2):
            with pytest.raises(UnreadableEvent) as stuck:
                await follower.receive(most=10, wait_s=WAIT_S)
            assert stuck.value.seq == 2


async def test_every_follower_stays_before_a_commit_it_cannot_read(log, subject, publish_raw, home):
    await log.append(subject, commit("c1"), after=START)
    async with log.follow(partition=home) as one, log.follow(partition=home) as other:
        assert ids(await next_of(one, 1)) == ids(await next_of(other, 1)) == ["c1"]
        await publish_raw(subject, b"what?", {})
        for follower in (one, other, one):
            with pytest.raises(UnreadableEvent):
                await follower.receive(most=10, wait_s=WAIT_S)
