"""What became of an order, told on the page after it: a cookie that lives for one page."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

SAID: Final = "vigil_said"
"""The name of the cookie."""

SAID_S: Final = 30
"""How long it waits for a page, in seconds."""

CHARS_MAX: Final = 1_000


def quoted(says: str) -> str:
    """Return a text as a cookie has it."""
    return quote(says[:CHARS_MAX])


def unquoted(cookie: str) -> str:
    """Return the text that a cookie has."""
    return unquote(cookie)
