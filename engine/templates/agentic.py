"""The template `agentic_task`: an agent of pydantic-ai is asked, and its answer makes a finding.

The agent is the library's own `AgentSpec`, with tools of the app. What comes from outside is marked
in its prompt as data. The library is imported when a node makes such a strategy, not before.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Protocol

import msgspec
from pydantic import Discriminator, Field, Tag, ValidationInfo, field_validator, model_validator

from engine.agents.data import ABOUT_DATA, data
from engine.app.actions import approval
from engine.app.function_tool import CALL, FunctionTool, ToolGroup, Tools, checked_tools
from engine.app.strategy import Abort, ConvergeResult, Function, Needs
from engine.app.tools import GATHER, OF_THE_ENGINE, Risk, Tool, check_name
from engine.errors import BadDefinition, CallFailed, InvalidAction
from engine.templates.gather import EpisodeNames, TemplateState, begin, keep
from engine.templates.proposing import needs_of, outputs_of
from engine.templates.reporting import intent_of, summary_of
from engine.templates.rules import CLASS_CHARS_MAX
from engine.templates.synthesize import PROMPT_CHARS_MAX, AnsweredConfig, report_of
from engine.templates.wording import TREES, UNKNOWN, Wording, wording_of
from engine.validation import (
    Listed,
    Strict,
    near,
    parsed,
    tag,
    wrong,
)
from streams.json import ABSENT, JsonObject, value_at
from streams.model.findings import Severity
from streams.model.triggers import Budget, Trigger

MISSING: Final = 'it needs the extra "agents": pip install "vigil-engine[agents]"'

TOOLS_MAX: Final = 64
"""Most tools of one agent."""

CLASSES_MAX: Final = 100
"""Most classes that an answer may have."""

OF_US: Final = ("actor_id", "expectation_id", "episode_id")
"""Placeholders of prompts whose values are the engine's, not data from outside."""

NAMES: Final = ("subject_id", *OF_US, *TREES)
"""Placeholders of prompts, in addition to paths; alone, a tree stands for the whole object."""

TERMS: Final = ("approvers", "expires_s", "quorum", "requester_may_approve")
"""The options of an approval; they count only if a tool requires one."""


class AgentRetriesConfig(Strict):
    """How often an agent may try again what its model has got wrong."""

    tools: int = Field(default=1, ge=0)
    output: int = Field(default=1, ge=0)


def _kind_of_retries(said: object) -> str:
    return tag("both") if isinstance(said, int) else tag("each")


class AgentConfig(Strict):
    """An agent: the fields of the library's `AgentSpec`, by the same names.

    Without `capabilities` and `deps_schema`: what an agent can do is the app's; `tools` names it.
    """

    model: str = Field(min_length=1)
    name: str = "agent"
    description: str = ""
    instructions: Listed[str] = ()
    """One text or several. They have no placeholders."""
    output_schema: dict[str, object] | None = None
    """The schema of its answer, an object; None: class, severity, summary, confidence, evidence."""
    model_settings: dict[str, object] = Field(default_factory=dict)
    retries: Annotated[
        Annotated[int, Field(ge=0), Tag(tag("both"))]
        | Annotated[AgentRetriesConfig, Tag(tag("each"))],
        Discriminator(_kind_of_retries),
    ] = 1
    end_strategy: Literal["early", "graceful", "exhaustive"] = "graceful"
    tool_timeout: float | None = Field(default=None, gt=0)
    metadata: dict[str, object] = Field(default_factory=dict)

    @field_validator("name")
    @classmethod
    def _is_name(cls, name: str) -> str:
        check_name(name, of="an agent")
        return name

    @field_validator("instructions", mode="before")
    @classmethod
    def _is_listed(cls, instructions: object) -> object:
        return [instructions] if isinstance(instructions, str) else instructions


class RunBudgetConfig(Strict):
    """What one run of an agent may use, beside the budget of its episode."""

    turns: int = Field(default=0, ge=0)
    """Requests to its model; 0: no limit."""
    tokens: int = Field(default=0, ge=0)
    """Of all requests; 0: no limit."""

    @model_validator(mode="after")
    def _limits_something(self) -> RunBudgetConfig:
        if not (self.turns or self.tokens):
            raise ValueError("it limits nothing; write turns or tokens, or leave it out")
        return self


