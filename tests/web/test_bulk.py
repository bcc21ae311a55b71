"""Orders about all that match, and going anywhere by a name."""

from __future__ import annotations

import html
import json
import re
from urllib.parse import unquote

import pytest

from engine.people.identity import Role
from tests.web.conftest import ROLE

FAILED = {"actor": "prices", "expectation": "stock_is_known", "status": "failed"}


async def test_how_many_match_comes_before_the_order(browser, client):
    failed = len((await client.episodes.list(**FAILED, limit=1_000)).items)

    page = (await browser.get("/bulk", params={"do": "again", **FAILED})).text

    assert f"<h1>Run again {failed} episodes</h1>" in page
    (ids,) = re.findall(r'name="ids:json" value="([^"]+)"', page)
    assert len(json.loads(html.unescape(ids))) == failed


async def test_what_was_counted_is_ordered(browser):
    page = (await browser.get("/bulk", params={"do": "again", **FAILED})).text
    (ids,) = re.findall(r'name="ids:json" value="([^"]+)"', page)
    fields = {"ids:json": html.unescape(ids), "at": "0", "reason": "the warehouse is back"}

    answer = await browser.post("/do/episodes.fork_each", data={**fields, "back": "/episodes"})

    assert answer.headers["location"] == "/episodes"
    forks = (await browser.get("/episodes", params={"actor": "prices"})).text
    assert forks.count("stock_is_known") >= 10, unquote(answer.headers["set-cookie"])


async def test_nothing_is_ordered_of_what_it_cannot_be_ordered_of(browser):
    answer = await browser.get("/bulk", params={"do": "cancel", "status": "done"})

    assert answer.status_code == 400
    assert "only of episodes that are" in answer.text


async def test_an_order_that_there_is_not_is_told(browser):
    answer = await browser.get("/bulk", params={"do": "explode"})

    assert answer.status_code == 400


@pytest.mark.parametrize(("role", "is_drawn"), [(Role.VIEWER, False), (Role.OPERATOR, True)])
async def test_bulk_orders_are_drawn_for_who_may(browser, role, is_drawn):
    page = await browser.get("/episodes", params=FAILED, headers={ROLE: role.value})

    assert ("Run again all that match" in page.text) is is_drawn


@pytest.mark.parametrize(
    ("text", "href"),
    [
        ("dead", "/dead-letters"),
        ("prices", "/actors/prices"),
        ("disk_has", "/episodes?actor=hosts&amp;expectation=disk_has_room"),
        ("host:disk:web-2", "/findings/host:disk:web-2"),
    ],
)
async def test_what_one_knows_of_a_thing_leads_to_it(browser, text, href):
    page = (await browser.get("/go", params={"q": text})).text

    assert f'href="{href}"' in page


async def test_the_beginning_of_an_id_leads_to_its_episode(browser, client):
    (episode, *_) = (await client.episodes.list(actor="hosts")).items

    page = (await browser.get("/go", params={"q": str(episode.episode_id)[:8]})).text

    assert f"/episodes/{episode.episode_id}" in page


async def test_what_nothing_is_called_is_told(browser):
    page = (await browser.get("/go", params={"q": "<b>xyzzy"})).text

    assert "Nothing is called" in page
    assert "<b>xyzzy" not in page
