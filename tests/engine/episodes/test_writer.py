"""How one episode's journal is written."""

from __future__ import annotations

import asyncio

import pytest

from engine.episodes.attempt import AttemptState
from engine.episodes.episode import Begin, FailEpisode, Performed, fold
from engine.episodes.writer import EVENTS_PER_COMMIT_MAX, JournalWriter
from engine.errors import Rejected
from streams.errors import TooLarge, Unavailable, UnknownOutcome, VersionConflict
from streams.json import raw
from streams.model.events import EpisodeOpened, EpisodeStarted, StepKind, StepRecorded
from tests.engine.crew import attempt_of
from tests.engine.stage import CLOCK, STARTED, Scripted, app_of, life, opening, write

begin = Begin(node="n1", claim_revision=1)


def step(data: object = 1) -> Performed:
    return Performed(kind=StepKind.OBSERVATION, fingerprint="f", result=raw(data))


async def turned() -> None:
    """Let whatever was begun get under way."""
    for _ in range(3):
        await asyncio.sleep(0)


async def ended(task: asyncio.Task) -> None:
    """Return in the very turn of the loop in which a task ends, before whoever awaits it."""
    for _ in range(100):
        if task.done():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never ends")


class HeldLog:
    """A log that lets an append happen only when told, and counts those in flight."""

    def __init__(self, log):
        self._log = log
        self.open = asyncio.Event()
        self.in_flight = self.in_flight_most = 0
        self.fails_with: Exception | None = None
        self.failures_left = 1_000
        self.stores_before = False
        """Whether what is appended is stored before it waits: then its answer alone is late."""

    async def append(self, subject, commit, *, after):
        self.in_flight += 1
        self.in_flight_most = max(self.in_flight_most, self.in_flight)
        try:
            if self.stores_before and not self.open.is_set():
                await self._log.append(subject, commit, after=after)
            await self.open.wait()
            if self.fails_with and self.failures_left:
                self.failures_left -= 1
                raise self.fails_with
            return await self._log.append(subject, commit, after=after)
        finally:
            self.in_flight -= 1

    async def last(self, subject):
        return await self._log.last(subject)


class Pending:
    """A claim that the server does not answer."""

    held = None

    def cover(self):
        return False

    async def make(self):
        await asyncio.Event().wait()


@pytest.fixture
def held(ports):
    return HeldLog(ports.log)


@pytest.fixture
def attempt():
    return attempt_of(opening(app_of(Scripted())))


@pytest.fixture
async def journal(ports, held, attempt):
    """A scribe of an episode that has been opened."""
    opened = attempt.opened
    await write(ports, opened.episode_id, opened)
    so_far = await life(ports, opened.episode_id)
    journal = JournalWriter(
        held,
        CLOCK,
        subject=ports.stack.episode(opened.episode_id),
        episode=so_far.episode,
        version=so_far.records[-1].seq,
        writer_id="r1",
        attempt=attempt,
    )
    yield journal
    await journal.close()


async def commits(ports, journal) -> list[list[type]]:
    records = await ports.log.read(journal._subject)
    return [[type(event) for event in record.commit.events] for record in records]


async def test_what_is_recorded_while_an_append_is_in_flight_rides_in_the_next_commit(
    ports, held, journal
):
    journal.record(begin)
    await turned()
    for _ in range(5):
        journal.record(step())
    held.open.set()
    await journal.barrier()

    assert await commits(ports, journal) == [[EpisodeOpened], [EpisodeStarted], [StepRecorded] * 5]


async def test_two_that_wait_at_once_do_not_write_over_each_other(ports, held, journal):
    async def recorded(command) -> None:
        journal.record(command)
        await journal.barrier()

    first = asyncio.create_task(recorded(begin))
    await turned()
    second = asyncio.create_task(recorded(step()))
    await turned()
    held.open.set()
    await asyncio.gather(first, second)
    assert held.in_flight_most == 1
    assert await commits(ports, journal) == [[EpisodeOpened], [EpisodeStarted], [StepRecorded]]


