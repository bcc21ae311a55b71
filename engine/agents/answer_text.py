"""What a model has answered, as people may see it, and in words for them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from engine.app.function_tool import without_values
from engine.secrets import HIDDEN
from streams.json import UNDECODABLE, JsonObject, raw


def calls_of(answer: object) -> Sequence[str]:
    """Return the calls that a recorded answer asks for: `restart(service="web")`."""
    return [_call(each) for each in _parts(answer, "tool-call")]


def texts_of(answer: object) -> Sequence[str]:
    """Return the texts of a recorded answer."""
    return [str(each.get("content", "")) for each in _parts(answer, "text")]


def answer_text(answer: object) -> str:
    """Return the texts of a recorded answer, and the calls that it asks for, on one line."""
    return ", ".join([*map(repr, texts_of(answer)), *calls_of(answer)]) or "nothing"


def without_hidden(part: JsonObject, hidden: frozenset[str]) -> JsonObject:
    """Return a part of an answer without the values of the arguments `hidden`."""
    args = part.get("args")
    if hidden and part.get("part_kind") == "text":
        return _text_without_hidden(part, hidden)  # guard: plan-as-text-redacted
    if not hidden or not args:
        return part
    try:
        said = msgspec.json.decode(args) if isinstance(args, str) else args
    except msgspec.DecodeError:  # The model is told; nobody knows what is in it.
        return {**part, "args": HIDDEN}
    return {**part, "args": without_values(said, hidden)}  # guard: model-arguments-redacted


def said_in(part: JsonObject) -> object:
    """Return what a part of an answer says as JSON: its arguments, or its text, as far as it is."""
    said = part.get("content", "") if part.get("part_kind") == "text" else part.get("args")
    if not isinstance(said, str):
        return said
    begin, end = _object_in(said)
    try:
        return msgspec.json.decode(said[begin:end])
    except msgspec.DecodeError:
        return said


def _text_without_hidden(part: JsonObject, hidden: frozenset[str]) -> JsonObject:
    """Return a text without `hidden`: some models answer with a plan as text, in JSON."""
    text = part.get("content")
    if not isinstance(text, str) or "{" not in text:
        return part
    if not any(f'"{name}"' in text for name in hidden):
        return part
    begin, end = _object_in(text)
    try:
        said = msgspec.json.decode(text[begin:end])
    except msgspec.DecodeError:  # Nobody knows what is in it.
        return {**part, "content": HIDDEN}
    shown = without_values(said, hidden)
    if shown == said:
        return part
    return {**part, "content": f"{text[:begin]}{bytes(raw(shown)).decode()}{text[end:]}"}


def _object_in(text: str) -> tuple[int, int]:
    """Return where the JSON object in a text begins and ends: words may be around it."""
    return max(text.find("{"), 0), text.rfind("}") + 1


def _parts(answer: object, kind: str) -> Iterator[Mapping[str, object]]:
    parts = answer.get("parts", ()) if isinstance(answer, Mapping) else ()
    for each in parts:
        if isinstance(each, Mapping) and each.get("part_kind") == kind:
            yield each


def _call(part: Mapping[str, object]) -> str:
    name, args = part.get("tool_name"), part.get("args")
    if isinstance(args, str):
        try:
            args = msgspec.json.decode(args)
        except UNDECODABLE:
            return f"{name}({args})"
    if not isinstance(args, dict):
        return f"{name}()"
    return f"{name}({', '.join(f'{each}={_json(args[each])}' for each in sorted(args))})"


def _json(value: object) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
