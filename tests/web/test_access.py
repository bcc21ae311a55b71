"""The console for people who do not see it, do not use a mouse, or have a small screen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
from playwright.async_api import Browser

from tests.web.addresses import addresses_of
from tests.web.chromium import PHONE, WIDE, chromium, paged
from tests.web.signing import sign_in
from vigil.web.table import SCREENS

AXE: Final = Path(__file__).parent / "vendored" / "axe.min.js"

RULES: Final = "axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa', 'best-practice']})"

SERIOUS: Final = {"serious", "critical"}


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


@pytest.mark.parametrize(
    ("size", "scheme"), [(WIDE, "light"), (WIDE, "dark"), (PHONE, "light")], ids=str
)
async def test_no_screen_keeps_anybody_out(browser, served, size, scheme):
    where = addresses_of(served.command)
    found: list[str] = []
    async with paged(browser, viewport=size, color_scheme=scheme) as page:
        await sign_in(page, served)
        for screen in SCREENS:
            await page.goto(served.address + where[screen.path])
            await page.evaluate(AXE.read_text())
            answer = await page.evaluate(RULES)
            found += [
                f"{screen.path}: {each['id']}: {node['html'][:120]}"
                for each in answer["violations"]
                if each["impact"] in SERIOUS
                for node in each["nodes"]
            ]
            if await page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                found.append(f"{screen.path}: wider than the screen")
    assert found == []