class AgenticConfig(AnsweredConfig):
    """The agent, what it is asked, and what it may call."""

    gatherer: str = ""
    """A name in `App.gatherers`; empty: nothing is gathered."""
    agent: AgentConfig
    prompt: str = Field(min_length=1)
    """What it is asked, with placeholders; see `NAMES`."""
    tools: Listed[str] = Field(default=(), max_length=TOOLS_MAX)
    """Names of tools of the app."""
    requires_approval: Listed[str] = ()
    """Those of `tools` that people must approve before each call."""
    ask_from: Risk | None = None
    """They must also approve each call of a tool with this risk or a greater one."""
    ask: Literal["each", "together"] = "each"
    """Whether they decide on each call of an answer by itself, or on all of them together."""
    approvers: Listed[str] = ()
    expires_s: float | None = None
    quorum: int = 1
    requester_may_approve: bool = True
    budget: RunBudgetConfig | None = None
    on_change: Literal["park", "go_on", "old"] = "park"
    """What becomes of an open episode whose agent would ask its model for something else now."""
    classes: Listed[str] = Field(default=(), max_length=CLASSES_MAX)
    """The classes that an answer may have, beside the default one; none: any."""

    @field_validator("prompt")
    @classmethod
    def _is_wording(cls, prompt: str) -> str:
        _wording(prompt)
        return prompt

    @field_validator("classes")
    @classmethod
    def _are_classes(cls, classes: tuple[str, ...]) -> tuple[str, ...]:
        for each in classes:
            if not 1 <= len(each) <= CLASS_CHARS_MAX:
                raise ValueError(f"{each!r} is no class: 1 to {CLASS_CHARS_MAX} characters")
        return classes

    @field_validator(*TERMS)
    @classmethod
    def _may_be_asked(cls, value: object, info: ValidationInfo) -> object:
        field = str(info.field_name)
        said: dict[str, Any] = {field: value}
        try:
            approval(None, **said)
        except InvalidAction as error:
            raise ValueError(str(error).removeprefix(f"{field}: ")) from error
        return value

    @field_validator("tools")
    @classmethod
    def _are_said_once(cls, tools: tuple[str, ...]) -> tuple[str, ...]:
        for index, each in enumerate(tools):
            if each in tools[:index]:
                raise wrong(str(index), f"{each!r} is said twice")
        return tools

    @model_validator(mode="after")
    def _asks_about_its_tools(self) -> AgenticConfig:
        for index, name in enumerate(self.requires_approval):
            if name not in self.tools:  # guard: approval-of-offered-tool
                hint = near(name, self.tools)
                problem = "; ".join(filter(None, (f"{name!r} is none of tools", hint)))
                raise wrong(f"requires_approval.{index}", problem)
        said = [term for term in ("ask", *TERMS) if term in self.model_fields_set]
        is_asked = self.requires_approval or self.ask_from
        if said and not is_asked:  # guard: unasked-tool-approval-terms
            raise wrong(said[0], "nobody is asked; write requires_approval or ask_from as well")
        return self

    @model_validator(mode="after")
    def _has_what_it_names(self) -> AgenticConfig:
        if not self.gatherer and self.options:
            raise wrong("options", "they are for a gatherer; write one, or leave them out")
        seen = [each for each in _wording(self.prompt).placeholders if _tree(each) == "observed"]
        if seen and not self.gatherer:  # guard: nothing-observed-without-gatherer
            raise wrong("prompt", f"{{{seen[0]}}}: nothing is gathered; write a gatherer as well")
        return self

    @model_validator(mode="after")
    def _can_read_its_answer(self) -> AgenticConfig:
        schema, field = self.agent.output_schema, self.finding_config.class_field
        if schema is None:
            return self
        if self.classes:
            raise wrong("classes", "agent.output_schema says which there are; leave it out")
        if schema.get("type") != "object":
            raise wrong("agent.output_schema", "write the schema of an object: type: object")
        properties = schema.get("properties")
        names = list(properties) if isinstance(properties, dict) else []
        if field not in names:  # guard: answer-has-class
            hint = near(field, names)
            problem = f"agent.output_schema has no property {field!r}, which is to be the class"
            raise wrong("finding_config.class_field", "; ".join(filter(None, (problem, hint))))
        return self

    @model_validator(mode="after")
    def _proposes_for_classes_that_are(self) -> AgenticConfig:
        for index, each in enumerate(self.outputs if self.classes else ()):
            for class_ in each.classes:
                if class_ not in self.known_classes:
                    known = ", ".join(self.known_classes)
                    problem = f"nothing is ever of class {class_!r}; write some of {known}"
                    raise wrong(f"outputs.{index}.classes", problem)
        return self

    @property
    def known_classes(self) -> Sequence[str]:
        """The classes that an answer may have; none: any."""
        return list(dict.fromkeys((*self.classes, self.default_class))) if self.classes else ()

    def problem_of(self, answer: JsonObject) -> str:
        """Return what is wrong with an answer, for the model; empty: nothing."""
        try:
            report = report_of(self, answer)
        except ValueError as error:
            return str(error)
        known = self.known_classes
        if known and report.class_ not in known:  # guard: answer-of-known-class
            field = self.finding_config.class_field
            return f"{field}: {report.class_!r} is none of {', '.join(known)}"
        return ""


