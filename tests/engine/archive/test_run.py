"""A run of the archive: what it writes, what it purges, and what keeps it from that."""

from __future__ import annotations

import asyncio
from dataclasses import replace as but

import msgspec
import pytest
from msgspec.structs import replace

from engine.archive.floor import FloorHold
from engine.archive.purge import PurgeReport, purge
from engine.archive.run import archive_once, last_report
from engine.orders.store import give_order
from engine.retention.keep_results import ResultsNote
from engine.retention.rules import RetentionHolds
from streams.errors import DamagedSegment, LeaseLost, OtherArchive, UnknownOutcome, UnreadableEvent
from streams.keys import ARCHIVE_CLAIM, KEPT_RESULTS, STREAMS
from streams.layout import Kind, Stream
from streams.model.events import RetentionDeclared, StoredResult
from streams.model.losses import KnownPast, read_notes, what_is_lost
from streams.model.retention import HoldKind
from streams.subjects import Stack
from tests.engine.archive.stage import Stage, play
from tests.engine.reactor import journals as given


def staged(scene, **how):
    """Return what the coroutine function `scene` makes of a new stage, on virtual time."""
    return play(scene(Stage(**how)))


def test_what_ended_long_ago_is_archived_and_leaves_the_journal():
    async def scene(stage: Stage):
        await stage.live("a", "b", "c")
        await stage.later()
        part = await stage.one()
        return part, await stage.first_seq(), await stage.ports.log.read(stage.stack.episode("a"))

    part, first_seq, left = staged(scene)
    assert (part.messages, part.segments, part.archived) == (9, 2, 9)
    assert part.floor.seq == first_seq == 10
    assert part.purged.messages == 9
    assert left == []


def test_what_is_young_stays():
    async def scene(stage: Stage):
        await stage.live("a")
        await stage.later()
        await stage.live("b")
        part = await stage.one()
        return part, await stage.first_seq()

    part, first_seq = staged(scene)
    assert (part.messages, first_seq) == (3, 4)
    assert part.floor.hold is FloorHold.AGE


def test_an_open_episode_keeps_all_that_came_after_it():
    async def scene(stage: Stage):
        await stage.live("a")
        await stage.open("slow")
        await stage.live("b")
        await stage.later()
        part = await stage.one()
        return part, await stage.first_seq()

    part, first_seq = staged(scene)
    assert (part.archived, first_seq) == (7, 4)
    assert (part.floor.hold, part.floor.about) == (FloorHold.OPEN, "s.episode.slow")


def test_an_episode_that_ended_lately_counts_as_open():
    async def scene(stage: Stage):
        await stage.open("slow")
        await stage.live("b")
        await stage.later()
        await stage.end("slow")
        await stage.run()
        held = await stage.first_seq()
        await stage.later()
        await stage.run()
        return held, await stage.first_seq()

    assert staged(scene) == (1, 6)


def test_a_second_run_goes_on_where_the_first_ended():
    async def scene(stage: Stage):
        await stage.live("a", "b", "c")
        await stage.later()
        await stage.run()
        await stage.live("d")
        await stage.later()
        await stage.react()
        part = await stage.one()
        names = await stage.archive.names()
        manifests = [await stage.archive.verify(each) for each in names]
        return part, [(each.follows, each.first_seq, each.last_seq) for each in manifests]

    part, ranges = staged(scene)
    assert (part.messages, part.archived) == (3, 12)
    assert ranges == [(0, 1, 7), (7, 8, 9), (9, 10, 12)]


def test_nothing_new_is_nothing_done():
    async def scene(stage: Stage):
        await stage.live("a")
        await stage.later()
        await stage.run()
        return await stage.one(), len(stage.store.files)

    part, files = staged(scene)
    assert (part.messages, part.segments, part.purged, files) == (0, 0, PurgeReport(), 1)


@pytest.mark.parametrize(
    ("rows", "hold", "first_seq"),
    [
        ({"journal": 2}, FloorHold.ROWS, 3),
        ({"journal-0of2": 9}, FloorHold.ROWS, 1),
        (None, FloorHold.ROWS, 1),
    ],
)
def test_rows_that_lag_or_are_away_hold_the_floor(rows, hold, first_seq):
    async def scene(stage: Stage):
        await stage.live("a", "b")
        await stage.later()
        return await stage.one(), await stage.first_seq()

    part, begins = staged(scene, rows=rows)
    assert (part.archived, part.floor.hold, begins) == (6, hold, first_seq)


