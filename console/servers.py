"""A NATS server and a Postgres of this program's own, in one folder that outlives them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from projections.embedded import EmbeddedPostgres
from projections.errors import PostgresUnavailable
from streams.embedded import EmbeddedNats
from streams.errors import Unavailable


@dataclass(frozen=True)
class Servers:
    """Two servers that run."""

    nats: EmbeddedNats
    postgres: EmbeddedPostgres

    def kill(self) -> None:
        """End both at once. What they acknowledged stays stored."""
        with suppress(Unavailable):
            self.nats.kill()
        with suppress(PostgresUnavailable):
            self.postgres.kill()


@contextmanager
def embedded(folder: Path) -> Iterator[Servers]:
    """Run both servers, stored in `folder`. Call it from the main thread.

    Raises:
        Incompatible, Unavailable, PostgresUnavailable: one of them did not start.
    """
    with (
        EmbeddedNats(folder / "nats") as nats,
        EmbeddedPostgres(folder / "postgres") as postgres,
    ):
        yield Servers(nats, postgres)
