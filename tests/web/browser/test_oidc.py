"""Signing in by a provider of OpenID Connect, in a real browser, and deciding by that name."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from playwright.async_api import expect

from streams.clock import SystemClock
from tests.web.browser.conftest import served_here
from tests.web.oidc.provider import CLIENT, SECRET, LocalProvider
from tests.web.oidc.provider import serving as providing
from vigil.web.app import console
from vigil.web.oidc.provider import provider_in

TABLE = f"""
[oidc]
issuer = "ISSUER"
client_id = "{CLIENT}"
client_secret = "env:OIDC_SECRET"
label = "Sign in with Example"

[oidc.roles]
deciders = "approver"
"""
OLGA = {"sub": "s-17", "preferred_username": "olga", "groups": ["deciders"]}


@pytest.fixture
async def provider() -> AsyncIterator[LocalProvider]:
    provider = LocalProvider(person=dict(OLGA))
    async with providing(provider):
        yield provider


@pytest.fixture
async def address(client, provider, tmp_path, monkeypatch) -> AsyncIterator[str]:
    """Where a console of the shop is for which the provider vouches."""
    monkeypatch.setenv("OIDC_SECRET", SECRET)
    file = tmp_path / "vigil.toml"
    file.write_text(TABLE.replace("ISSUER", provider.issuer))
    app = console(client, oidc=provider_in(file, SystemClock()))
    async with served_here(app) as address:
        yield address


async def test_who_signs_in_elsewhere_is_back_where_they_wanted_and_decides_by_name(
    address, page, client, provider
):
    receipt = await client.fire("releases", "release_is_wanted", {"version": "oidc-1"}, by="ann")
    while not (await client.episodes.list(status="blocked", subject="oidc-1")).items:
        await client.connections.clock.sleep(0.05)
    await page.goto(f"{address}/inbox")
    await page.get_by_role("link", name="Sign in with Example").click()

    await page.wait_for_url(f"{address}/inbox")
    await expect(page.locator(".who")).to_have_text("olga")
    await page.get_by_role("link", name="put oidc-1 into production").click()
    await page.get_by_label("Reason").first.fill("vouched for")
    await page.get_by_role("button", name="Approve", exact=True).click()
    await page.wait_for_url(f"{address}/inbox")

    ended = await client.episodes.wait(receipt.episode_id)
    assert ended.summary == "oidc-1: approved by olga"
    (known,) = [each for each in await client.people.list() if each.name == "olga"]
    assert (known.role, known.issuer) == ("approver", provider.issuer)


async def test_who_is_in_no_group_with_a_role_is_told_so(address, page, provider):
    provider.person = {"sub": "s-18", "preferred_username": "otto", "groups": ["others"]}
    await page.goto(f"{address}/inbox")
    await page.get_by_role("link", name="Sign in with Example").click()

    await expect(page.get_by_role("heading", level=1)).to_have_text("Not signed in")
    await expect(page.locator("main")).to_contain_text("No group of yours has a role here")


async def test_a_provider_that_is_away_is_told_and_passwords_work_on(address, page, provider):
    provider.is_away = True
    await page.goto(address)
    await page.get_by_role("link", name="Sign in with Example").click()

    await expect(page.get_by_role("heading", level=1)).to_have_text("Not signed in")
    async with httpx.AsyncClient(base_url=address) as other:
        assert "Password" in (await other.get("/login")).text
