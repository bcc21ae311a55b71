"""What a strategy may ask for next, as data."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from streams.json import JsonObject

NAME_CHARS_MAX: Final = 256
"""Longest name of a capability, an action or a phase, in characters."""


class ToolCall(msgspec.Struct, frozen=True, tag_field="kind", tag="tool_call"):
    """Call a tool and hand its result to `handle_result`."""

    capability: str
    action: str
    args: JsonObject = {}


class Observe(msgspec.Struct, frozen=True, tag_field="kind", tag="observation"):
    """Put a fact on the journal and hand it to `handle_result`."""

    data: object


class Synthesize(msgspec.Struct, frozen=True, tag_field="kind", tag="synthesis"):
    """Ask the synthesizer; without one, the prompt itself is the result."""

    prompt: object
    transient: JsonObject = {}
    """Given to the synthesizer and stored nowhere."""


class Checkpoint(msgspec.Struct, frozen=True, tag_field="kind", tag="checkpoint"):
    """Keep the state as `handle_result` leaves it; a resume starts from there."""

    phase: str


class Converge(msgspec.Struct, frozen=True, tag_field="kind", tag="converge"):
    """Call `converge` and end with its result."""


class Done(msgspec.Struct, frozen=True, tag_field="kind", tag="done"):
    """End without a result."""


Step: TypeAlias = ToolCall | Observe | Synthesize | Checkpoint
"""An action that is performed, recorded and handed to `handle_result`."""

Action: TypeAlias = Step | Converge | Done


def tool_call(capability: str, action: str, args: JsonObject | None = None) -> ToolCall:
    """Return the action that calls `action` of the tool registered as `capability`.

    Arguments whose name starts with `_` reach the tool and are stored nowhere.
    """
    return ToolCall(capability, action, args or {})


def observe(data: object) -> Observe:
    """Return the action that records `data`, any JSON value."""
    return Observe(data)


def synthesize(prompt: object, *, transient: JsonObject | None = None) -> Synthesize:
    """Return the action that asks the synthesizer about `prompt`, any JSON value.

    Args:
        prompt: recorded with the step.
        transient: what the synthesizer gets besides and nobody stores, such as secrets.
    """
    return Synthesize(prompt, transient or {})


def checkpoint(phase: str) -> Checkpoint:
    """Return the action that keeps the state, under the name of a `phase`."""
    return Checkpoint(phase)


def converge() -> Converge:
    """Return the action that ends the episode with the result of `Strategy.converge`."""
    return Converge()


def done() -> Done:
    """Return the action that ends the episode without a result."""
    return Done()


def problem_of(action: Action) -> str | None:
    """Return what is wrong with the values of `action`, or None.

    Whether JSON can say them is found out when they are recorded.
    """
    match action:
        case ToolCall(capability=capability, action=name, args=args):
            return _name("capability", capability) or _name("action", name) or _object("args", args)
        case Synthesize(transient=transient):
            return _object("transient", transient)
        case Checkpoint(phase=phase):
            return _name("phase", phase)
        case _:
            return None


def _name(field: str, value: object) -> str | None:
    if not isinstance(value, str):
        return f"{field} must be text, not a {type(value).__name__}"
    if len(value) > NAME_CHARS_MAX:
        return f"{field}: {len(value):,} characters, the limit is {NAME_CHARS_MAX}"
    return None


def _object(field: str, value: object) -> str | None:
    if not isinstance(value, dict):
        return f"{field} must be a dict, not a {type(value).__name__}"
    if strays := [key for key in value if not isinstance(key, str)]:
        return f"{field}: its keys must be text, and one is a {type(strays[0]).__name__}"
    return None