@pytest.mark.parametrize("position", [0, 2, 4, 5])
def test_while_a_reactor_lags_nothing_goes_as_it_may_need_the_beginning_of_an_episode(position):
    async def scene(stage: Stage):
        await stage.live("a", "b")
        await stage.later()
        await stage.react(up_to=position)
        return await stage.one(), await stage.first_seq()

    part, begins = staged(scene)
    assert (part.floor.hold, begins) == (FloorHold.REACTOR, 1)


def test_a_reactor_that_lags_behind_what_is_young_holds_nothing():
    async def scene(stage: Stage):
        await stage.live("a")
        await stage.react()
        await stage.later()
        await stage.live("b")
        return await stage.one(), await stage.first_seq()

    part, begins = staged(scene)
    assert (part.floor.hold, begins) == (FloorHold.AGE, 4)


@pytest.mark.parametrize(("hours", "first_seq"), [(11.0, 1), (1.0, 7)])
def test_a_reactor_of_findings_that_lags_holds_the_episodes_that_have_caused_them(hours, first_seq):
    async def scene(stage: Stage):
        await stage.live("a", "b")
        await stage.react()
        await stage.later(11.0 - hours)
        await stage.append(stage.stack.finding("disk"), given.RAISED)
        await stage.later(hours)
        return await stage.one(), await stage.first_seq()

    _, begins = staged(scene)
    assert begins == first_seq


def test_which_large_results_stay_is_noted_before_their_episodes_leave_the_journal():
    async def scene(stage: Stage):
        kept = RetentionDeclared(kept_s={"results": 10**7}, by="n1")
        await give_order(stage.ports, kept, clock=stage.clock)
        digest = await stage.ports.objects.put(b"large")
        stored = StoredResult(digest=digest, size_bytes=5)
        await stage.open("a")
        await stage.append(stage.stack.episode("a"), replace(given.STEP, stored=stored))
        await stage.end("a")
        await stage.later()
        part = await stage.one()
        entry = await stage.ports.gates.get(KEPT_RESULTS)
        assert entry is not None
        noted = msgspec.json.decode(entry.value, type=ResultsNote)
        return part.purged.messages, len(noted.days), noted.read["journal"].seq

    assert staged(scene) == (3, 1, 3)


def test_what_a_person_wants_kept_stays():
    async def scene(stage: Stage):
        await stage.live("a")
        await stage.live("b")
        await stage.later()
        part = await stage.one(holds=holding((HoldKind.EPISODE, "b"), (HoldKind.EPISODE, "none")))
        return part, await stage.first_seq()

    part, first_seq = staged(scene)
    assert (part.floor.hold, part.floor.about, first_seq) == (FloorHold.LEGAL, "s.episode.b", 4)


def holding(*held: tuple[HoldKind, str]) -> RetentionHolds:
    return RetentionHolds(frozenset(held))


ABOUT_WEB = replace(given.OPENED.trigger, entity_id="web-1")


@pytest.mark.parametrize(
    "held", [(HoldKind.ACTOR, "watched"), (HoldKind.SUBJECT, "web-1"), (HoldKind.EPISODE, "b")]
)
def test_whatever_is_held_keeps_the_journal_from_its_beginning_on(held):
    async def scene(stage: Stage):
        await stage.live("a")
        opened = replace(given.OPENED, episode_id="b", actor_id="watched", trigger=ABOUT_WEB)
        await stage.append(stage.stack.episode("b"), opened)
        await stage.end("b")
        await stage.live("c")
        await stage.later()
        part = await stage.one(holds=holding(held))
        await stage.run(holds=holding((HoldKind.ACTOR, "other")))
        return part, await stage.first_seq()

    part, first_seq = staged(scene)
    assert (part.floor.hold, part.floor.about) == (FloorHold.LEGAL, "s.episode.b")
    assert (part.floor.seq, first_seq) == (4, 9)


