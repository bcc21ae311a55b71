"""One message as a consumer delivers it.

Its position in the stream and the consumer is in its reply subject, whose tokens are counted from
the end of the prefix (ADR-15; the longer form names domain and account):

    $JS.ACK.<stream>.<consumer>.<deliveries>.<seq>.<consumer seq>.<stored ns>.<pending>
    $JS.ACK.<domain>.<account>.<stream>.<consumer>.<deliveries>.….<pending>[.<random>]
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec

from streams.jetstream.connection.headers import Headers
from streams.jetstream.connection.protocol import Received

_SHORT_TOKENS: Final = 9
_NS_PER_US: Final = 1_000
_US_PER_S: Final = 1_000_000


class Arrival(msgspec.Struct, frozen=True):
    """A delivered message and its place."""

    subject: str
    headers: Headers
    data: bytes
    reply: str
    """Where to acknowledge it."""
    deliveries: int
    seq: int
    consumer_seq: int
    """Counts this consumer's deliveries, from 1 and without gaps."""
    stored_ns: int
    pending: int
    """How many messages the consumer had left after this one."""

    @property
    def at(self) -> datetime:
        """When the server stored it."""
        seconds, microseconds = divmod(self.stored_ns // _NS_PER_US, _US_PER_S)
        return datetime.fromtimestamp(seconds, UTC).replace(microsecond=microseconds)


def arrival(msg: Received) -> Arrival:
    """Return `msg`, which must not be a status, with its place."""
    tokens = msg.reply.split(".")
    start = 4 if len(tokens) == _SHORT_TOKENS else 6
    deliveries, seq, consumer_seq, stored_ns, pending = map(int, tokens[start : start + 5])
    return Arrival(
        msg.subject,
        msg.headers,
        msg.data,
        msg.reply,
        deliveries,
        seq,
        consumer_seq,
        stored_ns,
        pending,
    )
