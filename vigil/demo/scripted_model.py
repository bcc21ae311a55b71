"""The model of `vigil demo --agent` where there is no key: it answers by what it was told. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from vigil.testing import AskedTool, JsonAnswer, ModelRequest, TextAnswer, ToolCallsAnswer

LOG: Final = "logs/checkout.log"
MENDED: Final = "checkout.log.gz has "
"""How the result of `compress` begins."""


ScriptedAnswer: TypeAlias = ToolCallsAnswer | JsonAnswer | TextAnswer


def answer(request: ModelRequest) -> ScriptedAnswer:
    """Answer as the model of the agent that has these tools."""
    names = {str(each["name"]) for each in request.tools}
    told = results(request)
    return read(told) if "last_lines" in names else investigate(told)


def results(request: ModelRequest) -> Sequence[str]:
    """Return what the calls so far have brought."""
    return [str(each["text"]) for each in request.messages if each["role"] == "tool"]


def has_mended(request: ModelRequest) -> bool:
    """Return whether the log is compressed, and only the finding is missing."""
    return any(each.startswith(MENDED) for each in results(request))


def investigate(told: Sequence[str]) -> ScriptedAnswer:
    """Look, have the log read, have it compressed, and say what was wrong."""
    match len(told):
        case 0:
            return ToolCallsAnswer((AskedTool("largest"),))
        case 1:
            question = "What is it that is written so often?"
            return ToolCallsAnswer((AskedTool("ask_reader", {"file": LOG, "question": question}),))
        case 2:
            return ToolCallsAnswer((AskedTool("compress", {"file": LOG}),))
        case _:
            return JsonAnswer(
                {
                    "cause": "log",
                    "summary": f"{LOG} fills the folder: {told[1]}",
                    "is_mended": told[2].startswith(MENDED),
                    "advice": "Set the log level of checkout back to info, and rotate the log.",
                }
            )


def read(told: Sequence[str]) -> ScriptedAnswer:
    """Read the log, and say what is in it."""
    if not told:
        return ToolCallsAnswer((AskedTool("last_lines", {"file": LOG}),))
    debugging = told[0].count(" DEBUG ")
    return TextAnswer(f"checkout logs at debug level, {debugging} of its last 40 lines are such.")
