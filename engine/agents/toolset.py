"""`toolset`: tools of Vigil for an agent, whose calls are ordinary steps of the episode.

So they are announced, repeated, limited and redacted as elsewhere. What is no tool yet, a coroutine
function whose first parameter is `ctx`, is called with that of the episode: it may ask people,
sleep for days, wait for a signal or start another episode.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Protocol, TypeAlias, get_args

from pydantic import TypeAdapter
from pydantic_ai import exceptions
from pydantic_ai.durable_exec import record_durable_unit
from pydantic_ai.tools import RunContext, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

from engine.agents.cuts import WHOLE, Cut
from engine.agents.digests import UNDIGESTED
from engine.agents.model_errors import UnitFailed
from engine.agents.places import place_in_answer
from engine.agents.prompts.conversation import Brought
from engine.agents.unit import Parts
from engine.app.function_tool import INVALID_ARGUMENTS, FunctionTool, tool, without_values
from engine.app.strategy import IN_STRATEGY
from engine.app.tools import RISKS, OfferedTool, Risk
from engine.errors import CallFailed, EpisodeFailed, InvalidAction, Unencodable
from engine.usercode.call import call
from streams.json import JsonObject, raw

APPROVAL: Final = "vigil"
"""The key of a tool's metadata under which it says who decides on its calls."""

QUORUM: Final = "vigil:quorum"
"""The key of how many have to, where one is not enough."""

MISTAKES: Final = frozenset({"no_tool_for_capability", "capability_not_allowed", "unstubbed"})
"""Error classes that the model can do nothing about: the agent fails."""

_ANY: Final[Any] = TypeAdapter(dict[str, Any]).validator

Ask: TypeAlias = Literal["each", "together"]
"""How people are asked about several calls of one answer."""

StepFunction: TypeAlias = Callable[..., Awaitable[object]]
"""What makes steps: `async def restart(ctx, service: str) -> str`."""


Given: TypeAlias = FunctionTool[..., Any] | OfferedTool | StepFunction
"""What an agent may be given as a tool."""


class StepContext(Protocol):
    """The `ctx` of the episode, as far as tools need it."""

    def call(self, tool: str, /, **args: object) -> Awaitable[Any]:
        """Call a tool."""


@dataclass(frozen=True)
class RunningAgent:
    """The agent that runs."""

    parts: Parts
    ctx: StepContext
    """That of the episode."""
    brought: dict[str, Brought]
    """What tools have brought, by the ids of their calls."""


RUNNING: Final[ContextVar[RunningAgent]] = ContextVar("running_agent")


@dataclass(frozen=True)
class ToolApproval:
    """Who decides whether a tool may be called. It is in digests: another field parks episodes."""

    approvers: tuple[str, ...] | None = None
    expires_s: float | None = None


@dataclass(frozen=True)
class ToolQuorum:
    """How many people have to approve a call. It is in digests only where one is not enough."""

    quorum: int = 1
    requester_may_approve: bool = True


ONE_IS_ENOUGH: Final = ToolQuorum()


@dataclass(frozen=True)
class ToolQuestion:
    """How people are asked about a call of a tool. It is in no digest."""

    is_together: bool = False
    """Whether all such calls of an answer are decided on together."""
    risk: str = ""
    """What a call may do, for people."""
    problem_of: Callable[[JsonObject], str | None] | None = None
    """Returns why arguments do not fit, if they do not; None: the library knows."""


@dataclass(frozen=True)
class StepTool:
    """A tool as an agent is given it."""

    name: str
    tool: FunctionTool[..., Any] | OfferedTool
    """For a function that makes steps, what its arguments are checked with."""
    makes_steps: StepFunction | None = None
    decision: ToolApproval | None = None
    quorum: ToolQuorum = ONE_IS_ENOUGH
    is_together: bool = False
    """Whether people decide on its calls together with others of an answer."""
    cut: Cut = WHOLE

    @property
    def risk(self) -> Risk:
        """What a call may do; of a function that makes steps nobody knows: the greatest."""
        # guard: unknown-risk-is-asked
        return RISKS[-1] if self.makes_steps is not None else self.tool.risk

    @property
    def risk_shown(self) -> str:
        """What people are told of the risk."""
        return "unknown" if self.makes_steps is not None else self.tool.risk

    @property
    def metadata(self) -> dict[str, object] | None:
        """What its definition has for us; None: nobody decides on its calls."""
        if self.decision is None:
            return None
        question = ToolQuestion(self.is_together, self.risk_shown, self.tool.problem_of)
        # What was not there before leaves the digests of open episodes as they are.
        counted = {} if self.quorum == ONE_IS_ENOUGH else {QUORUM: self.quorum}
        return {APPROVAL: self.decision, **counted, UNDIGESTED: question}

    def is_risky(self, ask_from: Risk | None) -> bool:
        """Return whether people are asked about it who are asked from a risk on; None: never."""
        # guard: risky-call-is-asked
        return ask_from is not None and RISKS.index(self.risk) >= RISKS.index(ask_from)


