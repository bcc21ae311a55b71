"""Signing in, as people do in a browser."""

from __future__ import annotations

from playwright.async_api import Page

from tests.web.conftest import PASSWORD, Served


async def sign_in(page: Page, served: Served, name: str = "ann", to: str = "/") -> None:
    """Sign somebody in, and go to a page."""
    await page.goto(served.address + to)
    if page.url.partition("?")[0].endswith("/login"):
        await page.get_by_label("Name").fill(name)
        await page.get_by_label("Password").fill(PASSWORD)
        await page.get_by_role("button", name="Sign in").click()
        await page.wait_for_url(served.address + to)
