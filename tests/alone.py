"""Runs each file of tests by itself, and says which fail: `make alone`.

    python -m tests.alone                            all files, as `make test` runs them
    python -m tests.alone tests/engine --jobs 1      those in a folder
    python -m tests.alone --since tests/web          those from one on

A file that passes behind others and fails here needs what they have left: a module that they
imported, a folder, a setting. Each runs in a fork of a process that has imported what others have
written and nothing of ours. Beside each stands the processor time that it took with all that it
started and waited for, imports included: the place to begin when `make test` gets slow. What warm
commands take is not in it (`tests/vigil/warm.py`): no test is the parent of one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Final, NamedTuple

import pytest

from tests.markers import ROOT
from tests.mutation import forked, import_of_others

FINE: Final = {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}
"""There are no tests in a file that only `make nightly` runs."""

SLOWEST: Final = 20


class Outcome(NamedTuple):
    """How the tests of a file went by themselves."""

    file: str
    code: int | None
    processor_s: float
    said: str
    """The end of what pytest printed."""

    @property
    def is_fine(self) -> bool:
        return self.code in FINE


def files(places: Sequence[str], since: str) -> list[str]:
    """Return the files of tests in `places`, in order, from the first that begins with `since`."""
    paths = [ROOT / place for place in places]
    found = {
        file for path in paths for file in (path.rglob("test_*.py") if path.is_dir() else [path])
    }
    names = (file.relative_to(ROOT).as_posix() for file in found)
    return sorted(name for name in names if name >= since)


def alone(file: str) -> Outcome:
    """Run the tests of a file in a process of their own."""
    before_s = _children_s()
    code, _, said = forked(str(ROOT), file, {})
    return Outcome(file, code, _children_s() - before_s, said)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(arguments: Sequence[str]) -> int:
    """Run each file; return 1 if one fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.alone", description=__doc__)
    parser.add_argument("places", nargs="*", default=["tests"])
    parser.add_argument("--since", default="")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args(arguments)
    outcomes = []
    anew = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(asked.jobs, anew, initializer=import_of_others) as pool:
        for each in pool.map(alone, files(asked.places, asked.since)):
            outcomes.append(each)
            print(
                f"{'' if each.is_fine else 'FAILS':5} {each.processor_s:6.1f} s  {each.file}",
                flush=True,
            )
            if not each.is_fine:
                print(each.said, flush=True)
    slowest = sorted(outcomes, key=lambda each: each.processor_s, reverse=True)[:SLOWEST]
    print(f"most processor time of {sum(each.processor_s for each in outcomes):.0f} s:")
    for each in slowest:
        print(f"      {each.processor_s:6.1f} s  {each.file}")
    failed = [each.file for each in outcomes if not each.is_fine]
    print(f"{len(failed)} of {len(outcomes)} files fail by themselves", *failed, sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