def test_what_came_of_a_held_subject_stays_in_other_partitions():
    stack = Stack("s", partitions=2)
    home = stack.partition_of(Kind.EPISODE, "b")
    keys = (f"o{number}" for number in range(9))
    key = next(each for each in keys if stack.partition_of(Kind.OUTPUT, each) != home)

    async def scene(stage: Stage):
        opened = replace(given.OPENED, episode_id="b", trigger=ABOUT_WEB)
        await stage.append(stage.stack.episode("b"), opened)
        await stage.output(key, given.PROPOSED)
        await stage.output(key, given.DELIVERED)
        await stage.end("b")
        await stage.later()
        await stage.run(holds=holding((HoldKind.SUBJECT, "web-1")))
        held = await stage.first_seq(1 - home)
        await stage.run()
        return held, await stage.first_seq(1 - home)

    assert staged(scene, stack=stack) == (1, 3)


def test_an_output_that_was_retried_after_a_long_time_stays():
    async def scene(stage: Stage):
        await stage.output("o1", given.PROPOSED)
        await stage.output("o1", given.FAILED)
        await stage.live("a")
        await stage.later()
        await stage.output("o1", given.RETRIED)
        part = await stage.one()
        return part, await stage.first_seq()

    part, first_seq = staged(scene)
    assert (part.floor.hold, part.floor.about, first_seq) == (FloorHold.OPEN, "s.output.o1", 1)


def test_an_output_that_failed_for_good_does_not_stay():
    async def scene(stage: Stage):
        await stage.output("o1", given.PROPOSED)
        await stage.output("o1", given.FAILED)
        await stage.later()
        await stage.run()
        return await stage.first_seq()

    assert staged(scene) == 3


def test_an_open_episode_of_another_partition_keeps_what_came_after_it():
    """A parent may ask for its child, which lives elsewhere and ended long ago."""
    stack = Stack("s", partitions=2)
    home = {0: [], 1: []}
    for name in (f"e{number}" for number in range(40)):
        home[stack.partition_of(Kind.EPISODE, name)].append(name)

    async def scene(stage: Stage):
        await stage.live(*home[1][:5])
        await stage.later(1)
        await stage.open(home[0][0])
        await stage.later(1)
        await stage.live(*home[1][5:10])
        await stage.later()
        report = await stage.run()
        return report.parts[1].floor, await stage.first_seq(1)

    floor, first_seq = staged(scene, stack=stack)
    assert floor.hold is FloorHold.ELSEWHERE
    assert 10 < first_seq <= 16


def test_the_floor_is_noted_before_anything_goes():
    async def scene(stage: Stage):
        await stage.live("a")
        await stage.later()
        await stage.run()
        state = await stage.ports.states.of("journal")
        losses = []
        for bucket in (stage.ports.registry, stage.ports.gates):
            entry = await bucket.get(STREAMS)
            noted = read_notes(entry.value, entry.value)["journal"]
            losses.append((what_is_lost("journal", noted, state), noted.archived))
        return losses, what_is_lost("journal", KnownPast(), state) is not None

    losses, would_be_lost = staged(scene)
    assert losses == [(None, 3), (None, 3)]
    assert would_be_lost


def test_a_dry_run_says_what_it_would_do_and_does_nothing():
    async def scene(stage: Stage):
        await stage.live("a", "b", "c")
        await stage.later()
        part = await stage.one(is_dry=True)
        return part, len(stage.store.files), await stage.first_seq(), await last_report(stage.ports)

    part, files, first_seq, report = staged(scene)
    assert (part.messages, part.segments, part.floor.seq) == (9, 2, 10)
    assert (files, first_seq, report) == (0, 1, None)


def test_it_may_archive_without_purging():
    async def scene(stage: Stage):
        await stage.live("a")
        await stage.later()
        part = await stage.one(purges=False)
        return part.archived, await stage.first_seq()

    assert staged(scene) == (3, 1)


def test_the_newest_run_can_be_looked_up():
    async def scene(stage: Stage):
        await stage.live("a")
        await stage.later()
        return await stage.run(), await last_report(stage.ports)

    report, kept = staged(scene)
    assert report == kept
    assert (kept.by, kept.address) == ("n1", "memory")


def test_only_one_process_archives():
    async def scene(stage: Stage):
        await stage.live("a")
        await stage.later()
        held = await stage.ports.leases.acquire(ARCHIVE_CLAIM, holder="n2")
        busy = await archive_once(
            stage.ports,
            stage.archive,
            stage.plan,
            rows=stage.known_rows,
            node="n1",
            clock=stage.clock,
        )
        await stage.ports.leases.complete(held)
        return busy, (await stage.one()).archived

    assert staged(scene) == (None, 3)


