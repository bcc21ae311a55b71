"""How fast a journal becomes rows: one JSON line per case.

`rebuild` projects a journal that is there; `live` projects one that is being written by
the same process, fifty episodes at a time. Both write to a real Postgres, from a journal
in memory, so that the projector is what is measured.

    python bench/projector.py [EPISODES]
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from uuid import UUID

from projections.embedded import EmbeddedPostgres
from projections.postgres.migrator import migrate
from projections.postgres.pool import Pool, connect
from projections.postgres.progress import caught_up
from projections.postgres.projector import project
from streams.clock import SystemClock
from streams.events import (
    Budget,
    EndStatus,
    EpisodeConverged,
    EpisodeFinished,
    EpisodeOpened,
    EpisodeStarted,
    EventTrigger,
    LogEvent,
    StepKind,
    StepRecorded,
)
from streams.json import raw
from streams.log import Commit
from streams.memory import MemoryPorts, memory_ports
from streams.subjects import Stack

EPISODES: Final = 5_000
AT_ONCE: Final = 50
STEPS: Final = 5
TIMEOUT_S: Final = 300.0
AT: Final = datetime(2030, 1, 1, tzinfo=UTC)
CLOCK: Final = SystemClock()


def life(number: int) -> Iterator[Sequence[LogEvent]]:
    """Yield the commits of one episode: 8, with 9 events."""
    yield (
        EpisodeOpened(
            episode_id=str(UUID(int=number)),
            actor_id="monitor",
            expectation_id="check_disk",
            trigger=EventTrigger(
                event_id=f"e{number}",
                event_type="resource.updated",
                payload={"host": f"h{number}", "disk_used": 0.93},
                entity_id=f"h{number}",
            ),
            dedupe_key=f"e{number}",
            budget=Budget(),
            subject_kind="host",
        ),
    )
    yield (EpisodeStarted(node="n1", attempt=1, claim_revision=number),)
    for step_no in range(1, STEPS + 1):
        yield (
            StepRecorded(
                step_no=step_no,
                kind=StepKind.TOOL_CALL,
                fingerprint="f" * 64,
                tool_name="disk.read",
                args=raw({"host": f"h{number}", "path": "/var"}),
                result=raw({"used": 0.93, "note": "x" * 100}),
                cost_ms=3,
            ),
        )
    yield (
        EpisodeConverged(
            classification=raw({"primary": "disk_full"}), confidence=1.0, summary="disk full"
        ),
        EpisodeFinished(status=EndStatus.DONE, turns_used=STEPS + 1),
    )


async def write(ports: MemoryPorts, *, first: int, count: int) -> int:
    """Append whole lives, `AT_ONCE` side by side; return how many events those are."""
    events = 0
    for start in range(first, first + count, AT_ONCE):
        versions = dict.fromkeys(range(start, start + AT_ONCE), 0)
        for commits in zip(*(life(number) for number in versions), strict=True):
            for number, happened in zip(versions, commits, strict=True):
                made = Commit(id=f"{number}.{versions[number]}", at=AT, events=tuple(happened))
                subject = ports.stack.episode(str(UUID(int=number)))
                versions[number] = await ports.log.append(subject, made, after=versions[number])
                events += len(happened)
            await asyncio.sleep(0)
    return events


@asynccontextmanager
async def projecting(ports: MemoryPorts, pool: Pool) -> AsyncIterator[None]:
    """Project meanwhile."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(project(ports, pool, node="n1", clock=CLOCK, stop=stop))
        yield
        stop.set()


async def measure(case: str, pool: Pool, *, episodes: int) -> None:
    """Print how fast `case` goes."""
    ports = memory_ports(stack=Stack(case), clock=CLOCK)
    await migrate(pool)
    if case == "rebuild":
        events = await write(ports, first=1, count=episodes)
    began_s = CLOCK.monotonic_s()
    async with projecting(ports, pool):
        if case == "live":
            events = await write(ports, first=1, count=episodes)
        await caught_up(pool, ports.stack, await ports.log.head(), timeout_s=TIMEOUT_S)
        took_s = CLOCK.monotonic_s() - began_s
    found = {"case": case, "events": events, "seconds": round(took_s, 2)}
    print(json.dumps({**found, "events_per_s": round(events / took_s)}))


async def main(dsn: str, *, episodes: int) -> None:
    """Measure every case."""
    for case in ("live", "rebuild"):
        pool = await connect(dsn, schema=case)
        await measure(case, pool, episodes=episodes)
        await pool.close()


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else EPISODES
    with tempfile.TemporaryDirectory() as place, EmbeddedPostgres(Path(place)) as server:
        asyncio.run(main(server.dsn, episodes=wanted // AT_ONCE * AT_ONCE))
