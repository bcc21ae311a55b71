"""How to reach the server, and how long to keep trying."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from streams.ports.objects import DAYS

DAY_S: Final = 86_400


@dataclass(frozen=True, kw_only=True)
class GroupSettings:
    """When messages to one stream are stored together; see `grouping.py`."""

    least: int = 16
    """Fewest messages of a batch, which is what one costs the server in messages alone that it
    syncs (`docs/performance.md`). With 0, and `is_fixed`, each message goes in a batch, be it the
    only one."""
    most: int = 256
    """Most messages of a batch; 1 stores each alone. The server's own limit is 1,000."""
    is_fixed: bool = False
    """Whether `least` messages always make a batch, however long it takes."""


@dataclass(frozen=True, kw_only=True)
class LinkSettings:
    """What an operator may choose about the connection and what it creates."""

    name: str = "vigil"
    """The connection's name in the server's own reports."""
    lease_ttl_s: int = 30
    """Longest that a dead node can hold a lease. The server accepts 1 s or more, drops what is less
    than a second, and notices up to 0.25 s late that the time is over."""
    replicas: int = 1
    """Copies of every stream, used when it is created."""
    partitions: int | None = None
    """Over how many streams a new stack spreads its journal and its work. None: one for a new
    stack, and any other as it is. A number that contradicts the servers is refused."""
    events_max_age_s: float = 7 * DAY_S
    """How long domain events are kept, used when their stream is created."""
    results_days: float = DAYS
    """How long large results of tools are kept after their last use, in days, used when the object
    store is created."""
    patience_s: float = 60.0
    """How long an append or a send keeps trying through an outage."""
    request_timeout_s: float = 2.0
    """How long one request may go unanswered. Measured: a publish takes 0.4 to 3 ms, and
    0.25 s behind 50,000 timers that fall due at once."""
    connect_timeout_s: float = 5.0
    """How long an attempt to connect may take."""
    first_tries_s: float = 5.0
    """How long the first connection is tried where nobody listens, or no host has that name: a
    server that is just starting gets that time. After a loss it is tried for ever."""
    user: str | None = None
    password: str | None = None
    creds: str | None = None
    """Path of a credentials file, for servers that use JWTs; read at every connection."""
    inbox_prefix: str = "_INBOX"
    """Where answers go: the subject that this user may subscribe to."""
    domain: str = ""
    """The JetStream domain that has the streams. Empty: that of the server we connect to."""
    group: GroupSettings = field(default_factory=GroupSettings)

    @property
    def heartbeat_s(self) -> int:
        """How often the server says that a waiting pull still lives, in seconds.

        Often where a server may be lost while we are connected to another one; a single server
        that is lost takes our connection with it.
        """
        return 1 if self.replicas > 1 or self.domain else 10

    def api(self, operation: str) -> str:
        """Return the subject of one operation of JetStream's API."""
        return f"$JS.{self.domain}.API.{operation}" if self.domain else f"$JS.API.{operation}"

    def to_bucket(self, subject: str) -> str:
        """Return where a message to `subject`, a key of a bucket, is sent.

        Servers keep those subjects to their own domain, and know them as operations in others.
        """
        return self.api(subject) if self.domain else subject
