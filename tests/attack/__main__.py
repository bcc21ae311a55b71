"""Attacks, and prints a table: what was tried, and what was wrong."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import repeat
from pathlib import Path
from typing import Final

from tests.attack.faults import Case, Fault, cases
from tests.attack.run import Outcome, attacking, say
from tests.attack.stories import STORIES

FAULTS: Final = 1_000
SEEDS: Final = 1_000_000

COLUMNS: Final = ("story", "points", "cases", "faults", "breaches", "unknown")
WIDTHS: Final = (12, 8, 8, 8, 10, 8)


def main() -> None:
    """Attack, and exit with 1 if anything was wrong."""
    chosen = _arguments()
    seed = random.randrange(SEEDS) if chosen.seed is None else chosen.seed
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="vigil-attack-") as folder:
        outcomes = asyncio.run(_attack(Path(folder), chosen, seed))
    for line in _table(outcomes):
        print(line)
    breached = [outcome for outcome in outcomes if outcome.breaches]
    for outcome in breached:
        print(f"BREACH  {outcome.case}: {outcome.breaches[0]}")
    print(f"seed {seed}, {time.monotonic() - begun_s:.0f} s")
    sys.exit(1 if breached else 0)


async def _attack(folder: Path, chosen: argparse.Namespace, seed: int) -> list[Outcome]:
    stories = [chosen.story] if chosen.story else list(STORIES)
    async with attacking(folder) as attack:
        if chosen.point is not None:
            case = Case(chosen.story, chosen.point, Fault(chosen.fault))
            return await attack.attempt(repeat(case, chosen.faults or 1))
        outcomes = await attack.count(stories)
        points = {outcome.case.story: outcome.points for outcome in outcomes}
        wanted = FAULTS if chosen.faults is None else chosen.faults
        say(f"seed {seed}: {sum(map(len, points.values()))} points of {len(points)} stories")
        every = (each for each in cases(points, seed) if chosen.fault in {None, each.fault})
        return outcomes + await attack.attempt(every, faults=wanted)


def _table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    stories = list(dict.fromkeys(outcome.case.story for outcome in outcomes))
    yield _row(COLUMNS)
    points = {each.case.story: len(each.points) for each in outcomes if each.case.fault is None}
    for story in stories:
        found = [each for each in outcomes if each.case.story == story]
        yield _row((story, points.get(story, ""), *_counted(found)))
    for fault in Fault:
        found = [each for each in outcomes if each.case.fault is fault]
        yield _row((fault.value, "", *_counted(found)))
    yield _row(("all", sum(points.values()), *_counted(outcomes)))


def _counted(outcomes: Sequence[Outcome]) -> tuple[int, ...]:
    return (
        len(outcomes),
        sum(outcome.struck for outcome in outcomes),
        sum(bool(outcome.breaches) for outcome in outcomes),
        sum(outcome.unknown for outcome in outcomes),
    )


def _row(cells: Sequence[object]) -> str:
    first, *others = (str(cell) for cell in cells)
    width, *widths = WIDTHS
    return first.ljust(width) + "".join(map(str.rjust, others, widths))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument(
        "--faults",
        type=int,
        help=f"how many at least, {FAULTS:,} by default; with --point, how many cases",
    )
    parser.add_argument("--story", choices=list(STORIES), help="only this one")
    parser.add_argument("--point", help="only there, such as episode.3, with --fault")
    parser.add_argument("--fault", choices=[fault.value for fault in Fault], help="only this kind")
    parser.add_argument("--seed", type=int, help="which points are tried first")
    chosen = parser.parse_args()
    if chosen.point is not None and not (chosen.story and chosen.fault):
        parser.error("--point is one of a story, and struck by one kind: add --story and --fault")
    return chosen


if __name__ == "__main__":
    main()
