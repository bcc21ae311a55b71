"""`agent_of_spec`: an agent as the library's own `AgentSpec` has it, and what is wrong with one.

`declared_of` tells of any agent what can be known before it runs.

Nothing is asked of a provider: whether there is one of that name, and whether its key is here, the
library knows without a request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Final

from pydantic import ConfigDict, ValidationError, create_model
from pydantic_ai import Agent, ModelRetry, StructuredDict, exceptions
from pydantic_ai.agent.spec import AgentSpec
from pydantic_ai.models import Model, infer_model, known_model_names, parse_model_id
from pydantic_ai.providers import infer_provider_class
from pydantic_ai.settings import ModelSettings

from engine.agents.plans.plan import PlanTools, tools_of_plans
from engine.agents.toolset import Ask, StepToolset, toolset
from engine.agents.unit import MAX_TOKENS
from engine.app.function_tool import FunctionTool
from engine.app.tools import OfferedTool, Risk
from engine.errors import BadDefinition
from engine.validation import near, shown
from streams.json import JsonObject

TEST: Final = "test"
"""The model that calls every tool once and makes its answer up: it is no provider's."""

OWN: Final = frozenset({"model", "instructions", "output_schema"})
"""What of a specification is given to the agent here, not by the library."""

_Settings: Final[Any] = create_model(
    "Settings",
    __config__=ConfigDict(strict=True, arbitrary_types_allowed=True),
    settings=(ModelSettings, ...),
)


@dataclass(frozen=True, kw_only=True)
class OfferedTools:
    """The tools that an agent may call, and who decides on their calls."""

    tools: Sequence[FunctionTool[..., Any]] = ()
    requires_approval: Sequence[FunctionTool[..., Any]] = ()
    ask_from: Risk | None = None
    ask: Ask = "each"
    approvers: Sequence[str] | None = None
    expires_s: float | None = None
    quorum: int = 1
    requester_may_approve: bool = True


