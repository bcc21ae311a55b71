"""`DeltaWriter`: publishes what a model answers, while it answers, for people who look on.

Nothing waits for it, and nothing depends on it: the answer is recorded once it is whole. So it is
not told again where it is replayed, and people see no more of it than they may see of the record.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from engine.episodes.redaction import first_bytes
from streams.clock import Clock
from streams.model.deltas import Delta, DeltaEnd
from streams.ports.deltas import Deltas

FLUSH_S: Final = 0.05
"""Between a piece and the delta that has it, in seconds: less than people notice."""

FLUSH_BYTES: Final = 2_048
"""How much waits for that at most, in bytes of UTF-8."""


class DeltaWriter:
    """Publishes the answer to one request. See `AnswerListener`."""

    def __init__(
        self,
        port: Deltas,
        clock: Clock,
        episode_id: str,
        *,
        path: str,
        attempt: int,
        shown_max: int,
    ) -> None:
        """Tell nothing yet; `shown_max` is how much of the answer people may see, in bytes."""
        self._port, self._clock, self._episode_id = port, clock, episode_id
        self._path, self._attempt = path, attempt
        self._shown_left, self._is_cut = shown_max, False
        self._text, self._tools = list[str](), list[str]()
        self._size = self._place = 0
        self._news = asyncio.Event()
        self._end = DeltaEnd.FAILED

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Publish, for as long as the context lasts, what is said; then its end."""
        flushing = asyncio.create_task(self._flush_soon(), name=f"deltas of {self._path}")
        try:
            yield
        finally:
            flushing.cancel()
            self._flush(end=self._end)

    def say(self, text: str) -> None:
        """Take what the model goes on with."""
        if self._tools:
            self._flush()
        kept = first_bytes(text, self._shown_left)  # guard: deltas-tell-what-is-shown
        self._shown_left -= len(kept.encode())
        if kept != text:
            kept += "" if self._is_cut else "…"
            self._shown_left, self._is_cut = 0, True
        self._text.append(kept)
        self._took(len(kept.encode()))

    def call(self, tool: str) -> None:
        """Take that a call of `tool` begins."""
        self._tools.append(tool)
        self._took(len(tool.encode()))

    def done(self) -> None:
        """Note that the answer is whole."""
        self._end = DeltaEnd.DONE

    def _took(self, size: int) -> None:
        self._size += size
        if self._size >= FLUSH_BYTES:
            self._flush()
        elif self._size:
            self._news.set()

    async def _flush_soon(self) -> None:
        while True:
            await self._news.wait()
            await self._clock.sleep(FLUSH_S)
            self._flush()

    def _flush(self, *, end: DeltaEnd | None = None) -> None:
        text, tools = "".join(self._text), tuple(self._tools)
        if text or tools or end is not None:
            delta = Delta(
                path=self._path,
                attempt=self._attempt,
                place=self._place,
                text=text,
                tools=tools,
                end=end,
            )
            self._port.publish(self._episode_id, delta)
            self._place += 1
        self._text.clear()
        self._tools.clear()
        self._size = 0
        self._news.clear()