def test_a_segment_that_another_process_has_written_ends_the_run():
    async def scene(stage: Stage):
        await stage.live("a", "b")
        await stage.later()
        await stage.run(purges=False, limits=replace(stage.plan.limits, messages_max=2))
        (name, *others) = stage.store.files
        first = stage.store.files[name]
        for each in others:
            del stage.store.files[each]
        # As it was before that: a process that was frozen saw no segment.
        stage.archive.names = _none
        with pytest.raises(LeaseLost):
            await stage.run()
        return stage.store.files == {name: first}, await stage.first_seq()

    assert staged(scene) == (True, 1)


async def _none(*_) -> list[str]:
    return []


def test_a_segment_that_it_wrote_itself_and_never_heard_of_is_its_own():
    async def scene(stage: Stage):
        await stage.live("a")
        await stage.later()
        create = stage.store.create

        async def unheard(name: str, data: bytes) -> bool:
            await create(name, data)
            return False

        stage.store.create = unheard
        return (await stage.one()).archived, await stage.first_seq()

    assert staged(scene) == (3, 4)


def test_a_damaged_segment_keeps_the_journal_whole():
    async def scene(stage: Stage):
        await stage.live("a", "b", "c")
        await stage.later()
        await stage.run(purges=False)
        name = next(iter(stage.store.files))
        data = bytearray(stage.store.files[name])
        data[40] ^= 1
        stage.store.files[name] = bytes(data)
        with pytest.raises(DamagedSegment):
            await stage.run()
        return await stage.first_seq()

    assert staged(scene) == 1


def test_a_segment_that_is_missing_keeps_the_journal_whole():
    async def scene(stage: Stage):
        await stage.live("a", "b", "c")
        await stage.later()
        await stage.run(purges=False)
        del stage.store.files[next(iter(stage.store.files))]
        with pytest.raises(DamagedSegment, match="is missing"):
            await stage.run()
        return await stage.first_seq()

    assert staged(scene) == 1


def test_a_segment_that_is_damaged_as_it_is_written_keeps_the_journal_whole():
    async def scene(stage: Stage):
        await stage.live("a")
        await stage.later()
        create = stage.store.create

        async def damaged(name: str, data: bytes) -> bool:
            return await create(name, data[:20] + b"!" + data[21:])

        stage.store.create = damaged
        with pytest.raises(DamagedSegment):
            await stage.run()
        return await stage.first_seq()

    assert staged(scene) == 1


def test_an_archive_of_what_the_stream_has_lost_is_refused():
    async def scene(stage: Stage):
        await stage.live("a", "b")
        await stage.later()
        await stage.run(purges=False)
        stream = stage.ports.states.stream("journal")
        created = stream.created
        stream.make_anew()
        stream.created = created  # A copy was brought back that ends earlier.
        await stage.live("c")
        ends_early = await _refusal(stage)
        await stage.live("d", "e")
        return ends_early, await _refusal(stage), await stage.first_seq()

    ends_early, differs, first_seq = staged(scene)
    assert "goes up to 6, and the stream ends at 3" in ends_early
    assert "they differ at 6" in differs
    assert first_seq == 1


async def _refusal(stage: Stage) -> str:
    with pytest.raises(OtherArchive) as told:
        await stage.run()
    return str(told.value)


def test_a_stream_that_was_made_anew_has_an_archive_of_its_own():
    async def scene(stage: Stage):
        await stage.live("a")
        await stage.later()
        await stage.run()
        stage.ports.states.stream("journal").make_anew()
        await stage.live("b")
        await stage.later()
        await stage.react()
        part = await stage.one()
        folders = {name.rpartition("/")[0] for name in stage.store.files}
        return part.messages, len(folders)

    assert staged(scene) == (3, 2)


def test_what_was_lost_before_it_was_archived_is_told():
    async def scene(stage: Stage):
        await stage.live("a", "b", "c")
        await stage.later()
        await stage.run(limits=replace(stage.plan.limits, messages_max=100))
        await stage.live("d", "e")
        await stage.ports.states.purge("journal", below=13)
        await stage.later()
        await stage.react()
        return await stage.one()

    part = staged(scene)
    assert (part.missed, part.messages, part.archived) == (3, 3, 15)