async def test_what_nobody_writes_yet_is_written_by_whoever_waits_for_it(held, attempt, journal):
    held.open.set()
    before = asyncio.all_tasks()
    journal.record(begin)
    await journal.barrier()
    assert attempt.state is AttemptState.FENCED
    assert asyncio.all_tasks() == before


async def test_what_is_recorded_together_is_one_commit(ports, held, journal):
    held.open.set()
    journal.record(begin, step(), step())
    await journal.barrier()

    assert await commits(ports, journal) == [
        [EpisodeOpened],
        [EpisodeStarted, StepRecorded, StepRecorded],
    ]


async def test_a_barrier_waits_until_all_is_durable(ports, held, journal):
    journal.record(begin)
    waiting = asyncio.create_task(journal.barrier())
    await turned()
    assert not waiting.done()
    assert await commits(ports, journal) == [[EpisodeOpened]]

    held.open.set()
    await waiting
    assert await commits(ports, journal) == [[EpisodeOpened], [EpisodeStarted]]


async def test_a_barrier_with_nothing_recorded_waits_for_nothing(journal):
    await journal.barrier()


async def test_one_append_is_in_flight_at_a_time(held, journal):
    journal.record(begin)
    for _ in range(20):
        journal.record(step())
        await turned()
    held.open.set()
    await journal.barrier()

    assert held.in_flight_most == 1


async def test_every_commit_has_an_id_of_its_own_that_names_the_claim(ports, held, journal):
    held.open.set()
    for command in (begin, step(), step()):
        journal.record(command)
        await journal.barrier()

    records = await ports.log.read(journal._subject)
    assert [record.commit.id for record in records[1:]] == ["r1-1", "r1-2", "r1-3"]


async def test_a_refused_append_stops_the_episode_at_the_next_record(ports, held, journal):
    held.open.set()
    journal.record(begin)
    await write(ports, journal.episode.opened.episode_id, EpisodeStarted(
        node="rival", attempt=1, claim_revision=2
    ))  # fmt: skip
    await turned()

    with pytest.raises(VersionConflict):
        journal.record(step())
    assert await commits(ports, journal) == [[EpisodeOpened], [EpisodeStarted]]


@pytest.mark.parametrize("error", [VersionConflict("s", expected=1), Unavailable("s", detail="")])
async def test_a_barrier_says_why_something_is_not_durable(held, journal, error):
    held.fails_with = error
    held.open.set()
    journal.record(begin)
    with pytest.raises(type(error)):
        await journal.barrier()


async def test_after_an_append_that_failed_nothing_is_written(ports, held, journal):
    """It may have happened, and two branches of a function may wait at the same time."""

    async def recorded(command) -> None:
        journal.record(command)
        await journal.barrier()

    first = asyncio.create_task(recorded(begin))
    await turned()
    second = asyncio.create_task(recorded(step()))
    await turned()
    held.fails_with, held.failures_left = Unavailable("s", detail=""), 1
    held.open.set()
    with pytest.raises(Unavailable):
        await first
    with pytest.raises(Unavailable):
        await second
    assert await commits(ports, journal) == [[EpisodeOpened]]


@pytest.mark.parametrize("arrives", [False, True])
async def test_an_append_that_was_canceled_is_sent_again_first(ports, held, journal, arrives):
    """A timeout of a function cuts a call off; whether its commit is stored nobody knows."""

    async def recorded(command) -> None:
        journal.record(command)
        await journal.barrier()

    held.stores_before = arrives
    first = asyncio.create_task(recorded(begin))
    await turned()
    second = asyncio.create_task(recorded(step()))
    await turned()
    first.cancel()
    held.open.set()
    await second
    await journal.barrier()

    assert await commits(ports, journal) == [[EpisodeOpened], [EpisodeStarted], [StepRecorded]]


async def test_an_append_that_was_canceled_is_refused_if_another_node_came_first(
    ports, held, journal
):
    journal.record(begin)
    first = asyncio.create_task(journal.barrier())
    await turned()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await write(ports, opening(app_of(Scripted())).episode_id, STARTED)
    held.open.set()

    with pytest.raises(VersionConflict):
        await journal.barrier()
    assert await commits(ports, journal) == [[EpisodeOpened], [EpisodeStarted]]


