"""Pages, as a browser without scripts gets them."""

from __future__ import annotations

import re

import pytest

from engine.people.identity import Role
from tests.web.conftest import NAME, ROLE
from vigil.web.table import SCREENS

PLAIN = [each.path for each in SCREENS if "{" not in each.path]


async def test_every_page_is_there_for_an_admin(browser):
    for path in PLAIN:
        answer = await browser.get(path)

        assert answer.status_code == 200, path
        assert "<h1>" in answer.text, path


async def test_who_has_not_signed_in_is_led_to_the_login_and_back(browser):
    del browser.headers[ROLE]

    for path in PLAIN:
        answer = await browser.get(path, params={"status": "failed"})

        assert answer.status_code == 303, path
        assert answer.headers["location"].startswith("/login?to=%2F"), path


@pytest.mark.parametrize("role", list(Role), ids=str)
async def test_a_page_is_for_its_role(browser, role: Role):
    for screen in SCREENS:
        path = re.sub(r"\{[^}]*\}", "7", screen.path)

        answer = await browser.get(path, headers={ROLE: role.value})

        assert (answer.status_code == 403) is not role.includes(screen.role), path


async def test_a_page_says_up_to_where_in_the_journal_it_is_true(browser):
    answer = await browser.get("/episodes")

    assert re.search(r"journal \d", answer.text)


async def test_a_list_is_narrowed_by_its_address(browser):
    answer = await browser.get("/episodes", params={"status": "failed", "actor": "prices"})

    assert "stock_is_known" in answer.text
    assert "price_is_plausible" not in answer.text


async def test_what_a_filter_cannot_be_is_said_in_a_line(browser):
    answer = await browser.get("/episodes", params={"status": "fialed"})

    assert answer.status_code == 400
    assert "did you mean failed?" in answer.text


async def test_a_page_of_what_is_not_there_says_so(browser):
    answer = await browser.get("/episodes/00000000-0000-0000-0000-000000000000")

    assert answer.status_code == 404
    assert "no such thing" in answer.text.lower()


async def test_what_users_write_is_shown_and_never_run(browser):
    answer = await browser.get("/episodes", params={"actor": "<script>alert(1)</script>"})

    assert "<script>alert" not in answer.text
    assert "&lt;script&gt;alert" in answer.text


async def test_a_file_of_the_console_is_kept_for_long(browser):
    page = (await browser.get("/")).text
    style = re.search(r'href="(/static/[^"]*console\.css)"', page)

    answer = await browser.get(style[1])

    assert answer.headers["content-type"].startswith("text/css")
    assert "immutable" in answer.headers["cache-control"]
    assert (await browser.get("/static/x/../../app.py")).status_code == 404


async def test_an_address_that_is_not_there_has_a_page_that_says_so(browser):
    answer = await browser.get("/no-such-page", headers={"accept": "text/html"})

    assert answer.status_code == 404
    assert "There is no such page" in answer.text
    assert 'href="/"' in answer.text


@pytest.mark.parametrize(
    ("address", "role", "says"),
    [("/episodes?status=failed", "status", ""), ("/nowhere", "alert", "<strong>Not done: ")],
)
async def test_what_is_refused_is_told_otherwise_than_what_is_done(browser, address, role, says):
    browser.headers[NAME] = "who-is-told"
    view = {"name": "told", "address": address, "back": "/episodes"}
    await browser.post("/do/people.save_view", data=view)

    page = (await browser.get("/episodes")).text
    (told,) = re.findall(r'<p id="say"[^>]*>.*?</p>', page)
    assert f'role="{role}"' in told
    assert f"<span>{says}" in told
    assert ("refused" in told.partition(">")[0]) is bool(says)
