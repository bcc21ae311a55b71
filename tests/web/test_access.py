"""The console for people who do not see it, do not use a mouse, or have a small screen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
from playwright.async_api import Browser, Page, expect

from tests.web.addresses import addresses_of
from tests.web.chromium import PHONE, WIDE, chromium, paged
from tests.web.signing import sign_in
from vigil.web.said import NOT_DONE, SAID, Said, quoted
from vigil.web.table import SCREENS

AXE: Final = Path(__file__).parent / "vendored" / "axe.min.js"

RULES: Final = "axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa', 'best-practice']})"

SERIOUS: Final = {"serious", "critical"}


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


async def violations(page: Page) -> list[str]:
    """Return what keeps somebody out of a page."""
    await page.evaluate(AXE.read_text())
    answer = await page.evaluate(RULES)
    return [
        f"{each['id']}: {node['html'][:120]}"
        for each in answer["violations"]
        if each["impact"] in SERIOUS
        for node in each["nodes"]
    ]


@pytest.mark.parametrize(
    ("size", "scheme"),
    [(WIDE, "light"), (PHONE, "light"), pytest.param(WIDE, "dark", marks=pytest.mark.nightly)],
    ids=str,
)
@pytest.mark.timeout(600)
async def test_no_screen_keeps_anybody_out(browser, served, size, scheme):
    where = addresses_of(served.command)
    found: list[str] = []
    async with paged(browser, viewport=size, color_scheme=scheme) as page:
        await sign_in(page, served)
        for screen in SCREENS:
            await page.goto(served.address + where[screen.path])
            found += [f"{screen.path}: {each}" for each in await violations(page)]
            if await page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                found.append(f"{screen.path}: wider than the screen")
    assert found == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_refusal_is_told_in_words_and_with_a_sign(browser, served, scheme):
    said = quoted(Said("prices: there is no such actor", NOT_DONE))
    async with paged(browser, color_scheme=scheme) as page:
        await sign_in(page, served)
        await page.context.add_cookies([{"name": SAID, "value": said, "url": served.address}])
        await page.goto(served.address + "/actors")

        told = page.get_by_role("alert")
        await expect(told).to_have_text("Not done: prices: there is no such actor")
        sign = "getComputedStyle(document.getElementById('say'), '::before').content"
        assert '"!"' in await page.evaluate(sign)
        assert await violations(page) == []
