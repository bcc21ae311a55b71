"""Results become tables, and the page says what the newest results say."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from bench.lines import number, read
from bench.measure import Case, Line, Run, summarise
from bench.report import PAGE, PART, PARTS, RESULTS, STAGES, kept, rewritten, table, tables
from tests.docs.pages import ROOT, rows


def line(suite: str, system: str, case: str, *, in_flight: int, per_s: int, p50_ms: float) -> Line:
    took = Run(count=per_s, seconds=1.0, took_ms=[p50_ms], load_cores=0.1)
    measured = summarise(Case(system, case, in_flight), [took], sync="always")
    return {"suite": suite, **measured.line}


COMPARED = [
    line("comparison", "vigil", "steps_strict", in_flight=1, per_s=150, p50_ms=5.0),
    line("comparison", "vigil", "steps_strict", in_flight=64, per_s=660, p50_ms=90.0),
    line("comparison", "vigil", "steps_pipelined", in_flight=64, per_s=900, p50_ms=60.0),
    line("comparison", "restate", "steps", in_flight=1, per_s=80, p50_ms=12.0),
    line("comparison", "restate", "steps", in_flight=64, per_s=200, p50_ms=300.0),
    line("comparison", "dbos", "steps_threads", in_flight=1, per_s=40, p50_ms=25.0),
    line("comparison", "dbos", "steps_threads", in_flight=4, per_s=60, p50_ms=66.0),
    line("comparison", "dbos", "steps_async", in_flight=4, per_s=50, p50_ms=80.0),
]


def test_a_table_has_a_row_for_each_case():
    found = rows(tables([line("episodes", "vigil", "findings", in_flight=1, per_s=45, p50_ms=20)])
                 ["episodes"])  # fmt: skip

    assert found == [["`findings`", "1", "45", "45", "45", "20", "20", "0.1", "0", "0"]]


def test_steps_by_a_function_are_compared_with_those_by_a_class():
    took = [
        replace(Run(count=100, seconds=1.0, took_ms=[5.0], load_cores=0.1), cpu_s={"node": cpu_s})
        for cpu_s in (0.2, 0.21)
    ]
    by_class, by_function = (
        {"suite": "episodes", **summarise(Case("vigil", name, 64), [run], sync="always").line}
        for name, run in zip(("steps_strict", "steps_function"), took, strict=True)
    )
    assert "| 64 | 1.1x | 1.1x |" in tables([by_class, by_function])["episodes"]
    assert "at most" not in tables([by_function])["episodes"]


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ((5, 5), "Medians of 5 runs."),
        ((7, 5), "Medians of 5 to 7 runs."),
        (
            (5, 4),
            "**Medians of 4 to 5 runs. Fewer than 5 show that it works, and not how fast it is.**",
        ),
        ((1, 1), "**One run of each. Fewer than 5 show that it works, and not how fast it is.**"),
    ],
)
def test_every_table_says_of_how_many_runs_it_is_and_marks_too_few(runs, said):
    result = line("", "vigil-retained-0", "", in_flight=1, per_s=45, p50_ms=20)
    cost = {"system": "together", "node_us": 400}
    memory = {"retained": 0, "server_mib": 50, "server_bytes_per_episode": 0, "node_mib": 60}
    made = tables(
        [
            *(
                {**result, "suite": suite, "case": f"c{n}", "runs": n}
                for suite in PARTS.keys() - {"machine", "limits", "takeover", "budget"}
                for n in runs
            ),
            *({"suite": "budget", "case": f"c{n}", "runs": n, **cost} for n in runs),
            *({"suite": "takeover", "case": f"c{n}", "samples": n, "p50_s": 2.5} for n in runs),
            {"suite": "retained", "system": "vigil-retained-0", "case": "memory", **memory},
        ]
    )

    assert made.keys() == PARTS.keys() - {"machine"}
    assert {name: text.split("\n")[0] for name, text in made.items()} == dict.fromkeys(made, said)


def test_a_peer_is_named_beside_its_case():
    assert "| dbos: `steps_threads` |" in tables(COMPARED)["comparison"]


def test_strict_steps_are_compared_with_each_peer_at_its_best():
    compared = tables(COMPARED)["comparison"]

    assert "| `steps_strict` beside restate | 3.3x | 2x | 3.3x | 3x | 2.4x | 2x |" in compared
    assert "| `steps_strict` beside dbos | 11.0x | 12x | - | - | 5.0x | 2x |" in compared
    assert "| `steps_pipelined` beside restate | 4.5x | 2.5x | 4.5x | - | - | - |" in compared


def test_what_a_peer_needs_of_the_processor_is_compared_at_its_best():
    ours, theirs = (line_with_cpu(*each) for each in (("vigil", "steps_strict", 2_000),
                                                      ("restate", "steps", 5_000)))  # fmt: skip

    assert "| 2.5x |\n" in tables([ours, theirs])["comparison"]


def line_with_cpu(system: str, case: str, cpu_us: int) -> Line:
    made = line("comparison", system, case, in_flight=256, per_s=200, p50_ms=1000)
    return {**made, "cpu_us_each": cpu_us}


@pytest.mark.parametrize(("cores", "is_said"), [(0.2, False), (1.6, True)])
def test_numbers_of_a_machine_that_was_shared_are_marked(cores, is_said):
    found = {**line("comparison", "vigil", "steps_strict", in_flight=1, per_s=5, p50_ms=1)}

    said = tables([{**found, "other_cores": cores}])["comparison"]

    assert ("**The machine was shared: other work had up to 1.6 of its cores" in said) == is_said


def test_all_ways_of_a_system_are_shown_with_what_more_in_flight_brings():
    climbed = [
        line("climb", "vigil", "steps_strict", in_flight=in_flight, per_s=per_s, p50_ms=1)
        for in_flight, per_s in ((1, 150), (64, 660))
    ]
    other = line("climb", "dbos", "steps_async", in_flight=1, per_s=50, p50_ms=1)

    assert rows(tables([*climbed, other])["climb"]) == [
        ["vigil: `steps_strict`", "150", "660"],
        ["dbos: `steps_async`", "50", "-"],
    ]


def test_a_stage_costs_what_an_episode_with_it_costs_more_than_one_without():
    costs = {"refused": 50, "converge_only": 400, "step_strict": 900, "steps_strict": 1_700,
             "findings": 2_400}  # fmt: skip
    lines: list[Line] = [
        {"suite": "budget", "system": "apart", "case": case, "node_us": node_us, "runs": 5}
        for case, node_us in costs.items()
    ]

    found = rows(tables(lines)["budget"])

    assert [row[:2] for row in found[-len(STAGES) :]] == [
        [stage, spent]
        for stage, spent in zip(STAGES, ("50", "400", "500", "200", "200"), strict=True)
    ]


def test_the_limit_is_what_the_log_takes_at_its_best():
    busy = line("episodes", "vigil", "steps_strict", in_flight=64, per_s=500, p50_ms=90.0)
    idle = line("episodes", "vigil", "steps_strict", in_flight=1, per_s=100, p50_ms=9.0)
    log = line("appends", "vigil", "append_grouped", in_flight=256, per_s=10_000, p50_ms=20.0)

    found = rows(tables([idle, {**busy, "commits_each": 8}, log])["limits"])

    assert found == [["`steps_strict`", "64", "500", "8", "4,000", "40%"]]


def test_a_history_is_compared_with_the_empty_stack():
    kept = [
        line("retained", "vigil-retained-0", "converge_only", in_flight=64, per_s=1000, p50_ms=1),
        line("retained", "vigil-retained-100", "converge_only", in_flight=64, per_s=900, p50_ms=1),
        *(
            {"suite": "retained", "system": f"vigil-retained-{count}", "case": "memory",
             "retained": count, "server_mib": 50, "server_bytes_per_episode": 0, "node_mib": 60}
            for count in (0, 100)
        ),
    ]  # fmt: skip

    found = rows(tables(kept)["retained"])

    assert [row[:2] for row in found] == [["0", "1.0x"], ["100", "0.90x"]]


def test_a_stack_that_has_grown_is_compared_with_the_empty_one():
    grown = [
        *(
            line("growth", system, "steps_strict", in_flight=64, per_s=per_s, p50_ms=1)
            for system, per_s in (("empty", 200), ("actors", 190))
        ),
        *(
            {"suite": "growth", "system": system, "case": "stack",
             "count": count, "server_mib": 50, "node_mib": 60, "up_s": up_s}
            for system, count, up_s in (("empty", 0, 0.8), ("actors", 100, 1.5))
        ),
    ]  # fmt: skip

    assert rows(tables(grown)["growth"]) == [
        ["empty", "0", "?", "1.0x", "50", "60", "0.8"],
        ["actors", "100", "?", "0.95x", "50", "60", "1.5"],
    ]


def test_lines_of_another_program_are_shown_as_they_are():
    lines: list[Line] = [{"suite": "replay", "case": "strict", "events": 10_000, "p50_ms": 512.345}]

    assert rows(tables(lines)["replay"]) == [["strict", "10,000", "512"]]


def test_a_suite_that_was_not_measured_has_no_table():
    assert list(tables(COMPARED)) == ["comparison"]


def test_what_is_not_a_number_is_shown_as_absent():
    assert rows(table(("case", "per s"), [("a", None)])) == [["a", "-"]]
    assert number(None, "per_s") == 0.0


def test_a_later_line_replaces_an_earlier_one_of_the_same_case(tmp_path):
    file = tmp_path / "results.jsonl"
    both = [
        line("episodes", "vigil", "findings", in_flight=64, per_s=per_s, p50_ms=1)
        for per_s in (100, 200)
    ]
    file.write_text("".join(json.dumps(each) + "\n" for each in both))

    assert [each["per_s"] for each in read(file)] == [200]


def test_a_suite_that_was_measured_again_replaces_all_that_it_said_before(tmp_path):
    def session(day: int, suite: str, *, in_flight: int) -> str:
        machine = {"suite": "machine", "at": f"2026-11-0{day}T00:00+00:00", "commit": f"c{day}"}
        found = line(suite, "restate", "steps", in_flight=in_flight, per_s=100, p50_ms=1)
        return f"{json.dumps(machine)}\n{json.dumps(found)}\n"

    older, newer = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    older.write_text(session(1, "comparison", in_flight=64) + session(1, "scaling", in_flight=64))
    newer.write_text(session(2, "comparison", in_flight=512))

    lines = read(older, newer)

    assert {(each["suite"], each.get("in_flight")) for each in lines} == {
        ("machine", None),
        ("comparison", 512),
        ("scaling", 64),
    }
    assert "Measured on 2026-11-01 at `c1`." in tables(lines)["scaling"]


def test_only_the_parts_of_a_page_that_are_results_are_written():
    page = "before\n<!-- results: comparison -->\nold\n<!-- end of results -->\nafter\n"

    written = rewritten(page, COMPARED)

    assert "old" not in written
    assert written.startswith("before\n")
    assert written.endswith("<!-- end of results -->\nafter\n")
    assert rewritten(written, COMPARED) == written


def test_a_plot_stands_where_there_are_numbers_and_nowhere_else():
    page = "<!-- results: comparison -->\n<!-- end of results -->\n"

    assert "](performance/peers.svg)" in rewritten(page, COMPARED)
    assert "svg" not in rewritten(page, [])
    assert ".svg" not in PART.sub("", PAGE.read_text())


def test_the_page_has_a_place_for_every_suite():
    assert re.findall(r"<!-- results: ([\w-]+) -->", PAGE.read_text()) != []
    assert sorted(re.findall(r"<!-- results: ([\w-]+) -->", PAGE.read_text())) == sorted(PARTS)


def of_git(folder: Path) -> list[Line]:
    """Return the results that git keeps, as it keeps them, if there are any.

    What `make bench` measured here says nothing of a page that was written before. A copy without
    git holds what was kept and nothing else.
    """
    listed = git("ls-files", "--", f"{RESULTS.relative_to(ROOT)}/*.jsonl")
    if listed is None:
        return list(read(*kept())) if any(RESULTS.glob("*.jsonl")) else []
    file = folder / "kept.jsonl"
    file.write_text("".join(git("show", f":{name}") or "" for name in listed.splitlines()))
    return list(read(file))


def git(*words: str) -> str | None:
    """Return what git says, or None where there is no repository or no git."""
    try:
        done = subprocess.run(
            ["git", *words],  # noqa: S607 - whichever there is
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout


def test_the_page_says_what_the_newest_results_that_are_kept_say(tmp_path):
    told = "make bench-report, and git add the results that it read"
    assert PAGE.read_text() == rewritten(PAGE.read_text(), of_git(tmp_path)), told


def test_numbers_whose_results_are_not_kept_do_not_agree(tmp_path):
    page = rewritten(PAGE.read_text(), COMPARED)

    assert page != rewritten(page, of_git(tmp_path))


@pytest.mark.parametrize(
    "lock", ["bench/requirements.lock", "bench/peers/dbos.lock", "bench/peers/restate.lock"]
)
def test_a_lock_is_names_and_versions(lock: str):
    lines = (ROOT / lock).read_text().splitlines()

    assert [each for each in lines if not re.fullmatch(r"[\w.-]+==[\w.+!-]+", each)] == []


def test_the_server_of_a_peer_is_pinned():
    package = json.loads((ROOT / "bench/peers/package.json").read_text())

    assert all(re.fullmatch(r"\d+\.\d+\.\d+", each) for each in package["dependencies"].values())
