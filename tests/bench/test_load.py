"""The smallest measurement there is, for real: servers, a node, a client, each its own process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from bench.budget import started
from bench.measure import MS_PER_S, Case
from bench.processes import cpu_s
from bench.program import Program, ProgramFailed, Request
from bench.rounds import Pace, take_turns
from bench.vigil import Vigil, vigil

CASES: Final = ("converge_only", "findings", "steps_strict", "trigger")

beside_others = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def system(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Vigil]:
    """A stack on which all that is measured here is run."""
    async with vigil(tmp_path_factory.mktemp("measured"), cases=CASES) as system:
        yield system


@beside_others
async def test_a_run_is_over_when_the_rows_of_its_episodes_are_there(system: Vigil):
    run = await system.run(Request("converge_only", in_flight=2, seconds=0.1, tag="rows"))
    rows = await system.pool.fetchval(
        "select count(*) from vigil.episodes where status = 'done' and summary like 'rows-%'"
    )

    assert run.count == rows == len(run.took_ms) >= 2
    assert run.commits >= run.count


@beside_others
async def test_a_trigger_is_timed_to_its_first_step_and_not_to_the_end(system: Vigil):
    run = await system.run(Request("trigger", in_flight=1, seconds=0.1, tag="timed"))

    assert 0 < sum(run.took_ms) < run.seconds * MS_PER_S


@beside_others
async def test_cases_are_run_in_turns_on_a_system_that_is_up(system: Vigil):
    cases = [Case("vigil", "findings", 1), Case("vigil", "steps_strict", 2)]
    results = await take_turns([system], cases, Pace(runs=2, seconds=0.1))

    assert [(each.case, each.in_flight, each.runs) for each in results] == [
        ("findings", 1, 2),
        ("steps_strict", 2, 2),
    ]


@beside_others
async def test_events_that_are_due_do_not_wait_until_others_end(system: Vigil):
    request = Request("converge_only", in_flight=1, seconds=0.5, tag="due", per_s=40)
    run = await system.run(request)

    assert run.count == 20


@pytest.mark.parametrize(
    ("layout", "parts"),
    [
        ("together", ()),
        pytest.param("apart", ("reactor_us", "projector_us"), marks=pytest.mark.nightly),
    ],
)
async def test_a_fixed_number_of_episodes_is_measured_with_what_the_processes_used(
    tmp_path: Path, layout: str, parts: tuple[str, ...]
):
    async with started(tmp_path, layout) as stack:
        cost = await stack.cost("step_strict", 40, "t")

    assert round(cost["commits"]) == 3
    assert cost["messages"] > cost["stored"] > cost["commits"]
    assert {"node_us", "nats_us", "postgres_us", *parts} <= cost.keys()


def test_the_time_of_a_process_that_has_ended_stays_with_its_parent():
    before_s = cpu_s(os.getpid())
    subprocess.run([sys.executable, "-c", "sum(range(10**7))"], check=True)

    assert cpu_s(os.getpid()) - before_s >= 0.05


async def test_a_program_that_ends_without_an_answer_is_not_waited_for():
    with pytest.raises(ProgramFailed, match="ended"):
        async with Program(["/bin/true"]):
            pass
