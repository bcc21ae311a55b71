"""The log on a NATS server: every port, on JetStream. The only place that imports nats.

    setup/        connect; the streams and buckets, and whether server and user fit
    ports/        one adapter per port, on followers, shared consumers and keys
    messages/     store and read messages: alone, in batches, by subject
    archive/      an archive in an object store
    connection/   a connection that comes back, on nats-py's client

What the client leaves to us is listed where it is handled: `session`, `follow`, `source`. Names are
imported when they are first used, so an address can be checked without a client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streams.jetstream.connection.settings import GroupSettings, LinkSettings
    from streams.jetstream.ports.configs import Contradiction
    from streams.jetstream.setup.kinds import add_kinds, read_kinds
    from streams.jetstream.setup.losses import (
        FoundLosses,
        accept_losses,
        find_losses,
        remove_marks,
    )
    from streams.jetstream.setup.ports import connect, connect_encrypted, inspect, uncompress
    from streams.jetstream.setup.setup import Inspection, StreamReport

__all__ = [
    "Contradiction",
    "FoundLosses",
    "GroupSettings",
    "Inspection",
    "LinkSettings",
    "StreamReport",
    "accept_losses",
    "add_kinds",
    "connect",
    "connect_encrypted",
    "find_losses",
    "inspect",
    "read_kinds",
    "remove_marks",
    "uncompress",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from streams.jetstream.connection.settings import GroupSettings, LinkSettings
        from streams.jetstream.ports.configs import Contradiction
        from streams.jetstream.setup.kinds import add_kinds, read_kinds
        from streams.jetstream.setup.losses import (
            FoundLosses,
            accept_losses,
            find_losses,
            remove_marks,
        )
        from streams.jetstream.setup.ports import connect, connect_encrypted, inspect, uncompress
        from streams.jetstream.setup.setup import Inspection, StreamReport

        public = (Contradiction, GroupSettings, Inspection, LinkSettings, StreamReport)
        of_losses = (FoundLosses, accept_losses, find_losses, remove_marks)
        of_kinds = (add_kinds, connect_encrypted, read_kinds)
        named = (*public, *of_losses, *of_kinds, connect, inspect, uncompress)
        globals().update({each.__name__: each for each in named})
        return globals()[name]
