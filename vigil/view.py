"""What the demo shows while it runs: a live table, or plain lines where nobody watches."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from projections.errors import PostgresUnavailable, QueryRefused
from projections.postgres.pool import Pool
from projections.postgres.query_result import Row
from projections.postgres.reader import list_episodes, list_findings
from streams.clock import Clock
from streams.model.findings import FindingStatus
from streams.subjects import Stack
from vigil import questions, tables
from vigil.running import wait_stop

LOOK_S: Final = 0.5
"""Between two looks at the rows, in seconds."""

LINE_LOOKS: Final = 4
"""Looks per plain line."""

EPISODES_SHOWN: Final = 12
FINDINGS_SHOWN: Final = 12
FINDINGS_COUNTED_MAX: Final = 1_000

_EPISODE_COLUMNS: Final = (
    "status", "actor_id", "expectation_id", "subject_id", "turns_used", "summary",
)  # fmt: skip
_FINDING_COLUMNS: Final = ("severity", "finding_key", "summary")


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """The rows at one moment."""

    elapsed_s: float
    counts: list[Row] = []
    """Episodes by status."""
    episodes: list[Row] = []
    """The newest."""
    findings: list[Row] = []
    """The active ones."""

    def headline(self) -> str:
        """Return how many there are of what."""
        episodes = ", ".join(f"{row['episodes']} {row['status']}" for row in self.counts)
        found = f"active findings: {len(self.findings)}"
        return f"{self.elapsed_s:4.0f} s   episodes: {episodes or 'none yet'}   {found}"


async def watch(
    pool: Pool, stack: Stack, *, clock: Clock, stop: asyncio.Event, seconds: float | None
) -> None:
    """Show episodes and findings until `stop`, or for `seconds`."""
    console = tables.terminal()
    show = _watch_live if console.is_terminal else _watch_plainly
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await show(console, _Camera(pool, stack, clock), stop)


class _Camera:
    """Takes pictures of the rows."""

    def __init__(self, pool: Pool, stack: Stack, clock: Clock) -> None:
        self._pool, self._stack, self._clock = pool, stack, clock
        self._began_s = clock.monotonic_s()

    async def picture(self) -> Picture:
        """Return the rows now; none while the tables are still being made."""
        elapsed_s = self._clock.monotonic_s() - self._began_s
        try:
            return await self._taken(elapsed_s)
        except (QueryRefused, PostgresUnavailable):
            return Picture(elapsed_s=elapsed_s)

    async def _taken(self, elapsed_s: float) -> Picture:
        pool, stack = self._pool, self._stack
        return Picture(
            elapsed_s=elapsed_s,
            counts=(await questions.answer(pool, stack, "episodes_by_status")).as_rows(),
            episodes=await list_episodes(pool, stack, limit=EPISODES_SHOWN),
            findings=await list_findings(
                pool, stack, status=FindingStatus.ACTIVE, limit=FINDINGS_COUNTED_MAX
            ),
        )


async def _watch_live(console: Console, camera: _Camera, stop: asyncio.Event) -> None:
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while not stop.is_set():
            live.update(_drawn(await camera.picture()), refresh=True)
            await wait_stop(stop, timeout_s=LOOK_S)


async def _watch_plainly(console: Console, camera: _Camera, stop: asyncio.Event) -> None:
    while not stop.is_set():
        console.print((await camera.picture()).headline())
        await wait_stop(stop, timeout_s=LOOK_S * LINE_LOOKS)


def _drawn(picture: Picture) -> Group:
    return Group(
        Text(picture.headline(), style="bold"),
        Text(),
        tables.table(picture.episodes, _EPISODE_COLUMNS, title="Episodes"),
        Text(),
        tables.table(picture.findings[:FINDINGS_SHOWN], _FINDING_COLUMNS, title="Active findings"),
    )
