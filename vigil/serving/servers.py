"""A NATS server and a Postgres of this program's own, in one folder that outlives them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from projections.embedded import EmbeddedPostgres
from projections.errors import MigrationChanged, MigrationUnknown, PostgresUnavailable
from projections.postgres.migrator import migrate
from projections.postgres.pool import connect
from streams.embedded import EmbeddedNats
from streams.errors import Unavailable
from vigil.asking.connect import run
from vigil.errors import Trouble
from vigil.settings import DEFAULTS


@dataclass(frozen=True)
class Servers:
    """Two servers that run."""

    nats: EmbeddedNats
    postgres: EmbeddedPostgres

    def settings(self) -> dict[str, str]:
        """Return the settings that lead here and nowhere else."""
        usual = ("nats_creds", "nats_inbox", "nats_domain")
        return {
            **{key: str(DEFAULTS[key]) for key in usual},
            "nats_url": self.nats.url,
            "postgres_dsn": self.postgres.dsn,
        }

    def kill(self) -> None:
        """End both at once. What they acknowledged stays stored."""
        with suppress(Unavailable):
            self.nats.kill()
        with suppress(PostgresUnavailable):
            self.postgres.kill()


@contextmanager
def embedded(folder: Path) -> Iterator[Servers]:
    """Run both servers, stored in `folder`, with the tables made. Call it from the main thread.

    Raises `Trouble` if the tables in `folder` are another version's.
    """
    with EmbeddedNats(folder / "nats") as nats, EmbeddedPostgres(folder / "postgres") as postgres:
        run(_make_tables(postgres, folder / "postgres"))
        yield Servers(nats, postgres)


async def _make_tables(postgres: EmbeddedPostgres, folder: Path) -> None:
    """Make the tables now: a projector would wait for ever for someone to mend them."""
    async with await connect(postgres.dsn) as pool:
        try:
            await migrate(pool)
        except (MigrationChanged, MigrationUnknown) as error:
            raise Trouble(
                f"the tables in {folder} were made by another version of Vigil ({error.name}); "
                f"delete {folder}, and they are made anew from the journal"
            ) from error
