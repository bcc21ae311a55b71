"""Renders results as tables: into the terminal, and into docs/performance.md with its plots.

    python -m bench.report [FILE]       the newest in bench/results by default

Everything between `<!-- results: NAME -->` and `<!-- end of results -->` on that page is written
from the file, and nobody writes numbers there by hand. Above each table stands of how many runs
its numbers are the medians, and what fewer than `RUNS_MIN` are worth. The tables are pure functions
of the file's lines; the plots need matplotlib, which only `make bench-report` has.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.lines import best, number, of, quickest, read, runs
from bench.measure import Line, ratio

ROOT: Final = Path(__file__).parents[1]
RESULTS: Final = ROOT / "bench/results"
PAGE: Final = ROOT / "docs/performance.md"
PLOTS: Final = ROOT / "docs/performance"

ABSENT: Final = "-"
UNMEASURED: Final = "Not measured yet."

RUNS_MIN: Final = 5
"""Runs whose median the page shows as it is; those of fewer are marked."""

DIGITS: Final = 3
"""How many digits of a number say something; more of them are noise."""
PART: Final = re.compile(r"(?s)(<!-- results: ([\w-]+) -->\n).*?(<!-- end of results -->)")

STEPS_RATIO_RESTATE: Final = 3
STEPS_RATIO_DBOS: Final = 10
"""How many times a peer's best we want to be, in five-step episodes per second."""

SHORTER_P50: Final = 2
"""How many times shorter than a peer's our median shall be, one at a time."""


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table: the first column to the left, the others to the right."""
    rulers = ["---", *("---:" for _ in head[1:])]
    lines = [head, rulers, *(tuple(map(_shown, row)) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _shown(value: object) -> str:
    match value:
        case bool() | str():
            return str(value)
        case int() | float():
            return f"{value:,.0f}" if abs(value) >= 10 ** (DIGITS - 1) else f"{value:.{DIGITS}g}"
        case _:
            return ABSENT


def said_of_runs(lines: Iterable[Line]) -> str:
    """Return of how many runs the numbers in `lines` are the medians."""
    counts = sorted({runs(line) for line in lines})
    fewest, most = counts[0], counts[-1]
    many = f"{fewest} to {most}" if fewest < most else str(most)
    said = "One run of each." if most == 1 else f"Medians of {many} runs."
    if fewest >= RUNS_MIN:
        return said
    return f"**{said} Fewer than {RUNS_MIN} show that it works, and not how fast it is.**"


def measured(found: Sequence[Line], shown: str) -> str:
    """Return a table made from `found` behind what is to be said of their runs."""
    return f"{said_of_runs(found)}\n\n{shown}"


def machines(lines: Sequence[Line]) -> str:
    """Return what measured, in the newest of `lines` that says so."""
    newest = of(lines, "machine")[-1:]
    facts = [
        (name.replace("_", " "), str(value)) for line in newest for name, value in line.items()
    ]
    return table(("machine", ""), [fact for fact in facts if fact[0] != "suite"])


def cases(lines: Sequence[Line]) -> str:
    """Return results with one row for each."""
    head = (
        *("case", "in flight", "per s", "slowest run", "fastest run"),
        *("p50 ms", "p99 ms", "client cores"),
    )
    names = ("in_flight", "per_s", "per_s_min", "per_s_max", "p50_ms", "p99_ms", "load_cores")
    is_one = len({line["system"] for line in lines}) == 1
    labels = (_label(line, is_alone=is_one) for line in lines)
    rows = ((label, *map(line.get, names)) for label, line in zip(labels, lines, strict=True))
    return measured(lines, table(head, rows))


def _label(line: Line, *, is_alone: bool) -> str:
    return f"`{line['case']}`" if is_alone else f"{line['system']}: `{line['case']}`"


def ratios(lines: Sequence[Line]) -> str:
    """Return how Vigil's strict steps compare with each peer at its best."""
    compared = of(lines, "comparison")
    ours = best(compared, "vigil", case="steps_strict")
    quick = quickest(compared, "vigil", case="steps_strict")
    rows = []
    for peer, wanted in (("restate", STEPS_RATIO_RESTATE), ("dbos", STEPS_RATIO_DBOS)):
        theirs, alone = best(compared, peer), quickest(compared, peer)
        throughput = ratio(number(ours, "per_s"), number(theirs, "per_s"))
        latency = ratio(number(alone, "p50_ms"), number(quick, "p50_ms"))
        rows.append((f"Vigil beside {peer}", throughput, f"{wanted}x", latency, f"{SHORTER_P50}x"))
    head = ("", "more per s, each at its best", "wanted", "shorter p50, one at a time", "wanted")
    return table(head, rows)


def comparison(lines: Sequence[Line]) -> str:
    """Return the results beside the peers, and the ratios."""
    compared = of(lines, "comparison")
    return f"{cases(compared)}\n\n{ratios(lines)}\n\n{durability(compared)}"