def agent_of_spec(
    spec: JsonObject,
    *,
    offered: OfferedTools,
    answers: JsonObject,
    instructions: Sequence[str],
    problem_of: Callable[[JsonObject], str],
) -> Agent[None, JsonObject]:
    """Return the agent of `spec`.

    Args:
        spec: fields of `AgentSpec`, each of the right type.
        offered: its tools.
        answers: the schema of its answers, an object.
        instructions: what it is told, whatever is asked of it.
        problem_of: returns what is wrong with an answer, which the model is told; empty: nothing.

    Raises `BadDefinition`, whose path is within `spec`.
    """
    model = checked_model(spec["model"])
    _check_settings(spec.get("model_settings") or {})
    rest = {name: value for name, value in spec.items() if name not in OWN}
    try:
        agent = Agent.from_spec(
            AgentSpec.model_validate(rest),
            model=model,
            output_type=StructuredDict(answers, name="answer"),
            instructions=list(instructions),
            toolsets=[_toolset(offered)] if offered.tools else None,
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise BadDefinition(".".join(map(str, first["loc"])), first["msg"]) from error
    except (exceptions.UserError, ValueError) as error:
        raise BadDefinition("", _sentence(error)) from error

    @agent.output_validator
    def answer_can_be_used(answer: JsonObject) -> JsonObject:
        if problem := problem_of(answer):  # guard: useless-answer-told-model
            raise ModelRetry(problem)
        return answer

    return agent


def checked_model(name: str) -> Model:
    """Return the model called `name`; `BadDefinition`: it cannot be asked, or not from here."""
    try:
        problem = problem_of_provider(name)
    except ImportError as error:
        raise BadDefinition("model", f"{name}: {_sentence(error)}") from error
    if problem:
        named = name if parse_model_id(name)[0] else shown(name)
        raise BadDefinition("model", f"{named}: {problem}")
    try:
        return infer_model(name)
    except (exceptions.UserError, ImportError, ValueError) as error:  # guard: model-key-is-here
        raise BadDefinition("model", f"{name}: {_sentence(error)}") from error


def problem_of_provider(name: str) -> str:
    """Return that no provider is named in `name`, or none is known so; empty: one is.

    Nobody needs a key.

    `ImportError`: what the provider needs is not installed.
    """
    provider, _ = parse_model_id(name)
    if name == TEST:
        return ""
    if provider is None:  # guard: provider-is-named
        hint = near(name, known_model_names())
        return f"write provider:model{f'; {hint}' if hint else ', such as openai:gpt-5'}"
    try:
        infer_provider_class(provider)
    except ValueError:
        known = sorted({parse_model_id(each)[0] or "" for each in known_model_names()})
        hint = near(provider, known)
        return "; ".join(filter(None, (f"no provider is called {provider!r}", hint)))
    return ""


@dataclass(frozen=True, kw_only=True)
class DeclaredAgent:
    """What can be known of an agent before it runs."""

    agent: Agent[Any, Any]
    name: str
    """Empty: it has none."""
    model: str
    """The name of its model, where that is looked up only as it runs; otherwise empty."""
    asks: str
    """The name of its model, as its requests have it; empty: it is known only as it runs."""
    tools: Sequence[FunctionTool[..., Any] | OfferedTool]
    """Those that the actor must have."""
    steps: Sequence[FunctionType]
    """Its tools that make steps themselves."""
    answers_limited: bool
    """Whether the tokens of its answers are limited, or may be when it runs."""


def declared_of(agent: object) -> DeclaredAgent | None:
    """Return what is declared of an agent of the library; None: it is something else."""
    if not isinstance(agent, Agent):
        return None
    leaves: list[StepToolset | PlanTools] = []
    for each in agent.toolsets:
        each.apply(lambda leaf: leaves.append(leaf) if isinstance(leaf, StepToolset) else None)
    leaves += tools_of_plans(agent.output_type)  # guard: tools-of-plans-checked
    tools = [each for leaf in leaves for each in leaf.every]
    return DeclaredAgent(
        agent=agent,
        name=agent.name or "",
        model=agent.model if isinstance(agent.model, str) else "",
        asks=_name_of(agent.model),
        tools=[each.tool for each in tools if each.makes_steps is None],
        steps=_functions(each.makes_steps for each in tools if each.makes_steps is not None),
        answers_limited=_are_answers_limited(agent),
    )


def _name_of(model: object) -> str:
    if isinstance(model, Model):
        return f"{model.system}:{model.model_name}"
    return model if isinstance(model, str) else ""


def _functions(steps: Iterable[object]) -> list[FunctionType]:
    """Return the functions of tools, also of those that are methods."""
    found = (getattr(each, "__func__", each) for each in steps)
    return [each for each in found if isinstance(each, FunctionType)]


def _are_answers_limited(agent: Agent[Any, Any]) -> bool:
    model = agent.model.settings if isinstance(agent.model, Model) else None
    layers = (model, agent.model_settings, agent.root_capability.get_model_settings())
    # Nobody knows what a function returns until it is called.
    return any(callable(each) or MAX_TOKENS in (each or {}) for each in layers)


def _check_settings(settings: JsonObject) -> None:
    known = list(ModelSettings.__annotations__)
    for name in settings:
        # A provider's own settings begin with its name.
        if name not in known and (hint := near(name, known)):
            raise BadDefinition(f"model_settings.{name}", f"there is no such setting; {hint}")
    try:
        _Settings(settings=settings)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        _, *place = first["loc"]
        path = ".".join(map(str, ("model_settings", *place[:1])))
        raise BadDefinition(path, f"{first['msg']}, not {shown(first['input'])}") from error


def _toolset(offered: OfferedTools) -> StepToolset:
    return toolset(
        *offered.tools,
        requires_approval=offered.requires_approval,
        ask_from=offered.ask_from,
        ask=offered.ask,
        approvers=offered.approvers,
        expires_s=offered.expires_s,
        quorum=offered.quorum,
        requester_may_approve=offered.requester_may_approve,
    )


def _sentence(error: Exception) -> str:
    """Return the first sentence of an error, on one line."""
    return " ".join(str(error).split()).partition(". ")[0]
