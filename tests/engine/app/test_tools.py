"""What can be a tool."""

from __future__ import annotations

import pytest

from engine.app.tools import CallContext, Tool, ToolFailed, as_tool

CTX = CallContext(
    actor_id="a", expectation_id="x", episode_id="e", step_no=1, idempotency_key="e:1"
)


async def read(args, ctx):
    return {"read": args, "step": ctx.step_no}


async def test_an_async_function_serves_every_action():
    tool = as_tool(read)
    assert await tool.call("one", {"n": 1}, CTX) == {"read": {"n": 1}, "step": 1}
    assert await tool.call("other", {}, CTX) == {"read": {}, "step": 1}


async def test_a_mapping_serves_its_actions_and_no_other():
    tool = as_tool({"read": read})
    assert await tool.call("read", {}, CTX) == {"read": {}, "step": 1}
    with pytest.raises(ToolFailed, match=r"^no_such_action: 'write'; known: \['read'\]$"):
        await tool.call("write", {}, CTX)


def test_a_tool_is_itself():
    tool = Tool()
    assert as_tool(tool) is tool


def test_by_default_a_tool_is_harmless_and_hides_nothing():
    tool = as_tool(read)
    assert (tool.side_effect, tool.idempotent) == (False, False)
    assert tool.redact({"a": 1}) == {"a": 1}
    assert tool.redact_result([1]) == [1]


@pytest.mark.parametrize(
    "candidate", [None, "disk", len, lambda args, ctx: None, {"read": len}, Tool, 7]
)
def test_anything_else_is_no_tool_and_the_message_says_what_is(candidate):
    with pytest.raises(TypeError, match="is no tool; use an async function"):
        as_tool(candidate)


def test_a_failure_says_its_class_and_its_words():
    assert str(ToolFailed("quota", "try tomorrow")) == "quota: try tomorrow"
    assert str(ToolFailed("quota")) == "quota"
