"""Whether readers see a wrong or missing row while tables are made anew under full load.

    python bench/rebuild_under_load.py [--episodes 250000] [--quick]

A stack has a journal of ended episodes, four events each, and a node that projects and runs as many
others as it can. The rows of the first are spoilt, and `vigil projections rebuild` makes them anew,
in a process of its own as for operators: once while nobody else works, and once under load. Readers
ask in a loop then, each on a connection of its own, and hold each answer against what must be so:

| reader | what must be so |
| --- | --- |
| `filled` | a sample is whole; all of it is spoilt or all of it is right, and then for good |
| `counted` | no episode is missing, all are spoilt or all are right, and their number never falls |
| `known` | what had ended before has the same rows: episode, steps, findings and their history |
| `seen` | what was seen to have ended keeps its row, has all its steps, and loses no finding |
| `still` | who looks twice in one snapshot sees the same |

One JSON line: how fast both went, how many episodes ended in a second, how many answers there were,
what was wrong with them, and how long they took in each stage.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.filling import episode_id
from bench.measure import MS_PER_S, Line, percentile
from bench.program import ROOT, Request
from bench.vigil import STACK, Vigil, vigil
from projections.postgres.pool import Connection, open_pool

EPISODES: Final = 250_000
"""A million events."""

QUICK: Final = 2_000
EVENTS_EACH: Final = 4
FILLED_BY: Final = "converge_only"
"""The actor of the episodes that the journal is filled with."""

SPOILT: Final = "spoilt"
STEPS, FINDINGS = "steps_pipelined", "findings"
"""Actors whose episodes run meanwhile; those of the first take `STEPS_EACH` steps, those of the
second raise `FINDINGS_EACH` findings."""

STEPS_EACH: Final = 5
FINDINGS_EACH: Final = 10
IN_FLIGHT: Final = 64
LOAD_S: Final = 2.0
"""Of one request to the load, in seconds; the next one follows at once."""

KNOWN: Final = 100
"""Episodes of each actor that have ended before."""

SAMPLE: Final = 200
SEEN_MAX: Final = 1_000
"""Most ended episodes that a reader remembers: the first ones, for which the swap is to come."""

BEFORE_S: Final = 6.0
AFTER_S: Final = 2.0
PAUSE_S: Final = 0.02
"""Between two looks of a reader, in seconds."""

STILL_S: Final = 0.2
"""Between the two looks in one snapshot, in seconds."""

ROWS_S_MAX: Final = 1_800.0
FAULTS_MAX: Final = 20
"""Most faults that are told."""

Look = Callable[[Connection], Awaitable[Sequence[str]]]
"""Asks once, and returns what is wrong with the answer, in words."""


@dataclass
class Watch:
    """What readers have seen, and when."""

    stage: str = "before"
    took_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Stage → how long each answer took that was asked for in it."""
    ended: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Stage → how many episodes ended in a second, of each request to the load."""
    faults: list[str] = field(default_factory=list)
    is_over: bool = False

    async def read(self, name: str, look: Look, dsn: str) -> None:
        """Look again and again, until it is over, and once more."""
        async with open_pool(dsn) as pool, pool.acquire() as connection:
            while True:
                is_last, stage, began_s = self.is_over, self.stage, time.monotonic()
                found = await look(connection)
                self.took_s[stage].append(time.monotonic() - began_s)
                self.faults += [f"{name}, {stage}: {each}" for each in found]
                if is_last:
                    return
                await asyncio.sleep(PAUSE_S)

    async def load(self, system: Vigil) -> None:
        """Have as many episodes run as go, until it is over."""
        for number in count():
            for case in (STEPS, FINDINGS):
                if self.is_over:
                    return
                stage = self.stage
                request = Request(case, IN_FLIGHT, LOAD_S, f"load-{number}-{case}")
                self.ended[stage].append((await system.load.ask(request)).run().per_s)

    def line(self) -> Line:
        """Return what there is to say, by stage."""
        line: Line = {
            "reads": sum(map(len, self.took_s.values())),
            "faults": len(self.faults),
            "told": self.faults[:FAULTS_MAX],
        }
        for stage, per_s in self.ended.items():
            line[f"{stage}_episodes_per_s"] = round(sum(per_s) / len(per_s))
        for stage, took_s in self.took_s.items():
            line[f"{stage}_reads"] = len(took_s)
            line[f"{stage}_p50_ms"] = round(percentile(took_s, 50) * MS_PER_S, 1)
            line[f"{stage}_p99_ms"] = round(percentile(took_s, 99) * MS_PER_S, 1)
        return line


@dataclass
class Filled:
    """Looks at a sample of what the journal was filled with."""

    summaries: Mapping[str, str]
    """Id → what the row says once it is right."""
    is_right: bool = False

    async def look(self, connection: Connection) -> Sequence[str]:
        """See all of it, and all alike."""
        rows = await connection.fetch(
            "SELECT episode_id::text, summary FROM episodes"
            " WHERE stack = $1 AND episode_id = ANY($2::uuid[])",
            STACK.name,
            list(self.summaries),
        )
        found = {row["episode_id"]: row["summary"] for row in rows}
        if found == self.summaries:
            self.is_right = True
            return []
        if self.is_right or found != dict.fromkeys(self.summaries, SPOILT):
            right = sum(self.summaries[id_] == each for id_, each in found.items())
            return [f"of {len(self.summaries)} rows {len(found)} are there, {right} right"]
        return []


@dataclass
class Counted:
    """Looks at all rows."""

    filled: int
    rows: int = 0

    async def look(self, connection: Connection) -> Sequence[str]:
        """See as many as before, or more."""
        row = await connection.fetchrow(
            "SELECT count(*) AS rows, count(*) FILTER (WHERE actor_id = $2) AS filled,"
            " count(*) FILTER (WHERE summary = $3) AS spoilt FROM episodes WHERE stack = $1",
            STACK.name,
            FILLED_BY,
            SPOILT,
        )
        assert row is not None  # It counts.
        faults = []
        if row["filled"] != self.filled or row["spoilt"] not in (0, self.filled):
            faults.append(f"{row['filled']:,} of {self.filled:,} rows, {row['spoilt']:,} spoilt")
        if row["rows"] < self.rows:
            faults.append(f"{row['rows']:,} rows after {self.rows:,}")
        self.rows = row["rows"]
        return faults


@dataclass
class Known:
    """Looks at episodes that had ended before, with all that belongs to them."""

    rows: Mapping[str, object]

    async def look(self, connection: Connection) -> Sequence[str]:
        """See them as they were."""
        found = await whole(connection, list(self.rows))
        return [f"{id_} has changed" for id_, row in self.rows.items() if found.get(id_) != row]


@dataclass
class Seen:
    """Looks at episodes that end meanwhile."""

    rows: dict[str, str] = field(default_factory=dict)
    findings: dict[str, int] = field(default_factory=dict)

    async def look(self, connection: Connection) -> Sequence[str]:
        """See the newest ones, and all those again that were seen before."""
        rows = await connection.fetch(
            """
            SELECT episode_id::text, actor_id, e::text AS row, (
                SELECT count(*) FROM episode_steps AS s
                WHERE (s.stack, s.episode_id) = (e.stack, e.episode_id)
            ) AS steps, (
                SELECT count(*) FROM finding_events AS f
                WHERE (f.stack, f.episode_id) = (e.stack, e.episode_id)
            ) AS findings
            FROM episodes AS e
            WHERE stack = $1 AND (episode_id = ANY($2::uuid[]) OR episode_id IN (
                SELECT n.episode_id FROM episodes AS n
                WHERE n.stack = $1 AND n.status = 'done' AND n.queued_at < now()
                ORDER BY n.queued_at DESC LIMIT 50
            ))
            """,
            STACK.name,
            list(self.rows),
        )
        there = {row["episode_id"] for row in rows}
        faults = [f"{id_} is missing" for id_ in self.rows.keys() - there]
        for id_, actor_id, row, steps, findings in rows:
            if self.rows.get(id_, row) != row:
                faults.append(f"{id_} has changed")
            if actor_id == STEPS and steps != STEPS_EACH:
                faults.append(f"{id_} has {steps} steps")
            if findings < self.findings.get(id_, 0):
                faults.append(f"{id_} has {findings} findings after {self.findings[id_]}")
            if id_ in self.rows or len(self.rows) < SEEN_MAX:
                self.rows[id_], self.findings[id_] = row, findings
        return faults


async def still(connection: Connection) -> Sequence[str]:
    """See the same twice in one snapshot."""
    text = "SELECT count(*), count(*) FILTER (WHERE summary = $2) FROM episodes WHERE stack = $1"
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        first = await connection.fetchrow(text, STACK.name, SPOILT)
        await asyncio.sleep(STILL_S)
        then = await connection.fetchrow(text, STACK.name, SPOILT)
    return [] if first == then else [f"{then} after {first}"]


async def whole(connection: Connection, ids: Sequence[str]) -> Mapping[str, object]:
    """Return the rows of episodes with those of their steps, findings and history, by id."""
    rows = await connection.fetch(
        """
        SELECT episode_id::text, e::text AS row, ARRAY(
            SELECT s::text FROM episode_steps AS s
            WHERE (s.stack, s.episode_id) = (e.stack, e.episode_id)
            ORDER BY step_no
        ) AS steps, ARRAY(
            SELECT concat(h, f) FROM finding_events AS h
            JOIN findings AS f USING (stack, finding_key)
            WHERE (h.stack, h.episode_id) = (e.stack, e.episode_id)
            ORDER BY finding_key, event_no
        ) AS findings
        FROM episodes AS e
        WHERE stack = $1 AND episode_id = ANY($2::uuid[])
        """,
        STACK.name,
        ids,
    )
    return {row["episode_id"]: tuple(row.values()) for row in rows}


async def measure(place: Path, episodes: int) -> Line:
    """Return how fast rebuilds go, and what readers see of one under load."""
    async with vigil(place, cases=(STEPS, FINDINGS), retained=episodes) as system:
        for case in (STEPS, FINDINGS):
            await system.run(Request(case, IN_FLIGHT, 0.0, f"known-{case}", count=KNOWN))
        await _spoil(system)
        quiet_s = await _rebuilt(system, Watch())
        await _spoil(system)
        watch = Watch()
        took_s = await _watched(system, watch, episodes)
    events = episodes * EVENTS_EACH
    return {
        "case": "rebuild_under_load",
        "events": events,
        "quiet_s": round(quiet_s, 1),
        "quiet_events_per_s": round(events / quiet_s),
        "seconds": round(took_s, 1),
        "events_per_s": round(events / took_s),
        **watch.line(),
    }


async def _watched(system: Vigil, watch: Watch, episodes: int) -> float:
    """Rebuild under load and before the eyes of readers; return how long it took, in seconds."""
    async with system.pool.acquire() as connection:
        of_load = await connection.fetch(
            "SELECT episode_id::text FROM episodes WHERE stack = $1 AND actor_id <> $2",
            STACK.name,
            FILLED_BY,
        )
        known = await whole(connection, [row["episode_id"] for row in of_load])
    numbers = range(1, episodes + 1, max(1, episodes // SAMPLE))
    filled = Filled({episode_id(each): f"fill-{each}" for each in numbers})
    looks: Mapping[str, Look] = {
        "filled": filled.look,
        "counted": Counted(episodes).look,
        "known": Known(known).look,
        "seen": Seen().look,
        "still": still,
    }
    async with asyncio.TaskGroup() as beside:
        for name, look in looks.items():
            beside.create_task(watch.read(name, look, system.dsn))
        beside.create_task(watch.load(system))
        await asyncio.sleep(BEFORE_S)
        took_s = await _rebuilt(system, watch)
        watch.stage = "after"
        await asyncio.sleep(AFTER_S)
        watch.is_over = True
    if not filled.is_right:
        watch.faults.append("filled, at last: the rows are as they were")
    return took_s


async def _spoil(system: Vigil) -> None:
    await system.pool.execute(
        "UPDATE episodes SET summary = $2 WHERE stack = $1 AND actor_id = $3",
        STACK.name,
        SPOILT,
        FILLED_BY,
        timeout=ROWS_S_MAX,
    )


async def _rebuilt(system: Vigil, watch: Watch) -> float:
    """Run the command, tell `watch` of its stages, and return how long it took, in seconds."""
    began_s = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "vigil", "projections", "rebuild", "--yes", "--keep", "0s"),
        cwd=ROOT,
        env={
            **os.environ,
            "VIGIL_NATS_URL": system.url,
            "VIGIL_POSTGRES_DSN": system.dsn,
            "VIGIL_STACK": STACK.name,
        },
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    said = b""
    async for said in process.stderr:
        watch.stage = said.decode().partition(":")[0]
    assert await process.wait() == 0, said
    return time.monotonic() - began_s


def main() -> None:
    """Read the arguments and print the line."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--episodes", type=int, default=EPISODES)
    arguments.add_argument("--quick", action="store_true", help="only see that it works")
    chosen = arguments.parse_args()
    episodes = QUICK if chosen.quick else chosen.episodes
    with tempfile.TemporaryDirectory() as place:
        print(json.dumps(asyncio.run(measure(Path(place), episodes))))


if __name__ == "__main__":
    main()
