"""Renders results as tables: into the terminal, and into docs/performance.md with its plots.

    python -m bench.report [FILE]…      all in bench/results by default

Everything between `<!-- results: NAME -->` and `<!-- end of results -->` on that page is written
from the files, and nobody writes numbers there by hand. Of each suite, the page shows the newest
measurement. Above each table stands of how many runs its numbers are the medians, what fewer than
`RUNS_MIN` are worth, and when that was. The tables are pure functions of the files' lines; the
plots need matplotlib, which only `make bench-report` has.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.lines import MEASURED, best, number, of, of_origin, quickest, read, runs
from bench.measure import Line, ratio

ROOT: Final = Path(__file__).parents[1]
RESULTS: Final = ROOT / "bench/results"
PAGE: Final = ROOT / "docs/performance.md"
PLOTS: Final = ROOT / "docs/performance"

ABSENT: Final = "-"
UNMEASURED: Final = "Not measured yet."

RUNS_MIN: Final = 5
"""Runs whose median the page shows as it is; those of fewer are marked."""

SHARED_CORES_MIN: Final = 0.5
"""Cores that others use before numbers are marked. The kernel's own threads, which write what is
synced, and systems that wait for their turn are fewer."""

DIGITS: Final = 3
"""How many digits of a number say something; more of them are noise."""
PART: Final = re.compile(r"(?s)(<!-- results: ([\w-]+) -->\n).*?(<!-- end of results -->)")

WANTED: Final = {
    ("steps_strict", "restate"): ("2x", "3x", "2x"),
    ("steps_strict", "dbos"): ("12x", ABSENT, "2x"),
    ("steps_pipelined", "restate"): ("2.5x", ABSENT, ABSENT),
    ("steps_pipelined", "dbos"): (ABSENT, ABSENT, ABSENT),
}
"""Our case and a peer → how many times its rate we want, each at its best and with as many in
flight, and how many times shorter our median, one at a time."""

IN_FLIGHT_ALIKE: Final = 64

BY_FUNCTION: Final = "steps_function"
BY_CLASS: Final = "steps_strict"
BY_FUNCTION_MOST: Final = "1.1x"
"""Processor time that five steps by a function may cost, beside those by a class."""


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
    if fewest >= RUNS_MIN:  # guard: few-runs-marked
        return said
    return f"**{said} Fewer than {RUNS_MIN} show that it works, and not how fast it is.**"


def measured(found: Sequence[Line], shown: str) -> str:
    """Return a table made from `found` behind what is to be said of their runs."""
    origins = "; ".join(of_origin(found))
    said = f"{said_of_runs(found)} Measured on {origins}." if origins else said_of_runs(found)
    return f"{said}{_said_of_others(found)}\n\n{shown}"


def _said_of_others(found: Sequence[Line]) -> str:
    """Return what to make of numbers from a machine that was busy with something else."""
    cores = max((number(line, "other_cores") for line in found), default=0.0)
    if cores < SHARED_CORES_MIN:  # guard: shared-machine-marked
        return ""
    return (
        f" **The machine was shared: other work had up to {cores:.2g} of its cores meanwhile."
        " Rates and latencies are those of what was left; processor time says more.**"
    )


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
        *("p50 ms", "p99 ms", "client cores", "processor us each", "cores of others"),
    )
    names = (
        *("in_flight", "per_s", "per_s_min", "per_s_max", "p50_ms", "p99_ms"),
        *("load_cores", "cpu_us_each", "other_cores"),
    )
    is_one = len({line["system"] for line in lines}) == 1
    labels = (_label(line, is_alone=is_one) for line in lines)
    rows = ((label, *map(line.get, names)) for label, line in zip(labels, lines, strict=True))
    return measured(lines, table(head, rows))


def _label(line: Line, *, is_alone: bool) -> str:
    return f"`{line['case']}`" if is_alone else f"{line['system']}: `{line['case']}`"


def forms(lines: Sequence[Line]) -> str:
    """Return what five steps cost by a function beside a class; empty: not both were measured."""
    found = {
        (str(line["case"]), round(number(line, "in_flight"))): line
        for line in of(lines, "episodes")
    }
    rows = [
        (in_flight, _ratio("cpu_us_each", line, found.get((BY_CLASS, in_flight))), BY_FUNCTION_MOST)
        for (case, in_flight), line in found.items()
        if case == BY_FUNCTION
    ]
    head = ("in flight", f"processor time, `{BY_FUNCTION}` to `{BY_CLASS}`", "at most")
    return table(head, rows) if any(ratio != ABSENT for _, ratio, _ in rows) else ""


def climb(lines: Sequence[Line]) -> str:
    """Return what each way of each system does with more and more in flight."""
    found = of(lines, "climb")
    labels = list(dict.fromkeys(_label(line, is_alone=False) for line in found))
    per_s = {(_label(line, is_alone=False), line["in_flight"]): line["per_s"] for line in found}
    numbers = sorted({round(number(line, "in_flight")) for line in found})
    rows = ((label, *(per_s.get((label, each)) for each in numbers)) for label in labels)
    return measured(found, table(("per s, with in flight", *map(str, numbers)), rows))


def ratios(lines: Sequence[Line]) -> str:
    """Return how Vigil's cases compare with each peer, like with like."""
    compared = of(lines, "comparison")
    return table(
        (
            *("", "per s, each at its best", "wanted", f"per s, {IN_FLIGHT_ALIKE} in flight"),
            *("wanted", "shorter p50, one at a time", "wanted", "less processor time, at its best"),
        ),
        (_ratios(compared, case, peer) for case, peer in WANTED),
    )


