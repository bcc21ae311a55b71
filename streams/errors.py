"""What can go wrong with the log, and what the caller should do about it.

StreamError
├── VersionConflict    someone appended first          reload, decide again
├── LeaseLost          our lease ended                 stop at once, write nothing
├── UnreadableEvent    bytes we cannot decode          stop the follower; never skip
├── Unavailable        no server, or no answer         hand the work back and try later
│   ├── Unreachable    no server lets us in            start one, or correct its address
│   ├── UnknownOutcome the request may have happened   repeat the identical request
│   ├── NoSuchStream   nobody has made that stream     report it, look again later
│   └── Uncaptured     no stream keeps that subject    an operator must make one
├── Unwritable         an event no one could read      a bug, or a value nobody checked; never retry
├── TooLarge           over the server's limit         make it smaller; never retry
├── RevisionConflict   someone put the key first       read it again, decide again
├── TimerConflict      the timer is another one by now read it again, decide again
├── LogLost            a stream has lost its past      stop at once, write nothing
├── DamagedObject      an object is not what was put   never use it; what needs it fails
├── DamagedSegment     the archive has something else  never purge by it; restore it from a copy
├── OtherArchive       it is not of this stream        name another archive, which begins empty
├── NotInArchive       nobody can read that far back   name the archive that has it
├── BadName            no subject, key or address      the caller's input: report it
└── Incompatible       server or stream contradicts us an operator must act; see `remedy`
    └── NoSuchStack    nobody has made that stack      correct its name, or start a node of it

`LogLost` is in `model/losses.py`, with what it tells.

Whatever awaits the log may raise `Unavailable`, so no `Raises:` section repeats it; one names it
only where the caller must do something special.
"""

from __future__ import annotations

from collections.abc import Sequence


class StreamError(Exception):
    """Base of every error raised by `streams`."""


class VersionConflict(StreamError):
    """The aggregate moved on after the caller read it."""

    def __init__(self, subject: str, *, expected: int) -> None:
        super().__init__(f"{subject}: no longer at version {expected}")
        self.subject = subject
        self.expected = expected


class LeaseLost(StreamError):
    """The lease lapsed or was taken over."""

    def __init__(self, key: str, *, revision: int) -> None:
        super().__init__(f"{key}: lease revision {revision} is no longer ours")
        self.key = key
        self.revision = revision


class UnreadableEvent(StreamError):
    """A record on the log does not decode as any known event."""

    def __init__(self, subject: str, *, seq: int, detail: str) -> None:
        super().__init__(f"{subject}@{seq}: {detail}")
        self.subject = subject
        self.seq = seq


class Unwritable(StreamError):
    """An event holds a value of the wrong type. It was not written: it could not be read again."""

    def __init__(self, commit_id: str, *, detail: str) -> None:
        super().__init__(f"{commit_id}: {detail}")


class Unavailable(StreamError):
    """The server could not be reached or refused for now. Nothing happened."""

    def __init__(self, operation: str, *, detail: str) -> None:
        super().__init__(f"{operation}: {detail}")
        self.operation = operation
        self.detail = detail


class Unreachable(Unavailable):
    """No server could be connected to, or it did not let us in."""


class UnknownOutcome(Unavailable):
    """The request was sent and never answered. It may have happened."""


class NoSuchStream(Unavailable):
    """The server has no stream of that name. It may be made at any time."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream, detail="there is no such stream")
        self.stream = stream


class Uncaptured(Unavailable):
    """No stream of the server keeps what is published on that subject."""

    def __init__(self, subject: str) -> None:
        super().__init__(subject, detail="no stream captures this subject")


class TooLarge(StreamError):
    """One message would exceed the server's limit."""

    def __init__(self, what: str, *, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"{what}: {size_bytes:,} bytes, the limit is {limit_bytes:,}")
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class RevisionConflict(StreamError):
    """The key of a bucket moved on after the caller read it."""

    def __init__(self, key: str, *, expected: int) -> None:
        super().__init__(f"{key}: no longer at revision {expected}")
        self.key = key
        self.expected = expected


class TimerConflict(StreamError):
    """The timer was armed again, fired or was canceled after the caller read it."""

    def __init__(self, subject: str, *, expected: int) -> None:
        super().__init__(f"{subject}: no longer at revision {expected}")
        self.subject = subject
        self.expected = expected


class DamagedObject(StreamError):
    """What the object store has under a digest has another one."""

    def __init__(self, digest: str) -> None:
        super().__init__(f"the object {digest} is damaged")
        self.digest = digest


class DamagedSegment(StreamError):
    """A segment of an archive is not what was written."""

    def __init__(self, name: str, *, detail: str) -> None:
        super().__init__(f"the segment {name} is damaged: {detail}")
        self.name = name


class NotInArchive(StreamError):
    """What is asked for was moved to an archive, and no archive that is known here has it."""

    def __init__(self, part: str, *, detail: str) -> None:
        super().__init__(f"stream {part}: {detail}")
        self.part = part


class OtherArchive(StreamError):
    """An archive has other messages than its stream had: the stream has lost them, or never did."""

    def __init__(self, part: str, *, address: str, detail: str) -> None:
        super().__init__(
            f"the archive {address} is not that of stream {part}: {detail}. "
            "Name another one, which begins empty; the old one can still be read"
        )
        self.part = part


class BadName(StreamError, ValueError):
    """A name cannot be a subject token, a key, a stack or a server's address."""


class Incompatible(StreamError):
    """The server, a stream or a bucket is not what the engine needs."""

    def __init__(self, what: str, *, remedy: str) -> None:
        super().__init__(f"{what}. {remedy}")
        self.what = what
        self.remedy = remedy


class NoSuchStack(Incompatible):
    """The server has no stack of that name. Its first node makes it."""

    def __init__(self, name: str, *, there: Sequence[str]) -> None:
        super().__init__(
            f"there is no stack {name!r} on this server",
            remedy="Its first node makes it; is that its name?",
        )
        self.name = name
        self.there = there
        """The stacks that the server has, as far as this user may ask."""
