"""What became of an order, told on the page after it: a cookie that lives for one page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

SAID: Final = "vigil_said"
"""The name of the cookie."""

SAID_S: Final = 30
"""How long it waits for a page, in seconds."""

CHARS_MAX: Final = 1_000

NOT_DONE: Final = "Not done"
NOT_ALL_DONE: Final = "Not all done"
NOT_SIGNED_IN: Final = "Not signed in"


@dataclass(frozen=True)
class Said:
    """What a page says of the order before it."""

    text: str
    problem: str = ""
    """What stands before the text if something was refused, such as `NOT_DONE`; empty: nothing."""


SILENCE: Final = Said("")


def quoted(said: Said) -> str:
    """Return what is said as a cookie has it: the problem on a line of its own."""
    return quote(f"{said.problem}\n{said.text[:CHARS_MAX]}")


def unquoted(cookie: str) -> Said:
    """Return what a cookie says."""
    problem, _, text = unquote(cookie).partition("\n")
    return Said(text, problem)
