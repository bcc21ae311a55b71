"""How long the pages of the console take beside a long history: one JSON line per page.

The rows of a week are made by SQL, on a Postgres of its own, and the console answers in this
process, so that neither a network nor a browser is measured. Pages take turns. `p50_ms` is of a
whole answer: the questions to Postgres, the drawing, and the frame around it.

With `--keep`, the database stays in a folder, and is filled only the first time.

    python bench/lists.py [--quick] [--episodes 1000000] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from urllib.parse import quote

import httpx
from starlette.requests import Request

sys.path.insert(0, str(Path(__file__).parents[1]))

from engine.people.identity import Identity, Role
from projections.embedded import EmbeddedPostgres
from projections.postgres.migrator import migrate
from projections.postgres.pool import Pool, connect
from projections.postgres.reader import list_episodes
from streams.clock import SystemClock
from streams.memory import memory_ports
from streams.subjects import Stack
from vigil.client import Client
from vigil.web.app import console

EPISODES: Final = 1_000_000
EPISODES_QUICK: Final = 5_000
RUNS: Final = 21
RUNS_QUICK: Final = 3
STACK: Final = "lists"
FILL: Final = Path(__file__).with_name("lists.sql")
FILL_S_MAX: Final = 900.0

NOW: Final = (
    "/",
    "/inbox",
    "/episodes",
    "/episodes?status=running",
    "/episodes?status=failed",
    "/episodes?status=partially_failed",
    "/episodes?status=failed&group=1",
    "/episodes?actor=actor-3",
    "/episodes?subject=host-42",
    "/findings",
    "/findings?status=cleared",
    "/outputs",
    "/outputs?status=failed",
    "/workflows",
    "/actors",
    "/events",
    "/costs",
    "/dead-letters",
    "/orders",
)
"""The pages as they are now."""

PAST: Final = (
    "/",
    "/inbox",
    "/episodes",
    *(
        f"/episodes?status={status}"
        for status in ("queued", "running", "blocked", "failed", "partially_failed", "done")
    ),
    "/episodes?status=running&actor=actor-3",
    "/episodes?subject=host-42",
    "/findings",
    "/findings?status=cleared",
    "/orders",
)
"""The pages as they were: in the middle of the week, and an hour before its end."""

MOMENTS: Final = {"past": timedelta(days=3.5), "an hour ago": timedelta(hours=1)}


async def admin(_: Request) -> Identity:
    """Say that an admin asks."""
    return Identity(name="bench", role=Role.ADMIN)


def pages(now: datetime) -> Mapping[tuple[str, str], str]:
    """Return (what is measured, when) → its address."""
    found = {(path, "now"): path for path in NOW}
    for moment, ago in MOMENTS.items():
        for path in PAST:
            joined = "&" if "?" in path else "?"
            found[path, moment] = f"{path}{joined}at={quote((now - ago).isoformat())}"
    return found


async def filled(pool: Pool, episodes: int) -> datetime:
    """Make the rows of a week, if they are not there, and return when it ended."""
    for last in await list_episodes(pool, Stack(STACK), limit=1):
        ended_at = last["queued_at"]
        assert isinstance(ended_at, datetime)
        return ended_at
    now, began_s = datetime.now(UTC), time.monotonic()
    await fill(pool, episodes, now)
    print(f"filled in {time.monotonic() - began_s:.0f} s", file=sys.stderr)
    return now


async def fill(pool: Pool, episodes: int, now: datetime) -> None:
    """Make the rows of a week."""
    async with pool.acquire() as connection:
        await connection.execute(FILL.read_text(), STACK, episodes, now, timeout=FILL_S_MAX)
        await connection.execute("vacuum analyze", timeout=FILL_S_MAX)


async def measure(dsn: str, episodes: int, runs: int) -> Sequence[dict[str, object]]:
    """Fill the tables, and return a line for each page."""
    async with await connect(dsn) as pool:
        await migrate(pool)
        now = await filled(pool, episodes)
        ports = memory_ports(stack=Stack(STACK), clock=SystemClock())
        async with Client.on(ports, pool, by="bench") as client:
            transport = httpx.ASGITransport(app=console(client, identify=admin))
            async with httpx.AsyncClient(transport=transport, base_url="http://bench") as browser:
                return await _asked(browser, pages(now), episodes, runs)


async def _asked(
    browser: httpx.AsyncClient,
    asked: Mapping[tuple[str, str], str],
    episodes: int,
    runs: int,
) -> Sequence[dict[str, object]]:
    took_ms: dict[tuple[str, str], list[float]] = {each: [] for each in asked}
    for _ in range(runs + 1):
        for each, address in asked.items():
            began_s = time.perf_counter()
            answer = await browser.get(address)
            took_ms[each].append((time.perf_counter() - began_s) * 1_000)
            if answer.status_code != httpx.codes.OK:
                raise RuntimeError(f"{address}: {answer.status_code} {answer.text[:2_000]}")
    return [
        {
            "system": when,
            "case": path,
            "retained": episodes,
            "runs": runs,
            "p50_ms": round(statistics.median(times[1:]), 1),
            "least_ms": round(min(times[1:]), 1),
            "max_ms": round(max(times[1:]), 1),
        }
        for (path, when), times in took_ms.items()
    ]


@contextmanager
def folder(kept: Path | None) -> Iterator[Path]:
    """Give the folder that is to be kept, or one that goes away."""
    if kept is not None:
        yield kept
        return
    with tempfile.TemporaryDirectory() as place:
        yield Path(place)


def main() -> None:
    """Measure, and print a line for each page."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="only see that it works")
    arguments.add_argument("--episodes", type=int, default=EPISODES)
    arguments.add_argument("--keep", type=Path, help="the folder in which the database stays")
    chosen = arguments.parse_args()
    episodes = EPISODES_QUICK if chosen.quick else chosen.episodes
    runs = RUNS_QUICK if chosen.quick else RUNS
    with folder(chosen.keep) as place, EmbeddedPostgres(place) as postgres:
        for line in asyncio.run(measure(postgres.dsn, episodes, runs)):
            print(json.dumps(line))


if __name__ == "__main__":
    main()
