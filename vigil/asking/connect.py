"""Connections for commands: to the log of a stack, and to the rows.

What awaits the log may raise `Unavailable`, and what asks the rows `PostgresUnavailable`. A first
connection may also find the server or the stack `Incompatible`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import structs

from vigil.settings import FILE, Config, retention_in

if TYPE_CHECKING:
    from projections.postgres.pool import Pool
    from streams.jetstream import LinkSettings
    from streams.ports.all import Ports

T = TypeVar("T")

COMMAND_TRIES_S: Final = 1.0
"""How long a command or a client tries to connect where nobody listens, in seconds."""

STAYING_TRIES_S: Final = 5.0
"""How long a node or a projector does: its server may be started together with it."""


CANCEL_AGAIN_S: Final = 1.0
"""What was interrupted and goes on is cancelled again, so often, in seconds. A library loses a
cancellation that comes just as what it awaits does, as `asyncio.wait_for` of Python 3.11 does."""


def run(work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` returns. An interrupt ends it, whatever a library makes of it."""
    return asyncio.run(_until_it_ends(work))


async def _until_it_ends(work: Coroutine[Any, Any, T]) -> T:
    task = asyncio.create_task(work)
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        while not task.done():
            await asyncio.wait({task}, timeout=CANCEL_AGAIN_S)
            task.cancel()  # guard: lost-cancellation-repeated
        # What it fails with by then comes of the interrupt.
        if not task.cancelled() and task.exception() is not None:  # guard: interrupt-is-no-failure
            raise
    return await task


def with_ports(
    config: Config,
    work: Callable[[Ports], Awaitable[T]],
    *,
    creates: bool = False,
    is_reading: bool = False,
) -> T:
    """Return what `work` returns on the log of the stack; the rest is as for `connected`."""

    async def done() -> T:
        async with connected(config, creates=creates, is_reading=is_reading) as ports:
            return await work(ports)

    return run(done())


@asynccontextmanager
async def connected(
    config: Config,
    *,
    creates: bool = True,
    is_for_node: bool = False,
    is_reading: bool = False,
    is_staying: bool = False,
    known: Mapping[str, int] = MappingProxyType({}),
) -> AsyncIterator[Ports]:
    """Yield the log of the stack. Streams that are missing on the server are created.

    Args:
        creates: whether to create a stack that is missing, too: for who only reads, it is a typo.
        is_for_node: whether to check that the server permits all that a node does.
        is_reading: whether to connect to a stack that has lost its past, too.
        is_staying: whether to wait for a server that is just starting; a command says at once that
            there is none.
        known: positions that the rows know, by stream: what has them is not made anew.

    Raises `BadName` if there are no credentials where the settings name them.
    """
    from streams import jetstream
    from streams.archive.history import with_history
    from vigil.archiving.find import finding_archive

    url, link = config.settings.nats_url, link_settings(config, is_staying=is_staying)
    connecting = jetstream.connect(
        url,
        stack=config.stack,
        settings=link,
        creates=creates,
        is_for_node=is_for_node,
        is_reading=is_reading,
        known=known,
    )
    async with connecting as ports:
        if is_for_node:  # Nothing that a node asks for is archived.
            yield ports
            return
        async with finding_archive(config, link) as find:
            yield with_history(ports, find)  # guard: commands-read-the-archive


@asynccontextmanager
async def connected_elsewhere(config: Config) -> AsyncIterator[Sequence[Ports]]:
    """Yield the logs of the other stacks that the settings want served; see `connected`."""
    # How many partitions they have, the servers say: the setting is about the own stack.
    settings = structs.replace(config.settings, partitions=None)
    async with AsyncExitStack() as entered:
        yield [
            await entered.enter_async_context(
                connected(
                    replace(config, settings=settings, stack=stack),
                    is_for_node=True,
                    is_staying=True,
                )
            )
            for stack in config.serves
        ]


def link_settings(config: Config, *, is_staying: bool = False) -> LinkSettings:
    """Return the settings of the connection, and of what it creates; see `connected`."""
    from streams.jetstream import LinkSettings

    settings = config.settings
    kept = _events_kept_s()
    return LinkSettings(
        # guard: command-gives-up-soon
        first_tries_s=STAYING_TRIES_S if is_staying else COMMAND_TRIES_S,
        name=f"vigil {config.node}",
        lease_ttl_s=settings.lease_s,
        replicas=settings.replicas,
        partitions=settings.partitions,
        results_days=settings.results_days,
        creds=settings.nats_creds or None,
        inbox_prefix=settings.nats_inbox,
        domain=settings.nats_domain,
        events_max_age_s=LinkSettings.events_max_age_s if kept is None else kept,
    )


def _events_kept_s() -> float | None:
    """Return how long `[retention]` wants domain events kept, in seconds; None: it does not say."""
    kept = retention_in(Path(FILE))
    if kept is None or kept.events is None:
        return None
    from engine.app.checks import kept_of

    return float(kept_of(kept)["events"])


@asynccontextmanager
async def pooled(config: Config, *, schema: str | None = None) -> AsyncIterator[Pool]:
    """Yield connections to Postgres that were tried once; `schema`: other than that of the rows."""
    from projections.postgres import pool as postgres

    dsn = config.settings.postgres_dsn
    pool = await postgres.connect(dsn, schema=postgres.SCHEMA if schema is None else schema)
    async with pool:
        yield pool
