"""What a stack costs that has grown: the same cases on an empty one and on ones that have much.

    python bench/growth.py [--quick]

One stack has many subjects in a cooldown, one many episodes that wait for an approval, one many
definitions, one many actors. Each has servers and a node of its own, gets what it has as a user
would give it, and all take turns. Behind the results comes a line for each stack: what its
processes have in memory, and how long a second node takes to be up.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.growth_app import ACTORS
from bench.measure import Case, Line
from bench.program import ROOT, Request
from bench.rounds import QUICK, Pace, take_turns
from bench.vigil import NAME, STACK, Vigil, vigil
from streams.child import die_with

NAMES: Final = ("converge_only", "steps_strict")
IN_FLIGHT: Final = 64
APP: Final = "bench.growth_app:app"

FILLING: Final = 256
"""Events at a time while a stack is filled."""

FILLED_S_MAX: Final = 900.0
"""Longest wait until a stack is filled, in seconds."""

LOOK_S: Final = 0.5
"""Between two looks at the rows, in seconds."""

RUNS: Final = 11
"""Of each case: with five, stacks that are alike differed by a seventh."""

STARTS: Final = 5
"""Of a second node on each stack."""

UP_S_MAX: Final = 300.0
"""Longest wait until a node is up, in seconds."""


@dataclass(frozen=True)
class Growth:
    """What a stack has much of."""

    name: str
    count: int
    fill: Callable[[Vigil, int], Awaitable[None]]
    app: str = APP


async def have_nothing(stack: Vigil, count: int) -> None:
    """Leave the stack as it is."""


async def have_cooldowns(stack: Vigil, count: int) -> None:
    """Have so many subjects cool down: one episode has run for each."""
    request = Request("cooled", FILLING, seconds=FILLED_S_MAX, tag="cooled", count=count)
    await stack.load.ask(request)


async def have_blocked(stack: Vigil, count: int) -> None:
    """Have so many episodes wait for an approval."""
    events = stack.ports.domain_events
    for first in range(0, count, FILLING):
        numbers = range(first, min(first + FILLING, count))
        keys = [f"asking-{number}" for number in numbers]
        await asyncio.gather(
            *(events.publish("bench.asking", {"key": each}, id=each) for each in keys)
        )
    waiting = "SELECT count(*) FROM episodes WHERE actor_id = 'asking' AND status = 'blocked'"
    async with asyncio.timeout(FILLED_S_MAX):
        while await stack.pool.fetchval(waiting) < count:  # noqa: ASYNC110 - of other processes
            await asyncio.sleep(LOOK_S)


async def have_definitions(stack: Vigil, count: int) -> None:
    """Have so many definitions, each of an actor that waits for an event of its own."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            text = json.dumps(_definition(number))
            (Path(folder) / f"defined_{number}.json").write_text(text)
        command = ["apply", folder, "--timeout", str(FILLED_S_MAX), "--json"]
        await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "vigil", *command],
            cwd=ROOT,
            env=_environ(stack),
            stdout=subprocess.DEVNULL,
            check=True,
        )


def _definition(number: int) -> Mapping[str, object]:
    rests = {"on": {"event": f"bench.never.{number}"}, "strategy": {"ref": "rests"}}
    return {"id": f"defined_{number}", "expectations": {"rest": rests}}


GROWN: Final = (
    Growth("empty", 0, have_nothing),
    Growth("subjects in a cooldown", 100_000, have_cooldowns),
    Growth("blocked episodes", 10_000, have_blocked),
    Growth("definitions", 1_000, have_definitions),
    Growth("actors", ACTORS, have_nothing, app="bench.growth_app:many_actors"),
)

GROWN_QUICK: Final = (
    GROWN[0],
    Growth("subjects in a cooldown", 100, have_cooldowns),
    Growth("blocked episodes", 100, have_blocked),
    Growth("definitions", 10, have_definitions),
    GROWN[4],
)


async def measure(grown: Sequence[Growth], pace: Pace) -> Sequence[Line]:
    """Return the results, and a line for each stack."""
    async with AsyncExitStack() as running:
        place = Path(running.enter_context(tempfile.TemporaryDirectory()))
        stacks: dict[str, Vigil] = {}
        for number, each in enumerate(grown):
            stack = vigil(place / str(number), cases=NAMES, name=each.name, app=each.app)
            stacks[each.name] = await running.enter_async_context(stack)
        for each in grown:
            began_s = time.monotonic()
            await each.fill(stacks[each.name], each.count)
            await stacks[each.name].wait_rows(FILLED_S_MAX)
            print(f"{each.name}: filled in {time.monotonic() - began_s:.0f} s", file=sys.stderr)
        cases = [Case(stack, name, IN_FLIGHT) for name in NAMES for stack in stacks]
        results = await take_turns([*stacks.values()], cases, pace)
        ups: dict[str, list[float]] = {name: [] for name in stacks}
        for _ in range(min(pace.runs, STARTS)):
            for each in grown:
                ups[each.name].append(await asyncio.to_thread(_up_s, stacks[each.name], each.app))
        lines = [_line(each, stacks[each.name], ups[each.name]) for each in grown]
        return [*(result.line for result in results), *lines]


def _up_s(stack: Vigil, app: str) -> float:
    """Return how long a second node takes from its start until it takes work, in seconds."""
    began_s = time.monotonic()
    said = {**_environ(stack), NAME: "second", "VIGIL_LOG_LEVEL": "info"}
    with subprocess.Popen(
        [sys.executable, "-m", "vigil", "node", "--app", app, "--no-project"],
        cwd=ROOT,
        env=said,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=die_with(os.getpid()),  # noqa: PLW1509 - one system call, no locks
    ) as process:
        assert process.stdout is not None
        is_up = any("node up" in line for line in process.stdout)
        took_s = time.monotonic() - began_s
        process.terminate()
        process.communicate(timeout=UP_S_MAX)
    assert is_up, f"{stack.name}: a second node ended before it was up"
    return took_s


def _environ(stack: Vigil) -> Mapping[str, str]:
    said = {
        "VIGIL_NATS_URL": stack.url,
        "VIGIL_POSTGRES_DSN": stack.dsn,
        "VIGIL_STACK": STACK.name,
    }
    return {**os.environ, **said}


def _line(growth: Growth, stack: Vigil, ups_s: Sequence[float]) -> Line:
    return {
        "system": growth.name,
        "case": "stack",
        "count": growth.count,
        "server_mib": round(stack.server_mib()),
        "node_mib": round(stack.node_mib()),
        "up_s": round(statistics.median(ups_s), 2),
    }


def main() -> None:
    """Measure and print the lines."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="only see that it works")
    quick = arguments.parse_args().quick
    for line in asyncio.run(
        measure(GROWN_QUICK if quick else GROWN, QUICK if quick else Pace(runs=RUNS))
    ):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
