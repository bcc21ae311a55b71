"""A real browser, where there is one."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
WIDE: Final = {"width": 1280, "height": 800}
PHONE: Final = {"width": 375, "height": 760}

EXPECTED_MS: Final = 30_000
"""How long a test waits for what it expects; it only ends what never comes."""

expect.set_options(timeout=EXPECTED_MS)

VIOLATIONS: Final = """
window.violations = [];
document.addEventListener('securitypolicyviolation', event =>
    window.violations.push(`${event.effectiveDirective} ${event.blockedURI}`));
"""


def found() -> str | None:
    """Return where a browser is; None: there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Yield a browser; without one, the test is skipped and says so."""
    path = found()
    if path is None:
        pytest.skip(f"no browser here: none of {', '.join(NAMES)} is on the PATH")
    async with async_playwright() as playwright:
        # Who is root, as in a container, has no sandbox to be in.
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def paged(browser: Browser, **options: Any) -> AsyncIterator[Page]:
    """Yield a page with nothing of others in it; what it must not do fails the test at its end."""
    shown: Mapping[str, Any] = {"viewport": WIDE, "color_scheme": "light", **options}
    context = await browser.new_context(**shown)
    await context.add_init_script(VIOLATIONS)
    page, errors = await context.new_page(), list[str]()
    page.on("pageerror", lambda error: errors.append(str(error)))
    try:
        yield page
        if shown.get("java_script_enabled", True) and page.url != "about:blank":
            assert await page.evaluate("window.violations") == []
        assert errors == []
    finally:
        await context.close()
