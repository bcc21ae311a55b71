"""Where in an agent's run something is: the same in each replay. Pure."""

from __future__ import annotations

from typing import Any

from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.tools import RunContext

from engine.agents.digests import digest


def place_in_answer(ctx: RunContext[Any], tool_call_id: str | None = None) -> str:
    """Return where the model has called a tool: `2-3`, the third of its answer in run step 2.

    That is the tool that is being called, or `tool_call_id`.
    """
    wanted = tool_call_id or ctx.tool_call_id
    for message in reversed(ctx.messages):
        if isinstance(message, ModelResponse):
            ids = [part.tool_call_id for part in message.parts if isinstance(part, ToolCallPart)]
            if wanted in ids:
                return f"{ctx.run_step}-{ids.index(wanted) + 1}"
    return f"{ctx.run_step}-{digest([wanted])}"  # UnitOutcome by a tool of the library's.
