"""Joins an agent of pydantic-ai to the journal: each thing that it does outside is a unit of it.

The library gives every request to a model, and every call of a tool that is not ours, to
`execute`. Where it belongs is told by the run step and, for tools, by the place of the call in the
model's answer: both are the same in a replay, in whatever order parallel calls end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar, Final

import msgspec
from pydantic_ai import exceptions
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    DurabilityEngineSpec,
    DurableOperationId,
    EventStreamHandlerId,
    JournalCallableOperationBackend,
    ModelCompactMessagesId,
    ModelRequestId,
    RoleBasedOperationConfig,
    ToolsetCallToolId,
    ToolsetValidateToolArgumentsId,
    conversation_id_from_run_id,
    record_durable_unit,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
)
from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, RunContext
from pydantic_ai.toolsets import AbstractToolset
from pydantic_core import to_json

from engine.agents.answer_text import without_hidden
from engine.agents.digests import PromptDigests, RunDigests, digest, instructions_of
from engine.agents.model_errors import class_of, failed, raised_again
from engine.agents.places import place_in_answer
from engine.agents.prompts.agent_before import AgentBefore
from engine.agents.prompts.conversation import RESULT, Brought, Conversation
from engine.agents.prompts.restore import version_of
from engine.agents.toolset import StepToolset
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
from engine.errors import CRASH, EpisodeFailed, InvalidAction, Unencodable
from engine.usercode.call import call
from streams.json import NOTHING, raw, unraw
from streams.model.events import StepKind

_CONFIG: Final[RoleBasedOperationConfig[None]] = RoleBasedOperationConfig(
    model=None, event=None, capability=None, tool=None
)

_LEAVES_JOURNALED: Final = ("FunctionToolset", "MCPToolset", "DynamicToolset", "ExternalToolset")

SHOWN_BYTES_MAX: Final = 64 * 1024
"""Longest arguments of a call that people see, in bytes of JSON: a commit must hold them."""

HEADERS: Final = "extra_headers"

IDEMPOTENCY_KEY: Final = "Idempotency-Key"
"""What tells a provider that a request is one that a dead node has made before."""

IN_WORDS: Final = "text", "tool"
"""Output modes of the library in which a text of a model is what it says in words."""

STREAMED: Final = ":stream"
"""Ends the key of a request whose answer is streamed: its body says so, and a key has one body."""

Decide = Callable[[RunContext[Any], DeferredToolRequests], Awaitable[DeferredToolResults]]
"""Has people decide on calls of tools that need it, or waits for results from elsewhere."""


class NotJson(Exception):
    """What a tool has returned cannot be recorded."""


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
    _versions: dict[str, msgspec.Raw | None] = field(default_factory=dict)
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
                self._versions[prompt.version] = _json_of(version)
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

        size = len(to_json([messages, parameters], fallback=repr))
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


class VigilBackend(JournalCallableOperationBackend[None]):
    """Gives what the library has executed to a run."""

    def __init__(self, run: AgentRun, *, default_model_id: str | None) -> None:
        """Serve `run`."""
        super().__init__(agent_name=run.name, default_model_id=default_model_id, config=_CONFIG)
        self._run = run

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: None,
    ) -> object:
        """Return what `body` returns, as `AgentRun.execute` does."""
        del name, config
        return await self._run.execute(operation_id, body, cache_key)


class VigilDurability(BaseDurabilityCapability[Any]):
    """Has one run of an agent journaled."""

    engine_spec: ClassVar[DurabilityEngineSpec] = DurabilityEngineSpec(
        engine_name="Vigil",
        durable_unit_noun="step",
        durable_container_noun="episode",
        codec=JSON_CODEC,
        serialization_failure=lambda error: NotJson(str(error)),
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        toolset_lifecycles={
            "function": "enter-always",
            "mcp": "enter-in-durable-unit",
            "dynamic": "enter-never",
        },
    )

    def __init__(self, run: AgentRun, *, models: Mapping[str, Model] | None = None) -> None:
        """Journal `run`, which may ask `models` beside the agent's own."""
        super().__init__(name=run.name, models=models)
        self._run = run

    async def for_run(self, ctx: RunContext[Any]) -> AbstractCapability[Any]:
        """Return one that knows the model of the run, such as that of `Agent.override`."""
        agent, model = self.agent, ctx.model
        if agent is None or not isinstance(model, Model):
            return self
        known = {} if model is agent.model else {f"{model.system}:{model.model_name}": model}
        known |= await self._run.before.models(model)
        return VigilDurability(self._run, models=known).for_agent(agent) if known else self

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Return the request, as the agent has asked before it has changed where that is wanted."""
        place = self._run.next_place(ctx)
        asked = await self._run.before.asks(request_context, place)
        return await super().before_model_request(ctx, asked)

    @property
    def in_durable_context(self) -> bool:
        """Always: it is made for a run in an episode."""
        return True

    def get_durable_operation_backend(self) -> VigilBackend:
        """Return what executes the units of the run."""
        return VigilBackend(self._run, default_model_id=self.default_model_id)

    def get_default_run_id(self) -> str:
        """Return an identifier that is the same in a replay."""
        return digest([self._run.parts.key])

    def get_default_conversation_id(self, run_id: str) -> str:
        """Return one that is the same in a replay."""
        return conversation_id_from_run_id(run_id)

    def get_wrapper_model(self, model: Model) -> Model | None:
        """Return what asks `model` for its answer piece by piece, if people are to be told."""
        if not self._run.streams or not can_stream(model):
            return None
        return StreamedModel(model, self._run)

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any] | None:
        """Return the toolset with each of its parts journaled, or refuse one that would not be."""
        toolset.apply(_check_journaled)  # guard: unjournaled-toolset-refused
        return super().get_wrapper_toolset(toolset)

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Have people decide; the run goes on where it was."""
        return await self._run.decide(ctx, requests)


