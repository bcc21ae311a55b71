"""`AgentRun`: one run of an agent, with each thing that it does outside as a unit of the journal.

Where a unit belongs is told by the run step and, for tools, by the place of the call in the model's
answer: both are the same in a replay, in whatever order parallel calls end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

import msgspec
from pydantic_ai.durable_exec import (
    DurableOperationId,
    EventStreamHandlerId,
    ModelCompactMessagesId,
    ModelRequestId,
    ToolsetCallToolId,
    ToolsetValidateToolArgumentsId,
    record_durable_unit,
)
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, RunContext
from pydantic_core import to_json

from engine.agents.digests import PromptDigests, RunDigests, digest, instructions_of
from engine.agents.durability.outcome import outcome_of
from engine.agents.durability.streaming import can_stream
from engine.agents.model_errors import raised_again
from engine.agents.places import place_in_answer
from engine.agents.prompts.agent_before import AgentBefore
from engine.agents.prompts.conversation import RESULT, Brought, Conversation
from engine.agents.prompts.restore import version_of
from engine.agents.unit import (
    AnswerListener,
    OnChange,
    Parts,
    PromptToKeep,
    RequestSize,
    Unit,
    UnitOutcome,
    UnitResult,
)
from engine.app.actions import Retries
from streams.json import raw, unraw
from streams.model.events import StepKind

SHOWN_BYTES_MAX: Final = 64 * 1024
"""Longest arguments of a call that people see, in bytes of JSON: a commit must hold them."""

HEADERS: Final = "extra_headers"

IDEMPOTENCY_KEY: Final = "Idempotency-Key"
"""What tells a provider that a request is one that a dead node has made before."""

STREAMED: Final = ":stream"
"""Ends the key of a request whose answer is streamed: its body says so, and a key has one body."""

Decide = Callable[[RunContext[Any], DeferredToolRequests], Awaitable[DeferredToolResults]]
"""Has people decide on calls of tools that need it, or waits for results from elsewhere."""


@dataclass
class AgentRun:
    """One run of an agent."""

    parts: Parts
    name: str
    retries: Retries | None
    on_change: OnChange
    decide: Decide
    hidden: frozenset[str] = frozenset()
    """Names of arguments whose values nobody may see."""
    digests: RunDigests = field(default_factory=RunDigests)
    versions: list[str] = field(default_factory=list)
    """The version of the agent, once it has asked its model."""
    cost_usd: Decimal | None = None
    """What its requests have cost; None: it is not known of any."""
    streams: bool = False
    """Whether its models are asked to answer piece by piece."""
    listener: AnswerListener | None = None
    """Who hears the answer to the request that is under way; there is one at a time."""
    _calls: Counter[str] = field(default_factory=Counter)
    """How many calls each part has made."""
    _versions: dict[str, msgspec.Raw] = field(default_factory=dict)
    """The agent as it asks, by its version."""

    def __post_init__(self) -> None:
        self.conversation = Conversation(self.hidden)
        self.before = AgentBefore(self.parts, is_wanted=self.on_change == "old")

    def spent(self, taken: UnitResult) -> None:
        """Add what a unit has cost."""
        if taken.cost_usd is not None:
            self.cost_usd = (self.cost_usd or Decimal(0)) + taken.cost_usd

    async def execute(
        self,
        operation_id: DurableOperationId,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
    ) -> object:
        """Return what `body` returns, or what it has returned before the node died."""
        if isinstance(operation_id, EventStreamHandlerId):
            return await body()  # It is only told what a unit is doing.
        ctx = next((each for each in cache_key if isinstance(each, RunContext)), None)
        part = _part(operation_id, ctx)
        self._calls[part] += 1
        place = f"{part}.{self._calls[part]}"
        unit = self._unit(operation_id, body, cache_key, ctx)
        async with self.parts.enter(part):
            taken = await self.parts.unit(unit)
        record_durable_unit(executed=taken.is_new)
        self.spent(taken)
        if taken.error_class:
            raise raised_again(taken.error_class, taken.error_detail, taken.result)
        result = unraw(taken.result)
        if unit.kind is StepKind.MODEL_REQUEST:
            self.conversation.answered(result, place)
        elif ctx is not None and ctx.tool_call_id and isinstance(result, dict) and RESULT in result:
            found = Brought(place, result[RESULT], within=RESULT)
            self.conversation.brought[ctx.tool_call_id] = found
        return result

    def next_place(self, ctx: RunContext[Any]) -> str:
        """Return where the next request is recorded: `m2.1`."""
        part = f"m{ctx.run_step}"
        return f"{part}.{self._calls[part] + 1}"

    def _unit(
        self,
        operation_id: DurableOperationId,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        ctx: RunContext[Any] | None,
    ) -> Unit:
        match operation_id:
            case ModelRequestId() if ctx is not None:
                return self._request(body, cache_key, ctx)
            case ToolsetCallToolId() if ctx is not None:
                args = cache_key[1]
                return Unit(
                    kind=StepKind.TOOL_CALL,
                    name=f"{self.name}.{ctx.tool_name}",
                    mark=digest([ctx.tool_name, args]),
                    args=_shown(args),
                    make=lambda _, __: outcome_of(body),
                )
            case _:
                name = type(operation_id).__name__.removesuffix("Id")
                return Unit(
                    kind=StepKind.TOOL_CALL,
                    name=f"{self.name}.{name}",
                    mark=digest([repr(operation_id)]),
                    args=raw({}),
                    make=lambda _, __: outcome_of(body),
                )

    def _request(
        self, body: Callable[[], Awaitable[object]], cache_key: Sequence[Any], ctx: RunContext[Any]
    ) -> Unit:
        model_id, messages, settings, parameters, *_ = cache_key
        model = str(model_id or f"{ctx.model.system}:{ctx.model.model_name}")
        prompt = self.digests.of(model, messages, settings, parameters)
        self.versions.append(prompt.version)
        after = self.conversation.known(self.digests.of_messages(messages))
        new = [*messages[after:]]
        is_needed = self.on_change == "old"

        def kept() -> PromptToKeep:
            if prompt.version not in self._versions:
                said = instructions_of(messages)
                version = version_of(prompt, self.before.model, settings, parameters, said)
                self._versions[prompt.version] = raw(version)
            shows = self.parts.shows_prompts
            shown = _json_of(self.conversation.kept(new)) if shows else None
            agent = self._versions[prompt.version]
            return PromptToKeep(agent=agent, is_needed=is_needed, after=after, messages=shown)

        given = (settings or {}).get("max_tokens")
        streams = self.streams and can_stream(self.before.model or ctx.model)

        async def make(key: str, listener: AnswerListener | None) -> UnitOutcome:
            headers = (settings or {}).get(HEADERS)
            if headers is not None and key:
                # guard: streamed-request-has-own-key
                key = f"{key}{STREAMED}" if streams else key
                headers[IDEMPOTENCY_KEY] = key  # guard: request-has-key
            self.listener = listener
            try:
                return await outcome_of(body, hidden=self.hidden)
            finally:
                self.listener = None

        asked = {"messages": messages, "parameters": parameters}
        # guard: unsent-is-no-input
        size = len(to_json(asked, exclude={"parameters": _UNSENT}, fallback=repr))
        return Unit(
            kind=StepKind.MODEL_REQUEST,
            name=self.name,
            mark=digest([prompt.version, prompt.history]),
            args=raw(prompt),
            make=make,
            streams=streams,
            agent=f"{self.name}:{prompt.version}",
            size=RequestSize(model=model, bytes_in=size, output_tokens_max=given),
            retries=self.retries,
            stands=self.on_change == "go_on" or self.before.is_unrecorded,
            told=lambda args: prompt.difference(msgspec.json.decode(args, type=PromptDigests)),
            problem=self.before.problem,
            kept=kept if is_needed or self.parts.shows_prompts else None,
        )


_UNSENT: Final = {key: {"__all__": {"metadata"}} for key in ("function_tools", "output_tools")}
"""What no provider gets, of the parameters of a request."""


def _part(operation_id: DurableOperationId, ctx: RunContext[Any] | None) -> str:
    """Return the name of the part that a unit belongs to."""
    step = ctx.run_step if ctx is not None else 0
    match operation_id:
        case ModelRequestId() | ModelCompactMessagesId():
            return f"m{step}"
        case ToolsetCallToolId() if ctx is not None:
            return f"t{place_in_answer(ctx)}"
        case ToolsetValidateToolArgumentsId() if ctx is not None:
            return f"v{place_in_answer(ctx)}"
        case _:
            return f"x{step}-{digest([repr(operation_id)])}"


def _json_of(value: object) -> msgspec.Raw | None:
    """Return a value that is kept for people as JSON; None: it is none."""
    try:
        return raw(value)
    except (TypeError, ValueError):
        return None


def _shown(args: object) -> msgspec.Raw:
    said = to_json(args, fallback=repr)
    return msgspec.Raw(said) if len(said) <= SHOWN_BYTES_MAX else raw(f"{len(said):,} bytes")
