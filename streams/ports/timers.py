"""The port to timers: messages to an actor, later or at once, stored by the server.

A timer is identified by its actor, purpose and key. At most one of that name is pending: arming it
again replaces it, so a timer that each event arms again fires once, after the last of them. It
fires into the actor's queue of due timers, and waits there until a node takes it.

Time is the server's. A timer fires at its time or up to 0.25 s later, for that is how often the
server looks (measured with 2.15: median 0.13 s; 50,000 that were due at one instant had all fired
0.93 s after it), and as soon as it is back if it was away.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, Protocol

import msgspec

from streams.json import JsonObject
from streams.ports.delivery import Source, Unreadable

TIMER_BYTES_MAX: Final = 768 * 1024
"""Largest encoded timer. One may carry a whole domain event (512 KiB) and what is to be done with
it, and stays under the server's 1 MiB default limit with its headers."""

DUE_MAX: Final = datetime(2200, 1, 1, tzinfo=UTC)
"""Until when timers can be due. The server counts nanoseconds since 1970 in 64 bits: what is due
after April 2262 would fire at once (measured with 2.15)."""

KEYS_MAX: Final = 100_000
"""Most keys in one answer about pending timers, for each partition of the work: as many subjects as
the server lists at a time (2.15)."""

TIMER_ID_CHARS_MAX: Final = 512
"""Longest id of a sender, in characters. It travels in two headers."""


class Timer(msgspec.Struct, frozen=True, kw_only=True):
    """A message, and the actor that gets it."""

    actor: str
    purpose: str
    """What it is for, such as `debounce`: 1 to 64 of `A-Z a-z 0-9 _ -`."""
    key: str
    """Which one of that purpose: any text, at most 1,024 bytes long with every byte outside
    `A-Z a-z 0-9 _ -` counted as three."""
    payload: JsonObject


class PendingTimer(msgspec.Struct, frozen=True, kw_only=True):
    """A timer that has not fired."""

    payload: JsonObject
    due_at: datetime
    revision: int
    """Tells this arming from every other one."""


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """A timer that has fired, or was sent."""

    id: str
    """Of the arming, or the sender's: the same for each delivery of this one, and for no other."""
    purpose: str
    key: str
    payload: JsonObject
    due_at: datetime
    """When it was to fire; when it was sent, by the sender's clock."""
    fired_at: datetime
    """When it did, by the server's clock."""


class Timers(Protocol):
    """Timers of one stack, armed and received by any node. What is no name is a `BadName`."""

    async def arm(
        self, timer: Timer, *, at: datetime, expecting: int | None = None, trace: str = ""
    ) -> int:
        """Have `timer` fire at `at`, in place of a pending one of its name; return its revision.

        Args:
            at: When. A time in the past is now.
            expecting: The revision that must be pending, or 0 for none; None replaces any.
            trace: W3C `traceparent` of the sender.

        Raises:
            TimerConflict: another revision is pending, or none is. It is not armed.
            BadName: actor or purpose is no name, or the key is too long.
            TooLarge: over `TIMER_BYTES_MAX` bytes.
            ValueError: `at` has no time zone or is past `DUE_MAX`, or the payload contains itself.
            TypeError: the payload contains something JSON cannot express.
            UnknownOutcome: no answer. It may be armed, and may have fired. Arming it again is
                safe: one of two stays, unless the first has fired by then.
            Unavailable: the server refused. It is not armed.
        """

    async def send(self, timer: Timer, *, id: str, trace: str = "") -> None:
        """Put `timer` straight into its actor's queue of due timers; a pending one stays.

        `id` becomes `Due.id`: 1 to `TIMER_ID_CHARS_MAX` printable characters, or it is a `BadName`.
        Two of one id are one, whatever their contents; within two minutes only the first is kept.

        Raises as `arm` does, but:
            UnknownOutcome: no answer. It may be sent; sending it again with the same `id` is safe.
        """

    async def pending(self, actor: str, purpose: str, key: str) -> PendingTimer | None:
        """Return the timer of this name that has not fired, as the leader knows it, or None.

        Raises:
            UnreadableEvent: what is pending was written by something newer, or by no engine.
        """

    async def keys(self, actor: str, purpose: str) -> Sequence[str]:
        """Return the keys of the timers of one purpose that have not fired, in no order.

        At most `KEYS_MAX` for each partition of the work.
        """

    async def cancel(
        self, actor: str, purpose: str, key: str, *, expecting: int | None = None
    ) -> None:
        """Have the timer of this name not fire, if one is pending. It may have fired already.

        With `expecting`, one that was armed after that revision stays.

        Raises:
            Unavailable: no answer. Canceling again is safe: one that others armed after the call
                began may be canceled if none was named, one that they armed after it ended is not.
        """

    async def backlog(self, actor: str) -> int:
        """Return how many due timers of `actor` are unacknowledged, opened or not."""

    async def open(self, actor: str) -> Source[Due | Unreadable]:
        """Return the queue of due timers of `actor`, shared by all nodes."""
