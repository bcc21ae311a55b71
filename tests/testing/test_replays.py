"""Recorded journals, replayed before a change is deployed."""

from __future__ import annotations

from itertools import count

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
