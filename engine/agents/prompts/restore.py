"""Makes an `AgentVersion` of an agent of the library, and restores what that agent asks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast

from pydantic import TypeAdapter
from pydantic_ai import exceptions
from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters, infer_model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.settings import ModelSettings

from engine.agents.digests import PromptDigests, digest, jsonable
from engine.agents.prompts.agent_version import (
    ASPECTS,
    AgentVersion,
    joined,
    with_keys,
    without_keys,
)
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

_parameters: Final = TypeAdapter(ModelRequestParameters)


def version_of(
    prompt: PromptDigests,
    model: Model | None,
    settings: Mapping[str, object] | None,
    parameters: ModelRequestParameters,
    instructions: str,
) -> AgentVersion:
    """Return the agent that asks so; `prompt` has the digests."""
    kept = _kept(parameters)
    return AgentVersion(
        model=prompt.model,
        kind=type(model).__qualname__,
        url=(model.base_url if model is not None else None) or "",
        profile=_profile_of(model) if model is not None else "",
        marks=marks_of(prompt),
        settings=without_keys(dict(settings or {})),
        instructions=None if joined(kept) == instructions else instructions,
        parameters=kept,
    )


def marks_of(prompt: PromptDigests) -> dict[str, str]:
    """Return aspect → its digest."""
    return {name: getattr(prompt, name) for name in ASPECTS}


def model_again(version: AgentVersion, now: Model) -> Model | None:
    """Return the model of a version; None: this node does not know how to make it.

    It is made as the one of `now` is, or by its name. Nothing is asked elsewhere than before.
    """
    for make in (partial(_like, now), infer_model):
        try:
            made = make(version.model)
        # guard: unmade-model-parks
        except (exceptions.UserError, ImportError, TypeError, ValueError, AttributeError):
            continue
        named = f"{made.system}:{made.model_name}"
        found = (named, type(made).__qualname__, made.base_url or "", _profile_of(made))
        was = (version.model, version.kind, version.url, version.profile)
        if found == was:  # guard: old-model-same-place
            return made
    return None


def problem_of_change(
    version: AgentVersion, changed: Collection[str], parameters: ModelRequestParameters
) -> str:
    """Return why the agent of today cannot ask as that of `version` did; empty: it can."""
    if "tools" not in changed:
        return ""
    was, now = version.parameters, _kept(parameters)
    names = [{each["name"] for each in tools["function_tools"]} for tools in (was, now)]
    if gone := sorted(names[0] - names[1]):  # guard: old-tool-gone-parks
        return f"its tool {' and '.join(gone)} {'is' if len(gone) == 1 else 'are'} gone"
    if any(was.get(each) != now.get(each) for each in OUTPUT):  # guard: other-output-parks
        return "its output type has changed"
    return ""


def as_it_was(
    asked: ModelRequestContext,
    version: AgentVersion,
    changed: Collection[str],
    *,
    model: Model | None,
) -> ModelRequestContext:
    """Return what is asked with the `changed` aspects as `version` has them.

    Headers and keys are those of today. `model` is that of the version, where that has changed.
    """
    parameters = asked.model_request_parameters
    was = _parameters.validate_python(version.parameters)
    if "tools" in changed:  # guard: old-tools-asked
        parameters = replace(parameters, **{name: getattr(was, name) for name in TOOLS})
    if "instructions" in changed:  # guard: old-instructions-asked
        # None would stand for those that the messages have.
        parameters = replace(parameters, instruction_parts=was.instruction_parts or [])
    settings = asked.model_settings
    if "settings" in changed:  # guard: old-settings-asked
        settings = cast("ModelSettings", with_keys(version.settings, dict(settings or {})))
    asked = replace(asked, model_request_parameters=parameters, model_settings=settings)
    if model is None or "model" not in changed:
        return asked
    return replace(asked, model=model, model_id=None)


def _kept(parameters: ModelRequestParameters) -> JsonObject:
    said: Any = jsonable(parameters)
    return {name: each for name, each in said.items() if name in KEPT}


def _profile_of(model: Model) -> str:
    if isinstance(model, FallbackModel):  # It has those of its models.
        return digest([_profile_of(each) for each in model.models])
    return digest({name: _named(each) for name, each in model.profile.items()})


def _named(value: object) -> object:
    """Return a value of a profile as what is the same in every process."""
    match value:
        case frozenset() | set():
            return sorted(str(_named(each)) for each in value)
        case type():
            return value.__qualname__
        case _:
            return value


def _like(now: Model, name: str) -> Model:
    """Return the model called `name`, made as `now` is: of its class, at its provider."""
    made: Any = type(now)
    model: Model = made(name.partition(":")[2], provider=now.provider, settings=now.settings)
    return model
