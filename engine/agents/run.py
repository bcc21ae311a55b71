"""`run_agent`: runs an agent of pydantic-ai as part of an episode, to its result."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, cast

from pydantic import ValidationError
from pydantic_ai import Agent, UsageLimits, exceptions
from pydantic_ai.durable_exec import replay_scope
from pydantic_ai.messages import ModelMessage, ToolCallPart
from pydantic_ai.models import Model, infer_model
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import (
    DeferredToolApprovalResult,
    DeferredToolRequests,
    DeferredToolResults,
    RunContext,
    ToolApproved,
    ToolDenied,
)

from engine.agents.digests import UNDIGESTED
from engine.agents.durability.agent_run import HEADERS, AgentRun
from engine.agents.durability.capability import VigilDurability
from engine.agents.genai import instrumentation
from engine.agents.model_errors import UnitFailed, class_of
from engine.agents.places import place_in_answer
from engine.agents.plans.edits import (
    AskedCall,
    EditedCall,
    cut_summary,
    editable_calls,
    edited_calls,
    shown_plan,
)
from engine.agents.plans.plan import PlanTools, tools_of_plans
from engine.agents.result import (
    OtherOutput,
    problem_in_words,
    recorded,
    result_of,
)
from engine.agents.toolset import (
    APPROVAL,
    ONE_IS_ENOUGH,
    QUORUM,
    RUNNING,
    RunningAgent,
    StepToolset,
    ToolApproval,
    ToolQuestion,
    ToolQuorum,
)
from engine.agents.unit import OTHER_MODEL, OnChange, Parts, UnitOutcome
from engine.app.actions import Retries
from engine.app.function_tool import without_values
from engine.errors import CRASH, CallFailed, EpisodeFailed, StrategyError
from engine.secrets import hide
from engine.usercode.call import call
from engine.usercode.library_tasks import library_tasks
from streams.json import NOTHING, JsonObject, raw, unraw
from streams.model.triggers import Budget
from streams.model.waits import EditableCalls, PlanForm

__all__ = ["AgentCall", "OtherOutput", "problem_of_model", "result_of", "run_agent"]

NO_LIMIT: Final = UsageLimits(request_limit=None)
"""The budget of the episode limits its agents."""

_THREADS: Final = ThreadPoolExecutor(max_workers=16, thread_name_prefix="vigil-agent")
"""Runs what agents have that is not async, on all of a node's episodes; others wait meanwhile."""

_IMPORTED: Final[set[str]] = set()
"""Names of models whose clients are imported."""

TOGETHER_BYTES_MAX: Final = 128 * 1024
"""Most bytes of the arguments of calls that people decide on together, unless it is one call."""

OTHER_CHANGES: Final = "approved with changes that cannot be made: {}; nothing was called"
"""What a model is told where people have made something else of its calls."""

INVALID_AGENT: Final = "invalid_agent"
"""Error class of an agent that cannot be run as it is declared, or on this machine."""

EXCEEDED: Final = "agent_budget_exceeded"
"""Error class of an agent that has used up its own budget."""


class Asking(Protocol):
    """The `ctx` of the episode, as far as an agent needs it."""

    def call(self, tool: str, /, **args: object) -> Awaitable[Any]:
        """Call a tool."""

    def approval(self, plan: object, **asked: object) -> Awaitable[Any]:
        """Ask people."""

    def wait(self, ref: str) -> Awaitable[Any]:
        """Wait for a signal."""


class Decided(Protocol):
    """What people have decided; true if they approved."""

    by: str
    reason: str
    plan: Any
    is_edited: bool

    def __bool__(self) -> bool:
        """Return whether they approved."""


@dataclass(frozen=True, kw_only=True)
class AgentCall:
    """What an agent is run with."""

    agent: Agent[Any, Any]
    name: str
    prompt: str | Sequence[Any] | None
    deps: object
    budget: Budget | None
    model: str | None
    message_history: Sequence[ModelMessage] | None
    keep_messages: bool
    retries: Retries | None
    on_change: OnChange
    stream: bool = False

    @property
    def shown_prompt(self) -> str:
        """What people see of the prompt: its text."""
        if self.prompt is None or isinstance(self.prompt, str):
            return self.prompt or ""
        return "".join(each for each in self.prompt if isinstance(each, str))