async def outcome_of(
    body: Callable[[], Awaitable[object]], *, hidden: frozenset[str] = frozenset()
) -> UnitOutcome:
    """Return what `body` has brought, or how it has failed."""
    try:
        payload = await call(body)
    except EpisodeFailed as raised:
        return _failed(raised)
    try:
        if isinstance(payload, dict) and payload.get("kind") == "response":
            return _answered(payload, hidden)
        return UnitOutcome(result=raw(payload))
    except (TypeError, ValueError, Unencodable) as error:
        return UnitOutcome(error_class=Unencodable.error_class, error_detail=str(error))


class StreamedModel(WrapperModel):
    """Asks a model for its answer piece by piece, tells who listens, and returns it whole.

    It streams within the request that the library makes, and not by streams of the library's own:
    those tell telemetry once more of a request that is only replayed.
    """

    def __init__(self, wrapped: Model, run: AgentRun) -> None:
        super().__init__(wrapped)
        self._run = run

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Return the whole answer."""
        # guard: plan-as-text-not-told
        tells_text = not self._run.hidden or self._answers_in_words(
            model_settings, model_request_parameters
        )
        asking = self.wrapped.request_stream(messages, model_settings, model_request_parameters)
        async with asking as answer:
            async for event in answer:
                if self._run.listener is not None:
                    _tell(event, self._run.listener, tells_text=tells_text)
        return answer.get()

    def _answers_in_words(
        self, settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> bool:
        """Return whether a text is no output of another type, of which people may not see all."""
        _, prepared = self.wrapped.prepare_request(settings, parameters)
        return prepared.output_mode in IN_WORDS


def can_stream(model: object) -> bool:
    """Return whether `model` can answer piece by piece; one that cannot answers in one piece."""
    match model:
        case WrapperModel(wrapped=wrapped):
            return can_stream(wrapped)
        case FallbackModel(models=models):
            return all(map(can_stream, models))
        case FunctionModel(stream_function=function):
            return function is not None
        case Model():
            return type(model).request_stream is not Model.request_stream
        case _:
            return False


def _tell(event: ModelResponseStreamEvent, listener: AnswerListener, *, tells_text: bool) -> None:
    """Tell the text of an answer, and which tools it calls: people may not see all arguments."""
    match event:
        case (
            PartStartEvent(part=TextPart(content=text))
            | PartDeltaEvent(delta=TextPartDelta(content_delta=text))
        ) if tells_text:
            listener.say(text)
        case PartStartEvent(part=ToolCallPart(tool_name=name)):
            listener.call(name)
        case _:
            pass


def _failed(raised: EpisodeFailed) -> UnitOutcome:
    cause = raised.__cause__
    match cause:
        case exceptions.ModelAPIError():
            return failed(cause)
        case NotJson():
            return UnitOutcome(error_class=Unencodable.error_class, error_detail=str(cause))
        case Exception() if class_of(cause):
            return UnitOutcome(error_class=class_of(cause), error_detail=str(cause))
        case _:
            return UnitOutcome(error_class=raised.error_class or CRASH, error_detail=raised.detail)


def _answered(payload: dict[str, Any], hidden: frozenset[str]) -> UnitOutcome:
    """Return the answer of a model, in short: what is not there is not written."""
    used = payload.get("usage") or {}
    parts = [_given(part) for part in payload["parts"]]
    said = {**_given(payload), "parts": parts, "usage": _given(used)}
    said.pop("timestamp", None)  # The commit has the time.
    shown = {**said, "parts": [without_hidden(part, hidden) for part in parts]}
    return UnitOutcome(
        result=raw(said),
        shown=NOTHING if shown == said else raw(shown),
        model=str(payload.get("model_name") or ""),
        input_tokens=used.get("input_tokens", 0),
        output_tokens=used.get("output_tokens", 0),
        cached_tokens=used.get("cache_read_tokens", 0),
        reasoning_tokens=used.get("output_reasoning_tokens", 0),
        cost_usd=_decimal(used.get("cost")),
    )


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    """Return `fields` without those that have their default, which is nothing, zero or empty.

    A content has none: it may be empty, as that of a thought that only its signature tells.
    """
    kept = fields.items()
    return {name: each for name, each in kept if each or each is False or name == "content"}


def _decimal(cost: object) -> Decimal | None:
    try:
        return None if cost is None else Decimal(str(cost))
    except InvalidOperation:
        return None


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


def _check_journaled(leaf: AbstractToolset[Any]) -> None:
    """Raise `InvalidAction` if what the tools of `leaf` do would not be recorded."""
    if isinstance(leaf, StepToolset):
        return
    kinds = [each.__name__ for each in type(leaf).__mro__]
    if not any(each in kinds or f"Durable{each}" in kinds for each in _LEAVES_JOURNALED):
        raise InvalidAction(
            f"{type(leaf).__name__}: what its tools do would not be recorded; use functions, an"
            " MCPToolset, or vigil.agents.toolset(…)"
        )
