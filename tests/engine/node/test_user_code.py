"""User code fails its own episode, whatever it raises, and the node goes on."""

from __future__ import annotations

import sys

import pytest

from engine.app.actions import tool_call
from engine.app.strategy import Strategy
from engine.app.tools import Tool
from streams.model.events import EndStatus
from tests.engine.stage import Scripted, app_of, lived, open_episode, running


def exits():
    sys.exit(3)


def interrupts():
    raise KeyboardInterrupt


def recurses():
    return recurses()


def closes():
    raise GeneratorExit


def runs_out_of_memory():
    raise MemoryError


RAISING = {
    exits: "SystemExit: 3",
    interrupts: "KeyboardInterrupt",
    recurses: "RecursionError",
    closes: "GeneratorExit",
    runs_out_of_memory: "MemoryError",
}


class Raising(Scripted):
    """Raises in a callback."""

    def __init__(self, raises):
        super().__init__()
        self.raises = raises

    def next_step(self, state, ctx):
        return self.raises()


@pytest.mark.parametrize("raises", RAISING, ids=lambda raises: raises.__name__)
async def test_a_strategy_that_raises_fails_its_episode_with_the_traceback(ports, raises):
    app = app_of(Raising(raises))
    async with running(app, ports):
        end = (await lived(ports, await open_episode(ports, app))).end
    assert (end.status, end.error_class) == (EndStatus.FAILED, "crash")
    assert f"in {raises.__name__}" in end.error_detail
    assert RAISING[raises] in end.error_detail


class RaisingInTurn(Tool):
    """Raises all that there is, a call at a time, and then works."""

    def __init__(self):
        self.left = list(RAISING)

    async def call(self, action, args, ctx):
        return self.left.pop(0)() if self.left else {}


class Strict(Scripted):
    """Fails with the first step that fails."""

    def handle_result(self, state, step, result):
        default = Strategy.handle_result(self, state, step, result)
        return super().handle_result(state, step, result) if default is state else default


async def test_tools_that_raise_fail_their_episodes_and_the_next_one_goes_on(ports):
    app = app_of(Strict(tool_call("tool", "a")), tools={"tool": RaisingInTurn()})
    async with running(app, ports):
        ids = [await open_episode(ports, app, id_=f"x{n}") for n in range(len(RAISING) + 1)]
        ends = [(await lived(ports, id_)).end for id_ in ids]
    failed = [end.error_detail for end in ends if end.error_class == "crash"]
    assert sum(end.status is EndStatus.DONE for end in ends) == 1
    assert [sum(f"in {raises.__name__}" in one for one in failed) for raises in RAISING] == [1] * 5
