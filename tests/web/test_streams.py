"""What is live stays live through networks that refuse, fall silent and answer with errors."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, Page, expect

from tests.web.chromium import chromium, paged
from tests.web.conftest import Served
from tests.web.gateway import Gateway, Mode, gateway
from tests.web.signing import sign_in

LIVE = ".live"
ROWS = "tbody tr"
HIDDEN = """hidden => {
    Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));
}"""


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


@pytest.fixture
async def page(browser: Browser) -> AsyncIterator[Page]:
    async with paged(browser) as page:
        yield page


@pytest.fixture
async def between(served: Served) -> AsyncIterator[Gateway]:
    async with gateway(served.address) as made:
        yield made


async def watching(page: Page, served: Served, between: Gateway, sku: str) -> None:
    """Look at the episodes of one thing through the gateway; there are none yet."""
    here = Served(f"http://127.0.0.1:{between.port}", "", served.command)
    await sign_in(page, here, to=f"/episodes?expectation=price_is_plausible&subject={sku}")
    await expect(page.locator(LIVE)).to_have_text("Live")
    await expect(page.locator(ROWS)).to_have_count(0)


@pytest.mark.parametrize("mode", [Mode.REFUSE, Mode.BAD])
async def test_a_page_is_live_again_after_the_network_was_away(page, served, between, mode):
    sku = f"after-{mode.name}"
    await watching(page, served, between, sku)

    await between.turn(mode)
    await expect(page.locator(LIVE)).to_have_text("Reconnecting…")
    served.publish("price.changed", sku=sku)
    await between.turn(Mode.PASS)

    await expect(page.locator(ROWS)).to_have_count(1, timeout=20_000)
    await expect(page.locator(LIVE)).to_have_text("Live")
    assert await page.locator("text=502 by the gateway").count() == 0


async def test_a_connection_that_fell_silent_is_given_up(page, served, between):
    await page.clock.install()
    await watching(page, served, between, "after-silence")

    await between.turn(Mode.SILENT)
    served.publish("price.changed", sku="after-silence")
    await page.clock.run_for(21_000)
    await expect(page.locator(LIVE)).to_have_text("Reconnecting…")
    await between.turn(Mode.PASS)
    await page.clock.run_for(6_000)

    await expect(page.locator(ROWS)).to_have_count(1)


async def test_a_page_that_nobody_sees_watches_nothing_and_catches_up(page, served, between):
    await page.clock.install()
    await watching(page, served, between, "while-hidden")

    await page.evaluate(HIDDEN, True)
    await page.clock.run_for(11_000)
    await expect(page.locator(LIVE)).to_have_text("Paused")
    served.publish("price.changed", sku="while-hidden")
    await page.evaluate(HIDDEN, False)

    await expect(page.locator(ROWS)).to_have_count(1)


async def test_what_is_typed_and_where_the_focus_is_stay_through_updates(page, served, between):
    await watching(page, served, between, "while-typing")
    field = page.get_by_label("Actor")
    await field.fill("pri")
    await field.focus()

    served.publish("price.changed", sku="while-typing")
    await expect(page.locator(ROWS)).to_have_count(1)

    await expect(field).to_have_value("pri")
    await expect(field).to_be_focused()


async def test_people_stop_a_page_from_moving_and_have_it_move_again(page, served, between):
    await watching(page, served, between, "while-stopped")
    await page.locator(LIVE).click()
    await expect(page.locator(LIVE)).to_have_text("Paused")

    await page.locator(LIVE).click()
    await expect(page.locator(LIVE)).to_have_text("Live")
