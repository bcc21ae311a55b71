"""What can go wrong at the command line, and what the operator should do about it.

VigilError
├── Mistake    cannot work as it was typed or set     exit 2: change the command or the setting
└── Trouble    the surroundings do not play along     exit 1: start a server, look again
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import ClassVar, Final

from projections.errors import BadSchema, PostgresUnavailable, ProjectionError, QueryRefused
from streams.errors import BadName, StreamError, TooLarge, Unreachable
from streams.model.losses import LogLost

EXIT_TROUBLE: Final = 1
EXIT_MISTAKE: Final = 2
EXIT_UNCLEAN: Final = 3
"""A node stopped, but some episode had to be left to its lease."""

EXIT_LOST: Final = 4
"""A stream has lost its past: whoever starts the program again is refused until a person acts."""

EXIT_SIGNAL: Final = 128
"""What a shell adds to the number of the signal that ended a program."""


class VigilError(Exception):
    """Base of every error raised by `vigil`. Its message is one line for the operator."""

    exit_code: ClassVar[int] = EXIT_TROUBLE


class Mistake(VigilError):
    """What was typed or set cannot work."""

    exit_code = EXIT_MISTAKE


class Trouble(VigilError):
    """Something around us is missing, away or not as it must be."""


EXPECTED: Final = (VigilError, StreamError, ProjectionError, OSError)
"""What ends a command with one line. Anything else is a bug, and shows its traceback."""

SERVERS_REMEDY: Final = (
    "; `vigil up` brings servers of its own, `vigil doctor` shows which are looked for and why"
)

_MISTAKES: Final = (BadName, TooLarge, QueryRefused, BadSchema)


def exit_code(error: Exception) -> int:
    """Return the exit code that `error`, one of `EXPECTED`, ends the program with."""
    if isinstance(error, VigilError):
        return error.exit_code
    if isinstance(error, LogLost):
        return EXIT_LOST
    return EXIT_MISTAKE if isinstance(error, _MISTAKES) else EXIT_TROUBLE


def one_line(error: Exception) -> str:
    """Return the message of `error` as one line."""
    return " ".join(str(error).split()) or type(error).__name__


def remedy(error: Exception) -> str:
    """Return what to add to `error`, if there is more to do about it than it names."""
    return SERVERS_REMEDY if isinstance(error, Unreachable | PostgresUnavailable) else ""


def only_error(group: ExceptionGroup[Exception]) -> Exception | None:
    """Return the expected error that `group` wraps, or None if there is anything else in it."""
    expected, others = group.split(EXPECTED)
    if others is not None or expected is None:
        return None
    first: Exception = expected.exceptions[0]
    return only_error(first) if isinstance(first, ExceptionGroup) else first


NAMES_SHOWN_MAX: Final = 12

NEAREST: Final = 3


def hint(wanted: str, names: Iterable[str]) -> str:
    """Return the names that are like `wanted`, or else those that there are, in words."""
    there = sorted(names)
    if near := near_hint(wanted, there):
        return near
    more = ", …" if len(there) > NAMES_SHOWN_MAX else ""
    return f"known: {', '.join(there[:NAMES_SHOWN_MAX])}{more}" if there else "none is known"


def near_hint(wanted: str, names: Iterable[str]) -> str:
    """Return the names that are like `wanted`, in words; empty: none is."""
    near = get_close_matches(wanted, sorted(names), n=NEAREST)
    return f"did you mean {' or '.join(near)}?" if near else ""
