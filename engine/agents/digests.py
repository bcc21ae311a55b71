"""Digests of what an agent asks its model, so that a replay notices a change, and what it was.

What changes from one run of the same request to the next, such as times, is left out. A message has
its digest computed once: a long conversation costs no more with each turn.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec.structs import replace
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import ModelRequestParameters
from pydantic_core import to_jsonable_python

VOLATILE: Final = frozenset({"timestamp", "run_id", "conversation_id", "extra_headers"})
"""Fields that are not the same in a replay, or in a fork."""

UNDIGESTED: Final = "vigil:undigested"
"""The key of a tool's metadata under which it has what may change while episodes are open: it is
in no digest."""

DIGITS: Final = 12
"""How long a digest is that people see, in hex digits: 48 bits tell versions of an agent apart."""


class PromptDigests(msgspec.Struct, frozen=True, omit_defaults=True):
    """Digests of what a request to a model is made of, as its record has them."""

    model: str = ""
    settings: str = ""
    """A digest, as are the following."""
    tools: str = ""
    instructions: str = ""
    length: int = 0
    """How many messages there are."""
    history: str = ""
    """Digest of all of them."""

    @property
    def version(self) -> str:
        """Digest of the agent: of everything but the messages."""
        return digest([self.model, self.settings, self.tools, self.instructions])

    def difference(self, recorded: PromptDigests) -> str:
        """Return in words how it differs from the one that was recorded."""
        changed = [
            name
            for name in ("model", "settings", "tools", "instructions")
            if getattr(self, name) != getattr(recorded, name)
        ]
        named = " and ".join(changed) or "messages"
        verb = "has" if len(changed) == 1 and changed[0] == "model" else "have"
        return f"the {named} of the agent {verb} changed"


def digest(value: object) -> str:
    """Return a short digest of what JSON has of `value`, without what is volatile."""
    said = json.dumps(_steady(jsonable(value)), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(said.encode()).hexdigest()[:DIGITS]


@dataclass
class RunDigests:
    """The digests of what one run of an agent asks its model."""

    _known: dict[int, tuple[ModelMessage, str]] = field(default_factory=dict)

    def of(
        self,
        model: str,
        messages: Iterable[ModelMessage],
        settings: object,
        parameters: ModelRequestParameters,
    ) -> PromptDigests:
        """Return the digests of one request."""
        said = list(messages)
        chain = hashlib.sha256()
        for each in self.of_messages(said):
            chain.update(each.encode())
        agent = without_messages(model, instructions_of(said), settings, parameters)
        return replace(agent, length=len(said), history=chain.hexdigest()[:DIGITS])

    def of_messages(self, messages: Iterable[ModelMessage]) -> Sequence[str]:
        """Return a digest of each message."""
        return [self._of_message(each) for each in messages]

    def _of_message(self, message: ModelMessage) -> str:
        known = self._known.get(id(message))
        if known is None or known[0] is not message:
            known = self._known[id(message)] = (message, digest(message))
        return known[1]


def without_messages(
    model: str, instructions: str, settings: object, parameters: ModelRequestParameters
) -> PromptDigests:
    """Return the digests of the agent that makes a request."""
    tools = [*parameters.function_tools, *parameters.output_tools, *parameters.native_tools]
    return PromptDigests(
        model=model,
        settings=digest(settings),
        tools=digest(tools),
        instructions=digest(instructions),
    )


def instructions_of(messages: Sequence[ModelMessage]) -> str:
    """Return the instructions of a request, which the newest message has that has any."""
    said = (getattr(each, "instructions", None) for each in reversed(messages))
    return next((each for each in said if each), "")


def jsonable(value: object) -> Any:  # noqa: ANN401 - any JSON value
    """Return what JSON has of `value`; of anything else in it, the name of its type."""
    return to_jsonable_python(value, fallback=lambda other: type(other).__qualname__)


def _steady(value: object) -> object:
    match value:
        case dict():
            left_out = VOLATILE | {UNDIGESTED}  # guard: question-in-no-digest
            return {key: _steady(each) for key, each in value.items() if key not in left_out}
        case list():
            return [_steady(each) for each in value]
        case _:
            return value