class StepToolset(AbstractToolset[Any]):
    """Tools whose calls are steps of the episode that runs the agent."""

    def __init__(self, tools: Mapping[str, StepTool], *, id: str) -> None:
        """Offer `tools` by their names."""
        self._tools, self._id = tools, id

    @property
    def id(self) -> str:
        """What tells it from other toolsets of its agent."""
        return self._id

    @property
    def hidden(self) -> frozenset[str]:
        """The names of arguments whose values nobody may see."""
        return frozenset(name for each in self._tools.values() for name in each.tool.hidden)

    @property
    def every(self) -> Sequence[StepTool]:
        """Its tools."""
        return [*self._tools.values()]

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools as the model gets to know them."""
        del ctx
        return {name: self._offered(each) for name, each in self._tools.items()}

    def _offered(self, each: StepTool) -> ToolsetTool[Any]:
        definition = ToolDefinition(
            name=each.name,
            description=each.tool.description or None,
            parameters_json_schema=each.tool.schema,
            kind="unapproved" if each.decision else "function",
            metadata=each.metadata,
        )
        return ToolsetTool(toolset=self, tool_def=definition, max_retries=1, args_validator=_ANY)

    async def call_tool(
        self,
        name: str,
        tool_args: dict[str, Any],
        ctx: RunContext[Any],
        tool: ToolsetTool[Any],
    ) -> object:
        """Make the call; what fails is told to the model.

        `InvalidAction`: the agent is not run by `ctx.agent`.
        """
        del tool
        called = self._tools[name]
        if problem := called.tool.problem_of(tool_args):
            raise exceptions.ModelRetry(problem)
        running = RUNNING.get(None)
        if running is None:
            raise InvalidAction(f"{name}: its agent is not run by ctx.agent(…)")
        parts = running.parts
        before = parts.recorded
        place = f"t{place_in_answer(ctx)}"
        async with parts.enter(place):
            try:
                if called.makes_steps is None:
                    asked = f"{called.tool.capability}.{called.tool.action}"
                    result = await running.ctx.call(asked, **tool_args)
                    found = _brought(called, result, f"{place}.1")
                    running.brought[ctx.tool_call_id or ""] = found
                    return found.result
                return _read(called, await _in_strategy(called, running.ctx, tool_args))
            except CallFailed as failed:
                if failed.error_class in MISTAKES:
                    raise
                if failed.error_class == INVALID_ARGUMENTS:
                    raise exceptions.ModelRetry(failed.detail) from failed
                told = f"{failed.error_class}: {failed.detail}"
                raise exceptions.ToolFailed(told) from failed
            finally:  # Otherwise telemetry is told again of what is only replayed.
                record_durable_unit(executed=parts.recorded > before)


def _brought(called: StepTool, result: object, place: str) -> Brought:
    """Return what the model reads of `result`, which is recorded at `place`."""
    read = called.cut.of(result)
    if read is result:
        return Brought(place, result)
    shown = None
    if called.tool.hidden:  # guard: cut-result-hides-values
        shown = called.cut.of(without_values(result, called.tool.hidden))
    return Brought(place, read, is_whole=False, shown=shown)


async def _in_strategy(called: StepTool, ctx: StepContext, args: dict[str, Any]) -> object:
    """Return what a tool of steps returns, whose code a replay runs again."""
    assert called.makes_steps is not None
    token = IN_STRATEGY.set(True)
    try:
        return await call(called.makes_steps, ctx, **args)  # guard: exit-shown-by-own-lines
    except EpisodeFailed as failed:
        if isinstance(failed.__cause__, Exception):
            raise failed.__cause__ from None
        raise UnitFailed(failed.error_class, failed.detail) from failed
    finally:
        IN_STRATEGY.reset(token)


def _read(called: StepTool, result: object) -> object:
    """Return what the model reads of what a tool of steps returns."""
    try:
        raw(result)
    except (TypeError, ValueError) as error:
        detail = f"result of {called.name}: {error}"
        raise UnitFailed(Unencodable.error_class, detail) from error
    return called.cut.of(result)


def toolset(
    *tools: Given,
    requires_approval: Iterable[Given] = (),
    ask_from: Risk | None = None,
    ask: Ask = "each",
    approvers: Collection[str] | None = None,
    expires_s: float | None = None,
    quorum: int = 1,
    requester_may_approve: bool = True,
    cut: Mapping[str, Cut] | None = None,
    id: str = "vigil",
) -> StepToolset:
    """Return tools for `Agent(toolsets=[…])` whose calls are steps of the episode.

    A tool is a function with `@tool`, which the app or the actor must have among its tools; or one
    of an MCP server that it has, such as `*notes.offered("notes")`; or `async def name(ctx, …)`,
    whose code a replay runs again, as it does the code of a function; its first paragraph says to
    the model what it does, and its parameters are checked by their annotations. What a call fails
    with is told to the model.

    Args:
        requires_approval: those of `tools` that people must approve before each call. They see the
            arguments and may change them; if they deny it, the model is told why.
        ask_from: people must also approve each call of a tool with this `risk` or a greater one,
            and of each `async def name(ctx, …)`, of which nobody knows what it does: give those to
            a toolset of their own where they need no approval. None: of none.
        ask: about calls that a model asks for in one answer, people decide on `each` by itself, or
            on all of them `together`: the plan has the calls by their numbers, with tool, risk and
            arguments. They may change arguments and leave calls out, which the model is told.
        approvers: who may decide; None: anybody.
        expires_s: after how many seconds a call is denied that nobody has decided on; None: never.
        quorum: how many different people have to approve a call.
        requester_may_approve: whether who has asked for the episode may decide, too.
        cut: name of a tool → what of its results the model reads, such as `tail(4_000)`; the step
            has the whole. Default: the first 100,000 characters, with a line that says how many
            more there are.
        id: a name that no other toolset of the agent has.

    Raises `InvalidAction` if one is no tool, two have one name, `ask_from` is no risk, `ask` is
    something else, or `cut` is of another tool.
    """
    if isinstance(approvers, str):
        raise InvalidAction(f"approvers: {approvers!r} is a text; write [{approvers!r}]")
    if ask not in get_args(Ask):
        raise InvalidAction(f"ask: {ask!r} is not one of {', '.join(get_args(Ask))}")
    named = None if approvers is None else tuple(approvers)
    decision = ToolApproval(named, expires_s)
    given: object = requires_approval
    asked: list[object] = [given] if isinstance(given, str) else list(requires_approval)
    if strays := [each for each in asked if each not in tools]:
        is_name = isinstance(strays[0], str)
        why = "is a name; pass the function itself" if is_name else "is none of the tools"
        raise InvalidAction(f"requires_approval: {strays[0]!r} {why}")
    check_ask_from(ask_from)
    made: dict[str, StepTool] = {}
    for each in tools:
        one = step_tool(each)
        if one.name in made:
            raise InvalidAction(f"two tools are called {one.name!r}")
        is_asked = each in asked or one.is_risky(ask_from)
        made[one.name] = replace(
            one,
            cut=(cut or {}).get(one.name, WHOLE),
            decision=decision if is_asked else None,
            quorum=ToolQuorum(quorum, requester_may_approve),
            is_together=ask == "together",
        )
    if unknown := [name for name in cut or {} if name not in made]:
        raise InvalidAction(f"cut: {unknown[0]!r} is none of the tools: {', '.join(made)}")
    return StepToolset(made, id=id)


def check_ask_from(risk: Risk | None) -> None:
    """Raise `InvalidAction` if `risk` is none."""
    if risk is not None and risk not in RISKS:
        raise InvalidAction(f"ask_from: {risk!r} is not one of {', '.join(RISKS)}")


def step_tool(given: Given) -> StepTool:
    """Return what an agent is given for `given`; `InvalidAction`: it is no tool."""
    if isinstance(given, OfferedTool):
        return StepTool(f"{given.capability}_{given.action}", given)
    if isinstance(given, FunctionTool):
        is_short = given.action == "call"
        name = given.capability if is_short else f"{given.capability}_{given.action}"
        return StepTool(name, given)
    if not inspect.iscoroutinefunction(given):
        raise InvalidAction(
            f"{given!r} is no tool; write @tool above it, or `async def name(ctx, …)`"
        )
    first = next(iter(inspect.signature(given).parameters), "")
    if first != "ctx":
        raise InvalidAction(
            f"{given.__qualname__}: its first parameter is {first or 'none'!r}, not ctx"
        )
    checked = tool(given)
    return StepTool(given.__name__, checked, given)
