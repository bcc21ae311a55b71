"""The log on a NATS server: every port, on JetStream. The only place that imports nats.

    repartition, copying      another number of partitions for a stack at rest
    ports      connect, and what a stack needs
      log, world, inbox, timers, leases, bucket    one adapter per port
        grouping, pace     store many messages together, when that is the faster way
        publish, stored    store one message until its outcome is known; read by subject
        merge              several queues as one
        follow, source     read a stream in order; share a durable consumer
          setup, shapes    the streams and buckets, and whether the server fits
            link           a connection that comes back
              session      one connection: requests, answers, timeouts
              servers      the addresses that an operator writes
                nats_inbox a subject of our own to answer to
                client     nats-py, made to end when it ends

What the client leaves to us is listed where it is handled: `session`, `follow`, `source`.

What is named here is imported when it is first used: an address can be checked without a client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streams.jetstream.connection.settings import GroupSettings, LinkSettings
    from streams.jetstream.ports.configs import Contradiction
    from streams.jetstream.setup.ports import connect, inspect
    from streams.jetstream.setup.setup import Inspection, StreamReport

__all__ = [
    "Contradiction",
    "GroupSettings",
    "Inspection",
    "LinkSettings",
    "StreamReport",
    "connect",
    "inspect",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from streams.jetstream.connection.settings import GroupSettings, LinkSettings
        from streams.jetstream.ports.configs import Contradiction
        from streams.jetstream.setup.ports import connect, inspect
        from streams.jetstream.setup.setup import Inspection, StreamReport

        public = (Contradiction, GroupSettings, Inspection, LinkSettings, StreamReport)
        globals().update({each.__name__: each for each in (*public, connect, inspect)})
        return globals()[name]
