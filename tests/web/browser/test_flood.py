"""Thousands of updates within seconds: the page shows the newest, and obeys people meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import expect

from engine.people.identity import Identity, Role
from tests.size import size
from tests.web.browser.conftest import served_here
from vigil.web.app import console
from vigil.web.live import BEAT, GREETING, LivePages, message

UPDATES = size("flooded", short=4_000, full=20_000)
AT_ONCE = 20
ROWS = 50
TASK_MS_MAX = 1_000
"""Longest that the page may not react, on a machine that others use, too. Were each of 20,000
updates shown, it would be a minute."""

WATCH_TASKS = """
window.longest = 0;
new PerformanceObserver(list => { for (const each of list.getEntries())
    window.longest = Math.max(window.longest, each.duration); }).observe({ type: 'longtask' });
"""


def update(number: int) -> bytes:
    rows = "".join(
        f'<tr data-key="{each}"><td class="main"><a href="/episodes/{each}">{each:,}</a></td>'
        f"<td>of {number:,}</td></tr>"
        for each in range(number, max(0, number - ROWS), -1)
    )
    listed = f"<table><tbody>{rows}</tbody></table>"
    return message(f'<div id="part-list" data-part>{listed}</div>', id=number)


@pytest.fixture
def flood(monkeypatch) -> asyncio.Event:
    """Has whoever watches be sent all updates once it is set, as fast as they are taken."""
    begins = asyncio.Event()

    async def watch(self, key, draw, *, after) -> AsyncIterator[bytes]:
        yield GREETING
        await begins.wait()
        for number in range(0, UPDATES, AT_ONCE):
            yield b"".join(update(number + each) for each in range(1, AT_ONCE + 1))
        while not self._is_ending.is_set():
            yield BEAT
            await asyncio.sleep(0.2)

    monkeypatch.setattr(LivePages, "watch", watch)
    return begins


@pytest.fixture
async def address(client) -> AsyncIterator[str]:
    async def admin(request):
        return Identity(name="ann", role=Role.ADMIN)

    async with served_here(console(client, identify=admin)) as address:
        yield address


async def test_thousands_of_updates_freeze_no_page(address, page, flood):
    await page.add_init_script(WATCH_TASKS)
    await page.goto(f"{address}/episodes?subject=nothing-at-all")
    await expect(page.locator(".live")).to_have_text("Live")

    flood.set()
    await expect(page.locator("tbody tr").first).to_be_visible()
    await page.keyboard.press("Control+k")
    await expect(page.get_by_label("Go to an id")).to_be_focused(timeout=TASK_MS_MAX)

    await expect(page.locator("tbody tr").first).to_contain_text(f"of {UPDATES:,}", timeout=60_000)
    await expect(page.locator("tbody tr")).to_have_count(ROWS)
    assert await page.evaluate("window.longest") < TASK_MS_MAX


async def test_people_stop_a_flood(address, page, flood):
    await page.goto(f"{address}/episodes?subject=nothing-at-all")
    await expect(page.locator(".live")).to_have_text("Live")
    flood.set()
    await expect(page.locator("tbody tr").first).to_be_visible()

    await page.locator(".live").click()

    await expect(page.locator(".live")).to_have_text("Paused")
    stopped = await page.locator("tbody").inner_text()
    await page.wait_for_timeout(1_000)
    assert await page.locator("tbody").inner_text() == stopped
