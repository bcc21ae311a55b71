"""`ForeignStream`: a stream of others whose messages are events to an actor. Pure."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final, Literal, TypeAlias

import msgspec

from streams.tokens import matches

FEED_SUBJECT_CHARS_MAX: Final = 1024
"""Longest subject filter of a feed. A subject must fit in one protocol line (4,096 bytes by
default)."""

SEQ_MAX: Final = 2**63 - 1
"""Highest sequence that a feed may start at."""

_STREAM_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_WILDCARDS: Final = frozenset("*>")

FeedStart: TypeAlias = Literal["new", "all"] | datetime | int
"""Where the first reading begins: what is stored from then on, the first message that is left, the
first stored at that time or later, or that sequence."""


class ForeignStream(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages of a stream that is not ours are events to an actor."""

    stream: str
    """Its name on the server. It must exist, and is only ever read."""
    subject: str = ">"
    """A filter: tokens joined by dots, of which `*` is any one, and `>`, at the end, any more."""
    start: FeedStart = "new"
    """Where the actor begins. Once it has begun it goes on where it was, whatever this says."""

    def holds(self, *, stream: str, subject: str) -> bool:
        """Return whether a message on `subject` of `stream` is one of them."""
        return stream == self.stream and matches(self.subject, subject)


def start_anew(feed: ForeignStream) -> FeedStart:
    """Return where a stream begins that was made after the actor began: all that it has is new."""
    return "all" if feed.start == "new" else feed.start


def problem_of_feed(feed: ForeignStream) -> str | None:
    """Return why nobody could read `feed`, in words for people, or None."""
    if not _STREAM_NAME.fullmatch(feed.stream):
        return f"stream: {feed.stream!r} is not a stream; use 1 to 64 of A-Z a-z 0-9 _ -"
    return _problem_of_subject(feed.subject) or _problem_of_start(feed.start)


def _problem_of_subject(subject: str) -> str | None:
    *leading, last = subject.split(".")
    if not all([*leading, last]) or not subject.isprintable() or " " in subject:
        return f"subject: {subject!r} is not words joined by dots"
    if len(subject) > FEED_SUBJECT_CHARS_MAX:
        return f"subject: {subject[:40]!r}… is over {FEED_SUBJECT_CHARS_MAX} characters"
    if any(len(word) > 1 and _WILDCARDS.intersection(word) for word in [*leading, last]):
        return f"subject: {subject!r}; a wildcard is a word of its own"
    if ">" in leading:
        return f"subject: {subject!r}; > is the last word or none"
    return None


def _problem_of_start(start: FeedStart) -> str | None:
    match start:
        case "new" | "all":
            return None
        case datetime():
            return None if start.utcoffset() is not None else f"start: {start} is in no time zone"
        case int() if not isinstance(start, bool) and 1 <= start <= SEQ_MAX:
            return None
        case _:
            return f'start: {start!r}; use "new", "all", a time or a sequence from 1'
