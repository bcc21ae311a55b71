"""A journal of three copies is archived and purged while others append to it, and a server dies."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from engine.archive import purge
from engine.archive.run import ArchivePlan, KnownRows, archive_once
from streams.archive.archive import Archive
from streams.archive.folder import FolderArchive
from streams.archive.history import with_history
from streams.archive.segment import SegmentLimits
from streams.clock import SystemClock
from streams.errors import StreamError
from streams.jetstream import LinkSettings, connect
from streams.layout import Stream
from streams.ports.all import Ports
from streams.ports.log import Commit
from streams.subjects import Stack
from tests.cluster.replicas import End, differences, read
from tests.cluster.three import Three
from tests.engine.reactor import journals as given
from tests.followed import note_followed

pytestmark = pytest.mark.nightly

EPISODES = 300
RUNS = 4
CLOCK = SystemClock()
PLAN = ArchivePlan(hot_s=0, limits=SegmentLimits(messages_max=200))


async def lived(ports: Ports, first: int) -> None:
    async def live(number: int) -> None:
        subject, version = ports.stack.episode(f"e{number}"), 0
        opened = replace(given.OPENED, episode_id=f"e{number}")
        for nth, event in enumerate((opened, given.STARTED, given.FINISHED)):
            commit = Commit(id=f"e{number}.{nth}", at=datetime.now(UTC), events=(event,))
            version = await ports.log.append(subject, commit, after=version)

    for begin in range(first, first + EPISODES, 50):
        await asyncio.gather(*(live(number) for number in range(begin, begin + 50)))


async def archived(ports: Ports, archive: Archive) -> int:
    """Archive, again and again until it was not interrupted; return where the journal begins."""
    while True:
        try:
            report = await archive_once(
                ports, archive, PLAN, rows=KnownRows(), node="n1", clock=CLOCK
            )
        except StreamError:
            report = None
        if report is not None:
            return report.parts[0].floor.seq
        await CLOCK.sleep(0.5)


async def round_of(ports: Ports, archive: Archive, number: int, three: Three, *, kills: bool):
    """Archive what has ended while others live, and perhaps kill the leader meanwhile."""
    await lived(ports, number * EPISODES)
    if number == RUNS - 1:  # From here on something stays.
        opened = Commit(id="open", at=datetime.now(UTC), events=(given.OPENED,))
        await ports.log.append(ports.stack.episode("open"), opened, after=0)
    working = asyncio.create_task(archived(ports, archive))
    beside = asyncio.create_task(lived(ports, (RUNS + number) * EPISODES))
    if kills:
        leader = await three.leader_of(ports.stack.stream(Stream.JOURNAL))
        leader.kill()
        await CLOCK.sleep(2)
        leader.restart()
    await asyncio.gather(working, beside)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kills", [False, True])
async def test_a_purge_leaves_all_copies_alike(
    three: Three, stack: Stack, tmp_path: Path, monkeypatch, kills: bool
):
    monkeypatch.setattr(purge, "SLICE_MIN", 100)
    monkeypatch.setattr(purge, "PAUSE_S", 0.05)
    async with connect(three.url, stack=stack, settings=LinkSettings(replicas=3)) as ports:
        archive = Archive(FolderArchive(tmp_path / "archive"), stack)
        await note_followed(ports)
        for number in range(RUNS):
            await round_of(ports, archive, number, three, kills=kills and number == 1)
        floor = await archived(ports, archive)
        state = await ports.states.of("journal")
        ids = await followed(ports, archive)
        (open_one,) = await ports.log.read(stack.episode("open"))
        await wait_alike(three, stack)
    assert state.first_seq == floor == open_one.seq
    expected = [f"e{n}.{nth}" for n in range(2 * RUNS * EPISODES) for nth in range(3)]
    assert sorted(ids) == sorted([*expected, "open"])
    assert await unequal(three, stack, tmp_path) == []


async def followed(ports: Ports, archive: Archive) -> list[str]:
    """Return the ids of all commits that the archive and the journal have."""

    async def find() -> Archive:
        return archive

    ids = []
    async with with_history(ports, find).log.follow(Stream.JOURNAL) as follower:
        while records := await follower.receive(most=500, wait_s=2):
            ids += [each.commit.id for each in records]
    return ids


async def wait_alike(three: Three, stack: Stack) -> None:
    """Wait until the copies have all that their leader has."""
    async with asyncio.timeout(30):
        while True:
            cluster = (await three.stream(stack.stream(Stream.JOURNAL))).cluster
            if cluster is not None and all(
                each.current and not each.lag for each in cluster.replicas
            ):
                return
            await asyncio.sleep(0.2)


async def unequal(three: Three, stack: Stack, scratch: Path) -> Sequence[str]:
    """Stop the servers, and return what differs between their copies of the journal."""
    begun = datetime.now(UTC)
    for server in three.servers.values():
        server.stop()
    end = End.between(begun, datetime.now(UTC))
    streams = [stack.stream(Stream.JOURNAL)]
    replicas = {
        name: await read(server._directory / "store", streams, scratch / "alone" / name)
        for name, server in three.servers.items()
    }
    assert all(replica[streams[0]] for replica in replicas.values())
    return list(differences(replicas, end))
