"""What can go wrong for a command or a client, and what the caller should do about it.

VigilError
├── Mistake          cannot work as it was called or set  exit 2: change the call or the setting
└── Trouble          the surroundings do not play along   exit 1: look at what has happened
    ├── NotFound     nothing has that id, name or key     look which there are
    ├── AlreadyDecided what was asked waits no more       look who has decided it, and why
    ├── StackNotFound  nobody has made the stack          correct its name, or start a node
    ├── ServerAway   NATS or Postgres does not answer     start it, and make the same call again
    ├── NotSignedIn  who asks has not shown who that is   sign in, or ask an admin
    ├── EventsMissed events were removed before read      go on past them, or with what is kept
    └── PastLost     the stack's log has lost its past    exit 4: a person decides how to go on

Any call of a client may raise `ServerAway`; it may have happened, and is safe to repeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, ClassVar, Final

from projections.errors import BadSchema, PostgresUnavailable, ProjectionError, QueryRefused
from streams.errors import (
    BadName,
    NoSuchStack,
    StreamError,
    TooLarge,
    Unavailable,
    Unreachable,
)
from streams.model.losses import LogLost

if TYPE_CHECKING:
    from engine.errors import EngineError

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

    def __init__(self, says: str, *, remedy: str = "") -> None:
        super().__init__(f"{says}; {remedy}" if remedy else says)
        self.remedy = remedy
        """What to do about it, in words; empty: the message says all that is known."""


class Mistake(VigilError):
    """What was called, typed or set cannot work."""

    exit_code = EXIT_MISTAKE


class Trouble(VigilError):
    """Something around us is missing, away or not as it must be."""


class NotFound(Trouble):
    """Nothing in the stack has that id, name or key."""


class AlreadyDecided(Trouble):
    """What is to be decided on does not wait any more: somebody has decided it, or it has ended."""

    def __init__(self, says: str, *, outcome: str, at: datetime, by: str, reason: str) -> None:
        super().__init__(says)
        self.outcome = outcome
        """`approved`, `denied`, `rejected`, `expired` or `canceled`."""
        self.at = at
        """When it was decided, or ended."""
        self.by = by
        """Who has decided it; empty: nobody."""
        self.reason = reason
        """Why, in their words; empty: they gave no reason."""


class StackNotFound(Trouble):
    """The server has no stack of that name. Its first node makes it, or who asks for that.

    No `NotFound`: whoever expects that something is not there means a thing of an existing stack.
    """


class ServerAway(Trouble):
    """NATS or Postgres did not answer. What was asked for may have happened."""


class NotSignedIn(Trouble):
    """Nobody has signed in: name and password do not go together, or a link is not good.

    After many wrong passwords no other answer comes for some minutes, so that nobody can guess.
    """


class EventsMissed(Trouble):
    """Events were removed from the stream before who follows it had read them.

    By their age, for example, while the follower was behind or away.
    """

    def __init__(self, first_seq: int, last_seq: int) -> None:
        super().__init__(
            f"events {first_seq:,} to {last_seq:,} are no longer kept, and were not read",
            remedy=f"go on with after={last_seq}; to miss none, read sooner or keep more",
        )
        self.first_seq = first_seq
        """Sequence of the first that is missing."""
        self.last_seq = last_seq
        """Sequence of the last that is missing: give it as `after` to go on."""


class PastLost(Trouble):
    """A stream of the stack has lost its past: nothing is written until a person has decided."""

    exit_code = EXIT_LOST


EXPECTED: Final = (VigilError, StreamError, ProjectionError, OSError)
"""What ends a command with one line. Anything else is a bug, and shows its traceback."""

SERVERS_REMEDY: Final = (
    "`vigil up` brings servers of its own, `vigil doctor` shows which are looked for and why"
)

_MAKE: Final = (
    "start a node, which makes its stack, or make it with `vigil publish --create-stack` "
    "(in Python `create_stack=True`)"
)

_MISTAKES: Final = (BadName, TooLarge, QueryRefused, BadSchema)

_UNREACHED: Final = (Unreachable, PostgresUnavailable)


@contextmanager
def told(about: str = "") -> Iterator[None]:
    """Turn errors of the log, the rows and the engine into those of a client.

    A refusal by the engine names `about`, unless that is empty.
    """
    try:
        yield
    except VigilError:
        raise
    except (StreamError, ProjectionError) as error:
        raise as_vigil_error(error) from error
    except _of_engine() as error:
        raise _told_by_engine(error, about) from error


def _of_engine() -> type[EngineError]:
    """Return the errors of the engine, which is loaded only once something was raised."""
    from engine.errors import EngineError

    return EngineError


def _told_by_engine(error: EngineError, about: str) -> VigilError:
    from engine.errors import BadRequest, NoFinding, NotOnJournal, Refused, Rejected

    match error:
        case BadRequest():
            return Mistake(str(error))
        case NoFinding():
            return NotFound(str(error))
        case NotOnJournal():
            # guard: absent-is-not-found
            return NotFound(f"{about}: {error}" if about else str(error))
        case Refused() | Rejected():
            return Trouble(f"{about}: {error}" if about else str(error))
        case _:
            return Trouble(str(error))


def as_vigil_error(error: StreamError | ProjectionError) -> VigilError:
    """Return what a client raises for an error of the log or the rows."""
    if isinstance(error, NoSuchStack):
        there = stacks_hint(error.name, error.there)
        remedy = (
            f"{there}{' Otherwise' if there.endswith('?') else ';'} {_MAKE}" if there else _MAKE
        )
        return StackNotFound(f"there is no stack {error.name!r} on this server", remedy=remedy)
    if isinstance(error, _UNREACHED):
        return ServerAway(str(error), remedy=SERVERS_REMEDY)
    if isinstance(error, Unavailable):
        return ServerAway(str(error))
    if isinstance(error, LogLost):
        return PastLost(str(error))
    return Mistake(str(error)) if isinstance(error, _MISTAKES) else Trouble(str(error))


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


def in_words(error: Exception) -> str:
    """Return what a command prints of `error`: one line, with what to do about it."""
    if isinstance(error, (NoSuchStack, *_UNREACHED)):  # guard: remedy-told-without-client
        return one_line(as_vigil_error(error))
    return one_line(error)


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


def stacks_hint(name: str, there: Sequence[str]) -> str:
    """Return the stacks that are called like `name`, or else those that there are, in words."""
    more = ", …" if len(there) > NAMES_SHOWN_MAX else ""
    known = f"there are: {', '.join(there[:NAMES_SHOWN_MAX])}{more}" if there else ""
    return near_hint(name, there) or known
