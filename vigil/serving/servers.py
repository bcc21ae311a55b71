"""A NATS server and a Postgres of this program's own, in one folder that outlives them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from projections.errors import MigrationChanged, MigrationUnknown, PostgresUnavailable
from projections.postgres.migrator import migrate
from projections.postgres.pool import connect
from streams.errors import Unavailable
from vigil.asking.connect import run
from vigil.errors import Trouble
from vigil.settings import DEFAULTS

if TYPE_CHECKING:
    from projections.embedded import EmbeddedPostgres
    from streams.embedded import EmbeddedNats

EXTRA: Final = "pip install 'vigil-engine[embedded]'"

TELL_AFTER_S: Final = 2.0
"""A wait for a server that takes longer than so many seconds is told."""


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

    Raises `Trouble` if the tables in `folder` are another version's, or a package of the extra
    `embedded` is not installed.
    """
    try:
        from projections.embedded import EmbeddedPostgres
        from streams.embedded import EmbeddedNats
    except ModuleNotFoundError as error:
        raise Trouble(f"own servers need the package {error.name}", remedy=EXTRA) from error
    with ExitStack() as running:
        with told_if_long(f"the NATS server in {folder / 'nats'} to start"):
            nats = running.enter_context(EmbeddedNats(folder / "nats"))
        with told_if_long(f"the Postgres server in {folder / 'postgres'} to start"):
            postgres = running.enter_context(EmbeddedPostgres(folder / "postgres"))
        with told_if_long("the tables to be made"):
            run(_make_tables(postgres, folder / "postgres"))
        yield Servers(nats, postgres)


@contextmanager
def told_if_long(what: str) -> Iterator[None]:
    """Say what is waited for, if it takes longer than `TELL_AFTER_S`."""
    said = f"vigil: waits for {what}"
    timer = threading.Timer(TELL_AFTER_S, partial(print, said, file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


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
