"""`VigilDurability`: has the library give what an agent does to its run.

The library gives every request to a model, and every call of a tool that is not ours, to `execute`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Final

from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    DurabilityEngineSpec,
    DurableOperationId,
    JournalCallableOperationBackend,
    RoleBasedOperationConfig,
    conversation_id_from_run_id,
)
from pydantic_ai.models import Model, ModelRequestContext
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, RunContext
from pydantic_ai.toolsets import AbstractToolset

from engine.agents.digests import digest
from engine.agents.durability.agent_run import AgentRun
from engine.agents.durability.outcome import NotJson
from engine.agents.durability.streaming import StreamedModel, can_stream
from engine.agents.toolset import StepToolset
from engine.errors import InvalidAction

_CONFIG: Final[RoleBasedOperationConfig[None]] = RoleBasedOperationConfig(
    model=None, event=None, capability=None, tool=None
)

_LEAVES_JOURNALED: Final = ("FunctionToolset", "MCPToolset", "DynamicToolset", "ExternalToolset")


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
        return StreamedModel(model, lambda: self._run.listener, hidden=self._run.hidden)

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any] | None:
        """Return the toolset with each of its parts journaled, or refuse one that would not be."""
        toolset.apply(_check_journaled)  # guard: unjournaled-toolset-refused
        return super().get_wrapper_toolset(toolset)

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Have people decide; the run goes on where it was."""
        return await self._run.decide(ctx, requests)


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
