"""What an agent's run has brought: `AgentResult`, live and out of its record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Generic, TypeVar, get_origin

import msgspec
from pydantic import TypeAdapter, ValidationError
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from pydantic_ai.output import NativeOutput, PromptedOutput, TextOutput, ToolOutput
from pydantic_ai.run import AgentRunResult
from pydantic_core import PydanticSerializationError, to_json

from engine.errors import InvalidAction, Unencodable
from streams.json import NOTHING, raw, unraw

T = TypeVar("T")


class OtherOutput(Exception):
    """A recorded output is none of the types of its agent: they have changed since."""


class AgentUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What a run has used, in all its requests; those of agents within its tools are not in it."""

    requests: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    """Of the input, those that the provider had from before."""
    output_tokens: int = 0


class AgentRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a run as its record has it."""

    output: msgspec.Raw
    type: str = ""
    """The class of the output, where the agent has several types."""
    usage: AgentUsage = AgentUsage()
    cost_usd: Decimal | None = None
    version: str = ""
    messages: msgspec.Raw = NOTHING


@dataclass(frozen=True)
class AgentResult(Generic[T]):
    """How a run of an agent has ended."""

    output: T
    """As the agent declares it."""
    usage: AgentUsage
    cost_usd: Decimal | None
    """What its requests have cost, as far as that is known; those of agents within its tools are
    not in it. None: nobody knows of any."""
    version: str
    """Digest of its prompt, tools, settings and model, as its last request had them."""
    kept_messages: tuple[ModelMessage, ...] | None = None
    """The conversation, if `keep_messages` was given; else None."""

    @property
    def messages(self) -> tuple[ModelMessage, ...]:
        """The conversation, for `message_history` of the next run.

        Raises `InvalidAction` unless the run was made with `keep_messages=True`.
        """
        if self.kept_messages is None:  # guard: no-silent-new-conversation
            raise InvalidAction("messages: keep them: ctx.agent(…, keep_messages=True)")
        return self.kept_messages


def recorded(
    result: AgentRunResult[Any],
    output_type: object,
    *,
    cost_usd: Decimal | None,
    version: str,
    keep_messages: bool,
) -> msgspec.Raw:
    """Return what is recorded of a result, from which `result_of` can make it again.

    Raises `Unencodable`: its output is no JSON, or cannot be read from it as an `output_type`.
    """
    try:
        output = msgspec.Raw(to_json(_plain(result.output)))
    except PydanticSerializationError as error:
        raise Unencodable(f"the output of the agent: {error}") from error
    used = result.usage
    messages = msgspec.Raw(result.all_messages_json()) if keep_messages else NOTHING
    record = AgentRecord(
        output=output,
        type=type(result.output).__qualname__,
        usage=AgentUsage(
            requests=used.requests,
            tool_calls=used.tool_calls,
            input_tokens=used.input_tokens,
            cached_tokens=used.cache_read_tokens,
            output_tokens=used.output_tokens,
        ),
        cost_usd=cost_usd,
        version=version,
        messages=messages,
    )
    try:
        _output(record, output_type)  # guard: recorded-output-can-be-read
    except OtherOutput as error:
        raise Unencodable(f"the output of the agent, read from its JSON: {error}") from error
    return raw(record)


def result_of(said: msgspec.Raw, output_type: object) -> AgentResult[Any]:
    """Return what a record says; `OtherOutput`: its output is none of `output_type` any more."""
    kept = msgspec.json.decode(said, type=AgentRecord)
    messages = None
    if kept.messages != NOTHING:
        messages = tuple(ModelMessagesTypeAdapter.validate_json(bytes(kept.messages)))
    return AgentResult(
        output=_output(kept, output_type),
        usage=kept.usage,
        cost_usd=kept.cost_usd,
        version=kept.version,
        kept_messages=messages,
    )


def _output(kept: AgentRecord, output_type: object) -> object:
    types = [
        each for each in output_types(output_type) if getattr(each, "__qualname__", "") == kept.type
    ]
    if not types:
        types = list(output_types(output_type))
    if types == [str]:
        return unraw(kept.output)
    problems: list[str] = []
    for each in types:
        try:
            return TypeAdapter[Any](each).validate_json(bytes(kept.output))
        except ValidationError as error:
            problems.append(problem_in_words(error))
    raise OtherOutput("; ".join(problems))


def problem_in_words(error: ValidationError) -> str:
    """Return the first problem in one line, without the value, which may be a secret."""
    first = error.errors(include_url=False, include_input=False)[0]
    told = first.get("ctx", {}).get("error", first["msg"])
    return ": ".join(filter(None, (".".join(map(str, first["loc"])), " ".join(str(told).split()))))


def output_types(declared: Any) -> Iterator[Any]:  # noqa: ANN401 - the library's forms
    """Yield the types of an agent's `output_type`, whichever way they are declared."""
    match declared:
        case ToolOutput(output=output):
            yield from output_types(output)
        case NativeOutput(outputs=outputs) | PromptedOutput(outputs=outputs):
            yield from output_types(outputs)
        case list() | tuple():
            for each in declared:
                yield from output_types(each)
        case TextOutput():
            yield Any  # As of a function.
        case type():
            yield declared
        case _ if callable(declared) and get_origin(declared) is None:
            yield Any  # A function makes the output; what it returns is taken as it is.
        case _:
            yield declared


def _plain(output: object) -> object:
    return msgspec.to_builtins(output) if isinstance(output, msgspec.Struct) else output
