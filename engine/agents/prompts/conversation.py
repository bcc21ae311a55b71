"""`Conversation`: what of a run's messages is kept with each request, so that all can be told.

A request keeps what is new since the one before. Of that, what the journal has anyway is named by
its place in the agent: an answer of the model, or the whole result of a tool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic_ai.messages import ModelMessage, ModelResponse, ToolReturnPart

from engine.agents.answer_text import said_in, without_hidden
from engine.agents.digests import VOLATILE, digest, jsonable
from engine.agents.prompts.model_prompt import RECORDED, WITHIN
from engine.app.function_tool import without_values
from engine.secrets import hide, removed
from streams.json import JsonObject

RESULT: Final = "result"
"""Where the record of a tool of the agent's own has what it has returned."""

DEFAULTS: Final = {"outcome": "success", "state": "complete", "finish_reason": "stop"}
"""What a message says in most cases, and is not kept."""

BESIDE: Final = VOLATILE | {"instructions", "usage", "metadata"}
"""Fields of a message that are no part of the conversation."""


@dataclass(frozen=True)
class Brought:
    """What a tool has brought, and the place in its agent where that is recorded."""

    place: str
    result: object
    """As the model reads it."""
    within: str = ""
    """What of the record it is; empty: all of it."""
    is_whole: bool = True
    """Whether the record has it; otherwise it is a part of that."""
    shown: object = None
    """What people may see instead; None: it is no other."""


@dataclass
class Conversation:
    """The messages of one run of an agent."""

    hidden: frozenset[str]
    """Names of arguments whose values nobody may see."""
    brought: dict[str, Brought] = field(default_factory=dict)
    """By the id of the call that the model made last under it."""
    _before: Sequence[str] = ()
    """Digests of the messages of the request before."""
    _answers: dict[str, str] = field(default_factory=dict)
    """Digest of an answer → its place."""
    secret_values: set[str] = field(default_factory=set)
    """What answers have said that nobody may see."""

    def known(self, digests: Sequence[str]) -> int:
        """Return how many messages of the next request the one before begins with, too."""
        pairs = zip(self._before, digests, strict=False)
        known = next((n for n, (one, other) in enumerate(pairs) if one != other), None)
        self._before, before = digests, self._before
        return min(len(before), len(digests)) if known is None else known

    def answered(self, payload: object, place: str) -> None:
        """Note an answer of the model, which is recorded at `place`."""
        if isinstance(payload, Mapping) and "parts" in payload:
            parts = [_short(each) for each in payload["parts"]]
            self._answers[digest(parts)] = place
            self._without_secrets(parts)

    def kept(self, messages: Sequence[ModelMessage]) -> list[JsonObject]:
        """Return what is kept of `messages`, which were not asked before."""
        said = [self._message(each) for each in messages]
        hid: Any = hide(said, self.secret_values)  # guard: kept-prompt-hides-secrets
        return list(hid)

    def _message(self, message: ModelMessage) -> JsonObject:
        said = _short(jsonable(message))
        parts = [_short(each) for each in said.get("parts", ())]
        if isinstance(message, ModelResponse):
            place = self._answers.get(digest(parts))
            if place is not None:
                return {"kind": "response", RECORDED: place}
            return {"kind": "response", "parts": self._without_secrets(parts)}
        pairs = zip(message.parts, parts, strict=True)
        return {**said, "parts": [self._part(each, short) for each, short in pairs]}

    def _part(self, part: object, short: JsonObject) -> JsonObject:
        if "content" in short:  # A model is told its mistakes with what it has said.
            content = without_values(short["content"], self.hidden)  # guard: kept-mistake-redacted
            return self._recorded(part, short) or {**short, "content": content}
        return short

    def _recorded(self, part: object, short: JsonObject) -> JsonObject | None:
        """Return what is kept of a part whose content the journal has; None: it has not."""
        found = self.brought.get(part.tool_call_id) if isinstance(part, ToolReturnPart) else None
        if found is None or jsonable(found.result) != short.get("content"):
            return None
        if not found.is_whole:
            return None if found.shown is None else {**short, "content": found.shown}
        within = {WITHIN: found.within} if found.within else {}
        rest = {name: each for name, each in short.items() if name != "content"}
        return {**rest, RECORDED: found.place, **within}

    def _without_secrets(self, parts: Sequence[JsonObject]) -> list[JsonObject]:
        """Return the parts of an answer without what is hidden, which is hidden from then on."""
        shown = [without_hidden(part, self.hidden) for part in parts]
        for part, seen in zip(parts, shown, strict=True):
            if seen is not part:
                self.secret_values.update(removed(said_in(part), said_in(seen)))
        return shown


def _short(fields: Any) -> JsonObject:  # noqa: ANN401 - the library's, as JSON
    """Return a message, or a part of one, without what is empty or not said to the model."""
    kept = {name: each for name, each in fields.items() if name not in BESIDE}
    return {
        name: each
        for name, each in kept.items()
        if name == "content" or (each not in (None, "", [], {}) and DEFAULTS.get(name) != each)
    }
