"""Archives a stack in small pieces, until it is done or killed: `python -m … URL STACK STORE`.

`STORE` is as in `[archive]`. With a fourth argument, the endpoint of S3 or `-`, the archive keeps
nothing that is over, too.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from msgspec.structs import replace

from engine.archive import purge
from engine.archive.run import ArchivePlan, KnownRows, archive_once
from streams.archive.archive import Archive
from streams.archive.segment import SegmentLimits
from streams.clock import SystemClock
from streams.jetstream import LinkSettings, connect
from streams.subjects import Stack
from vigil import settings
from vigil.archiving.settings import ArchiveSpec, opened_store

LEASE_S = 1.0
PLAN = ArchivePlan(hot_s=0, limits=SegmentLimits(messages_max=60, block_bytes=2_000))
BUSY_S = 0.1

purge.SLICE_MIN = 25
purge.SUBJECTS_PER_MESSAGE = 1_000_000
purge.PAUSE_S = 0.01


async def main(url: str, name: str, store_name: str, endpoint: str | None = None) -> None:
    """Say when it begins, and archive once; wait for another one that was killed."""
    link, clock = LinkSettings(lease_ttl_s=LEASE_S), SystemClock()
    spec = ArchiveSpec(store=store_name, endpoint=(endpoint or "").strip("-"), region="us-east-1")
    config = settings.read({"nats_url": url, "stack": name}, folder=Path())
    plan = PLAN if endpoint is None else replace(PLAN, kept_s=0)
    async with (
        connect(url, stack=Stack(name), settings=link, creates=False) as ports,
        opened_store(config, spec, link) as store,
    ):
        archive = Archive(store, ports.stack)
        report = None
        while report is None:
            report = await archive_once(
                ports, archive, plan, rows=KnownRows(), node="n1", clock=clock, tell=begun
            )
            if report is None:
                await clock.sleep(BUSY_S)
    sys.stdout.write("done\n")
    sys.stdout.flush()


def begun(part: str, done: int, of: int) -> None:
    """Say that it is at work."""
    sys.stdout.write("begun\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
