"""What agents tell telemetry, by OpenTelemetry's conventions for generative AI; every name is here.

The library emits it: a span for each run, request and call, and metrics of each request. In a
replay it emits nothing again, since it is told which of its units were only replayed. Prompts,
answers, arguments and results are left out unless a person has asked for them.

The conventions are experimental and rename things. So the names are those of one version, and a
test compares them with what is emitted: to go to another one is a change of this file.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic_ai import Agent
from pydantic_ai.capabilities import AbstractCapability, Instrumentation
from pydantic_ai.models.instrumented import InstrumentationSettings, InstrumentedModel

from engine import telemetry

CONVENTIONS: Final = "1.44.0"
"""The version of the conventions: the last one before they moved to a repository of their own."""

FORMAT: Final = 5
"""The version of the library's format, which has these names."""

SPANS: Final = ("invoke_agent", "chat", "execute_tool")
"""With the agent, the model or the tool behind it: what each span is called."""

ATTRIBUTES: Final = (
    "gen_ai.agent.name",
    "gen_ai.conversation.id",
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.max_tokens",
    "gen_ai.request.model",
    "gen_ai.response.finish_reasons",
    "gen_ai.response.id",
    "gen_ai.response.model",
    "gen_ai.system",
    "gen_ai.token.type",
    "gen_ai.tool.call.id",
    "gen_ai.tool.definitions",
    "gen_ai.tool.name",
    "gen_ai.usage.cache_creation.input_tokens",
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
)
"""What spans and metrics have, by the conventions."""

CONTENT: Final = (
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
)
"""What has texts only if a person has asked for them; messages without them have their shape."""

BESIDE: Final = (
    "gen_ai.agent.call.id",
    "gen_ai.aggregated_usage.",
    "gen_ai.client.operation.time_to_first_chunk",
    "gen_ai.usage.details.",
)
"""What the library has beside them, by its beginning: sums of a run, what only some providers
count, and a metric as an attribute."""

METRICS: Final = ("gen_ai.client.token.usage", "gen_ai.client.operation.time_to_first_chunk")
"""The second one is of answers that are streamed."""

COST: Final = "operation.cost"
"""What a request has cost, in dollars, as attribute and as metric: the conventions have no name."""


def instrumentation(agent: Agent[Any, Any]) -> list[AbstractCapability[Any]]:
    """Return what has a run of `agent` told to telemetry; nothing where nobody asks for that.

    An agent that says itself what it tells is left as it is.
    """
    asked = telemetry.agents_told()
    if asked is None or _says_itself(agent):  # guard: own-instrumentation-stands
        return []
    settings = InstrumentationSettings(
        include_content=asked.has_content,  # guard: content-told-on-demand
        include_binary_content=False,
        # Tools with their metadata, once more and in no convention.
        include_model_request_parameters=False,
        version=FORMAT,
    )
    return [Instrumentation(settings)]


def _says_itself(agent: Agent[Any, Any]) -> bool:
    found: list[AbstractCapability[Any]] = []
    agent.root_capability.apply(found.append)
    return (
        any(isinstance(each, Instrumentation) for each in found)
        or agent.instrument is not None
        or isinstance(agent.model, InstrumentedModel)
    )
