"""Asks language models, one after the other until one answers; errors in the engine's words.

It is imported when a model is first asked, since pydantic-ai takes a second and more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, cast

import msgspec
from msgspec.structs import replace
from pydantic import PydanticUserError
from pydantic_ai import Agent, StructuredDict, capture_run_messages
from pydantic_ai.exceptions import (
    FallbackExceptionGroup,
    ModelAPIError,
    OutputTokenLimitExceeded,
    UnexpectedModelBehavior,
    UserError,
)
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model as AnyModel
from pydantic_ai.models import infer_model
from pydantic_ai.run import AgentRunResult
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from engine.agents.classes import (
    CONTEXT_TOO_LONG,
    MISCONFIGURED,
    QUOTA_EXCEEDED,
)
from engine.agents.model_errors import class_of, is_billed
from engine.agents.unit import RequestSize
from engine.app.tools import (
    NOTHING_SPENT,
    RETRIED,
    Synthesis,
    SynthesisFailed,
    ToolFailed,
)
from engine.errors import BadModel

MARK_BYTES: Final = 8
"""Length of the hash of a request in its idempotency key: keys are of one step anyway."""

DETAIL_CHARS_MAX: Final = 1_000
"""Most of what a provider says about a failure, in characters."""

ELSEWHERE: Final = RETRIED | {
    "tool_auth_failed",
    "tool_not_found",
    CONTEXT_TOO_LONG,
    QUOTA_EXCEEDED,
}
"""Error classes that another model may not have: then it is asked."""

RAISED: Final = (ModelAPIError, FallbackExceptionGroup, UserError)
"""What pydantic-ai raises where a request has failed."""


@dataclass(frozen=True)
class AskedModel:
    """One of the models that are asked."""

    name: str
    model: AnyModel
    agent: Agent[object, Any]

    def settings(self, given: Mapping[str, object], *, timeout_s: float, key: str) -> ModelSettings:
        """Return the settings of one request, made once."""
        headers = given.get("extra_headers")
        ours: dict[str, object] = {
            "max_retries": 0,  # guard: provider-repeats-nothing
            "extra_headers": {
                "Idempotency-Key": key,
                **(headers if isinstance(headers, Mapping) else {}),
            },
        }
        unknown = self.model.unsupported_settings
        kept = {name: value for name, value in ours.items() if name not in unknown}
        return cast("ModelSettings", {**given, **kept, "request_timeout": timeout_s})

    def size(self, given: Mapping[str, object], *, said_bytes: int) -> RequestSize:
        """Return how large a request is, with the form that the answer must have."""
        most = {**(self.model.settings or {}), **given}.get("max_tokens")
        return RequestSize(
            model=self.name,
            bytes_in=said_bytes + len(to_json(self.agent.output_json_schema())),
            output_tokens_max=most if isinstance(most, int) else None,
        )


@dataclass(frozen=True)
class AskedModels:
    """The models that are asked in turn."""

    models: Sequence[AskedModel]
    given: Mapping[str, object]
    timeout_s: float
    struct: type[msgspec.Struct] | None
    """What the answer is checked to be, where pydantic-ai does not know the type."""

    def sizes(self, instructions: str, text: str) -> Sequence[RequestSize]:
        """Return how large a request to each of the models is."""
        said = len(f"{instructions}{text}".encode(errors="replace"))
        return [each.size(self.given, said_bytes=said) for each in self.models]

    async def ask(self, instructions: str, text: str, *, key: str) -> object:
        """Return the answer of the first model that has one; else raise `ToolFailed`."""
        failures: list[tuple[str, ToolFailed]] = []
        for each in self.models:
            try:
                answer = await self._asked(each, instructions, text, key)
            except ToolFailed as failed:
                failures.append((each.name, failed))
                if failed.error_class not in ELSEWHERE:  # guard: other-model-may-answer
                    break
            else:
                if isinstance(answer, Synthesis):
                    return replace(answer, others_may_cost=spent_on(failures) is None)
                return answer
        raise worst_of(failures)

    async def _asked(self, each: AskedModel, instructions: str, text: str, key: str) -> object:
        # A server may have several of the models, and an app may say something else by now.
        key = f"{key}:{_digest(each.name, instructions, text)}"  # guard: key-of-one-request
        settings = each.settings(self.given, timeout_s=self.timeout_s, key=key)
        with capture_run_messages() as messages:
            try:
                # Connections are shared with other requests of this moment, and closed after them.
                async with each.model:
                    result = await each.agent.run(
                        text, instructions=instructions or None, model_settings=settings
                    )
                content = self._content(result)
            except UnexpectedModelBehavior as error:
                raise _useless(error, _spent(messages, each.name)) from error
            except RAISED as error:
                raise failure_of(error) from error
        spent = _spent(messages, each.name)
        if not spent.input_tokens and not spent.output_tokens:
            return content
        return replace(spent, content=content)

    def _content(self, result: AgentRunResult[Any]) -> object:
        """Return an answer as JSON; raise `UnexpectedModelBehavior` if it is none to use."""
        if result.response.finish_reason == "length":  # guard: truncated-answer-is-none
            raise OutputTokenLimitExceeded("the answer ends at the limit; raise `max_tokens`")
        try:
            if self.struct is not None:
                made = msgspec.convert(result.output, self.struct)  # guard: struct-answer-checked
                return msgspec.to_builtins(made)
            return to_jsonable_python(result.output)
        except (msgspec.ValidationError, PydanticSerializationError) as error:
            raise UnexpectedModelBehavior(str(error)) from error


def asked_models(
    models: Sequence[tuple[str, str | AnyModel]],
    *,
    output_type: object,
    settings: Mapping[str, object],
    timeout_s: float,
) -> AskedModels:
    """Return what asks `models`, each with its name; `BadModel` says which cannot be asked here."""
    is_struct = isinstance(output_type, type) and issubclass(output_type, msgspec.Struct)
    struct = cast("type[msgspec.Struct]", output_type) if is_struct else None
    made = []
    for name, each in models:
        try:
            spec: Any = output_type if struct is None else _as_dict(struct)
            model = infer_model(each)
            agent: Agent[object, Any] = Agent(model, output_type=spec, retries=0)
        # No such provider, or no key; a provider without its package; a type without a schema.
        except (UserError, PydanticUserError, ImportError, TypeError) as error:
            raise BadModel(name, _line(str(error))) from error
        made.append(AskedModel(name, model, agent))
    return AskedModels(made, settings, timeout_s, struct)


def failure_of(error: Exception) -> ToolFailed:
    """Return what an error of pydantic-ai is to the engine."""
    match error:
        case FallbackExceptionGroup():
            failures = [failure_of(each) for each in error.exceptions]
            return worst_of([(type(each).__name__, each) for each in failures])
        case ModelAPIError():
            said, pause_s = _cut(error.message), error.retry_after
            if is_billed(error):  # guard: failed-synthesis-may-cost
                return ToolFailed(class_of(error), said, retry_after_s=pause_s)
            return SynthesisFailed(
                class_of(error), said, spent=NOTHING_SPENT, retry_after_s=pause_s
            )
        case _:
            return SynthesisFailed(MISCONFIGURED, _cut(str(error)), spent=NOTHING_SPENT)


def worst_of(failures: Sequence[tuple[str, ToolFailed]]) -> ToolFailed:
    """Return one failure for those of all models: one after which they may be asked again."""
    if len(failures) == 1:
        return failures[0][1]
    again = [each for _, each in failures if each.error_class in RETRIED]
    chosen = (again or [failures[-1][1]])[0]  # guard: repeatable-failure-first
    told = "; ".join(f"{name}: {each}" for name, each in failures)
    pauses = [each.retry_after_s for each in again if each.retry_after_s is not None]
    # The first of them that may answer is asked as soon as it may.
    retry_after_s = min(pauses) if pauses and len(pauses) == len(again) else None
    spent = spent_on(failures)
    if spent is None:
        return ToolFailed(chosen.error_class, told, retry_after_s=retry_after_s)
    # Only the last one can have answered.
    return SynthesisFailed(chosen.error_class, told, spent=spent[-1], retry_after_s=retry_after_s)


def spent_on(failures: Sequence[tuple[str, ToolFailed]]) -> list[Synthesis] | None:
    """Return what each failed request has cost; None: one of them may cost what nobody knows."""
    spent = [each.spent for _, each in failures if isinstance(each, SynthesisFailed)]
    # guard: failed-model-may-cost
    return spent if len(spent) == len(failures) else None


def _useless(error: UnexpectedModelBehavior, spent: Synthesis) -> ToolFailed:
    """Return the failure of an answer that is none to use, and has cost what it has cost."""
    why = f": {error.__cause__}" if error.__cause__ is not None else ""
    said = _cut(f"{error.message}{why}")
    if not spent.input_tokens and not spent.output_tokens:  # guard: uncounted-answer-may-cost
        return ToolFailed(class_of(error), said)
    return SynthesisFailed(class_of(error), said, spent=spent)


def _spent(messages: Sequence[ModelMessage], name: str) -> Synthesis:
    """Return what the answers of the model called `name` have cost: there is one, or none."""
    answers = [each for each in messages if isinstance(each, ModelResponse)]
    usage = sum((each.usage for each in answers), RequestUsage())
    return Synthesis(
        content=None,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cache_read_tokens,
        reasoning_tokens=usage.output_reasoning_tokens,
        cost_usd=usage.cost,
        model=(answers[-1].model_name or "") if answers else "",
        model_id=name,
    )


def _as_dict(struct: type[msgspec.Struct]) -> object:
    """Return a type of pydantic-ai's with the schema of `struct`."""
    (schema,), parts = msgspec.json.schema_components([struct], ref_template="#/$defs/{name}")
    name = schema["$ref"].rpartition("/")[2]
    others = {each: part for each, part in parts.items() if each != name}
    whole = {**parts[name], **({"$defs": others} if others else {})}
    return StructuredDict(whole, name=struct.__name__, description=struct.__doc__)


def _digest(*texts: str) -> str:
    return blake2b("\0".join(texts).encode(errors="replace"), digest_size=MARK_BYTES).hexdigest()


def _cut(text: str) -> str:
    return text if len(text) <= DETAIL_CHARS_MAX else f"{text[:DETAIL_CHARS_MAX]}…"


def _line(text: str) -> str:
    return " ".join(text.split())
