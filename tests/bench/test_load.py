"""The smallest measurement there is, for real: servers, a node, a client, each its own process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.budget import started
from bench.measure import MS_PER_S, Case
from bench.processes import cpu_s
from bench.program import Program, ProgramFailed, Request
from bench.rounds import Pace, take_turns
from bench.vigil import vigil


async def test_a_run_is_over_when_the_rows_of_its_episodes_are_there(tmp_path: Path):
    async with vigil(tmp_path, cases=["converge_only"]) as system:
        run = await system.run(Request("converge_only", in_flight=2, seconds=0.1, tag="t"))
        rows = await system.pool.fetchval(
            "select count(*) from vigil.episodes where status = 'done' and summary like 't-%'"
        )

    assert run.count == rows == len(run.took_ms) >= 2
    assert run.commits >= run.count


async def test_a_trigger_is_timed_to_its_first_step_and_not_to_the_end(tmp_path: Path):
    async with vigil(tmp_path, cases=["trigger"]) as system:
        run = await system.run(Request("trigger", in_flight=1, seconds=0.1, tag="t"))

    assert 0 < sum(run.took_ms) < run.seconds * MS_PER_S


async def test_cases_are_run_in_turns_on_a_system_that_is_up(tmp_path: Path):
    cases = [Case("vigil", "findings", 1), Case("vigil", "steps_strict", 2)]
    async with vigil(tmp_path, cases=["findings", "steps_strict"]) as system:
        results = await take_turns([system], cases, Pace(runs=2, seconds=0.1))

    assert [(each.case, each.in_flight, each.runs) for each in results] == [
        ("findings", 1, 2),
        ("steps_strict", 2, 2),
    ]


async def test_events_that_are_due_do_not_wait_until_others_end(tmp_path: Path):
    request = Request("converge_only", in_flight=1, seconds=0.5, tag="t", per_s=40)
    async with vigil(tmp_path, cases=["converge_only"]) as system:
        run = await system.run(request)

    assert run.count == 20


async def test_a_fixed_number_of_episodes_is_measured_with_what_the_processes_used(tmp_path: Path):
    async with started(tmp_path, "apart") as stack:
        cost = await stack.cost("step_strict", 40, "t")

    assert round(cost["commits"]) == 3
    assert cost["messages"] > cost["stored"] > cost["commits"]
    assert {"node_us", "reactor_us", "projector_us", "nats_us", "postgres_us"} <= cost.keys()


def test_the_time_of_a_process_that_has_ended_stays_with_its_parent():
    before_s = cpu_s(os.getpid())
    subprocess.run([sys.executable, "-c", "sum(range(10**7))"], check=True)

    assert cpu_s(os.getpid()) - before_s >= 0.05


async def test_a_program_that_ends_without_an_answer_is_not_waited_for():
    with pytest.raises(ProgramFailed, match="ended"):
        async with Program(["/bin/true"]):
            pass
