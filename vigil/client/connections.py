"""The connections of a client: to the log of a stack and to the rows, each made when it is needed.

Whatever is raised while one of them is used becomes an error of `vigil.errors`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from vigil.asking.connect import connected, pooled
from vigil.errors import Mistake, Trouble, VigilError, told
from vigil.settings import BY_CHARS_MAX, Config, shown

if TYPE_CHECKING:
    from projections.postgres.pool import Pool
    from streams.clock import Clock
    from streams.ports.all import Ports
    from streams.subjects import Stack


class Connections:
    """What the calls of a client work on. Connections stay open until `close`."""

    def __init__(
        self,
        stack: Stack,
        *,
        by: str,
        node: str,
        clock: Clock,
        open_log: Callable[..., AbstractAsyncContextManager[Ports]],
        open_rows: Callable[[], AbstractAsyncContextManager[Pool]],
        rows_at: str,
        config: Config | None = None,
        creates_stack: bool = False,
    ) -> None:
        self.stack, self.node, self.clock = stack, node, clock
        self._by, self._rows_at = _checked_name(by), rows_at
        self._open_log, self._open_rows = open_log, open_rows
        self._config, self._creates_stack = config, creates_stack
        self._ports: Ports | None = None
        self._reading: Ports | None = None
        self._pool: Pool | None = None
        self._opened = AsyncExitStack()
        self._log_turn = asyncio.Lock()
        self._rows_turn = asyncio.Lock()  # guard: servers-awaited-apart
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        self._withheld: VigilError | None = None

    @property
    def config(self) -> Config:
        """The settings, for what looks at the servers themselves; `Trouble` if there are none."""
        if self._config is None:
            raise Trouble("this client has no settings, and does not know its servers")
        return self._config

    def who(self, by: str | None) -> str:
        """Return who gives an order: `by`, or the person whose client it is."""
        return self._by if by is None else _checked_name(by)

    def order_as(self, name: str) -> None:
        """Give orders by another name from now on: that of who has signed in."""
        self._by = _checked_name(name)

    def withhold_log(self, error: VigilError) -> None:
        """Let nothing open the log: whoever would gets this error."""
        self._withheld = error

    @asynccontextmanager
    async def log(self, *, is_reading: bool = False, about: str = "") -> AsyncIterator[Ports]:
        """Yield the log; `StackNotFound` if nobody has made the stack, and it is not to be made.

        Args:
            is_reading: let a stack through that has lost its past.
            about: what to begin the message of a refusal with.
        """
        with told(about):
            yield await self._log(is_reading=is_reading)

    @asynccontextmanager
    async def rows(self) -> AsyncIterator[Pool]:
        """Yield the rows; `Trouble` if nothing was ever projected there."""
        from projections.errors import QueryRefused
        from vigil.asking.rows import applied_migrations

        with told():
            pool = await self._rows()
            try:
                yield pool
            except QueryRefused as error:
                if await applied_migrations(pool) is not None:
                    raise
                raise Trouble(
                    f"{self._rows_at} holds no tables of Vigil",
                    remedy="run `vigil project` or a node",
                ) from error

    @asynccontextmanager
    async def raw_rows(self) -> AsyncIterator[Pool]:
        """Yield the rows for what is done otherwise without them: errors stay as they are."""
        yield await self._rows()

    async def close(self) -> None:
        """Close what is open, for good; what is being opened is closed, too."""
        self._is_closed = True
        async with self._log_turn, self._rows_turn:
            self._ports = self._reading = self._pool = None
            await self._opened.aclose()

    async def _log(self, *, is_reading: bool) -> Ports:
        creates = self._creates_stack
        async with self._log_turn:
            self._check()
            if self._withheld is not None:  # guard: log-withheld-from-unchecked
                raise self._withheld
            if is_reading and self._ports is None:
                if self._reading is None:
                    self._reading = await self._enter(
                        self._open_log(creates=creates, is_reading=True)
                    )
                return self._reading
            if self._ports is None:
                self._ports = await self._enter(self._open_log(creates=creates))
            return self._ports

    async def _rows(self) -> Pool:
        async with self._rows_turn:
            self._check()
            if self._pool is None:
                self._pool = await self._opened.enter_async_context(self._open_rows())
            return self._pool

    def _check(self) -> None:
        """Raise `Mistake` if the client is closed, or is used in a second event loop."""
        if self._is_closed:  # guard: closed-client-opens-nothing
            raise Mistake("this client is closed; make another one")
        loop = asyncio.get_running_loop()
        if (self._loop or loop) is not loop:  # guard: client-of-one-loop
            raise Mistake("this client is used in a second event loop; make one for each")
        self._loop = loop

    async def _enter(self, opening: AbstractAsyncContextManager[Ports]) -> Ports:
        return await self._opened.enter_async_context(opening)


def _checked_name(by: str) -> str:
    if not by.strip():
        raise Mistake("by: give a name, or leave it out")
    return by[:BY_CHARS_MAX]


def of_config(config: Config, *, by: str, clock: Clock, creates_stack: bool = False) -> Connections:
    """Return connections to the servers that the settings name."""
    return Connections(
        config.stack,
        by=by,
        node=config.node,
        clock=clock,
        open_log=partial(connected, config),
        open_rows=partial(pooled, config),
        rows_at=shown("postgres_dsn", config.settings.postgres_dsn),
        config=config,
        creates_stack=creates_stack,
    )


def of_ports(ports: Ports, pool: Pool | None, *, by: str, clock: Clock) -> Connections:
    """Return what is connected already; without `pool` there are no rows to ask."""

    def rows() -> AbstractAsyncContextManager[Pool]:
        if pool is None:
            raise Trouble("this client has no rows to ask")
        return nullcontext(pool)

    def log(**_: bool) -> AbstractAsyncContextManager[Ports]:
        return nullcontext(ports)

    return Connections(
        ports.stack,
        by=by,
        node=by,
        clock=clock,
        open_log=log,
        open_rows=rows,
        rows_at="the database",
    )
