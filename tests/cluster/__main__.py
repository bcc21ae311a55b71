"""Runs the chaos on three servers; prints one line of JSON: what went wrong, and what was wrong.

python -m tests.cluster --runs 10 --seed 7
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.chaos.__main__ import SEEDS, SHOWN_MAX, WRONG
from tests.chaos.faults import Fault
from tests.chaos.run import Size, say
from tests.cluster.faults import ServerFault
from tests.cluster.run import ClusterOutcome, run

COUNTED: Final = ("acknowledged", "compared", "purged_meanwhile", "purged", "rows_left")
WRONG_ON_REPLICAS: Final = ("unequal", "lost", "incomplete")

ENDS_S_MAX: Final = 240.0
"""Longest until every episode has ended, in seconds: a lease takes longer to lapse here, and each
write is on three disks of one machine."""


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
        ends_s_max=ENDS_S_MAX,
    )
    total = Counter[str](
        {"runs": 0, "clean": 0}
        | {f"{fault}s": 0 for fault in Fault if fault is not Fault.RESTART}
        | {each.value: 0 for each in ServerFault}
    )
    for number in range(chosen.runs):
        say(f"run {number + 1} of {chosen.runs}, seed {seed + number}")
        with _directory(chosen.within, seed + number) as directory:
            outcome = asyncio.run(run(directory, size, seed=seed + number))
        found = outcome.faults()
        total.update(runs=1, clean=not found, episodes=size.episodes, functions=size.functions)
        total.update(_counted(outcome))
        say(f"  {outcome.acknowledged} acknowledged, {outcome.compared} compared on each server")
        say(f"  {outcome.purged_meanwhile} purged meanwhile, {outcome.purged} at the end")
        for fault in found[:SHOWN_MAX]:
            say(f"  {fault}")
    print(json.dumps({"nodes": size.nodes, "lease_s": size.lease_s, "seed": seed, **total}))
    sys.exit(0 if total["clean"] == total["runs"] else 1)


@contextmanager
def _directory(within: Path | None, seed: int) -> Iterator[Path]:
    """Yield a folder for one run, which stays if it is `within` one that was asked for."""
    if within is None:
        with tempfile.TemporaryDirectory() as directory:
            yield Path(directory)
    else:
        kept = within / str(seed)
        kept.mkdir(parents=True)
        yield kept


def _counted(outcome: ClusterOutcome) -> dict[str, int]:
    of_nodes = outcome.of_nodes
    happened = {f"{fault}s": count for fault, count in of_nodes.happened.items()}
    happened |= {fault.value: count for fault, count in outcome.happened.items()}
    wrong = {name: len(getattr(of_nodes.verdict, name)) for name in WRONG}
    replicas = {f"{name} on replicas": len(getattr(outcome, name)) for name in WRONG_ON_REPLICAS}
    counts = {name: getattr(outcome, name) for name in COUNTED}
    return {**happened, **of_nodes.exercised, **wrong, **replicas, **counts}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--episodes", type=int, default=300, help="in each run")
    parser.add_argument("--functions", type=int, default=150, help="episodes of functions, too")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--lease-s", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=50.0, help="how long things go wrong")
    parser.add_argument("--seed", type=int, help="of the first run; the next one counts on")
    parser.add_argument("--within", type=Path, help="folder in which logs and stores are left")
    return parser.parse_args()


if __name__ == "__main__":
    main()
