"""Pages that are watched: each is drawn once for all that watch it, when the rows have moved.

    the rows have moved ──▶ every watched page is drawn ──▶ its parts that differ ──▶ who watches it

A page is drawn for a role, not for a person: nothing of a part may be personal. Who watches has no
queue: a watcher that is slow passes over what was in between, and is sent all parts anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import structlog

from vigil.errors import VigilError, one_line
from vigil.web.drawing.layout import parts_of
from vigil.web.screen import Drawn

log = structlog.get_logger("vigil.console")

LOOK_S: Final = 1.0
"""Shortest time between two looks whether the rows have moved, in seconds."""

SHARE_MAX: Final = 0.2
"""Most of its time that the console draws watched pages: the more they take, the rarer it looks.
What fails is not drawn, however long it took: a page goes on soon after its server is back."""

BEAT_S: Final = 10.0
"""How often a watcher to whom nothing is sent is told that all is well, in seconds. The script in
the browser takes twice of it for a connection that is dead."""

PAGES_MAX: Final = 500
"""Most different pages that are watched at once; who watches one more reads it again by hand."""

WATCHERS_MAX: Final = 5_000
"""Most that watch at once, of all pages together."""

RETRY_MS: Final = 1_000

BEAT: Final = b"event: ping\ndata:\n\n"
GREETING: Final = f"retry: {RETRY_MS}\n\n".encode()


@dataclass(eq=False)
class WatchedPage:
    """A page that somebody watches."""

    draw: Callable[[], Awaitable[Drawn]]
    watchers: int = 0
    version: int = 0
    seq: int = 0
    parts: Mapping[str, str] = field(default_factory=dict)
    whole: bytes = b""
    """The event that sends all parts."""
    difference: bytes = b""
    """The event that sends those that differ from the version before."""
    trouble: str = ""
    """Why it could not be drawn, and since when; empty: it could."""
    failing_since: datetime | None = None
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    """Set, and replaced by another one, when there is a new version."""


class LivePages:
    """The watched pages of one console."""

    def __init__(
        self, read_seq: Callable[[], Awaitable[int]], *, now: Callable[[], datetime]
    ) -> None:
        """Make it; `read_seq` returns up to which sequence the rows are."""
        self._read_seq, self._now = read_seq, now
        self._away_since: datetime | None = None
        self._pages: dict[str, WatchedPage] = {}
        self._is_ending = asyncio.Event()

    @property
    def watchers(self) -> int:
        """How many watch, of all pages together."""
        return sum(each.watchers for each in self._pages.values())

    def has_room(self, key: str) -> bool:
        """Return whether one more may watch this page."""
        is_known = key in self._pages
        return self.watchers < WATCHERS_MAX and (is_known or len(self._pages) < PAGES_MAX)

    def end(self) -> None:
        """End all that is watched."""
        self._is_ending.set()
        for each in self._pages.values():
            _tell(each)

    async def run(self) -> None:
        """Look whether the rows have moved, and draw what is watched, until the console ends."""
        seen, drew_s = -1, 0.0
        while not self._is_ending.is_set():
            if self._pages:
                seen, drew_s = await self._look(seen)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(LOOK_S, drew_s / SHARE_MAX)):
                    await self._is_ending.wait()

    async def watch(
        self, key: str, draw: Callable[[], Awaitable[Drawn]], *, after: int
    ) -> AsyncIterator[bytes]:
        """Yield what becomes of a page, as server-sent events, from sequence `after` on."""
        page = self._pages.setdefault(key, WatchedPage(draw))
        page.watchers += 1
        try:
            yield GREETING
            known, trouble = 0, ""
            while not self._is_ending.is_set():
                moved = page.moved
                if page.trouble != trouble:
                    trouble = page.trouble
                    yield message(trouble, event="away")
                if page.version > known and not page.trouble:
                    is_first, is_next = known == 0, page.version == known + 1
                    known = page.version
                    if not is_first or page.seq > after:
                        yield page.difference if is_next and not is_first else page.whole
                try:
                    async with asyncio.timeout(BEAT_S):
                        await moved.wait()
                except TimeoutError:
                    yield BEAT
        finally:
            page.watchers -= 1
            if not page.watchers:
                self._pages.pop(key, None)

    async def _look(self, seen: int) -> tuple[int, float]:
        """Draw what is watched if the rows have moved since `seen`.

        Return where they are, and for how long it drew, in seconds.
        """
        try:
            seq = await self._read_seq()
        except VigilError as error:
            self._away_since = self._away_since or self._now()
            for each in self._pages.values():
                _fail(each, one_line(error), self._away_since)
            return -1, 0.0
        self._away_since, drew_s = None, 0.0
        for page in list(self._pages.values()):
            if seq != seen or page.seq != seq or page.trouble:
                drew_s += await self._redraw(page, seq)
        return seq, drew_s

    async def _redraw(self, page: WatchedPage, seq: int) -> float:
        """Return how long it drew, in seconds; 0: it failed."""
        clock = asyncio.get_running_loop()
        began_s = clock.time()
        try:
            drawn = await page.draw()
        except VigilError as error:
            _fail(page, one_line(error), self._now())
            return 0.0  # guard: failure-is-no-drawing
        except Exception:  # guard: broken-screen-harms-no-other
            log.exception("a watched page could not be drawn")
            _fail(page, "this page cannot be drawn; the log of the console says why", self._now())
            return 0.0
        _draw(page, drawn, seq)
        return clock.time() - began_s


def _draw(page: WatchedPage, drawn: Drawn, seq: int) -> None:
    parts = {name: str(part) for name, part in parts_of(drawn).items()}
    changed = [text for name, text in parts.items() if page.parts.get(name) != text]
    page.seq, page.trouble, page.parts, page.failing_since = seq, "", parts, None
    page.whole = message("".join(parts.values()), id=seq)
    page.difference = message("".join(changed), id=seq)
    page.version += 1
    _tell(page)


def _fail(page: WatchedPage, why: str, since: datetime) -> None:
    """Tell who watches why the page stands still, and since when, however often it fails."""
    page.failing_since = page.failing_since or since
    trouble = away_words(why, page.failing_since)
    if page.trouble != trouble:
        page.trouble = trouble
        _tell(page)


def _tell(page: WatchedPage) -> None:
    moved, page.moved = page.moved, asyncio.Event()
    moved.set()


def away_words(why: str, since: datetime) -> str:
    """Return what a page says that stands still."""
    return f"{why}. Since {since:%H:%M:%S} UTC nothing here moves; it goes on by itself."


def message(text: str, *, id: int | None = None, event: str = "") -> bytes:
    """Return a server-sent event. Its text may have several lines."""
    lines = [f"event: {event}"] if event else []
    lines += [f"id: {id}"] if id is not None else []
    lines += [f"data: {line}" for line in text.splitlines() or [""]]
    return ("\n".join(lines) + "\n\n").encode()
