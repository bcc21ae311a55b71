"""Payloads with placeholders: what outputs of templates say, made of what was found. Pure.

    {"text": "{subject_id}: {summary}", "disk": {"used": "{observed.disk.used}"}}

Only texts have placeholders, however deep they are; keys are as they are. A text that is nothing
but one placeholder becomes the value itself: a number stays one, and nothing at all is `null`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from engine.paths import ABSENT, value_at
from engine.strict import wrong
from engine.templates.wording import (
    PLACEHOLDERS,
    TEXT_CHARS_MAX,
    TREES,
    Wording,
    worded,
    wording_of,
)
from streams.json import JsonObject

NAMES: Final = (*PLACEHOLDERS, "finding_key", "summary", "confidence")
"""Placeholders of outputs, beside paths: an output is made once the finding is."""

TREES_OF_OUTPUTS: Final = (*TREES, "evidence")
"""Those that a path begins with; each may also be said whole."""

PAYLOAD_TEXT_CHARS_MAX: Final = 4_000
"""Longest text of a payload, in characters."""

PLACEHOLDERS_MAX: Final = 100
"""Most placeholders in one payload, for each may stand for all that was gathered."""

DEPTH_MAX: Final = 32
"""Most objects and lists within each other in a payload."""


def wording_of_output(text: str, *, chars_max: int = TEXT_CHARS_MAX) -> Wording:
    """Return a text of an output, taken apart.

    Args:
        text: what somebody has written.
        chars_max: its longest, in characters.

    Raises:
        ValueError: it is too long, or something in braces is no placeholder; what to write.
    """
    names = (*NAMES, *TREES_OF_OUTPUTS)
    return wording_of(text, names=names, trees=TREES_OF_OUTPUTS, chars_max=chars_max)


def check_payload(payload: object) -> None:
    """See whether `payload` can be filled.

    Raises:
        ValueError: it is too deep, or has too many placeholders.
        PydanticCustomError: a text cannot be filled; where in the payload, and why.
    """
    count = 0
    for place, text in _texts(payload):
        try:
            count += sum(bool(placeholder) for _, placeholder in _wording(text).parts)
        except ValueError as error:
            raise (wrong(place, str(error)) if place else error) from error
    if count > PLACEHOLDERS_MAX:
        raise ValueError(f"{count:,} placeholders, the limit is {PLACEHOLDERS_MAX}")


def filled(payload: object, words: JsonObject) -> object:
    """Return `payload` with what its placeholders stand for in `words`."""
    match payload:
        case str():
            return _filled(_wording(payload), words)
        case dict():
            return {key: filled(each, words) for key, each in payload.items()}
        case list():
            return [filled(each, words) for each in payload]
        case _:
            return payload


def _wording(text: str) -> Wording:
    return wording_of_output(text, chars_max=PAYLOAD_TEXT_CHARS_MAX)


def _filled(wording: Wording, words: JsonObject) -> object:
    if not wording.alone:
        return worded(wording, words)
    value = value_at(words, wording.alone)
    return None if value is ABSENT else value


def _texts(value: object, place: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Yield every text in `value`, and where it stands."""
    if len(place) > DEPTH_MAX:
        raise ValueError(f"more than {DEPTH_MAX} objects and lists within each other")
    match value:
        case str():
            yield ".".join(place), value
        case dict():
            for key, each in value.items():
                yield from _texts(each, (*place, key))
        case list():
            for index, each in enumerate(value):
                yield from _texts(each, (*place, str(index)))
        case _:
            return
