"""Every message header that the engine or the server sets. No other module spells one.

Those of domain events are in `streams/parsing.py`. Server's own: ADR-4, ADR-31 (direct
get), ADR-43 (time to live), https://github.com/nats-io/nats-architecture-and-design.
"""

from __future__ import annotations

from typing import Final

# Ours.

COMMIT: Final = "Vigil-Commit"
"""The commit's id. Not `Nats-Msg-Id`: with that, a repeated append would be answered with
`duplicate` on three replicas and with a conflict on one; without it both conflict."""

NONCE: Final = "Vigil-Nonce"
"""Tells our write of a registry key from anyone else's, after its answer was lost."""

OUTCOME: Final = "Vigil-Outcome"
"""How the work ended whose claim is given up: `failed`. Without it, it is done."""

ERROR: Final = "Vigil-Error"
"""Why it failed, as a JSON string in ASCII: line ends and spaces stay what they are."""

# The server's, on what we publish.

EXPECTED_SEQ: Final = "Nats-Expected-Last-Subject-Sequence"
TTL: Final = "Nats-TTL"
ROLLUP: Final = "Nats-Rollup"
KV_OPERATION: Final = "KV-Operation"

# The server's, on what we receive.

STATUS: Final = "Status"
MARKER_REASON: Final = "Nats-Marker-Reason"
SUBJECT: Final = "Nats-Subject"
SEQUENCE: Final = "Nats-Sequence"
STORED_AT: Final = "Nats-Time-Stamp"
PENDING: Final = "Nats-Num-Pending"
PULL_LEFT: Final = "Nats-Pending-Messages"
LAST_CONSUMER: Final = "Nats-Last-Consumer"


def size_bytes(headers: dict[str, str] | None) -> int:
    """Return how much of the server's message limit `headers` take."""
    if not headers:
        return 0
    lines = sum(len(key) + len(value.encode()) + 4 for key, value in headers.items())
    return len(b"NATS/1.0\r\n\r\n") + lines