def limits(lines: Sequence[Line]) -> str:
    """Return how much of what the log takes at best the busiest runs of each case use."""
    appended, found = of(lines, "appends"), of(lines, "episodes")
    log = max(number(line, "per_s") for line in appended)
    names = dict.fromkeys(str(line["case"]) for line in found)
    busiest = (best(found, "vigil", case=name) for name in names)
    rows = []
    for line in filter(None, busiest):
        commits = number(line, "per_s") * number(line, "commits_each")
        said = (line[name] for name in ("in_flight", "per_s", "commits_each"))
        rows.append((_label(line, is_alone=True), *said, commits, f"{commits / log:.0%}"))
    head = ("case", "in flight", "per s", "commits each", "commits per s", "of what the log takes")
    return measured([*appended, *found], table(head, rows))


def durability(lines: Sequence[Line]) -> str:
    """Return how each system makes things durable."""
    said = {str(line["system"]): str(line["sync"]) for line in lines}
    return table(("system", "durable by"), said.items())


def retained(lines: Sequence[Line]) -> str:
    """Return what histories cost."""
    found = of(lines, "retained")
    memory = [line for line in found if line["case"] == "memory"]
    empty = {str(line["case"]): line for line in found if line["system"] == "vigil-retained-0"}
    rows = []
    for stack in memory:
        of_stack = {str(line["case"]): line for line in found if line["system"] == stack["system"]}
        share = [
            ratio(number(of_stack.get(name), "per_s"), number(empty.get(name), "per_s"))
            for name in ("converge_only", "steps_strict")
        ]
        names = ("server_mib", "server_bytes_per_episode", "node_mib")
        rows.append((stack["retained"], *share, *(stack[name] for name in names)))
    head = (
        *("retained episodes", "`converge_only` of empty", "`steps_strict` of empty"),
        *("NATS server MiB", "more bytes per episode", "node MiB"),
    )
    return measured([line for line in found if line not in memory], table(head, rows))


def plain(lines: Sequence[Line]) -> str:
    """Return lines of one kind as they are: a column for each of their names."""
    names = [name for line in lines for name in line if name not in {"suite", "system"}]
    head = list(dict.fromkeys(names))
    return measured(lines, table(head, ([line.get(name) for name in head] for line in lines)))


PARTS: Final[Mapping[str, Callable[[Sequence[Line]], str]]] = {
    "machine": machines,
    "episodes": lambda lines: cases(of(lines, "episodes")),
    "limits": limits,
    "scaling": lambda lines: cases(of(lines, "scaling")),
    "comparison": comparison,
    "replay": lambda lines: plain(of(lines, "replay")),
    "takeover": lambda lines: plain(of(lines, "takeover")),
    "projector": lambda lines: plain(of(lines, "projector")),
    "appends": lambda lines: plain(of(lines, "appends")),
    "idle": lambda lines: plain(of(lines, "idle")),
    "retained": retained,
}
"""Part of the page → what stands there."""

NEEDED: Final = {"limits": {"appends", "episodes"}}
"""Part → the suites that it is made from, if not from the one of its name."""


PLOTTED: Final = {
    "comparison": ("Five durable steps: per second, and milliseconds one at a time", "peers.svg"),
    "replay": ("Milliseconds to bring back an episode, by events in its journal", "replay.svg"),
    "retained": ("Episodes per second, by episodes retained", "retained.svg"),
}
"""Part → what its plot shows, and the plot's file."""


def tables(lines: Sequence[Line]) -> Mapping[str, str]:
    """Return the tables of those suites that `lines` hold."""
    there = {line["suite"] for line in lines}
    made = [name for name in PARTS if NEEDED.get(name, {name}) <= there]
    return {name: PARTS[name](lines) for name in made}


def rewritten(page: str, lines: Sequence[Line]) -> str:
    """Return `page` with every part as `lines` say it."""
    made = {name: _with_plot(name, shown) for name, shown in tables(lines).items()}
    return PART.sub(lambda part: f"{part[1]}{made.get(part[2], UNMEASURED)}\n{part[3]}", page)


def _with_plot(name: str, shown: str) -> str:
    if name not in PLOTTED:
        return shown
    says, file = PLOTTED[name]
    return f"{shown}\n\n![{says}]({PLOTS.name}/{file})"


def newest() -> Path:
    """Return the newest results file.

    Raises:
        FileNotFoundError: there is none.
    """
    files = sorted(RESULTS.glob("*.jsonl"))
    if not files:
        raise FileNotFoundError(f"{RESULTS}: measure first, `make bench`")
    return files[-1]


def main() -> None:
    """Write the page and its plots."""
    from bench.plots import draw  # noqa: PLC0415 - the tables do without matplotlib

    lines = read(Path(sys.argv[1]) if len(sys.argv) > 1 else newest())
    PAGE.write_text(rewritten(PAGE.read_text(), lines))
    draw(lines, PLOTS)


if __name__ == "__main__":
    main()
