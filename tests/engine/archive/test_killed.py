"""Whoever archives is killed at any moment: nothing is lost, and nothing is there twice."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

import nats as nats_client
import pytest
from msgspec.structs import replace

from streams.archive.archive import Archive
from streams.archive.folder import FolderArchive
from streams.archive.history import with_history
from streams.jetstream import LinkSettings, connect
from streams.jetstream.archive.store import jetstream_archive
from streams.layout import Kind, Stream
from streams.ports.all import Ports
from streams.ports.log import Commit
from tests.engine.archive.victim import LEASE_S
from tests.engine.reactor import journals as given
from tests.followed import note_followed
from tests.s3_server import BUCKET, KEYS, s3_archive, s3_endpoint
from tests.simulation.time import EPOCH
from tests.size import size
from tests.tidy.test_tidy import ROOT

KILLS = size("archived", short=5, full=30)
EPISODES = 60
"""That begin and end before each kill."""


async def lived(ports: Ports, first: int) -> None:
    for number in range(first, first + EPISODES):
        subject, version = ports.stack.episode(f"e{number}"), 0
        opened = replace(given.OPENED, episode_id=f"e{number}")
        for nth, event in enumerate((opened, given.STARTED, given.FINISHED)):
            commit = Commit(id=f"e{number}.{nth}", at=EPOCH, events=(event,))
            version = await ports.log.append(subject, commit, after=version)
    await note_followed(ports)


@asynccontextmanager
async def opened(adapter: str, nats, stack, folder: Path):
    """Yield an empty archive, and how the victim is told of it."""
    match adapter:
        case "folder":
            yield FolderArchive(folder), (str(folder), "-")
        case "nats":
            async with jetstream_archive(nats.url, stack=stack) as store:
                yield store, ("nats", "-")
        case "s3":
            async with s3_archive(prefix=stack.name) as store:
                yield store, (f"s3://{BUCKET}/{stack.name}", s3_endpoint())


async def messages_on_server(nats, stack) -> int:
    """Return how many messages the object store of an archive has on the server."""
    client = await nats_client.connect(nats.url)
    try:
        info = await client.jetstream().stream_info(f"OBJ_{stack.archive_store()}")
    finally:
        await client.close()
    return info.state.messages


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "adapter",
    ["folder", *(pytest.param(each, marks=pytest.mark.nightly) for each in ("nats", "s3"))],
)
async def test_kills_while_old_segments_leave_lose_nothing_else_and_leave_no_file(
    adapter, nats, stack, tmp_path: Path
):
    rng, killed, work_s = Random(11), 0, 0.0
    settings = LinkSettings(lease_ttl_s=LEASE_S)
    async with (
        connect(nats.url, stack=stack, settings=settings) as ports,
        opened(adapter, nats, stack, tmp_path / "archive") as (store, told),
    ):
        arguments = (nats.url, stack.name, *told)
        archive = Archive(store, stack)

        async def find() -> Archive:
            return Archive(store, stack)

        for number in range(KILLS + 1):
            await lived(ports, number * EPISODES)
            # How long it takes if nobody kills it is seen first.
            kill_after_s = rng.uniform(0, work_s) if number else None
            is_done, took_s = await run_victim(*arguments, kill_after_s=kill_after_s)
            work_s, killed = work_s if number else took_s, killed + (not is_done)
            seqs = []
            async with with_history(ports, find).log.follow(Stream.JOURNAL) as follower:
                while records := await follower.receive(most=500, wait_s=0.5):
                    seqs += [each.seq for each in records]
            assert seqs == [*range(seqs[0], 3 * EPISODES * (number + 1) + 1)]
        assert (await run_victim(*arguments, kill_after_s=None)).is_done
        (stream,) = await archive.streams()
        files = await store.names(stack.name)
    assert (len(stream.names), stream.left) == (1, [])
    assert len(files) == 2
    assert stream.begin > 3 * EPISODES * KILLS
    if adapter == "nats":
        assert await messages_on_server(nats, stack) == 2 * len(files)  # A chunk, and what it is.
    assert killed >= KILLS // 2


class Victim(NamedTuple):
    """What became of one."""

    is_done: bool
    """Whether it had done its work before it was killed, if it was."""
    took_s: float
    """Since it began."""


async def run_victim(*arguments: str, kill_after_s: float | None) -> Victim:
    """Run it, and kill it so long after it has begun."""
    module = "tests.engine.archive.victim"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, **KEYS},
    )
    assert process.stdout is not None
    async with asyncio.timeout(60):
        is_done = b"done" in await process.stdout.readline()  # If there was nothing to do.
        begun_s = time.monotonic()
        reading = asyncio.ensure_future(read_until_done(process.stdout))
        await asyncio.wait([reading], timeout=kill_after_s)
        if kill_after_s is not None and process.returncode is None:
            process.send_signal(signal.SIGKILL)
        is_done = await reading or is_done
        took_s = time.monotonic() - begun_s
        await process.wait()
    return Victim(is_done, took_s)


async def read_until_done(stdout: asyncio.StreamReader) -> bool:
    """Read what a victim says; return whether it says that it is done."""
    while line := await stdout.readline():
        if b"done" in line:
            return True
    return False


@pytest.mark.timeout(600)
async def test_kills_at_any_moment_lose_nothing_and_repeat_nothing(nats, stack, tmp_path: Path):
    rng, killed, work_s = Random(7), 0, 0.0
    folder = tmp_path / "archive"
    settings = LinkSettings(lease_ttl_s=LEASE_S)
    async with connect(nats.url, stack=stack, settings=settings) as ports:
        arguments = (nats.url, stack.name, str(folder))
        for number in range(KILLS + 1):
            await lived(ports, number * EPISODES)
            # How long it takes if nobody kills it is seen first.
            kill_after_s = rng.uniform(0, work_s) if number else None
            is_done, took_s = await run_victim(*arguments, kill_after_s=kill_after_s)
            work_s, killed = work_s if number else took_s, killed + (not is_done)
        assert (await run_victim(*arguments, kill_after_s=None)).is_done
        state = await ports.states.of("journal")
        archive = Archive(FolderArchive(folder), stack)

        async def find() -> Archive:
            return archive

        log = with_history(ports, find).log
        seqs, ids = [], []
        async with log.follow(Stream.JOURNAL) as follower:
            while records := await follower.receive(most=500, wait_s=0.5):
                seqs += [each.seq for each in records]
                ids += [each.commit.id for each in records]
        some = [await archive.history(Kind.EPISODE, f"e{n}") for n in (0, EPISODES, EPISODES + 7)]
    commits = 3 * EPISODES * (KILLS + 1)
    assert state.first_seq == commits + 1
    assert seqs == [*range(1, commits + 1)]
    assert len(set(ids)) == commits
    assert [len(each) for each in some] == [3, 3, 3]
    manifests = [await archive.verify(name) for name in await archive.names()]
    assert sum(each.count for each in manifests) == commits
    assert killed >= KILLS // 2
