"""What an action is, as 256 bits: equal actions have equal fingerprints, in every process."""

from __future__ import annotations

import hashlib

import msgspec

from engine.actions import Step, Synthesize, ToolCall
from engine.errors import Unencodable
from streams.json import JsonObject, raw


def without_transient(args: JsonObject) -> JsonObject:
    """Return `args` without the values that are stored nowhere: names starting with `_`."""
    return {key: value for key, value in args.items() if not key.startswith("_")}


def fingerprint(action: Step) -> str:
    """Return the SHA-256 of `action` in hex, transient values left out.

    Raises:
        Unencodable: the action holds something JSON cannot say.
    """
    match action:
        case ToolCall():
            action = msgspec.structs.replace(action, args=without_transient(action.args))
        case Synthesize():
            action = msgspec.structs.replace(action, transient={})
        case _:
            pass
    try:
        return hashlib.sha256(raw(action)).hexdigest()
    except (TypeError, ValueError) as error:
        raise Unencodable(f"{type(action).__name__}: {error}") from error