def test_a_commit_that_nobody_can_read_ends_the_run_before_it():
    async def scene(stage: Stage):
        await stage.live("a")
        stage.ports.log.publish_raw(stage.stack.episode("b"), b"?", {})
        await stage.later()
        with pytest.raises(UnreadableEvent):
            await stage.run()
        return await stage.first_seq()

    assert staged(scene) == 1


class Slow:
    """The states of a stack, whose purges take long or are never answered."""

    def __init__(self, states, clock, *, takes_s=0.0, unanswered=0):
        self.states, self.clock = states, clock
        self.takes_s, self.unanswered = takes_s, unanswered
        self.asked: list[int] = []

    def __getattr__(self, name):
        return getattr(self.states, name)

    async def purge(self, part, *, below):
        self.asked.append(below)
        count = await self.states.purge(part, below=below)
        await self.clock.sleep(self.takes_s)
        if self.unanswered:
            self.unanswered -= 1
            raise UnknownOutcome("purge", detail="no answer")
        return count


def sliced(monkeypatch, **how):
    monkeypatch.setattr("engine.archive.purge.SLICE_MIN", 8)
    monkeypatch.setattr("engine.archive.purge.SLICE_LEAST", 2)

    async def scene(stage: Stage):
        await stage.live(*"abcdefghij")
        slow = Slow(stage.ports.states, stage.clock, **how)
        ports = but(stage.ports, states=slow)
        report = await purge(ports, "journal", floor=25, clock=stage.clock, check=lambda: None)
        return slow.asked, report, await stage.first_seq()

    return staged(scene)


def test_a_journal_is_purged_in_slices(monkeypatch):
    asked, report, first_seq = sliced(monkeypatch)
    assert asked == [9, 17, 25]
    assert (report.messages, report.slices, first_seq) == (24, 3, 25)


def test_a_slice_that_takes_too_long_is_followed_by_a_smaller_one(monkeypatch):
    asked, report, first_seq = sliced(monkeypatch, takes_s=1.5)
    assert asked == [9, 13, 15, 17, 19, 21, 23, 25]
    assert report.slowest_s >= 1.5
    assert first_seq == 25


def test_a_slice_without_an_answer_is_asked_for_again(monkeypatch):
    asked, _, first_seq = sliced(monkeypatch, unanswered=2)
    assert asked[:3] == [9, 9, 9]
    assert first_seq == 25


def test_a_purge_that_is_never_answered_ends(monkeypatch):
    with pytest.raises(UnknownOutcome):
        sliced(monkeypatch, unanswered=100)


def test_who_has_lost_the_lease_removes_nothing_more():
    async def scene(stage: Stage):
        await stage.live("a")

        def lost() -> None:
            raise LeaseLost(ARCHIVE_CLAIM, revision=1)

        with pytest.raises(LeaseLost):
            await purge(stage.ports, "journal", floor=3, clock=stage.clock, check=lost)
        return await stage.first_seq()

    assert staged(scene) == 1


def test_journals_are_all_that_is_archived():
    async def scene(stage: Stage):
        await stage.live("a")
        await stage.append(stage.stack.finding("disk"), given.RAISED)
        await stage.later()
        report = await stage.run()
        state = await stage.ports.states.of(stage.stack.part(Stream.STATE))
        return [part.part for part in report.parts], state.messages

    assert staged(scene) == (["journal"], 1)


def test_an_interruption_anywhere_loses_nothing_and_repeats_nothing():
    async def whole(stage: Stage):
        await stage.live(*"abcdefgh")
        await stage.later()
        await stage.run()
        return {name: len(data) for name, data in stage.store.files.items()}

    expected = staged(whole)

    async def scene(stage: Stage, turns: int):
        await stage.live(*"abcdefgh")
        await stage.later()
        await stage.react()
        running = asyncio.create_task(stage.run())
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])
        await stage.clock.sleep(60)
        await stage.run()
        found = {name: len(data) for name, data in stage.store.files.items()}
        return found, await stage.first_seq()

    for turns in range(0, 120, 3):
        found, first_seq = play(scene(Stage(), turns))
        assert (found, first_seq) == (expected, 25), turns
