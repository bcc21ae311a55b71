"""`AgentVersion`: an agent as it asks its model, kept once for all requests that it makes so. Pure.

Whoever reads it needs nothing of the agent's library.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from streams.json import JsonObject

ASPECTS: Final = ("model", "settings", "tools", "instructions")
"""What may change of an agent, in the order in which people are told."""

UNKEPT: Final = re.compile(
    r"max_retries|extra_headers|.*(api|secret|private|access)_?key|(.*_)?(token|secret|password|authorization)",
    re.IGNORECASE,
)
"""Names of settings that are not kept: headers, keys and tokens, and what is not an agent's own."""


class AgentVersion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that a request to a model is made of, but the conversation."""

    model: str
    """As `provider:name`, or as the agent names it."""
    kind: str = ""
    """The class of the library that asks it."""
    url: str = ""
    """Where it is asked."""
    profile: str = ""
    """Digest of what the library knows of the model, and asks it by."""
    marks: dict[str, str] = msgspec.field(default_factory=dict)
    """Aspect → its digest, as `PromptDigests` has it."""
    settings: JsonObject = msgspec.field(default_factory=dict)
    """Without headers and keys, and without what is no JSON."""
    instructions: str | None = None
    """None: they are those of its parts."""
    parameters: JsonObject = msgspec.field(default_factory=dict)
    """Tools, types of the output and parts of the instructions, as the library encodes them."""

    @property
    def all_instructions(self) -> str:
        """What it tells its model to do."""
        own = self.instructions
        return joined(self.parameters) if own is None else own


def joined(parameters: JsonObject) -> str:
    """Return the instructions that `parameters` have the parts of, joined as the library does."""
    parts = parameters.get("instruction_parts") or ()
    return "\n\n".join(each["content"] for each in parts).strip()


def is_kept(name: str, value: object) -> bool:
    """Return whether a setting is kept: not if it may be secret, or is no JSON."""
    return not UNKEPT.fullmatch(name.replace("-", "_")) and _is_json(value)


def without_keys(settings: JsonObject) -> JsonObject:
    """Return the settings that are kept, also of those within others."""
    # guard: keys-not-kept
    return {name: _kept(value) for name, value in settings.items() if is_kept(name, value)}


def with_keys(was: JsonObject, today: JsonObject) -> JsonObject:
    """Return the settings that were kept, with what is not kept of those of today."""
    made = dict(was)
    for name, value in today.items():
        if not is_kept(name, value):
            made.setdefault(name, value)
        elif name in was:
            made[name] = _with_keys(was[name], value)  # guard: nested-keys-of-today
    return made


def _kept(value: object) -> object:
    match value:
        case dict():
            return without_keys(value)
        case list():
            return [_kept(each) for each in value]  # guard: listed-keys-not-kept
        case _:
            return value


def _with_keys(was: object, today: object) -> object:
    if isinstance(was, dict) and isinstance(today, dict):
        return with_keys(was, today)
    if isinstance(was, list) and isinstance(today, list) and len(was) == len(today):
        return [_with_keys(*each) for each in zip(was, today, strict=True)]
    return was


def _is_json(value: object) -> bool:
    match value:
        case dict():
            return all(isinstance(name, str) and _is_json(each) for name, each in value.items())
        case list():
            return all(map(_is_json, value))
        case _:
            return value is None or isinstance(value, str | int | float | bool)
