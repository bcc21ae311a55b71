"""Every message header that the engine or the server sets. No other module spells one.

Those of commits and events: `streams/wire/messages.py`. The server's own: ADR-4, ADR-31 (direct
get), ADR-43 (time to live), https://github.com/nats-io/nats-architecture-and-design.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, TypeAlias

from streams.errors import BadName

Headers: TypeAlias = dict[str, str]

VERSION: Final = b"NATS/1.0"
"""The first bytes of a block of headers."""

NAMES_MAX: Final = 256
"""Names of headers whose check is remembered."""

_NAME: Final = re.compile(r"[!-9;-~]+")
_SPACED: Final = str.maketrans("\r\n", "  ")

# Ours.

NONCE: Final = "Vigil-Nonce"
"""Tells our put of a key from anyone else's, after its answer was lost."""

OUTCOME: Final = "Vigil-Outcome"
"""`failed`, where the work of a claim that is given up has failed."""

ERROR: Final = "Vigil-Error"
"""Why it failed, as a JSON string in ASCII: line ends and spaces stay what they are."""

COPIED_FROM: Final = "Vigil-Copied-From"
"""Where a message was before its stack was spread over another number of streams: partition and
sequence. A copy that was cut off goes on behind it. Only `streams/repartition/` reads it."""

# The server's, on what we publish.

EXPECTED_SEQ: Final = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_SUBJECT: Final = "Nats-Expected-Last-Subject-Sequence-Subject"
"""The subject that `EXPECTED_SEQ` is about, if it is another one."""

EXPECTED_LAST: Final = "Nats-Expected-Last-Sequence"
TTL: Final = "Nats-TTL"
ROLLUP: Final = "Nats-Rollup"
KV_OPERATION: Final = "KV-Operation"

SCHEDULE: Final = "Nats-Schedule"
SCHEDULE_TARGET: Final = "Nats-Schedule-Target"
"""When (ADR-51) and where, in its own stream, the server publishes a message again. Both are off
what it then publishes."""

BATCH: Final = "Nats-Batch-Id"
"""Which atomic batch (ADR-50) a message came in. It is stored with the message and says
nothing later: readers may stop in the middle of a batch, and copies may carry it on."""

BATCH_PLACE: Final = "Nats-Batch-Sequence"
BATCH_END: Final = "Nats-Batch-Commit"

# The server's, on what we receive.

MARKER_REASON: Final = "Nats-Marker-Reason"
SUBJECT: Final = "Nats-Subject"
SEQUENCE: Final = "Nats-Sequence"
STORED_AT: Final = "Nats-Time-Stamp"
PENDING: Final = "Nats-Num-Pending"
PULL_LEFT: Final = "Nats-Pending-Messages"
LAST_CONSUMER: Final = "Nats-Last-Consumer"


def block(given: Headers) -> bytes:
    """Return `given` as they travel; a name or a value that cannot is a `BadName`."""
    text = "".join([f"{_line_start(name)}{value}\r\n" for name, value in given.items()])
    if text.count("\n") != len(given) or text.count("\r") != len(given):
        cleaned = {name: value.translate(_SPACED) for name, value in given.items()}
        return block(cleaned)  # A value would have ended its line.
    try:
        return b"%b\r\n%b\r\n" % (VERSION, text.encode())
    except UnicodeEncodeError as error:
        raise BadName(f"a header is not valid Unicode text: {error.object!r}") from error


def parse(given: bytes) -> Headers:
    """Return the headers in a block; a line that is none is left out, and so is a status."""
    found: Headers = {}
    for line in given.decode(errors="replace").split("\r\n"):
        name, colon, value = line.partition(":")
        if colon and is_name(name):
            found[name] = value.strip()
    return found


@lru_cache(maxsize=NAMES_MAX)
def is_name(text: str) -> bool:
    """Return whether a header may be called so."""
    return _NAME.fullmatch(text) is not None


@lru_cache(maxsize=NAMES_MAX)
def _line_start(name: str) -> str:
    if not is_name(name):
        raise BadName(f"not the name of a header: {name!r}")
    return f"{name}: "