def _ratios(compared: Sequence[Line], case: str, peer: str) -> Sequence[str]:
    at_best, alike, shorter = WANTED[case, peer]
    ours, theirs = best(compared, "vigil", case=case), best(compared, peer)
    with_so_many = [
        best(compared, "vigil", case=case, in_flight=IN_FLIGHT_ALIKE),
        best(compared, peer, in_flight=IN_FLIGHT_ALIKE),
    ]
    alone = [quickest(compared, peer), quickest(compared, "vigil", case=case)]
    return (
        *(f"`{case}` beside {peer}", _ratio("per_s", ours, theirs), at_best),
        *(_ratio("per_s", *with_so_many), alike, _ratio("p50_ms", *alone), shorter),
        _ratio("cpu_us_each", theirs, ours),
    )


def _ratio(name: str, one: Line | None, other: Line | None) -> str:
    """Return how often a number of `other` fits into that of `one`, if both were measured."""
    if not number(one, name) or not number(other, name):
        return ABSENT
    return ratio(number(one, name), number(other, name))


def comparison(lines: Sequence[Line]) -> str:
    """Return the results beside the peers, and the ratios."""
    compared = of(lines, "comparison")
    return f"{cases(compared)}\n\n{ratios(lines)}\n\n{durability(compared)}"


def half(lines: Sequence[Line]) -> str:
    """Return how long one takes at half of the best rate."""
    found = of(lines, "half")
    head = ("case", "per s", "p50 ms", "p99 ms", "processor us each", "cores of others")
    names = ("per_s", "p50_ms", "p99_ms", "cpu_us_each", "other_cores")
    rows = ((_label(line, is_alone=False), *map(line.get, names)) for line in found)
    return measured(found, table(head, rows))


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


def budget(lines: Sequence[Line]) -> str:
    """Return what an episode of each case costs on one node, and what each of its stages costs."""
    found = of(lines, "budget")
    whole = {str(line["case"]): line for line in found if line["system"] == "together"}
    parts = {str(line["case"]): line for line in found if line["system"] == "apart"}
    cost = table(
        ("an episode, one node", *map(_unit, (*ON_ONE_NODE, *COUNTED))),
        ((f"`{case}`", *_costs(line, ON_ONE_NODE)) for case, line in whole.items()),
    )
    each = [
        (stage, *_costs(_difference(parts, more, less, times), APART))
        for stage, (more, less, times) in STAGES.items()
        if {more, less} - {""} <= parts.keys()
    ]
    by_stage = table(("a stage, parts apart", *map(_unit, (*APART, *COUNTED))), each)
    return f"{measured(found, cost)}\n\n{by_stage}"


ON_ONE_NODE: Final = ("node_us", "nats_us", "postgres_us")
APART: Final = ("node_us", "reactor_us", "projector_us", "nats_us", "postgres_us")
COUNTED: Final = ("all_us", "messages", "kib", "stored", "commits")

