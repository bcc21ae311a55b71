"""Servers that do not answer, as a browser without scripts is told of them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import httpx
import pytest

from streams.embedded import EmbeddedNats
from tests.web.conftest import ADDRESS, addresses
from vigil.client import Client
from vigil.errors import ServerAway
from vigil.web.app import console
from vigil.web.positions import read_number

HERE = {"sec-fetch-site": "same-origin"}


async def nobody(request):
    raise ServerAway("NATS: not connected")


@pytest.fixture
async def visitor(client) -> AsyncIterator[httpx.AsyncClient]:
    """A browser of somebody whom the console cannot recognize, since the log is away."""
    transport = httpx.ASGITransport(app=console(client, identify=nobody))
    async with httpx.AsyncClient(transport=transport, base_url=ADDRESS, headers=HERE) as visitor:
        yield visitor


async def test_nobody_is_led_to_a_login_while_nobody_can_be_recognized(visitor):
    page = await visitor.get("/episodes")

    assert page.status_code == 503
    assert "NATS: not connected" in page.text
    assert '<meta http-equiv="refresh" content="3">' in page.text


async def test_a_page_that_is_there_has_nothing_but_its_title_in_its_head(browser):
    page = (await browser.get("/episodes")).text
    head = page.partition("<head>")[2].partition("</head>")[0]

    assert re.sub("<[^>]*>", "", head) == "Episodes · vigil · Vigil"
    assert 'content="3"' not in head


async def test_a_form_is_refused_in_a_line_that_waits_for_a_page(visitor):
    answer = await visitor.post("/do/actors.pause", data={"back": "/actors"})
    page = await visitor.get("/actors")

    assert answer.status_code == 303
    assert "not connected" in page.text.partition('id="say"')[2].partition("</p>")[0]
    assert "vigil_said" in visitor.cookies


async def test_who_watches_is_told_since_when_and_asks_again(visitor, monkeypatch):
    monkeypatch.setattr("vigil.web.pages.ASK_AGAIN_S", 0.0)
    headers = {"accept": "text/event-stream"}

    first = await visitor.get("/episodes", headers=headers)
    again = await visitor.get("/episodes", headers=headers)

    assert "event: away\ndata: NATS: not connected. Since " in first.text
    assert again.text == first.text


async def test_rows_whose_log_is_gone_are_not_up_to_date(shop, tmp_path):
    with EmbeddedNats(tmp_path) as nats:
        here = {**addresses(shop), "nats_url": nats.url}
        async with Client(**here, by="console", create_stack=True) as client:
            await read_number(client)
            nats.kill()

            with pytest.raises(ServerAway, match="NATS"):
                await read_number(client)
