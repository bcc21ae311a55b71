"""How long it takes, and how much memory, to bring an episode back from its journal.

    python bench/replay.py [--runs 7]

Starts a NATS server, writes journals of 10 to 10,000 events, and replays each: read the journal
from the server, fold it, and drive the strategy through the recorded steps, as a node does that
takes the episode over. `strict` has one event per commit, as `durability="strict"` writes them;
`pipelined` has as many as may ride in one. One JSON line per case and size: `p50_ms` of one
replay, `per_s` events replayed per second, and `peak_mb`, the most that a replay allocates, from
a run of its own, since tracing allocations makes it slow.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import uvloop

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.app import ConvergeOnly, Key
from engine.app.actions import fingerprint
from engine.episodes.writer import EVENTS_PER_COMMIT_MAX
from engine.operations.replay import replay as replayed
from streams.clock import SystemClock
from streams.embedded import EmbeddedNats
from streams.jetstream import connect
from streams.json import raw
from streams.model.events import (
    CheckpointSaved,
    EpisodeEvent,
    EpisodeOpened,
    EpisodeStarted,
    StepKind,
    StepRecorded,
)
from streams.model.triggers import EventTrigger
from streams.ports.all import Ports
from streams.ports.log import START, Commit
from streams.subjects import Stack
from vigil import Action, Actor, App, Budget, Context, event, observe

STACK: Final = Stack("bench")
CASES: Final = {"strict": 1, "pipelined": EVENTS_PER_COMMIT_MAX}
"""Case → events per commit."""

EVENTS: Final = (10, 100, 1_000, 10_000)
FACT: Final = {"host": "h1", "disk_used": 0.93, "note": "x" * 120}
"""What each step brought back: about 150 bytes, as JSON."""

MIB: Final = 1024 * 1024


class Watch(ConvergeOnly):
    """Records the same fact on every turn; there is no last one."""

    def next_step(self, state: Key, ctx: Context) -> Action:
        """Observe."""
        return observe(FACT)

    def handle_result(self, state: Key, step: object, result: object) -> Key:
        """Go on."""
        return state


actor = Actor("watch")
actor.expect("measure", Watch, on=event("bench.watch"), budget=Budget(turns=0))
app = App(actors=[actor])


def life(events: int) -> list[EpisodeEvent]:
    """Return the beginning of an episode that is `events` long."""
    opened = EpisodeOpened(
        episode_id="e",
        actor_id=actor.id,
        expectation_id="measure",
        trigger=EventTrigger(event_id="x", event_type="bench.watch", payload={"key": "k"}),
        dedupe_key="event:x",
        budget=Budget(turns=0),
    )
    started = EpisodeStarted(node="n1", attempt=1, claim_revision=1)
    kept = CheckpointSaved(checkpoint_no=0, step_no=0, phase="init", state=raw(Key("k")))
    steps = [
        StepRecorded(
            step_no=number,
            kind=StepKind.OBSERVATION,
            fingerprint=fingerprint(observe(FACT)),
            result=raw(FACT),
            path=f"{number}",
        )
        for number in range(1, events - 2)
    ]
    return [opened, started, kept, *steps]


async def write(ports: Ports, subject: str, events: Sequence[EpisodeEvent], *, most: int) -> None:
    """Write a journal with up to `most` events in a commit."""
    clock, version = SystemClock(), START
    for begin in range(0, len(events), most):
        part = tuple(events[begin : begin + most])
        commit = Commit(id=f"c{begin}", at=clock.now(), events=part)
        version = await ports.log.append(subject, commit, after=version)


async def replay(ports: Ports, subject: str) -> int:
    """Bring the episode back, and return how many steps were replayed."""
    again = await replayed(await ports.log.read(subject), app)
    return again.steps


async def measure(url: str, *, runs: int) -> None:
    """Write and replay every journal, and print its line."""
    async with connect(url, stack=STACK) as ports:
        for case, most in CASES.items():
            for events in EVENTS:
                subject = STACK.episode(f"{case}-{events}")
                await write(ports, subject, life(events), most=most)
                assert await replay(ports, subject) == events - 3
                print(json.dumps(await _line(ports, subject, case, events, runs)), flush=True)


async def _line(ports: Ports, subject: str, case: str, events: int, runs: int) -> dict[str, object]:
    took_s = []
    for _ in range(runs):
        began_s = time.perf_counter()
        await replay(ports, subject)
        took_s.append(time.perf_counter() - began_s)
    p50_s = statistics.median(took_s)
    return {
        "case": case,
        "events": events,
        "p50_ms": round(p50_s * 1_000, 2),
        "per_s": round(events / p50_s),
        "peak_mb": round(await _peak_bytes(ports, subject) / MIB, 2),
        "runs": runs,
    }


async def _peak_bytes(ports: Ports, subject: str) -> int:
    tracemalloc.start()
    try:
        await replay(ports, subject)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def main() -> None:
    """Read the arguments and measure."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=7)
    runs = arguments.parse_args().runs
    with (
        tempfile.TemporaryDirectory() as directory,
        EmbeddedNats(Path(directory) / "nats", sync='"2m"') as nats,
    ):
        uvloop.run(measure(nats.url, runs=runs))


if __name__ == "__main__":
    main()
