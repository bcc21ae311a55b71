"""Servers that are killed under an open page: it says so, orders nothing, and goes on by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from playwright.async_api import Locator, Page, expect

from projections.embedded import EmbeddedPostgres
from streams.embedded import EmbeddedNats
from tests.vigil.program import Vigil
from tests.web.conftest import READY_S, Served, addresses, serving
from tests.web.signing import sign_in
from vigil.client import SyncClient

AWAY_MS = 30_000
BACK_MS = 60_000
SINCE = re.compile(r"Since \d\d:\d\d:\d\d UTC nothing here moves; it goes on by itself\.")


@dataclass
class Apart:
    """A console whose servers are nobody else's."""

    served: Served
    nats: EmbeddedNats
    postgres: EmbeddedPostgres

    def server(self, name: str) -> EmbeddedNats | EmbeddedPostgres:
        return self.nats if name == "NATS" else self.postgres


@pytest.fixture
def apart(tmp_path_factory) -> Iterator[Apart]:
    folder = tmp_path_factory.mktemp("apart")
    with (
        EmbeddedNats(folder / "nats") as nats,
        EmbeddedPostgres(tmp_path_factory.mktemp("postgres")) as postgres,
    ):
        command = Vigil(folder, VIGIL_NATS_URL=nats.url, VIGIL_POSTGRES_DSN=postgres.dsn)
        with command.running("node", "--app", "tests.web.world:app", "--node-name", "apart-1"):
            with SyncClient(**addresses(command), by="ann", create_stack=True) as client:
                client.nodes.wait_ready("releases", timeout_s=READY_S)
                client.fire("releases", "release_is_wanted", {"version": "1.0"}, key="r-1.0")
            command.wait_for("sql", "select 1 from inbox", until=bool)
            with serving(command) as served:
                yield Apart(served, nats, postgres)


APPROVED = "select 1 from episodes where summary = '1.0: approved by ann'"


async def about_to_approve(page: Page, apart: Apart) -> Locator:
    """Open the request that waits and give a reason; return the button."""
    await sign_in(page, apart.served, to="/inbox")
    await page.get_by_role("link", name="put 1.0 into production").click()
    await page.get_by_label("Reason").first.fill("as we agreed")
    return page.get_by_role("button", name="Approve", exact=True)


async def watching(page: Page, served: Served, sku: str) -> None:
    await sign_in(page, served, to=f"/episodes?expectation=price_is_plausible&subject={sku}")
    await expect(page.locator(".live")).to_have_text("Live")
    await page.evaluate("window.isThisPage = true")


@pytest.mark.parametrize("name", ["Postgres", pytest.param("NATS", marks=pytest.mark.nightly)])
async def test_a_killed_server_is_told_on_the_open_page_which_goes_on_once_it_is_back(
    page, apart, name
):
    sku = f"after-{name}"
    await watching(page, apart.served, sku)

    apart.server(name).kill()
    note = page.locator("#away")
    await expect(note).to_contain_text(name, timeout=AWAY_MS)
    await expect(note).to_contain_text(SINCE)
    await expect(page.locator(".live")).to_have_text("Not up to date")
    apart.server(name).restart()

    await expect(note).to_be_hidden(timeout=BACK_MS)
    await expect(page.locator(".live")).to_have_text("Live")
    apart.served.publish("price.changed", sku=sku)
    await expect(page.locator("tbody tr")).to_have_count(1, timeout=BACK_MS)
    assert await page.evaluate("window.isThisPage")


@pytest.mark.nightly
async def test_a_form_is_refused_without_the_log_keeps_its_words_and_works_once_that_is_back(
    page, apart
):
    approve = await about_to_approve(page, apart)
    apart.nats.kill()
    await approve.click()

    await expect(page.locator("#say")).to_contain_text("NATS", timeout=AWAY_MS)
    await expect(page.get_by_label("Reason").first).to_have_value("as we agreed")
    await expect(approve).to_be_visible()
    apart.nats.restart()
    with SyncClient(**addresses(apart.served.command), by="test") as client:
        client.nodes.wait_ready("releases", timeout_s=READY_S)
    await approve.click()
    await page.wait_for_url(f"{apart.served.address}/inbox", timeout=BACK_MS)
    apart.served.command.wait_for("sql", APPROVED, until=bool)


async def test_a_form_needs_no_rows_and_the_page_after_it_comes_once_they_are_back(page, apart):
    approve = await about_to_approve(page, apart)
    apart.postgres.kill()
    await approve.click()

    heading = page.get_by_role("heading", level=1)
    await expect(heading).to_have_text("A server is away", timeout=AWAY_MS)
    await expect(page.locator("#say")).to_contain_text("approved by ann")
    apart.postgres.restart()
    await expect(heading).to_have_text("Inbox", timeout=BACK_MS)
    apart.served.command.wait_for("sql", APPROVED, until=bool)


@pytest.mark.parametrize("name", ["Postgres", "NATS"])
async def test_a_page_that_is_opened_while_a_server_is_away_comes_once_it_is_back(
    page, apart, name
):
    await sign_in(page, apart.served, to="/episodes")
    apart.server(name).kill()
    await expect(page.locator("#away")).to_contain_text(name, timeout=AWAY_MS)

    await page.get_by_role("link", name="Findings", exact=True).click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("A server is away")
    await expect(page.locator("main")).to_contain_text(name)
    apart.server(name).restart()

    heading = page.get_by_role("heading", level=1)
    await expect(heading).to_have_text("Findings", timeout=BACK_MS)
