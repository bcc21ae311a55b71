"""Saved views in the console: seen by who has saved them, and by nobody else."""

from __future__ import annotations

import re
from html import unescape

import httpx
import pytest

from tests.web.conftest import ADDRESS, NAME, ROLE, addresses, by_header
from tests.web.world import HTML
from vigil.client import Client
from vigil.errors import ServerAway
from vigil.web.app import console
from vigil.web.said import SAID, unquoted


@pytest.fixture(autouse=True)
def as_viewer(browser, request):
    """Somebody of the test's own, who may only look."""
    browser.headers[NAME] = re.sub(r"[^a-z]", "-", request.node.name)[:80]
    browser.headers[ROLE] = "viewer"


async def send(browser, operation, at="/episodes", **fields):
    headers = {"referer": f"{ADDRESS}{at}"}
    return await browser.post(f"/do/{operation}", data=fields, headers=headers)


def words(answer):
    return unquoted(answer.cookies[SAID]).text


def links(page: str) -> dict[str, str]:
    """Return the word of each saved view → where it leads."""
    found = re.search(r'<nav class="chips" aria-label="Saved views">(.*?)</nav>', page)
    each = re.findall(r'<a href="([^"]*)"[^>]*>(.*?)</a>', found[1]) if found else []
    return {unescape(word): unescape(href) for href, word in each}


def entry(page: str, word: str) -> str:
    found = re.search(rf'<a href="([^"]*)"[^>]*>{word}(?:<|$)', page.partition("<main")[0])
    return unescape(found[1])


async def test_a_list_is_saved_as_it_is_filtered_and_led_to_by_its_name(browser):
    at = "/episodes?status=failed&actor=prices"
    page = (await browser.get(at)).text
    here = unescape(re.search(r'name="address" value="([^"]*)"', page)[1])

    answer = await send(browser, "people.save_view", at, address=here, name="Broken prices")
    page = (await browser.get(at)).text

    assert (answer.status_code, answer.headers["location"]) == (303, at)
    assert words(answer) == "The view is saved."
    assert links(page) == {"All": "/episodes", "Broken prices": here}
    assert re.search(r'aria-current="true">Broken prices', page)
    assert "stock_is_known" in (await browser.get(here)).text
    assert links((await browser.get("/findings")).text) == {}


async def test_a_view_is_of_one_person_in_every_console_of_the_stack(browser, shop):
    await send(browser, "people.save_view", address="/episodes?status=done", name="Mine")
    other = await browser.get("/episodes", headers={NAME: "somebody-else"})
    assert links(other.text) == {}
    async with Client(**addresses(shop), by="console") as another:
        transport = httpx.ASGITransport(app=console(another, identify=by_header))
        async with httpx.AsyncClient(
            transport=transport, base_url=ADDRESS, headers=browser.headers
        ) as elsewhere:
            page = (await elsewhere.get("/episodes")).text
    assert "Mine" in links(page)


async def test_the_navigation_leads_to_the_default_and_the_whole_list_stays(browser):
    await send(browser, "people.save_view", address="/outputs?status=failed", name="Failed")
    assert entry((await browser.get("/")).text, "Outputs") == "/outputs"

    await send(browser, "people.set_default_view", page="/outputs", name="Failed")
    page = (await browser.get("/outputs")).text

    assert entry(page, "Outputs") == "/outputs?status=failed"
    assert links(page)["All"] == "/outputs"
    assert "delivered" in page  # It is the whole list: nobody was led away.
    await send(browser, "people.set_default_view", page="/outputs")
    assert entry((await browser.get("/outputs")).text, "Outputs") == "/outputs"
    await send(
        browser,
        "people.save_view",
        address="/outputs?status=delivered",
        name="There",
        is_default="true",
    )
    assert entry((await browser.get("/")).text, "Outputs") == "/outputs?status=delivered"


async def test_a_view_is_removed(browser):
    await send(browser, "people.save_view", address="/inbox?actor=prices", name="Prices")
    page = (await browser.get("/inbox")).text
    assert 'action="/do/people.remove_view"' in page

    answer = await send(browser, "people.remove_view", page="/inbox", name="Prices")

    assert words(answer) == "The view is removed."
    assert links((await browser.get("/inbox")).text) == {}


@pytest.mark.parametrize(
    "address", ["https://evil.example/", "//evil.example", "javascript:alert(1)", "/login?to=/x"]
)
async def test_an_address_of_others_is_refused(browser, address):
    answer = await send(browser, "people.save_view", address=address, name="Foreign")

    assert "is no list; use /inbox" in words(answer)
    page = (await browser.get("/episodes")).text
    assert links(page) == {}
    assert 'href="//' not in page


async def test_what_a_view_is_called_is_shown_and_never_run(browser):
    at = "/episodes?actor=%22%3E%3Cimg+src%3Dx%3E"
    await send(browser, "people.save_view", address=at, name=HTML, is_default="true")

    page = (await browser.get("/episodes")).text

    assert links(page)[HTML] == at
    assert "<img" not in page


async def test_the_past_has_the_links_at_its_time_and_no_forms(browser):
    await send(browser, "people.save_view", address="/findings?severity=high", name="Bad")

    page = (await browser.get("/findings", params={"at": "2026-01-01T00:00:00Z"})).text

    assert links(page)["Bad"] == "/findings?severity=high&at=2026-01-01T00%3A00%3A00Z"
    assert "people.save_view" not in page
    assert "people.remove_view" not in page


async def test_a_page_goes_without_its_views_while_nobody_knows_them(browser, client, monkeypatch):
    async def away(**_):
        raise ServerAway("NATS does not answer")

    monkeypatch.setattr(client.people, "views", away)

    answer = await browser.get("/episodes")

    assert answer.status_code == 200
    assert "Your saved views are not known now" in answer.text
    assert "people.save_view" not in answer.text


async def test_pages_that_are_no_list_have_no_views(browser):
    for path in ("/", "/nodes", "/actors", "/compare"):
        assert "people.save_view" not in (await browser.get(path)).text
