"""Passwords and other secrets, typed where nobody sees them or read from standard input."""

from __future__ import annotations

import getpass
import sys
from typing import Final

from vigil.errors import Mistake

CHARS_MAX: Final = 4_096
"""Of a secret on standard input, in characters."""


def read_stdin(what: str) -> str:
    """Return the first line of standard input."""
    line = sys.stdin.readline(CHARS_MAX + 1)
    if len(line) > CHARS_MAX:
        raise Mistake(f"{what}: over {CHARS_MAX:,} characters on standard input")
    if not line.strip():
        raise Mistake(f"{what}: there is none on standard input")
    return line.rstrip("\r\n")


def ask_unseen(what: str, *, flag: str, is_repeated: bool = False) -> str:
    """Return what is typed on the terminal, which does not show it.

    Args:
        flag: what to give where there is no terminal.
        is_repeated: whether to have it typed twice.
    """
    if not sys.stdin.isatty():
        raise Mistake(f"{what}: there is no terminal to type it on; give {flag}")
    try:
        typed = getpass.getpass(f"{what}: ")
        if is_repeated and getpass.getpass(f"{what} again: ") != typed:
            raise Mistake(f"{what}: these were two different ones; nothing was done")
    except EOFError as error:
        raise Mistake(f"{what}: none was typed") from error
    return typed
