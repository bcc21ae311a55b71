"""How long the ten questions of `docs/guides/questions.md` take: one JSON line for each.

The rows of a week are made by SQL, on a Postgres of its own. `p50_ms` is of a whole answer, as a
program gets it; questions take turns.

    python bench/questions.py [--quick] [--episodes 1000000]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from projections.embedded import EmbeddedPostgres
from projections.postgres.migrator import migrate
from projections.postgres.pool import Pool, connect
from projections.postgres.reader import run_sql

EPISODES: Final = 1_000_000
EPISODES_QUICK: Final = 5_000
RUNS: Final = 21
RUNS_QUICK: Final = 3
STACK: Final = "vigil"
"""The one that the page names."""

PAGE: Final = Path(__file__).parents[1] / "docs/guides/questions.md"
FILL: Final = Path(__file__).with_name("lists.sql")
FILL_S_MAX: Final = 1_800.0

_QUESTION: Final = re.compile(r"^(\S[^\n]*\?)\n\n```sql\n(.*?)```$", re.MULTILINE | re.DOTALL)


def questions() -> Mapping[str, str]:
    """Return question → its SQL, as the page has them."""
    return dict(_QUESTION.findall(PAGE.read_text(encoding="utf-8")))


async def fill(pool: Pool, episodes: int) -> None:
    """Make the rows of a week that ends now."""
    async with pool.acquire() as connection:
        now = datetime.now(UTC)
        await connection.execute(FILL.read_text(), STACK, episodes, now, timeout=FILL_S_MAX)
        await connection.execute("vacuum analyze", timeout=FILL_S_MAX)


async def measure(dsn: str, *, episodes: int, runs: int) -> None:
    """Fill the tables, ask, and print a line for each question."""
    asked = questions()
    took_ms: dict[str, list[float]] = {question: [] for question in asked}
    async with await connect(dsn) as pool:
        await migrate(pool)
        await fill(pool, episodes)
        for _ in range(runs + 1):
            for question, text in asked.items():
                began_s = time.perf_counter()
                await run_sql(pool, text)
                took_ms[question].append((time.perf_counter() - began_s) * 1_000)
    for question, times in took_ms.items():
        line = {
            "case": question,
            "retained": episodes,
            "runs": runs,
            "p50_ms": round(statistics.median(times[1:]), 1),
            "least_ms": round(min(times[1:]), 1),
            "max_ms": round(max(times[1:]), 1),
        }
        print(json.dumps(line), flush=True)


def main() -> None:
    """Read the arguments and measure."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="only see that it works")
    arguments.add_argument("--episodes", type=int, default=EPISODES)
    chosen = arguments.parse_args()
    episodes = EPISODES_QUICK if chosen.quick else chosen.episodes
    runs = RUNS_QUICK if chosen.quick else RUNS
    with tempfile.TemporaryDirectory() as place, EmbeddedPostgres(Path(place)) as postgres:
        asyncio.run(measure(postgres.dsn, episodes=episodes, runs=runs))


if __name__ == "__main__":
    main()