async def test_after_a_claim_that_was_canceled_while_it_was_made_nothing_is_written(ports, held):
    """Whether the node has it nobody knows."""
    opened = opening(app_of(Scripted()))
    journal = JournalWriter(
        held,
        CLOCK,
        subject=ports.stack.episode(opened.episode_id),
        episode=fold(()),
        version=0,
        writer_id="r1",
        attempt=attempt_of(opened, claim=Pending()),
    )

    async def write_first() -> None:
        journal.record(opened)
        await journal.barrier()

    first = asyncio.create_task(write_first())
    await turned()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)

    with pytest.raises(UnknownOutcome):
        await journal.barrier()
    assert await commits(ports, journal) == []


async def test_many_events_are_split_into_commits_of_a_bounded_number(ports, held, journal):
    held.open.set()
    journal.record(begin, *(step() for _ in range(2 * EVENTS_PER_COMMIT_MAX)))
    await journal.barrier()

    sizes = [len(kinds) for kinds in await commits(ports, journal)]
    assert sizes == [1, EVENTS_PER_COMMIT_MAX, EVENTS_PER_COMMIT_MAX, 1]


async def test_a_commit_too_large_for_one_message_is_split(ports, held, journal):
    held.open.set()
    journal.record(begin, *(step("x" * 200_000) for _ in range(9)))
    await journal.barrier()

    kinds = await commits(ports, journal)
    assert [kind for commit in kinds for kind in commit] == [
        EpisodeOpened,
        EpisodeStarted,
        *[StepRecorded] * 9,
    ]


async def test_one_event_too_large_for_a_message_is_refused(held, journal):
    held.open.set()
    journal.record(begin, step("x" * 2_000_000))
    with pytest.raises(TooLarge):
        await journal.barrier()


async def test_the_journal_folds_to_what_the_scribe_knows_but_for_moments(ports, held, journal):
    held.open.set()
    journal.record(begin, step(), step(), FailEpisode(error_class="x"))
    await journal.barrier()

    folded = fold(await ports.log.read(journal._subject))
    assert folded.status is journal.episode.status
    assert folded.traces == journal.episode.traces
    assert folded.finished == journal.episode.finished
    assert folded.wall_used_s == pytest.approx(journal.episode.wall_used_s, abs=0.1)


async def test_what_does_not_fit_the_state_is_rejected_and_not_written(ports, held, journal):
    held.open.set()
    with pytest.raises(Rejected, match="Performed while queued"):
        journal.record(step())
    await journal.barrier()
    assert await commits(ports, journal) == [[EpisodeOpened]]


async def test_a_closed_scribe_writes_no_more(ports, held, journal):
    journal.record(begin)
    await journal.close()
    held.open.set()
    await turned()
    assert await commits(ports, journal) == [[EpisodeOpened]]


async def test_a_closed_scribe_leaves_no_write_that_began_as_others_were_told_of_the_last(
    ports, held, journal
):
    """A branch may record more between the end of a write and the turn of who waits for it."""
    journal.record(begin)
    await turned()
    waits = asyncio.create_task(journal.barrier())
    held.open.set()
    await ended(journal._writing)
    held.open.clear()
    journal.record(step())
    await waits
    await turned()
    assert held.in_flight == 1
    await journal.close()
    assert held.in_flight == 0
    assert await commits(ports, journal) == [[EpisodeOpened], [EpisodeStarted]]


async def test_what_is_stored_and_not_yet_answered_is_no_other_owners(ports, held, journal):
    """A branch may look at the journal while another one's append is under way."""
    held.stores_before = True
    journal.record(begin)
    await turned()

    newest = await ports.log.last(journal._subject)
    assert newest.seq > journal.version
    journal.check_newest(newest)


async def test_what_another_writer_has_stored_is_another_owners(ports, held, journal):
    held.open.set()
    journal.record(begin)
    await journal.barrier()
    journal.check_newest(await ports.log.last(journal._subject))

    await write(ports, journal.episode.opened.episode_id, STARTED)
    with pytest.raises(VersionConflict):
        journal.check_newest(await ports.log.last(journal._subject))
    with pytest.raises(VersionConflict):
        journal.check_newest(None)
