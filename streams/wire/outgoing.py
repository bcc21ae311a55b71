"""Messages to foreign subjects: which are allowed, and their headers. Pure.

Everything but the engine's own subjects is allowed: of `<stack>.` only events may be published.
Subjects that begin with `$` or `_` are the server's, buckets and answers included.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from streams.errors import BadName
from streams.subjects import Stack
from streams.tokens import event_name
from streams.wire.messages import event_headers

SUBJECT_BYTES_MAX: Final = 1024
"""Longest subject of a message. It must fit in one protocol line (4,096 bytes by default), beside
the subject of the answer."""

_WILDCARDS: Final = frozenset("*>")
_SERVERS_OWN: Final = ("$", "_")
_HEADER_NAME: Final = re.compile(r"[!-9;-~]+")

_RESERVED: Final = ("nats-", "vigil-")
"""Prefixes of headers that tell the server, or the engine, what to do."""


def problem_of_subject(subject: str) -> str | None:
    """Return why no message of ours could ever go to `subject`, in words for people, or None."""
    words = subject.split(".")
    if not all(words) or not subject.isprintable() or " " in subject:
        return f"{subject[:40]!r} is not words joined by dots"
    if len(subject.encode()) > SUBJECT_BYTES_MAX:
        return f"{subject[:40]!r}… is over {SUBJECT_BYTES_MAX:,} bytes"
    if _WILDCARDS.intersection(words):
        return f"{subject!r} has a wildcard; a message goes to one subject"
    if subject.startswith(_SERVERS_OWN):  # guard: no-message-to-server
        return f"{subject!r} is the server's own"
    return None


def checked_subject(subject: str, *, stack: Stack) -> str:
    """Return `subject` if a message from `stack` may go there, else raise `BadName`."""
    if problem := problem_of_subject(subject):
        raise BadName(f"subject: {problem}")
    if is_event(subject, stack=stack):
        event_name(stack.event_name_of(subject))
    elif subject.partition(".")[0] == stack.name:  # guard: stack-gets-events-only
        raise BadName(f"subject: {subject!r} is the engine's own; of its subjects, use an event's")
    return subject


def is_event(subject: str, *, stack: Stack) -> bool:
    """Return whether what is published on `subject` is a domain event to `stack`."""
    return stack.event_name_of(subject) != subject


def sent_headers(given: Mapping[str, str], *, id: str, hops: int) -> dict[str, str]:
    """Return the headers of a message: the sender's own, `given`, beside ours.

    Raises:
        BadName: one of `given` has no name that a header may have, or a reserved one.
    """
    for name in given:
        if not _HEADER_NAME.fullmatch(name):
            raise BadName(f"not the name of a header: {name!r}")
        if name.lower().startswith(_RESERVED):  # guard: no-server-header
            raise BadName(f"header {name!r} is reserved: it tells the server what to do")
    return {**given, **event_headers(id=id, hops=hops)}