async def run_agent(parts: Parts, ctx: Asking, asked: AgentCall) -> UnitOutcome:
    """Return how the run of an agent ended, as it is recorded."""
    hidden = _hidden_in(asked.agent)
    decide = DeferredCalls(parts, ctx, asked.name, hidden)
    run = AgentRun(
        parts,
        asked.name,
        asked.retries,
        asked.on_change,
        decide=decide,
        hidden=hidden,
        streams=asked.stream,
    )
    RUNNING.set(RunningAgent(parts, ctx, run.conversation.brought))
    try:
        result = await call(_result, run, asked)
        said = recorded(
            result,
            asked.agent.output_type,
            cost_usd=run.cost_usd,
            version=run.versions[-1] if run.versions else "",
            keep_messages=asked.keep_messages,
        )
    except EpisodeFailed as failed:
        return _failed(failed)
    except StrategyError as error:
        return UnitOutcome(error_class=error.error_class, error_detail=str(error))
    # What was said may be there as text, such as the arguments in messages.
    secrets = run.conversation.secret_values
    shown = raw(hide(without_values(unraw(said), hidden), secrets)) if hidden else NOTHING
    return UnitOutcome(result=said, shown=NOTHING if shown == said else shown)


def problem_of_model(name: str) -> str:
    """Return why no agent can ask the model `name`, such as `openai:gpt-5`; empty: it can."""
    try:
        infer_model(name)
    except (exceptions.UserError, ValueError, ImportError) as error:
        return " ".join(str(error).split())
    return ""


async def _result(run: AgentRun, asked: AgentCall) -> Any:  # noqa: ANN401 - the library's result
    model = OTHER_MODEL.get() or asked.model  # guard: other-model-asked
    await _import_client(model or asked.agent.model)
    # A scope around the whole run: nothing that is only replayed is told to telemetry again.
    sleeping, threads = Agent.using_sleep(run.parts.sleep), Agent.using_thread_executor(_THREADS)
    with replay_scope(), sleeping, threads, library_tasks():
        return await asked.agent.run(
            asked.prompt,
            deps=asked.deps,
            model=model,
            message_history=asked.message_history,
            usage_limits=_limits(asked.budget),
            model_settings=_settings_of(asked.agent),
            capabilities=[*instrumentation(asked.agent), VigilDurability(run)],
            infer_name=False,
        )


async def _import_client(model: object) -> None:
    """Import beside the event loop what asks a model by its name: the first time takes seconds."""
    if isinstance(model, str) and model not in _IMPORTED:
        # What is wrong with it, the run says, if it asks this model at all.
        await asyncio.to_thread(problem_of_model, model)  # guard: client-imported-in-thread
        _IMPORTED.add(model)


def _settings_of(agent: Agent[Any, Any]) -> ModelSettings:
    """Return what each request is made with, beside the agent's own: it is repeated here alone."""
    own = agent.model_settings
    said = own if isinstance(own, Mapping) else {}
    # A dict of this run's, in which each request gets a key of its own.
    ours = {"max_retries": 0, HEADERS: dict(said.get(HEADERS) or {})}  # guard: agent-repeats-alone
    unknown = agent.model.unsupported_settings if isinstance(agent.model, Model) else ()
    return cast("ModelSettings", {name: each for name, each in ours.items() if name not in unknown})


def _limits(budget: Budget | None) -> UsageLimits:
    if budget is None:
        return NO_LIMIT
    return UsageLimits(
        request_limit=budget.turns or None,
        total_tokens_limit=budget.tokens or None,
        cost_limit=budget.usd or None,
    )


def _failed(failed: EpisodeFailed) -> UnitOutcome:
    cause = failed.__cause__
    match cause:
        case (
            UnitFailed(error_class=name, detail=detail)
            | CallFailed(error_class=name, detail=detail)
        ):
            return UnitOutcome(error_class=name, error_detail=detail)
        case exceptions.UsageLimitExceeded():
            told = str(cause).partition(". ")[0].partition(" Consider")[0]
            told = f"{told}; see the budget of ctx.agent"
            return UnitOutcome(error_class=EXCEEDED, error_detail=told)
        case ImportError():  # Of a provider.
            return UnitOutcome(error_class=INVALID_AGENT, error_detail=" ".join(str(cause).split()))
        case Exception() if class_of(cause):
            return UnitOutcome(error_class=class_of(cause), error_detail=str(cause))
        case exceptions.UserError():
            return UnitOutcome(error_class=INVALID_AGENT, error_detail=str(cause))
        case _:
            return UnitOutcome(error_class=failed.error_class or CRASH, error_detail=failed.detail)


