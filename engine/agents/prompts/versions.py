"""An agent of the library as an `AgentVersion`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic_ai.models import Model, ModelRequestParameters

from engine.agents.digests import Prompt, jsonable
from engine.agents.prompts.version import ASPECTS, AgentVersion, without_keys
from streams.json import JsonObject

TOOLS: Final = ("function_tools", "native_tools", "output_tools")

OUTPUT: Final = (
    "output_tools",
    "output_mode",
    "output_object",
    "prompted_output_template",
    "allow_text_output",
    "allow_image_output",
)
"""What an answer must be, which only the code that takes it can say."""

KEPT: Final = frozenset({*TOOLS, *OUTPUT, "instruction_parts"})


def version_of(
    prompt: Prompt,
    model: Model | None,
    settings: Mapping[str, object] | None,
    parameters: ModelRequestParameters,
    instructions: str,
) -> AgentVersion:
    """Return the agent that asks so; `prompt` has the digests."""
    return AgentVersion(
        model=prompt.model,
        kind=type(model).__qualname__,
        url=(model.base_url if model is not None else None) or "",
        marks=marks_of(prompt),
        settings=without_keys(dict(settings or {})),
        instructions=instructions,
        parameters=_kept(parameters),
    )


def marks_of(prompt: Prompt) -> dict[str, str]:
    """Return aspect → its digest."""
    return {name: getattr(prompt, name) for name in ASPECTS}


def _kept(parameters: ModelRequestParameters) -> JsonObject:
    said: Any = jsonable(parameters)
    return {name: each for name, each in said.items() if name in KEPT}
