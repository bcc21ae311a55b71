"""Measures this machine, suite by suite, and keeps what was found.

    python -m bench engine|peers|history [--quick] [--only SUITE]… [--results FILE]

A suite is a program of its own in this folder that prints JSON lines. They are appended to the
results file, `bench/results/<date>.jsonl`, behind a line about the machine; in the end the tables
are printed. `--quick` sees that everything works and keeps nothing unless told where.
`python -m bench.report` renders results into the documentation.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from bench.machine import machine
from bench.measure import Line
from bench.program import ROOT
from bench.report import RESULTS, tables

SUITE_S_MAX: Final = 3_600
"""Longest that one program may take, in seconds."""


class Suite(NamedTuple):
    """A program that measures."""

    name: str
    arguments: Sequence[str] = ()
    quick: Sequence[str] = ("--quick",)
    """Arguments that make it short."""


SUITES: Final = {
    "engine": (
        Suite("episodes"),
        Suite("budget"),
        Suite("scaling"),
        Suite("replay", quick=("--runs", "1")),
        Suite("takeover", ("--samples", "24"), quick=("--samples", "1")),
        Suite("projector", quick=("500", "--runs", "1")),
        Suite("appends", quick=("--runs", "1")),
        Suite("idle", quick=("--seconds", "1", "--runs", "1")),
    ),
    "peers": (Suite("comparison"),),
    "history": (
        Suite("retained"),
        Suite("growth"),
        Suite("rebuild"),
        Suite("rebuild_under_load"),
        Suite("questions"),
        Suite("archive"),
        Suite("lists"),
    ),
}


def measure(suite: Suite, *, is_quick: bool) -> Iterator[Line]:
    """Run a suite and yield its lines as they come; whatever else it says goes to stderr.

    Raises:
        CalledProcessError: it failed; what it said is on stderr.
    """
    arguments = suite.quick if is_quick else suite.arguments
    command = [sys.executable, "-m", f"bench.{suite.name}", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                yield {"suite": suite.name, **json.loads(line)}
            else:
                sys.stderr.write(line)
        code = process.wait(SUITE_S_MAX)
    if code:
        raise subprocess.CalledProcessError(code, command)


def keep(line: Line, results: Path | None) -> None:
    """Append `line` to the results file, if there is one."""
    if results:
        results.parent.mkdir(parents=True, exist_ok=True)
        with results.open("a") as file:
            file.write(json.dumps(line) + "\n")


def main() -> None:
    """Run the suites that were asked for."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("what", choices=SUITES)
    arguments.add_argument("--quick", action="store_true", help="only see that it works")
    arguments.add_argument("--only", action="append", help="of its suites; all by default")
    arguments.add_argument("--results", type=Path, help="append to this file")
    chosen = arguments.parse_args()
    today = RESULTS / f"{datetime.now(UTC).date()}.jsonl"
    results = chosen.results or (None if chosen.quick else today)
    lines = [machine()]
    keep(lines[0], results)
    for suite in SUITES[chosen.what]:
        if chosen.only and suite.name not in chosen.only:
            continue
        began_s = time.monotonic()
        for line in measure(suite, is_quick=chosen.quick):
            lines.append(line)
            keep(line, results)
        print(f"{suite.name}: {time.monotonic() - began_s:.0f} s", file=sys.stderr)
    for name, table in tables(lines).items():
        print(f"\n{name}\n\n{table}")


if __name__ == "__main__":
    main()
