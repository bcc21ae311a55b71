"""Mistakes in dry runs: what has no answer, and an answer for a tool that there is not."""

from __future__ import annotations

import pytest

from tests.mistakes.mistake import Mistake
from vigil import Actor, App, manual, overrides, tool
from vigil.testing import run


@tool(side_effect=True)
async def restart(host: str) -> str:
    return host


monitor = Actor("monitor", tools=[restart])


@monitor.expectation(on=manual())
async def host_is_up(ctx, trigger):
    await ctx.call(restart, host="web-3")


app = App(actors=[monitor])

MISTAKES = [
    Mistake(
        104,
        "a dry run reaches a side effect that nothing stands for",
        "",
        "dry_run_side_effect: no override stands for 'restart.call' (test_dry.py:",
        "run",
    ),
    Mistake(
        104,
        "an override is for a misspelt tool",
        "restrat.call",
        "unknown_override: an override is for 'restrat.call', and no tool is called that; did you"
        " mean restart.call?",
        "run",
    ),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda each: each.made)
async def test_a_dry_run_is_told_what_stands_for_what(mistake):
    async with run(app) as vigil:
        instead = overrides(tools={mistake.done: None}) if mistake.done else None
        await vigil.fire("monitor", "host_is_up", dry_run=True, overrides=instead)
        await vigil.run_until_idle()
        episode = vigil.episode(status="failed")
    assert mistake.said in f"{episode.error_class}: {episode.error_detail}"