class AgentContext(EpisodeNames, Protocol):
    """The `ctx` of the episode, as far as an agentic task needs it."""

    def call(self, tool: str, /, **args: object) -> Awaitable[Any]:
        """Call a tool."""

    def agent(self, agent: Any, prompt: str, **options: Any) -> Awaitable[Any]:  # noqa: ANN401
        """Run an agent."""


@dataclass(frozen=True)
class AgenticTask:
    """What the template makes of a configuration."""

    config: AgenticConfig
    agent: Any
    """The agent; None: this process cannot run it."""

    async def agentic_task(self, ctx: AgentContext, trigger: Trigger) -> ConvergeResult:
        """Gather, ask the agent, and report what it answers."""
        config = self.config
        state = begin(ctx, trigger, subject_id_key=config.finding_config.subject_id_key)
        if config.gatherer:
            state = await _gathered(config, ctx, state)
        result = await ctx.agent(
            self.agent,
            prompt_of(config.prompt, state.words),
            budget=_budget(config.budget),
            on_change=config.on_change,
        )
        answer: JsonObject = result.output
        report = report_of(config, answer)
        return ConvergeResult(
            classification={"primary": report.class_, "severity": report.severity},
            confidence=report.confidence,
            summary=summary_of(config.finding_config, report, state.words),
            findings=[intent_of(config.finding_config, report, state.words)],
            outputs=outputs_of(config, report, state.words),
            result=None if config.agent.output_schema is None else answer,
        )


async def _gathered(
    config: AgenticConfig, ctx: AgentContext, state: TemplateState
) -> TemplateState:
    name = config.gatherer
    gathered = await ctx.call(f"{GATHER}.{name}", _payload=state.payload, options=config.options)
    kept = keep(state, gathered, gatherer=name)
    if isinstance(kept, Abort):
        raise CallFailed(kept.error_class, kept.detail)
    return kept


def _budget(config: RunBudgetConfig | None) -> Budget | None:
    return None if config is None else Budget(turns=config.turns, tokens=config.tokens)


def _wording(prompt: str) -> Wording:
    return wording_of(prompt, names=NAMES, trees=TREES, chars_max=PROMPT_CHARS_MAX)


def _tree(placeholder: str) -> str:
    return placeholder.partition(".")[0]


def prompt_of(prompt: str, words: JsonObject) -> str:
    """Return a prompt whose placeholders are replaced; what comes from outside is marked."""
    return "".join(
        f"{plain}{_said(words, placeholder) if placeholder else ''}"
        for plain, placeholder in _wording(prompt).parts
    )


def _said(words: JsonObject, placeholder: str) -> str:
    value = value_at(words, placeholder)
    match value:
        case None | "":
            return UNKNOWN
        case _ if value is ABSENT:
            return UNKNOWN
        case bool() | int() | float():
            return msgspec.json.encode(value).decode()
        case str() if placeholder in OF_US:
            return value
        case _:
            # guard: prompt-marks-data
            return data(value, name=_tag_name(placeholder))


def _tag_name(placeholder: str) -> str:
    """Return what a placeholder is called in a tag: a path may have any characters."""
    kept = (
        each if each.isascii() and (each.isalnum() or each in "_.-") else "_"
        for each in placeholder
    )
    return "".join(kept)[:128]


