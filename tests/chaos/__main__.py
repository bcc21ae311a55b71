"""Runs the chaos and prints one line of JSON: what went wrong, and what was wrong afterwards."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

from tests.chaos.faults import Fault
from tests.chaos.run import Outcome, Size, run, say

SHOWN_MAX: Final = 20
"""Most faults of one run that are told in words."""

SEEDS: Final = 1_000_000
WRONG: Final = ("lost", "doubled", "stuck", "projection_diffs", "events_missing")


def main() -> None:
    """Run, report, and exit with 1 if anything was wrong."""
    chosen = _arguments()
    seed = random.randrange(SEEDS) if chosen.seed is None else chosen.seed
    size = Size(
        episodes=chosen.episodes,
        functions=chosen.functions,
        nodes=chosen.nodes,
        lease_s=chosen.lease_s,
        during_s=chosen.seconds,
    )
    total = Counter[str](
        {"runs": 0, "episodes": 0, "functions": 0} | {f"{fault}s": 0 for fault in Fault}
    )
    for number in range(chosen.runs):
        say(f"run {number + 1} of {chosen.runs}, seed {seed + number}")
        with tempfile.TemporaryDirectory() as directory:
            outcome = asyncio.run(run(Path(directory), size, seed=seed + number))
        total.update(runs=1, episodes=size.episodes, functions=size.functions, **_counted(outcome))
        for fault in outcome.verdict.faults()[:SHOWN_MAX]:
            say(f"  {fault}")
    print(json.dumps({"nodes": size.nodes, "lease_s": size.lease_s, "seed": seed, **total}))
    sys.exit(1 if any(total[name] for name in WRONG) else 0)


def _counted(outcome: Outcome) -> dict[str, int]:
    happened = {f"{fault}s": count for fault, count in outcome.happened.items()}
    wrong = {name: len(getattr(outcome.verdict, name)) for name in WRONG}
    return {**happened, **outcome.exercised, **wrong}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--episodes", type=int, default=1_000, help="in each run")
    parser.add_argument("--functions", type=int, default=500, help="episodes of functions, too")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--lease-s", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=30.0, help="how long things go wrong")
    parser.add_argument("--seed", type=int, help="of the first run; the next one counts on")
    return parser.parse_args()


if __name__ == "__main__":
    main()
