"""`Model`: a synthesizer that asks a language model, by way of pydantic-ai.

    app = App(actors=[…], synthesizer=Model("openai:gpt-5", output_type=Verdict))

To declare one costs nothing: pydantic-ai, of the extra `agents`, is imported when it is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, TypeAlias

from engine.agents.classes import MISCONFIGURED
from engine.agents.data import ABOUT_DATA, data
from engine.agents.unit import MAX_TOKENS, RequestSize
from engine.app.actions import Retries, problem_of_declared
from engine.app.function_tool import INVALID_ARGUMENTS
from engine.app.tools import NOTHING_SPENT, CallContext, SynthesisFailed
from engine.errors import BadModel
from engine.validation import finite
from streams.json import JsonObject, raw

if TYPE_CHECKING:
    from pydantic_ai.models import Model as AnyModel

    from engine.agents.ask import AskedModels

PACKAGE: Final = "pydantic_ai"

NEEDS: Final = 'models need pydantic-ai; pip install "vigil-engine[agents]"'

TEST: Final = "test"
"""What pydantic-ai calls its model for tests, which has no provider."""

CHARS_PER_TOKEN: Final = 4
"""What a token has on average, in characters, where a provider does not say what it has used."""

FALLBACKS_MAX: Final = 8
"""Most models that are asked in place of the first one."""

TIMEOUT_S_MAX: Final = 3_600.0
"""Longest time for one request, in seconds."""

OWN_SETTINGS: Final[Mapping[str, str]] = {
    "max_retries": "retries=Retries(…)",
    "request_timeout": "timeout_s=…",
    "timeout": "timeout_s=…",
}
"""Settings of pydantic-ai that `Model` makes itself, and what to write instead."""

RETRIES: Final = Retries(attempts_max=5, first_s=2.0, most_s=60.0)
"""How often models are asked again, by default."""

ModelLike: TypeAlias = "str | AnyModel"
"""`provider:name`, such as `openai:gpt-5`; or a model of pydantic-ai, such as one whose provider
has another address."""


class Model:
    """A synthesizer that asks a language model."""

    def __init__(
        self,
        model: ModelLike,
        *,
        output_type: object = str,
        instructions: str = "",
        instructions_key: str = "",
        settings: Mapping[str, object] | None = None,
        fallbacks: Sequence[ModelLike] = (),
        retries: Retries | None = RETRIES,
        timeout_s: float = 60.0,
    ) -> None:
        """Declare whom to ask, and for what.

        A prompt that is a text is asked as it is. Any other is asked as JSON text, marked as data,
        so what is to be done with it belongs into `instructions`.

        Args:
            model: `provider:name`, such as `openai:gpt-5`, whose key is in the environment variable
                of its provider; or a model of pydantic-ai.
            output_type: what the answer is: text, or a model of pydantic, dataclass, TypedDict,
                `msgspec.Struct` or other type of pydantic-ai's. Strategies get it as JSON.
            instructions: what the model is to do, before every prompt.
            instructions_key: the key of prompts under which there are more of them, such as
                `system` for templates. Only where no text of strangers can come under that key.
            settings: `ModelSettings` of pydantic-ai, such as `{"temperature": 0}`.
            fallbacks: asked in turn within the same attempt if the model before is away, too busy
                or too slow, does not exist, refuses the key, or has too short a context.
            retries: how often all of them are asked again, and after which pauses, while they are
                away, too busy or too slow; None: never. Neither pydantic-ai nor the provider's
                client repeats anything.
            timeout_s: longest time for one request, in seconds.

        Raises `BadModel` if a value cannot work. What can be known only on the machine that asks,
        such as a missing key, `problem` tells.
        """
        self.model, self.fallbacks = model, tuple(fallbacks)
        self.output_type, self.instructions = output_type, instructions
        self.instructions_key, self.settings = instructions_key, dict(settings or {})
        self.retries, self.timeout_s = retries, timeout_s
        self._asked: AskedModels | None = None
        if problem := self._problem_of_values():
            raise BadModel(named(model), problem)

    def __repr__(self) -> str:
        """Return it as it is written."""
        return f"Model({named(self.model)!r})"

    @property
    def answers_limited(self) -> bool:
        """Whether the tokens of each answer are limited."""
        own = [getattr(each, "settings", None) or {} for each in (self.model, *self.fallbacks)]
        return all(MAX_TOKENS in {**each, **self.settings} for each in own)

    @property
    def names(self) -> list[str]:
        """What the models that are asked in turn are called, as their requests have it."""
        return [named(each) for each in (self.model, *self.fallbacks)]

    def problem(self) -> str:
        """Return in one line why it cannot be asked on this machine; empty: nothing is known."""
        try:
            self._ready()
        except BadModel as error:
            return str(error)
        return ""

    async def __call__(self, prompt: object, transient: JsonObject, ctx: CallContext) -> object:
        """Return the answer to `prompt`, a `Synthesis`; of a model that counts no tokens, plainly.

        The request has the header `Idempotency-Key` where the provider's client allows it.

        Raises `ToolFailed`: `tool_rate_limited`, `tool_unavailable` and `tool_timeout` are repeated
        as `retries` say; the others are `tool_auth_failed`, `tool_not_found`, `context_too_long`,
        `model_quota_exceeded`, `model_refused`, `invalid_answer`, `output_too_long`,
        `model_misconfigured` and `http_<status>`.
        """
        if transient:  # guard: transient-goes-to-no-model
            problem = "a Model takes nothing transient: its key is in the environment"
            raise SynthesisFailed(INVALID_ARGUMENTS, problem, spent=NOTHING_SPENT)
        try:
            asked = self._ready()
        except BadModel as error:
            raise SynthesisFailed(MISCONFIGURED, str(error), spent=NOTHING_SPENT) from error
        instructions, text = self._said(prompt)
        return await asked.ask(instructions, text, key=ctx.idempotency_key)

    def estimate_tokens(self, prompt: object, content: object) -> int:
        """Return about how many tokens an answer has cost whose provider does not say."""
        said = (self.instructions, as_text(prompt), as_text(content))
        return -(-sum(map(len, said)) // CHARS_PER_TOKEN)

    def request_sizes(self, prompt: object) -> Sequence[RequestSize]:
        """Return how large a request for `prompt` is, for each model; none: it cannot be asked."""
        try:
            asked = self._ready()
        except BadModel:  # Which the call says.
            return ()
        return asked.sizes(*self._said(prompt))

    def _said(self, prompt: object) -> tuple[str, str]:
        """Return the instructions and the text of a request."""
        key, more = self.instructions_key, ""
        if key and isinstance(prompt, Mapping) and isinstance(prompt.get(key), str):
            more = prompt[key]
            prompt = {name: value for name, value in prompt.items() if name != key}
        if isinstance(prompt, str):
            return "\n\n".join(filter(None, (self.instructions, more))), prompt
        # guard: prompt-is-marked-data
        return "\n\n".join(filter(None, (self.instructions, more, ABOUT_DATA))), data(prompt)

    def _ready(self) -> AskedModels:
        """Return what asks; `BadModel`: it cannot be made."""
        if self._asked is None:
            if find_spec(PACKAGE) is None:  # guard: missing-agents-extra-told
                raise BadModel(named(self.model), NEEDS)
            from engine.agents.ask import asked_models

            self._asked = asked_models(
                list(zip(self.names, (self.model, *self.fallbacks), strict=True)),
                output_type=self.output_type,
                settings=self.settings,
                timeout_s=self.timeout_s,
            )
        return self._asked

    def _problem_of_values(self) -> str:
        for each in (self.model, *self.fallbacks):
            if isinstance(each, str) and each != TEST and not all(each.partition(":")):
                return f"{each!r}: write provider:name, such as openai:gpt-5"
        if len(self.fallbacks) > FALLBACKS_MAX:
            return f"fallbacks: {len(self.fallbacks)} models, the limit is {FALLBACKS_MAX}"
        for name, instead in OWN_SETTINGS.items():
            if name in self.settings:  # guard: one-layer-of-retries
                return f"settings: {name}: write {instead}"
        timeout_s = finite(self.timeout_s)
        if timeout_s is None or not 0 < timeout_s <= TIMEOUT_S_MAX:
            return f"timeout_s: {self.timeout_s!r} is not from 0 to {TIMEOUT_S_MAX:g} s"
        return problem_of_declared(self.retries) or ""


def named(model: ModelLike) -> str:
    """Return what a model is called, for people."""
    return model if isinstance(model, str) else model.model_id


def as_text(value: object) -> str:
    """Return a text as it is, and any other value as JSON text."""
    return value if isinstance(value, str) else bytes(raw(value)).decode()
