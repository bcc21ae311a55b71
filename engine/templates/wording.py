"""Texts with placeholders: the keys and summaries that templates make. Pure.

    "host:disk:{subject_id}"      "{payload.host}: {observed.disk.used} % used, {class}"

A placeholder is one of `PLACEHOLDERS`, or a path into the payload or into what was gathered.
Doubled braces stand for themselves.
"""

from __future__ import annotations

from string import Formatter
from typing import Final

import msgspec

from engine.paths import ABSENT, problem_of_path, value_at
from streams.json import JsonObject

TEXT_CHARS_MAX: Final = 500
"""Longest text with placeholders, in characters."""

PLACEHOLDERS: Final = (
    "subject_id", "actor_id", "expectation_id", "episode_id", "class", "severity",
)  # fmt: skip
"""Those that stand for a text."""

TREES: Final = ("payload", "observed")
"""Those that a path begins with: what fired the episode, and what was gathered."""

UNKNOWN: Final = "?"
"""Stands in a summary where there is nothing."""


class Wording(msgspec.Struct, frozen=True):
    """A text, taken apart."""

    parts: tuple[tuple[str, str], ...]
    """Plain text and the placeholder behind it; empty: none."""

    @property
    def placeholders(self) -> frozenset[str]:
        """What stands in braces."""
        return frozenset(placeholder for _, placeholder in self.parts if placeholder)


def wording_of(text: str) -> Wording:
    """Return `text`, taken apart.

    Raises:
        ValueError: it is too long, or something in braces is no placeholder; what to write.
    """
    if len(text) > TEXT_CHARS_MAX:
        raise ValueError(f"{len(text):,} characters, the limit is {TEXT_CHARS_MAX}")
    try:
        parts = list(Formatter().parse(text))
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}; double a brace that stands for itself") from error
    for _, placeholder, form, conversion in parts:
        if placeholder is not None:
            _check(placeholder, is_formatted=bool(form or conversion))
    return Wording(tuple((plain, placeholder or "") for plain, placeholder, _, _ in parts))


def _check(placeholder: str, *, is_formatted: bool) -> None:
    first, _, path = placeholder.partition(".")
    is_path = first in TREES and not problem_of_path(path)
    if is_formatted or not (is_path or placeholder in PLACEHOLDERS):
        known = ", ".join(f"{{{each}}}" for each in (*PLACEHOLDERS, *(f"{t}.a.b" for t in TREES)))
        problem = "takes no format" if is_formatted else "is no placeholder"
        raise ValueError(f"{{{placeholder}}} {problem}; write one of {known}")


def absent(wording: Wording, words: JsonObject) -> str | None:
    """Return the first placeholder of `wording` that stands for nothing in `words`, or None."""
    return next((each for _, each in wording.parts if each and not _said(words, each)), None)


def worded(wording: Wording, words: JsonObject) -> str:
    """Return the text, each placeholder replaced by what it stands for in `words`."""
    return "".join(
        f"{plain}{(_said(words, placeholder) or UNKNOWN) if placeholder else ''}"
        for plain, placeholder in wording.parts
    )


def _said(words: JsonObject, placeholder: str) -> str:
    """Return a value as text; empty if there is none."""
    value = value_at(words, placeholder)
    if value is ABSENT or value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
