"""Results of earlier work on whole nodes: nothing runs twice that need not."""

from __future__ import annotations

import pytest

from engine.app.tools import overrides
from engine.app.workflow import Workflow
from engine.workflows.requests import start_workflow
from streams.keys import RESULTS
from streams.model.events import StepBegun, StepReused
from tests.engine.stage import all_answered, running
from tests.engine.workflow_stage import Script, app_of, ended, history


@pytest.fixture
def script() -> Script:
    return Script()


def flow(**options) -> Workflow:
    made = Workflow("w")
    made.step("rate", "act", "rate", **{"reuse_s": 60, "input": payload, **options})
    return made


def payload(trigger, prior):
    return trigger.payload


async def run(ports, said, **options):
    """Run an instance to its end and what follows that, and return it."""
    id_ = await start_workflow(ports, "w", said, by="ada", **options)
    over = await ended(ports, id_)
    await all_answered(ports.commands)
    return over


def result(instance) -> object:
    return instance.steps["rate"].result(instance.specs["rate"])


async def kept(ports):
    entries = await ports.gates.entries(under=RESULTS)
    return [key for key, entry in entries.items() if entry.value is not None]


async def test_equal_work_is_done_once_and_its_result_is_said_to_be_anothers(ports, script):
    async with running(app_of(flow(), script=script), ports):
        first = await run(ports, {"client": 7})
        again = await run(ports, {"client": 7})
        await run(ports, {"client": 8})
    assert script.called("rate") == 2
    assert result(first) == result(again)
    (reused,) = [e for e in await history(ports, again.begun.instance_id) if type(e) is StepReused]
    assert reused.episode_id == first.steps["rate"].items[0].episode_id


async def test_a_result_of_any_size_stands_for_its_key_names_only_the_episode(ports, script):
    script.results["rate"] = "x" * 100_000
    async with running(app_of(flow(), script=script), ports):
        for _ in range(2):
            assert result(await run(ports, {})) == "x" * 100_000
    (key,) = await kept(ports)
    assert len((await ports.gates.get(key)).value) < 64


async def test_a_step_that_does_not_say_so_uses_nothing_again(ports, script):
    async with running(app_of(flow(reuse_s=0), script=script), ports):
        for _ in range(2):
            await run(ports, {})
    assert script.called("rate") == 2
    assert await kept(ports) == []


async def test_what_a_dry_run_brought_stands_for_none_that_is_meant(ports, script):
    said = overrides(tools={"script.rate": "tried"})
    async with running(app_of(flow(), script=script), ports):
        for _ in range(2):
            assert result(await run(ports, {}, dry_run=True, overrides=said)) == "tried"
        assert script.called("rate") == 0
        await run(ports, {})
    assert script.called("rate") == 1


@pytest.mark.parametrize(
    "value", [b"\xff", b"no.name", b"", b"00000000-0000-8000-8000-000000000000"]
)
async def test_whatever_stands_in_the_gates_the_work_is_done(ports, script, value):
    async with running(app_of(flow(), script=script), ports):
        await run(ports, {})
        (key,) = await kept(ports)
        await ports.gates.put(key, value)
        again = await run(ports, {})
    assert script.called("rate") == 2
    assert any(type(e) is StepBegun for e in await history(ports, again.begun.instance_id))


async def test_each_item_of_a_list_uses_what_was_done_for_an_equal_one(ports, script):
    listed = flow(input=None, for_each=lambda trigger, prior: trigger.payload["clients"])
    async with running(app_of(listed, script=script), ports):
        await run(ports, {"clients": [1, 2]})
        again = await run(ports, {"clients": [2, 3, 1]})
    assert script.called("rate") == 3
    assert [each["input"] for each in result(again)] == [{"item": n} for n in (2, 3, 1)]