@dataclass(frozen=True)
class DeferredCalls:
    """Has people decide on the calls of an agent, on each by itself or on several together."""

    parts: Parts
    ctx: Asking
    name: str
    hidden: frozenset[str]
    """Names of arguments whose values nobody may see."""

    async def __call__(
        self, run: RunContext[Any], requests: DeferredToolRequests
    ) -> DeferredToolResults:
        """Return what was decided, and what has come from elsewhere for the other calls."""
        groups = _decided_together(run, requests.approvals)
        approvals = [self._decided(run, group) for group in groups]
        calls = [self._come(run, each) for each in requests.calls]
        decided, come = await asyncio.gather(asyncio.gather(*approvals), asyncio.gather(*calls))
        return DeferredToolResults(
            approvals={id_: each for group in decided for id_, each in group.items()},
            calls={
                each.tool_call_id: said for each, said in zip(requests.calls, come, strict=True)
            },
        )

    async def _decided(
        self, run: RunContext[Any], group: DecidedTogether
    ) -> dict[str, DeferredToolApprovalResult]:
        """Return what people have decided about each call of `group`, which they see at once."""
        said = group.decision
        calls = [_asked_call(run, each) for each in group.calls]
        # guard: approval-hides-secrets
        shown = [without_values(each.args, self.hidden) for each in calls]
        plan = shown_plan(calls, self.hidden) if group.is_together else shown[0]
        what = "call" if len(calls) == 1 else f"make {len(calls)} calls:"
        wanted = "; ".join(
            _written(each.tool, args) for each, args in zip(calls, shown, strict=True)
        )
        summary = f"{self.name} wants to {what} {wanted}"
        form = PlanForm.CALLS if group.is_together else PlanForm.ARGUMENTS
        terms = editable_calls(form, calls, {each.tool: _schema(run, each.tool) for each in calls})
        async with self.parts.enter(f"d{place_in_answer(run, group.calls[0].tool_call_id)}"):
            answer = await self.ctx.approval(
                plan,
                summary=cut_summary(summary),
                approvers=said.approvers,
                expires_s=said.expires_s,
                quorum=group.quorum.quorum,
                requester_may_approve=group.quorum.requester_may_approve,
                editable=terms,
                shared=False,
            )
        results = _results(run, calls, terms, answer)
        return {each.tool_call_id: one for each, one in zip(group.calls, results, strict=True)}

    async def _come(self, run: RunContext[Any], asked: ToolCallPart) -> object:
        place = place_in_answer(run, asked.tool_call_id)
        async with self.parts.enter(f"d{place}"):
            return await self.ctx.wait(f"{self.parts.key}:{place}")


def _decision(run: RunContext[Any], name: str) -> ToolApproval:
    said = _metadata(run, name).get(APPROVAL)
    return said if isinstance(said, ToolApproval) else ToolApproval()


def _quorum(run: RunContext[Any], name: str) -> ToolQuorum:
    said = _metadata(run, name).get(QUORUM)
    return said if isinstance(said, ToolQuorum) else ONE_IS_ENOUGH


def _question(run: RunContext[Any], name: str) -> ToolQuestion:
    said = _metadata(run, name).get(UNDIGESTED)
    return said if isinstance(said, ToolQuestion) else ToolQuestion()


def _metadata(run: RunContext[Any], name: str) -> Mapping[str, object]:
    found = run.tools.get(name)
    return (found.metadata if found is not None else None) or {}


@dataclass(frozen=True)
class DecidedTogether:
    """Calls that are decided on at once."""

    decision: ToolApproval
    quorum: ToolQuorum
    is_together: bool
    """Whether the plan has them by their numbers; otherwise it is the arguments of the one."""
    calls: list[ToolCallPart] = field(default_factory=list)


