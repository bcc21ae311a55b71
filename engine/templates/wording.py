"""Texts and payloads with placeholders, for the keys, summaries and outputs of templates. Pure.

    "host:disk:{subject_id}"      "{payload.host}: {observed.disk.used} % used, {class}"
    {"text": "{subject_id}: {summary}", "disk": {"used": "{observed.disk.used}"}}

A placeholder is one of `PLACEHOLDERS`, or a path into the payload or the gathered facts; double the
braces to write one. In a payload, texts at any depth may have placeholders, keys may not; a text
that consists of one placeholder becomes the value itself: a number, or `null`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from string import Formatter
from typing import Final

import msgspec

from engine.validation import problem_of_path, wrong
from streams.json import ABSENT, JsonObject, value_at

TEXT_CHARS_MAX: Final = 500
"""Longest text with placeholders, in characters."""

PLACEHOLDERS: Final = (
    "subject_id", "actor_id", "expectation_id", "episode_id", "class", "severity",
)  # fmt: skip
"""Placeholders for texts."""

TREES: Final = ("payload", "observed")
"""First parts of paths: the trigger's payload, and the gathered facts."""

UNKNOWN: Final = "?"
"""Replaces a missing value in a summary."""


NAMES: Final = (*PLACEHOLDERS, "finding_key", "summary", "confidence")
"""Placeholders of outputs, in addition to paths: the finding's values, since it comes first."""

TREES_OF_OUTPUTS: Final = (*TREES, "evidence")
"""First parts of paths in outputs; alone, they stand for the whole object."""

PAYLOAD_TEXT_CHARS_MAX: Final = 4_000
"""Longest text of a payload, in characters."""

PLACEHOLDERS_MAX: Final = 100
"""Most placeholders in one payload: each may stand for all gathered facts."""

DEPTH_MAX: Final = 32
"""Deepest nesting of a payload."""


class Wording(msgspec.Struct, frozen=True):
    """A parsed text."""

    parts: tuple[tuple[str, str], ...]
    """Plain text and the placeholder after it; empty: none."""

    @property
    def placeholders(self) -> frozenset[str]:
        """What stands in braces."""
        return frozenset(placeholder for _, placeholder in self.parts if placeholder)

    @property
    def alone(self) -> str:
        """The placeholder if the text is nothing else; empty otherwise."""
        match self.parts:
            case (("", placeholder),):
                return placeholder
            case _:
                return ""


def wording_of(
    text: str,
    *,
    names: Sequence[str] = PLACEHOLDERS,
    trees: Sequence[str] = TREES,
    chars_max: int = TEXT_CHARS_MAX,
) -> Wording:
    """Return `text` parsed, with `names` and paths into `trees` allowed as placeholders.

    A `ValueError` says what to write instead.
    """
    if len(text) > chars_max:
        raise ValueError(f"{len(text):,} characters, the limit is {chars_max:,}")
    try:
        parts = list(Formatter().parse(text))
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}; double a brace that stands for itself") from error
    for _, placeholder, form, conversion in parts:
        if placeholder is None:
            continue
        if form or conversion or not _is_known(placeholder, names, trees):
            problem = "takes no format" if form or conversion else "is no placeholder"
            raise ValueError(f"{{{placeholder}}} {problem}; write one of {_spelled(names, trees)}")
    return Wording(tuple((plain, placeholder or "") for plain, placeholder, _, _ in parts))


def _is_known(placeholder: str, names: Sequence[str], trees: Sequence[str]) -> bool:
    first, _, path = placeholder.partition(".")
    return placeholder in names or (first in trees and not problem_of_path(path))


def _spelled(names: Sequence[str], trees: Sequence[str]) -> str:
    return ", ".join(f"{{{each}}}" for each in (*names, *(f"{tree}.a.b" for tree in trees)))


def absent(wording: Wording, words: JsonObject) -> str | None:
    """Return the first placeholder of `wording` without a value in `words`, or None."""
    return next((each for _, each in wording.parts if each and not _said(words, each)), None)


def worded(wording: Wording, words: JsonObject) -> str:
    """Return the text with each placeholder replaced by its value in `words`."""
    return "".join(
        f"{plain}{(_said(words, placeholder) or UNKNOWN) if placeholder else ''}"
        for plain, placeholder in wording.parts
    )


def _said(words: JsonObject, placeholder: str) -> str:
    value = value_at(words, placeholder)
    if value is ABSENT or value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def wording_of_output(text: str, *, chars_max: int = TEXT_CHARS_MAX) -> Wording:
    """Return a text of an output, parsed; otherwise as `wording_of`."""
    names = (*NAMES, *TREES_OF_OUTPUTS)
    return wording_of(text, names=names, trees=TREES_OF_OUTPUTS, chars_max=chars_max)


def check_payload(payload: object) -> None:
    """Check that `payload` can be filled; an error says where in it, and why."""
    count = 0
    for place, text in _texts(payload):
        try:
            count += sum(bool(placeholder) for _, placeholder in _wording(text).parts)
        except ValueError as error:
            raise (wrong(place, str(error)) if place else error) from error
    if count > PLACEHOLDERS_MAX:  # guard: payload-stands-in-max
        raise ValueError(f"{count:,} placeholders, the limit is {PLACEHOLDERS_MAX}")


def filled(payload: object, words: JsonObject) -> object:
    """Return `payload` with its placeholders replaced by their values in `words`."""
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
    if not wording.alone:  # guard: lone-placeholder-keeps-type
        return worded(wording, words)
    value = value_at(words, wording.alone)
    return None if value is ABSENT else value


def _texts(value: object, place: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    if len(place) > DEPTH_MAX:  # guard: payload-depth-max
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
