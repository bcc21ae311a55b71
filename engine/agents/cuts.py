"""How much of a tool's result a model gets to read; the step has the whole of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from engine.errors import InvalidAction
from engine.validation import is_whole, problem_of_path
from streams.json import ABSENT, raw, value_at

CHARS_MAX: Final = 100_000
"""Most characters of a result that a model gets unless its tool says something else: about 25,000
tokens, and a result may have 16 MiB."""


@dataclass(frozen=True)
class Cut:
    """What of a result a model reads: `chars` characters of its beginning or end."""

    chars: int = CHARS_MAX
    end: Literal["head", "tail"] = "head"
    path: str = ""
    """Where in the result, such as `log.text`; empty: all of it."""

    def __post_init__(self) -> None:
        """Refuse what is impossible."""
        if not is_whole(self.chars) or self.chars < 1:
            raise InvalidAction(f"cut: {self.chars!r} is no number of characters from 1 on")
        problem = problem_of_path(self.path) if self.path else None
        if problem:
            raise InvalidAction(f"cut: {problem}")

    def of(self, result: object) -> object:
        """Return `result`, or the part of it that is read, as text that says how much is left out.

        A result that is short enough stays what it is.
        """
        found = value_at(result, self.path) if self.path and isinstance(result, dict) else result
        if found is ABSENT:
            return f"there is nothing at {self.path}"
        text = found if isinstance(found, str) else bytes(raw(found)).decode()
        if len(text) <= self.chars:  # guard: short-result-whole
            return found
        left = len(text) - self.chars
        if self.end == "tail":
            return f"[{left:,} characters before this are left out]\n{text[-self.chars :]}"
        return f"{text[: self.chars]}\n[{left:,} more characters are left out]"


WHOLE: Final = Cut()


def head(chars: int, *, path: str = "") -> Cut:
    """Return that a model reads the first `chars` characters, of what is at `path`."""
    return Cut(chars, "head", path)


def tail(chars: int, *, path: str = "") -> Cut:
    """Return that a model reads the last `chars` characters, of what is at `path`."""
    return Cut(chars, "tail", path)