def answer_schema(config: AgenticConfig) -> JsonObject:
    """Return the schema of the answer of an agent."""
    if config.agent.output_schema is not None:
        return config.agent.output_schema
    fields = config.finding_config
    class_: JsonObject = {"type": "string", "minLength": 1, "maxLength": CLASS_CHARS_MAX}
    if config.classes:
        class_["enum"] = list(config.known_classes)
    class_["description"] = f"What it is; {config.default_class} if it is nothing special."
    return {
        "type": "object",
        "properties": {
            fields.class_field: class_,
            fields.severity_field: {"type": "string", "enum": [*map(str, Severity)]},
            fields.summary_field: {"type": "string", "description": "One sentence for people."},
            fields.confidence_field: {
                "type": "number",
                "minimum": 0,
                "maximum": 1,
                "description": "How sure you are.",
            },
            fields.evidence_field: {
                "type": "object",
                "description": "What shows it.",
                "additionalProperties": True,
            },
        },
        "required": [
            fields.class_field,
            fields.severity_field,
            fields.summary_field,
            fields.confidence_field,
        ],
    }


def agentic_task(config: JsonObject, tools: Tools | None = ()) -> Function:
    """Return the strategy for the fields of `AgenticConfig`; `BadDefinition` names a wrong one.

    Args:
        config: the configuration.
        tools: what its `tools` may name, and the app or the actor must have. A definition has those
            of the app. None: this process will not run it, so it need not have the tools, the model
            and its key.
    """
    read = parsed(AgenticConfig, config)
    if tools is None:
        return Function(AgenticTask(read, None).agentic_task, _needs(read, ()))
    found = checked_tools(tools, actor="agentic_task")
    offered = [_offered(each, found, at=f"tools.{n}") for n, each in enumerate(read.tools)]
    agent = _agent(read, dict(zip(read.tools, offered, strict=True)))
    return Function(AgenticTask(read, agent).agentic_task, _needs(read, offered))


def _needs(config: AgenticConfig, offered: Iterable[FunctionTool[..., Any]]) -> Needs:
    names = tuple(f"{each.capability}.{each.action}" for each in offered)
    agent = config.agent
    return msgspec.structs.replace(
        needs_of(config),
        tools=names,
        model=agent.model,
        answers_limited="max_tokens" in agent.model_settings,
    )


def _offered(name: str, tools: Mapping[str, Tool], *, at: str) -> FunctionTool[..., Any]:
    """Return the tool called `name`, or raise `BadDefinition`."""
    capability, _, action = name.partition(".")
    found = None if capability in OF_THE_ENGINE else tools.get(capability)
    if isinstance(found, ToolGroup):
        found = found.functions.get(action or CALL)
    if found is None:
        known = list(_names_of(tools))
        hint = near(name, known) or ("" if known else "there are none; App(tools=…)")
        problem = "; ".join(filter(None, (f"no tool is called {name!r}", hint)))
        raise BadDefinition(at, problem)
    if not isinstance(found, FunctionTool):
        problem = f"{name!r} is no function with @tool, and an agent is offered no other"
        raise BadDefinition(at, problem)
    return found


def _names_of(tools: Mapping[str, Tool]) -> Iterable[str]:
    for capability, each in tools.items():
        functions = each.functions if isinstance(each, ToolGroup) else {}
        yield from (capability if name == CALL else f"{capability}.{name}" for name in functions)


def _agent(config: AgenticConfig, offered: Mapping[str, FunctionTool[..., Any]]) -> Any:  # noqa: ANN401 - the library may not be there
    library = _library()
    said = config.agent
    try:
        return library.agent_of_spec(
            said.model_dump(exclude_unset=True) | {"name": said.name},
            offered=library.OfferedTools(
                tools=list(offered.values()),
                requires_approval=[offered[name] for name in config.requires_approval],
                ask_from=config.ask_from,
                ask=config.ask,
                approvers=config.approvers or None,
                expires_s=config.expires_s,
                quorum=config.quorum,
                requester_may_approve=config.requester_may_approve,
            ),
            answers=answer_schema(config),
            instructions=(*said.instructions, ABOUT_DATA),
            problem_of=config.problem_of,
        )
    except BadDefinition as error:
        raise error.within("agent") from error
    except InvalidAction as error:  # Two tools that the model could not tell apart.
        raise BadDefinition("tools", str(error)) from error


def _library() -> Any:  # noqa: ANN401 - a module that may not be there
    try:
        return importlib.import_module("engine.agents.spec")
    except ModuleNotFoundError as error:  # guard: agents-extra-told
        if error.name and error.name.startswith("engine"):
            raise
        raise BadDefinition("agent", MISSING) from error
