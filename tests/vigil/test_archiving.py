"""A node archives the journal once a day, as long as the log says how long that is kept."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from engine.archive.run import KnownRows
from engine.orders.store import give_order
from engine.retention.store import declare
from engine.retention.worker import run_steps
from streams.archive.archive import Archive
from streams.archive.folder import FolderArchive
from streams.clock import SystemClock
from streams.jetstream import LinkSettings
from streams.memory import memory_ports
from streams.model.events import HoldAdded
from streams.model.retention import HoldKind, Retention
from streams.ports.log import Commit
from streams.subjects import Stack
from tests.engine.reactor import journals as given
from tests.followed import note_followed
from tests.spec import EPOCH
from vigil import settings
from vigil.archiving.settings import ArchiveSpec
from vigil.archiving.step import EVERY_S, ArchiveJournal

DAY_S = 86_400


class MovedClock(SystemClock):
    """Shows a time that the test moves."""

    at = EPOCH + timedelta(days=400)

    def now(self):
        return self.at

    def move(self, seconds):
        self.at += timedelta(seconds=seconds)


@pytest.fixture
def clock():
    return MovedClock()


@pytest.fixture
async def ports(clock):
    """A stack of which one episode began and ended."""
    ports = memory_ports(stack=Stack("s"), clock=clock)
    await live(ports, "e1", clock)
    await note_followed(ports)
    return ports


async def live(ports, name, clock):
    version = 0
    opened = replace(given.OPENED, episode_id=name)
    for number, event in enumerate((opened, given.STARTED, given.FINISHED)):
        commit = Commit(id=f"{name}.{number}", at=clock.now(), events=(event,))
        version = await ports.log.append(ports.stack.episode(name), commit, after=version)


@pytest.fixture
def archives(tmp_path):
    async def rows():
        return KnownRows()

    spec = ArchiveSpec(store=str(tmp_path / "archive"))
    return ArchiveJournal(settings.read({}, folder=tmp_path), spec, LinkSettings(), rows)


async def report_of(ports, clock, step):
    report = await run_steps(ports, by="n1", clock=clock, check=lambda: None, steps=[step])
    (told,) = report.steps
    return told


async def keep(ports, clock, **kept):
    await declare(ports, node="n1", stack=Retention(**kept), actors={}, clock=clock)


async def test_a_journal_that_nobody_gave_a_time_is_kept(ports, clock, archives):
    clock.move(400 * DAY_S)
    told = await report_of(ports, clock, archives)
    assert (told.says, told.gone) == ("kept for ever", {})


async def test_a_journal_without_an_archive_is_kept_and_that_is_told(ports, clock, archives):
    await keep(ports, clock, journal="10d")
    nowhere = ArchiveJournal(archives.config, None, archives.link, archives.rows)
    assert "no archive is named" in (await report_of(ports, clock, nowhere)).problem


async def test_what_ended_before_that_time_is_archived_and_goes(ports, clock, archives):
    await keep(ports, clock, journal="10d")
    clock.move(9 * DAY_S)
    assert (await report_of(ports, clock, archives)).gone == {"messages": 0}
    clock.move(2 * DAY_S)
    told = await report_of(ports, clock, archives)
    assert (told.gone, told.says, told.problem) == ({"messages": 3}, "3 messages archived", "")
    archive = Archive(FolderArchive(_path(archives)), ports.stack)
    assert len(await archive.names()) == 1


def _path(archives):
    return Path(archives.spec.store)


async def test_it_is_done_once_a_day(ports, clock, archives):
    await keep(ports, clock, journal="1d")
    clock.move(2 * DAY_S)
    assert (await report_of(ports, clock, archives)).gone == {"messages": 3}
    await live(ports, "e2", clock)
    clock.move(EVERY_S - 1)
    assert (await report_of(ports, clock, archives)).gone == {}
    clock.move(2 * DAY_S)
    assert (await report_of(ports, clock, archives)).gone == {"messages": 3}


async def test_an_episode_that_is_held_stays(ports, clock, archives):
    await keep(ports, clock, journal="1d")
    held = HoldAdded(kind=HoldKind.EPISODE, held="e1", by="ann", reason="law")
    await give_order(ports, held, clock=clock)
    clock.move(2 * DAY_S)
    told = await report_of(ports, clock, archives)
    assert told.gone == {"messages": 0}
    assert told.held == {"journal: kept by a person: episode.e1": 3}


async def test_an_archive_that_is_away_is_a_problem_of_this_step_alone(ports, clock, archives):
    await keep(ports, clock, journal="1d")
    clock.move(2 * DAY_S)
    _path(archives).write_text("not a folder")
    assert "Not a directory" in (await report_of(ports, clock, archives)).problem
