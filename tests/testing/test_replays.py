"""Recorded journals, replayed before a change is deployed."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from contextlib import nullcontext
from itertools import count
from types import ModuleType

import pytest

from tests.engine.stage import HAPPENED, Scripted
from tests.testing.apps import LOOKS, app_with
from vigil import observe
from vigil.testing import replay_histories, run


@pytest.fixture
async def recorded(tmp_path):
    for name, plan in {"one": [LOOKS], "two": [LOOKS, observe(1)]}.items():
        async with run(app_with(Scripted(*plan)), tools={"disk.*": 1}) as vigil:
            await vigil.publish(HAPPENED)
            await vigil.run_until_idle()
            (tmp_path / f"{name}.jsonl").write_bytes(await vigil.history(vigil.episode().id))
    return tmp_path


async def test_what_the_code_of_today_would_not_ask_for_is_told_with_its_file(recorded):
    with pytest.raises(AssertionError, match=r"today:\none.jsonl: NondeterministicReplay: .*"):
        await replay_histories(recorded, app_with(Scripted(LOOKS, observe(1))))


async def test_what_can_go_on_is_counted(recorded):
    (recorded / "one.jsonl").unlink()
    assert await replay_histories(recorded, app_with(Scripted(LOOKS, observe(1)))) == 1


async def test_a_folder_without_journals_is_no_gate(tmp_path):
    with pytest.raises(AssertionError, match="there is no recorded journal"):
        await replay_histories(tmp_path, app_with(Scripted()))


async def test_every_episode_of_a_test_can_be_replayed():
    async with run(app_with(Scripted(LOOKS, observe(1))), tools={"disk.*": 1}) as vigil:
        await vigil.publish(HAPPENED)
        await vigil.publish(HAPPENED)
        await vigil.run_until_idle()
        assert await vigil.check_replay() == 2


async def test_an_episode_that_is_decided_by_what_its_journal_does_not_have_is_found():
    numbers = count()

    async def by_chance(ctx, trigger):
        await ctx.observe(next(numbers))

    async with run(app_with(by_chance)) as vigil:
        await vigil.publish(HAPPENED)
        await vigil.run_until_idle()
        with pytest.raises(AssertionError, match=r"of worker\.thing: NondeterministicReplay"):
            await vigil.check_replay()


async def unbounded(ctx, trigger):
    await ctx.observe("begun")
    while REPLAYS:  # noqa: ASYNC110 - what must not hang
        await asyncio.sleep(0)


async def waiting_for_time(ctx, trigger):
    await ctx.observe("begun")
    await asyncio.sleep(60)
    await ctx.observe("ended")


REPLAYS: list[str] = []


async def test_a_replay_that_spins_is_ended_and_told_with_its_line():
    async with run(app_with(unbounded)) as vigil:
        await vigil.publish(HAPPENED)
        await vigil.run_until_idle()
        REPLAYS.append("now")
        with pytest.raises(
            AssertionError, match=r"turns of the event loop: test_replays\.py:\d+, in"
        ):
            await vigil.check_replay()
        REPLAYS.clear()
        assert vigil.episode().status == "done"


async def test_a_replay_may_wait_for_time():
    async with run(app_with(waiting_for_time)) as vigil:
        await vigil.publish(HAPPENED)
        await vigil.advance(minutes=2)
        assert await vigil.check_replay(processes=0) == 1


async def test_what_another_process_cannot_import_is_told_with_what_to_do():
    async def within_a_test(ctx, trigger):
        await ctx.observe(1)

    async with run(app_with(within_a_test)) as vigil:
        await vigil.publish(HAPPENED)
        await vigil.run_until_idle()
        with pytest.raises(AssertionError, match=r"at the top of a module, or say processes=0"):
            await vigil.check_replay()
        assert await vigil.check_replay(processes=0) == 1


MODULE = """
from vigil import ConvergeResult

async def check(ctx, trigger):
    await ctx.observe({observed})
"""


def imported(path, name, observed):
    """Return a module that only its file is known of."""
    path.write_text(MODULE.format(observed=observed))
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("observed", "problem"), [("1", ""), ("hash('web-1')", "in another process, .*hash")]
)
async def test_a_module_that_is_on_no_path_is_found_by_its_file(tmp_path, observed, problem):
    name = "checks_of_a_test"
    module = imported(tmp_path / "checks.py", name, observed)
    try:
        async with run(app_with(module.check)) as vigil:
            await vigil.publish(HAPPENED)
            await vigil.run_until_idle()
            with pytest.raises(AssertionError, match=problem) if problem else nullcontext():
                await vigil.check_replay(processes=2)
    finally:
        del sys.modules[name]


async def test_a_module_that_another_process_does_not_find_is_told():
    name = "made_in_a_test"
    module = sys.modules[name] = ModuleType(name)
    exec(MODULE.format(observed=1), vars(module))  # noqa: S102 - it is ours
    try:
        async with run(app_with(module.check)) as vigil:
            await vigil.publish(HAPPENED)
            await vigil.run_until_idle()
            with pytest.raises(
                AssertionError,
                match=r"could not replay them .ModuleNotFoundError: No module named 'made_in_a_",
            ):
                await vigil.check_replay()
    finally:
        del sys.modules[name]
