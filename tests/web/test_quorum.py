"""A request that takes two people, of whom the requester is none: on the page and by the API."""

from __future__ import annotations

from urllib.parse import unquote

import pytest

from engine.people.identity import Role
from tests.web.conftest import NAME, ROLE

APPROVER = {ROLE: Role.APPROVER.value}


@pytest.fixture
async def asked(client) -> str:
    """The id of an episode that asks, which ann has fired."""
    receipt = await client.fire("releases", "release_is_agreed", {"version": "3.0"}, by="ann")
    while not (await client.episodes.list(status="blocked", subject="3.0")).items:
        await client.connections.clock.sleep(0.05)
    return receipt.episode_id


async def on_the_page(browser, id_: str, who: str) -> str:
    """Approve it on its page, and return what the next page says."""
    page = (await browser.get(f"/inbox/episode/{id_}", headers={NAME: who, **APPROVER})).text
    plan_hash = page.partition('name="plan_hash" value="')[2].partition('"')[0]
    fields = {"kind": "episode", "id": id_, "plan_hash": plan_hash, "back": "/inbox"}
    answer = await browser.post(
        "/do/approvals.approve", data=fields, headers={NAME: who, **APPROVER}
    )
    return unquote(answer.headers["set-cookie"])


async def by_the_api(browser, id_: str, who: str):
    """Approve it by the API."""
    return await browser.post(
        f"/api/v1/approvals/episode/{id_}/approve", json={}, headers={NAME: who, **APPROVER}
    )


async def test_who_has_asked_is_refused_with_the_reason_and_two_others_decide(
    browser, client, asked
):
    on_page, by_api = (
        await on_the_page(browser, asked, "ann"),
        await by_the_api(browser, asked, "ann"),
    )
    assert "ann" in on_page
    assert "may not" in on_page
    assert by_api.status_code == 409
    assert by_api.json()["detail"] in on_page

    await on_the_page(browser, asked, "bob")
    assert "1 of 2 approved: bob" in (await browser.get("/inbox")).text
    twice = await by_the_api(browser, asked, "bob")
    assert twice.status_code == 409

    assert (await by_the_api(browser, asked, "carol")).status_code == 200
    ended = await client.episodes.wait(asked)
    assert ended.summary == "3.0: approved"


async def test_who_comes_too_late_reads_what_was_decided_by_whom_when_and_why(
    browser, client, asked
):
    await client.approvals.decide(asked, "deny", by="bob", reason="not on a Friday")
    await client.episodes.wait(asked)

    answer = await browser.get(f"/inbox/episode/{asked}", headers=APPROVER)

    assert answer.status_code == 200
    assert "<h1>Already decided</h1>" in answer.text
    for word in ("denied", "bob", "not on a Friday", "<time ", f'href="/episodes/{asked}"'):
        assert word in answer.text
    assert "/do/approvals." not in answer.text