STAGES: Final[Mapping[str, tuple[str, str, int]]] = {
    "gate: an event that fires nothing": ("refused", "", 1),
    "converge: an episode without steps, with its event": ("converge_only", "", 1),
    "fence and claim, and the first step": ("step_strict", "converge_only", 1),
    "a further step": ("steps_strict", "step_strict", 4),
    "effects: a finding": ("findings", "converge_only", 10),
}
"""Stage → the case that has it, the one that does not, and how often the former has it more."""


def _difference(costs: Mapping[str, Line], more: str, less: str, times: int) -> Line:
    named = (*APART, *COUNTED)
    return {n: (number(costs[more], n) - number(costs.get(less), n)) / times for n in named}


def _costs(line: Line, parts: Sequence[str]) -> Sequence[float]:
    """Return the numbers of `line`: each of `parts`, all of them, and what is counted."""
    spent = [number(line, part) for part in parts]
    return [*spent, sum(spent), *(number(line, name) for name in COUNTED[1:])]


def _unit(name: str) -> str:
    return name.replace("_us", " us").replace("kib", "KiB")


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


def growth(lines: Sequence[Line]) -> str:
    """Return what stacks cost that have much of something."""
    found = of(lines, "growth")
    stacks = [line for line in found if line["case"] == "stack"]
    rates = {(line["system"], line["case"]): number(line, "per_s") for line in found}
    rows = []
    for stack in stacks:
        share = [
            ratio(rates.get((stack["system"], name), 0.0), rates.get(("empty", name), 0.0))
            for name in ("converge_only", "steps_strict")
        ]
        names = ("server_mib", "node_mib", "up_s")
        rows.append((stack["system"], stack["count"], *share, *(stack[name] for name in names)))
    head = (
        *("much of", "how many", "`converge_only` of empty", "`steps_strict` of empty"),
        *("NATS server MiB", "node MiB", "second node up, s"),
    )
    return measured([line for line in found if line not in stacks], table(head, rows))


def lists(lines: Sequence[Line]) -> str:
    """Return how long pages take, now and as they were: milliseconds at the median."""
    found = of(lines, "lists")
    times = list(dict.fromkeys(str(line["system"]) for line in found))
    took = {(line["case"], line["system"]): line.get("p50_ms") for line in found}
    pages = dict.fromkeys(line["case"] for line in found)
    rows = [(f"`{page}`", *(took.get((page, time)) for time in times)) for page in pages]
    return measured(found, table(("page", *(f"{time}, ms" for time in times)), rows))


def plain(lines: Sequence[Line]) -> str:
    """Return lines of one kind as they are: a column for each of their names."""
    hidden = {"suite", "system", *MEASURED}
    names = [name for line in lines for name in line if name not in hidden]
    head = list(dict.fromkeys(names))
    return measured(lines, table(head, ([line.get(name) for name in head] for line in lines)))


PARTS: Final[Mapping[str, Callable[[Sequence[Line]], str]]] = {
    "machine": machines,
    "episodes": lambda lines: "\n\n".join(
        filter(None, (cases(of(lines, "episodes")), forms(lines)))
    ),
    "budget": budget,
    "limits": limits,
    "scaling": lambda lines: cases(of(lines, "scaling")),
    "climb": climb,
    "comparison": comparison,
    "half": half,
    "replay": lambda lines: plain(of(lines, "replay")),
    "takeover": lambda lines: plain(of(lines, "takeover")),
    "projector": lambda lines: plain(of(lines, "projector")),
    "appends": lambda lines: plain(of(lines, "appends")),
    "idle": lambda lines: plain(of(lines, "idle")),
    "retained": retained,
    "growth": growth,
    "lists": lists,
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


def kept() -> Sequence[Path]:
    """Return the results files, the oldest first.

    Raises:
        FileNotFoundError: there is none.
    """
    files = sorted(RESULTS.glob("*.jsonl"))
    if not files:
        raise FileNotFoundError(f"{RESULTS}: measure first, `make bench`")
    return files


def main() -> None:
    """Write the page and its plots."""
    from bench.plots import draw  # noqa: PLC0415 - the tables do without matplotlib

    lines = read(*(map(Path, sys.argv[1:]) if len(sys.argv) > 1 else kept()))
    PAGE.write_text(rewritten(PAGE.read_text(), lines))
    draw(lines, PLOTS)


if __name__ == "__main__":
    main()
