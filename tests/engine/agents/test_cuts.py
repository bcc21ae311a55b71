"""How much of a tool's result a model reads."""

from __future__ import annotations

import pytest

from engine.agents.cuts import Cut, head, tail
from engine.agents.toolset import toolset
from engine.app.function_tool import tool
from engine.app.strategy import ConvergeResult
from engine.errors import InvalidAction
from streams.json import unraw
from streams.model.events import StepKind, StepRecorded
from tests.engine.agents.stage import MANY, Script, agent_of, classified, last_told
from tests.engine.functions.stage import play


@pytest.mark.parametrize(
    ("cut", "result", "read"),
    [
        (head(5), "short", "short"),
        (head(5), {"a": 1}, '{"a":\n[2 more characters are left out]'),
        (head(50), {"a": 1}, {"a": 1}),
        (tail(3), "abcdef", "[3 characters before this are left out]\ndef"),
        (
            tail(2, path="log.text"),
            {"log": {"text": "abc"}},
            "[1 characters before this are left out]\nbc",
        ),
        (head(9, path="log"), {"other": 1}, "there is nothing at log"),
        (Cut(), "x" * 100_001, "x" * 100_000 + "\n[1 more characters are left out]"),
    ],
)
def test_a_model_reads_a_part_of_what_is_long(cut, result, read):
    assert cut.of(result) == read


@pytest.mark.parametrize("make", [lambda: head(0), lambda: head(1.5), lambda: tail(3, path="a..b")])
def test_an_impossible_cut_is_refused(make):
    with pytest.raises(InvalidAction, match="cut: "):
        make()


async def test_the_step_has_the_whole_of_what_a_model_reads_a_part_of():
    @tool
    async def read_log() -> str:
        """Read a log."""
        return "a" * 1_000 + "the end"

    tools = toolset(read_log, cut={"read_log": tail(7)})
    agent = agent_of(Script([("read_log", {})], last_told), toolsets=[tools])

    async def check(ctx, trigger):
        return ConvergeResult(classification={"said": (await ctx.agent(agent, "go")).output})

    life = await play(check, tools=[read_log], budget=MANY)
    assert classified(life)["said"].endswith("left out]\nthe end")
    (call,) = [e for e in life.of(StepRecorded) if e.kind is StepKind.TOOL_CALL]
    assert len(unraw(call.result)) == 1_007


def test_a_cut_of_no_tool_is_refused():
    with pytest.raises(InvalidAction, match="cut: 'other' is none of the tools"):
        toolset(cut={"other": head(3)})
