"""Pages that are watched: drawn once for all, and sent as far as they differ."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from htpy import p

from tests.simulation.time import simulate
from vigil.errors import ServerAway
from vigil.web import live
from vigil.web.live import BEAT, GREETING, LivePages, message
from vigil.web.screen import Drawn

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


class Rows:
    """Rows that move when a test says so, and a page of them."""

    def __init__(self) -> None:
        self.seq, self.draws, self.away = 1, 0, ""

    async def read(self) -> int:
        if self.away:
            raise ServerAway(self.away)
        return self.seq

    async def draw(self) -> Drawn:
        self.draws += 1
        return Drawn(title="Rows", parts={"moving": p[f"row {self.seq}"], "still": p["the same"]})


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look as often as a test can wait for."""
    monkeypatch.setattr(live, "LOOK_S", 0.01)
    monkeypatch.setattr(live, "BEAT_S", 0.2)


@asynccontextmanager
async def running(rows: Rows) -> AsyncIterator[LivePages]:
    pages = LivePages(rows.read, now=lambda: NOON)
    looking = asyncio.create_task(pages.run())
    try:
        yield pages
    finally:
        pages.end()
        await looking


async def heard(watched: AsyncIterator[bytes]) -> bytes:
    """Return the next event that is not a heartbeat."""
    async with asyncio.timeout(5):
        async for each in watched:
            if each not in (BEAT, GREETING):
                return each
    raise AssertionError("nothing came")


async def test_who_watches_is_sent_what_has_moved():
    rows = Rows()
    async with running(rows) as pages:
        watched = pages.watch("page", rows.draw, after=0)
        assert b"row 1" in await heard(watched)

        rows.seq = 2
        event = await heard(watched)

        assert event.startswith(b"id: 2\n")
        assert b"row 2" in event
        assert b"the same" not in event


async def test_a_page_is_drawn_once_for_all_that_watch_it():
    rows = Rows()
    async with running(rows) as pages:
        several = [pages.watch("page", rows.draw, after=0) for _ in range(50)]
        await asyncio.gather(*(heard(each) for each in several))
        drawn = rows.draws

        rows.seq = 2
        await asyncio.gather(*(heard(each) for each in several))

        assert rows.draws == drawn + 1


async def test_who_is_slow_passes_over_what_was_between_and_is_sent_all_parts():
    rows = Rows()
    async with running(rows) as pages:
        slow, quick = (pages.watch("page", rows.draw, after=0) for _ in range(2))
        await asyncio.gather(heard(slow), heard(quick))
        for seq in (2, 3, 4):
            rows.seq = seq
            assert b"row %d" % seq in await heard(quick)

        event = await heard(slow)

        assert event.startswith(b"id: 4\n")
        assert b"the same" in event


async def test_who_comes_again_where_they_were_is_sent_nothing_old():
    rows = Rows()
    async with running(rows) as pages:
        first = pages.watch("page", rows.draw, after=0)
        await heard(first)

        again = pages.watch("page", rows.draw, after=1)
        assert await anext(again) == GREETING
        assert await anext(again) == BEAT


async def test_a_server_that_is_away_is_told_and_so_is_its_return():
    rows = Rows()
    async with running(rows) as pages:
        watched = pages.watch("page", rows.draw, after=0)
        await heard(watched)

        rows.away = "postgres is away"
        told = "postgres is away. Since 12:00:00 UTC nothing here moves; it goes on by itself."
        assert await heard(watched) == message(told, event="away")

        rows.away = ""
        assert await heard(watched) == message("", event="away")
        assert await heard(watched) == message("", id=1)


SLOW_S = 20.0
"""As long as an answer may take of a server that is away, or has just begun, on a busy machine."""


class SlowRows(Rows):
    """Rows of a server that is away, which takes long to be noticed."""

    def __init__(self, *, is_slow_to_draw: bool) -> None:
        super().__init__()
        self.is_slow_to_draw, self.is_back = is_slow_to_draw, False

    async def read(self) -> int:
        if not self.is_slow_to_draw:
            await self._fail()
        return self.seq

    async def draw(self) -> Drawn:
        if self.is_slow_to_draw:
            await self._fail()
        return await super().draw()

    async def _fail(self) -> None:
        if not self.is_back:
            await asyncio.sleep(SLOW_S)
            raise ServerAway("Postgres: no answer")


@pytest.mark.parametrize("is_slow_to_draw", [False, True])
def test_a_page_is_back_soon_after_its_server_however_long_that_took_to_fail(
    monkeypatch, is_slow_to_draw
):
    monkeypatch.setattr(live, "LOOK_S", 1.0)

    async def back_after_s() -> float:
        rows = SlowRows(is_slow_to_draw=is_slow_to_draw)
        async with running(rows) as pages:
            watched = pages.watch("page", rows.draw, after=0)
            while b"Postgres: no answer" not in await anext(watched):
                pass
            rows.is_back, back_s = True, asyncio.get_running_loop().time()
            while b"row 1" not in await anext(watched):
                pass
            await watched.aclose()
            return asyncio.get_running_loop().time() - back_s

    assert simulate(back_after_s()) <= 2.0


async def test_a_page_that_cannot_be_drawn_harms_no_other():
    async def broken() -> Drawn:
        raise ZeroDivisionError

    rows = Rows()
    async with running(rows) as pages:
        assert b"cannot be drawn" in await heard(pages.watch("broken", broken, after=0))
        assert b"row 1" in await heard(pages.watch("page", rows.draw, after=0))


async def test_what_nobody_watches_is_forgotten():
    rows = Rows()
    async with running(rows) as pages:
        watched = pages.watch("page", rows.draw, after=0)
        await heard(watched)
        await watched.aclose()

        assert pages.watchers == 0
        drawn = rows.draws
        rows.seq = 2
        other = Rows()
        await heard(pages.watch("other", other.draw, after=0))
        assert rows.draws == drawn


async def test_an_ending_console_ends_what_is_watched():
    rows = Rows()
    async with running(rows) as pages:
        watched = pages.watch("page", rows.draw, after=0)
        await heard(watched)

        pages.end()

        assert [each async for each in watched] == []


async def test_there_is_an_end_to_how_many_watch(monkeypatch):
    monkeypatch.setattr(live, "WATCHERS_MAX", 1)
    rows = Rows()
    async with running(rows) as pages:
        assert pages.has_room("page")
        await heard(pages.watch("page", rows.draw, after=0))
        assert not pages.has_room("page")


def test_an_event_of_several_lines_stays_one():
    assert message("a\nb", id=7) == b"id: 7\ndata: a\ndata: b\n\n"