def _decided_together(run: RunContext[Any], calls: Iterable[ToolCallPart]) -> list[DecidedTogether]:
    """Return which calls are decided on at once, and on which terms."""
    groups: list[DecidedTogether] = []
    together: dict[tuple[ToolApproval, ToolQuorum], DecidedTogether] = {}
    sizes: dict[tuple[ToolApproval, ToolQuorum], int] = {}
    for each in calls:
        name, size = each.tool_name, len(each.args_as_json_str().encode())
        said = _decision(run, name), _quorum(run, name)
        group = DecidedTogether(*said, _question(run, name).is_together)
        if group.is_together:
            sizes[said] = sizes.get(said, 0) + size
            if sizes[said] > TOGETHER_BYTES_MAX:  # guard: calls-together-fit
                together[said], sizes[said] = group, size
            group = together.setdefault(said, group)  # guard: other-terms-asked-apart
        if not group.calls:
            groups.append(group)
        group.calls.append(each)
    return groups


def _asked_call(run: RunContext[Any], asked: ToolCallPart) -> AskedCall:
    risk = _question(run, asked.tool_name).risk
    return AskedCall(asked.tool_name, risk, asked.args_as_dict())


def _results(
    run: RunContext[Any], calls: Sequence[AskedCall], terms: EditableCalls, answer: Decided
) -> list[DeferredToolApprovalResult]:
    """Return what becomes of calls that people have decided on at once."""
    if not answer:
        return [_denied("denied", answer)] * len(calls)
    if not answer.is_edited:
        return [ToolApproved()] * len(calls)
    try:
        edited = {each.number: each for each in edited_calls(terms, calls, answer.plan)}
        _check_fit(run, calls, edited.values())
    except ValueError as problem:
        return [ToolDenied(OTHER_CHANGES.format(problem))] * len(calls)
    return [
        ToolApproved(override_args=edited[number].args)
        if number in edited
        else _denied("left out", answer)
        for number in range(1, len(calls) + 1)
    ]


def _check_fit(
    run: RunContext[Any], calls: Sequence[AskedCall], edited: Iterable[EditedCall]
) -> None:
    """Raise `ValueError` if arguments that people have changed do not fit their tool."""
    for each in edited:
        if each.args == calls[each.number - 1].args:
            continue  # What the model has asked for itself it is told as elsewhere.
        if problem := _problem_of(run, each.tool, each.args):  # guard: unfit-change-calls-nothing
            raise ValueError(f"call {each.number}: {problem}" if len(calls) > 1 else problem)


def _problem_of(run: RunContext[Any], name: str, args: JsonObject) -> str:
    """Return why arguments do not fit a tool; empty: they do."""
    if (problem_of := _question(run, name).problem_of) is not None:
        return problem_of(args) or ""
    found = (run.tool_manager.tools or {}).get(name) if run.tool_manager is not None else None
    try:
        if found is not None:
            found.args_validator.validate_python(args, context=run.validation_context)
    except ValidationError as error:
        return f"{name}(): {problem_in_words(error)}"
    return ""


def _denied(what: str, answer: Decided) -> ToolDenied:
    by = f" by {answer.by}" if answer.by else ""
    return ToolDenied(f"{what}{by}: {answer.reason or 'no reason was given'}")


def _schema(run: RunContext[Any], name: str) -> JsonObject:
    """Return the schema of a tool's arguments."""
    found = run.tools.get(name)
    return found.parameters_json_schema if found is not None else {}


def _written(tool: str, args: object) -> str:
    """Return a call as it would be written."""
    given = args.items() if isinstance(args, dict) else ()
    return f"{tool}({', '.join(f'{name}={value!r}' for name, value in given)})"


def _hidden_in(agent: Agent[Any, Any]) -> frozenset[str]:
    """Return the names of arguments of Vigil's tools whose values nobody may see."""
    found: list[StepToolset | PlanTools] = []
    for each in agent.toolsets:
        each.apply(lambda leaf: found.append(leaf) if isinstance(leaf, StepToolset) else None)
    found += tools_of_plans(agent.output_type)  # guard: hidden-of-planned-tools
    return frozenset(name for each in found for name in each.hidden)
