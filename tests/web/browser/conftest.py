"""A real browser, and a page in it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, Page

from tests.web.chromium import chromium, paged


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    """A browser; without one, the test is skipped."""
    async with chromium() as browser:
        yield browser


@pytest.fixture
async def page(browser: Browser) -> AsyncIterator[Page]:
    """A page of somebody who has not signed in."""
    async with paged(browser) as page:
        yield page
