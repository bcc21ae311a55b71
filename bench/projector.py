"""How fast a journal becomes rows, and what that costs: one JSON line per case.

`rebuild` projects a journal that is there. `live` projects one that grows as fast as it can,
fifty episodes at a time, and `steady` one that grows by 5,000 events a second. All write to
a real Postgres, from a journal in memory whose bytes were made beforehand, so that the
projector is what is measured.

The cases take turns, and a line has the medians of all runs of its case. `projector_us` and
`postgres_us` are processor time per event, which says more than the rate where others use the
machine, too. `caught_up_ms` is from the last event to its row.

    python bench/projector.py [EPISODES] [--runs 5]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

import msgspec
import psutil

from projections.embedded import EmbeddedPostgres
from projections.postgres.migrator import migrate
from projections.postgres.pool import Pool, connect
from projections.postgres.progress import caught_up, heads
from projections.postgres.projector import project
from streams.clock import SystemClock
from streams.json import raw
from streams.memory import MemoryPorts, memory_ports
from streams.model.events import (
    EndStatus,
    EpisodeConverged,
    EpisodeFinished,
    EpisodeOpened,
    EpisodeStarted,
    LogEvent,
    StepKind,
    StepRecorded,
)
from streams.model.triggers import Budget, EventTrigger
from streams.ports.log import Commit
from streams.subjects import Stack
from streams.wire import codec
from streams.wire.messages import COMMIT_HEADER

EPISODES: Final = 5_000
AT_ONCE: Final = 50
STEPS: Final = 5
TIMEOUT_S: Final = 300.0
STEADY_EVENTS_PER_S: Final = 5_000
STEADY_EPISODES_MAX: Final = 3_000
TICK_S: Final = 0.005
"""Between two portions of a steady journal, in seconds."""
AT: Final = datetime(2030, 1, 1, tzinfo=UTC)
CLOCK: Final = SystemClock()
CASES: Final = ("steady", "live", "rebuild")

Found: TypeAlias = dict[str, float]
"""What one run came to, or the medians of several."""


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


class Message(NamedTuple):
    """A commit as it is on the log."""

    subject: str
    data: bytes
    headers: Mapping[str, str]
    events: int


def messages(stack: Stack, *, episodes: int) -> list[Message]:
    """Return whole lives, `AT_ONCE` side by side."""
    made = []
    for start in range(1, episodes + 1, AT_ONCE):
        numbers = range(start, start + AT_ONCE)
        for turn, happened in enumerate(zip(*(life(number) for number in numbers), strict=True)):
            for number, events in zip(numbers, happened, strict=True):
                commit = Commit(id=f"{number}.{turn}", at=AT, events=tuple(events))
                subject = stack.episode(str(UUID(int=number)))
                data = codec.encode_commit(commit)
                made.append(Message(subject, data, {COMMIT_HEADER: commit.id}, len(events)))
    return made


def put(ports: MemoryPorts, given: Sequence[Message]) -> None:
    """Put messages on the journal."""
    for each in given:
        ports.log.publish_raw(each.subject, each.data, each.headers)


async def write_live(ports: MemoryPorts, given: Sequence[Message]) -> None:
    """Put them on the journal as fast as it goes, `AT_ONCE` before others may run."""
    for start in range(0, len(given), AT_ONCE):
        put(ports, given[start : start + AT_ONCE])
        await asyncio.sleep(0)


async def write_steadily(ports: MemoryPorts, given: Sequence[Message]) -> None:
    """Put them on the journal at `STEADY_EVENTS_PER_S`."""
    began_s, written, events = CLOCK.monotonic_s(), 0, 0
    while written < len(given):
        due = (CLOCK.monotonic_s() - began_s) * STEADY_EVENTS_PER_S
        first = written
        while written < len(given) and events < due:
            events += given[written].events
            written += 1
        put(ports, given[first:written])
        await asyncio.sleep(TICK_S)


@asynccontextmanager
async def projecting(ports: MemoryPorts, pool: Pool) -> AsyncIterator[None]:
    """Project meanwhile."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(project(ports, pool, node="n1", clock=CLOCK, stop=stop))
        yield
        stop.set()


class Used(msgspec.Struct, frozen=True):
    """Time until a moment, in seconds: on the wall, and of the processors."""

    wall_s: float
    projector_s: float
    postgres_s: float

    @classmethod
    def now(cls, server: psutil.Process) -> Used:
        """Return what was used until now by us and by `server` with all its children."""
        postgres_s = 0.0
        for process in (server, *server.children()):
            used = process.cpu_times()
            postgres_s += used.user + used.system + used.children_user + used.children_system
        return cls(CLOCK.monotonic_s(), time.process_time(), postgres_s)


async def measure(
    case: str, pool: Pool, *, stack: Stack, episodes: int, server: psutil.Process
) -> Found:
    """Return how fast `case` goes and what it costs, run once."""
    ports = memory_ports(stack=stack, clock=CLOCK)
    await migrate(pool)
    given = messages(ports.stack, episodes=episodes)
    if case == "rebuild":
        put(ports, given)
    before = Used.now(server)
    async with projecting(ports, pool):
        if case == "live":
            await write_live(ports, given)
        if case == "steady":
            await write_steadily(ports, given)
        written_s = CLOCK.monotonic_s()
        await caught_up(pool, ports.stack, await heads(ports), timeout_s=TIMEOUT_S)
        after = Used.now(server)
    events = sum(each.events for each in given)
    took_s = after.wall_s - before.wall_s
    return {
        "events": events,
        "seconds": round(took_s, 2),
        "events_per_s": round(events / took_s),
        "projector_us": round((after.projector_s - before.projector_s) / events * 1e6, 1),
        "postgres_us": round((after.postgres_s - before.postgres_s) / events * 1e6, 1),
        "caught_up_ms": round((after.wall_s - written_s) * 1e3),
    }


async def measure_all(server: EmbeddedPostgres, *, episodes: int, runs: int) -> None:
    """Run every case in turns, each time with tables of its own, and print its line."""
    found: dict[str, list[Found]] = {case: [] for case in CASES}
    process = psutil.Process(server.pid)
    for run in range(runs):
        for case in CASES:
            pool = await connect(server.dsn, schema=f"{case}_{run}")
            count = min(episodes, STEADY_EPISODES_MAX) if case == "steady" else episodes
            stack = Stack(f"{case}-{run}")
            found[case].append(
                await measure(case, pool, stack=stack, episodes=count, server=process)
            )
            await pool.close()
    for case, each in found.items():
        print(json.dumps({"case": case, **_medians(each), "runs": runs}), flush=True)


def _medians(found: Sequence[Found]) -> Found:
    return {name: statistics.median_low(each[name] for each in found) for name in found[0]}


def main() -> None:
    """Read the arguments and measure."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("episodes", type=int, nargs="?", default=EPISODES)
    arguments.add_argument("--runs", type=int, default=5)
    chosen = arguments.parse_args()
    episodes = chosen.episodes // AT_ONCE * AT_ONCE
    with tempfile.TemporaryDirectory() as place, EmbeddedPostgres(Path(place)) as running:
        asyncio.run(measure_all(running, episodes=episodes, runs=chosen.runs))


if __name__ == "__main__":
    main()
