"""Pages as they were at a time: what they show and refuse, and where they lead."""

from __future__ import annotations

import re
from collections import Counter, deque
from datetime import UTC, datetime, timedelta
from html import unescape
from urllib.parse import unquote, urlencode

import pytest

from streams.clock import SystemClock
from tests.web.screens.test_all import ABOUT_ONE, forms_of
from vigil.errors import Mistake
from vigil.web.past import linked, time_of
from vigil.web.table import SCREENS

WITH_PAST = [each.path for each in SCREENS if each.has_past and "{" not in each.path]
WITHOUT = [
    each.path for each in SCREENS if not each.has_past and not each.orders and "{" not in each.path
]
ORDERING = [re.sub(r"\{[^}]*\}", "7", each.path) for each in SCREENS if each.orders]
BEFORE = timedelta(days=2)


@pytest.fixture
def now() -> datetime:
    return SystemClock().now()


def at(time: datetime) -> dict[str, str]:
    return {"at": time.isoformat()}


@pytest.mark.parametrize("path", WITH_PAST)
async def test_a_page_of_the_past_says_so_and_leads_to_now(browser, now, path):
    answer = await browser.get(path, params=at(now))

    assert answer.status_code == 200, answer.text
    assert "As it was at" in answer.text
    assert re.search(rf'href="{re.escape(path)}"[^>]*>Now<', answer.text)


LISTS = ["/episodes", "/findings", "/inbox", "/orders", "/outputs", "/workflows"]
ONE_BY_ONE = ["finding", "output", "workflow", "blocked episode"]


@pytest.mark.parametrize("path", LISTS)
async def test_before_anything_happened_there_is_nothing(browser, now, path):
    answer = await browser.get(path, params=at(now - BEFORE))

    assert 'class="empty"' in answer.text
    assert "<tbody>" not in answer.text


async def test_the_past_of_a_moment_ago_is_what_there_is_now(browser, now):
    for path in ("/findings", "/orders", "/outputs", "/workflows"):
        then, is_ = [
            re.findall(r"<tr data-key=\"([^\"]*)\"", (await browser.get(path, params=when)).text)
            for when in (at(now), {})
        ]
        assert then == is_ != []


@pytest.mark.parametrize("path", WITHOUT)
async def test_a_page_without_a_past_says_so(browser, now, path):
    answer = await browser.get(path, params=at(now))

    assert answer.status_code in {200, 400}
    assert answer.status_code == 400 or "This page has no past" in answer.text


@pytest.mark.parametrize("path", ORDERING)
async def test_nothing_is_ordered_in_the_past(browser, now, path):
    answer = await browser.get(path, params=at(now))

    assert answer.status_code == 400
    assert "Nobody orders anything in the past" in answer.text


@pytest.mark.parametrize("name", ABOUT_ONE)
async def test_a_page_in_the_past_has_no_form_that_orders(browser, addresses, now, name):
    answer = await browser.get(addresses[name].partition("?")[0], params=at(now))

    assert answer.status_code == 200
    assert not forms_of(answer.text)


@pytest.mark.parametrize("path", WITH_PAST)
async def test_a_page_in_the_past_does_not_move(browser, now, path):
    answer = await browser.get(path, params=at(now))
    watched = await browser.get(path, params=at(now), headers={"accept": "text/event-stream"})

    assert "data-live" not in answer.text
    assert watched.status_code == 406


@pytest.mark.parametrize("path", WITH_PAST)
async def test_links_of_the_past_lead_to_the_past(browser, now, path):
    answer = await browser.get(path, params=at(now))

    links = re.findall(r'href="(/[^"]*)"', answer.text)
    pages = [each for each in links if not each.startswith("/static/")]
    lost = {each for each in pages if "at=" not in each} - {path}
    assert len(pages) > 10
    assert not lost


@pytest.mark.parametrize("name", ONE_BY_ONE)
async def test_a_single_thing_is_as_it_was_and_its_links_stay_there(browser, addresses, now, name):
    path = addresses[name]
    answer = await browser.get(path, params=at(now))

    links = set(re.findall(r'href="(/[^"#]*)', answer.text))
    lost = {each for each in links if "at=" not in each and not each.startswith("/static/")}
    assert "As it was at" in answer.text
    assert {unquote(each) for each in lost} == {unquote(path)}  # The way to now.


PER_SCREEN = 8
"""Most pages of one screen that a walk reads."""


async def test_no_link_of_the_past_leads_to_what_was_not_there(browser, client, now):
    episodes = (await client.episodes.list(limit=1_000)).items
    amid = sorted(each.queued_at for each in episodes)[len(episodes) // 2]
    then = urlencode(at(amid))
    left, read, dead = deque([f"/?{then}"]), set(), []
    screens = Counter()
    while left:
        address = left.popleft()
        screen = address.partition("?")[0].split("/")[1:]
        if address in read or screens[screen[0], len(screen)] == PER_SCREEN:
            continue
        read.add(address)
        screens[screen[0], len(screen)] += 1
        page = await browser.get(address)
        if page.status_code != 200:
            dead.append((page.status_code, address))
            continue
        main = page.text.partition("<main")[2]
        links = (unescape(each) for each in re.findall(r'<a\b[^>]*\shref="(/[^"#]*)', main))
        left.extend(each for each in links if then in each)
    assert len(screens) > 5
    assert dead == []


@pytest.mark.parametrize("name", ONE_BY_ONE)
async def test_before_it_began_a_single_thing_is_none(browser, addresses, now, name):
    before = now - BEFORE
    answer = await browser.get(addresses[name], params=at(before))

    assert answer.status_code == 404
    assert f"<h1>Not yet at {before:%H:%M:%S} UTC</h1>" in answer.text
    assert "As it was at" in answer.text
    assert "data-slider" in answer.text
    (to_now,) = re.findall(r'href="([^"]*)"[^>]*>Now<', answer.text)
    assert unquote(to_now) == unquote(addresses[name])


async def test_what_waited_in_the_past_leads_to_itself_and_never_to_its_decision(browser, now):
    page = (await browser.get("/inbox", params=at(now))).text

    links = set(re.findall(r'<a class="btn" href="(/[^"?]*)[^"]*at=[^"]*">Look<', page))
    kinds = {each.split("/")[1] for each in links}
    assert kinds == {"episodes", "workflows", "dead-letters"}
    assert not re.findall(r'href="/inbox/', page)


async def test_ages_of_a_page_of_the_past_are_as_of_then(browser, client):
    (paused, *_) = await client.orders.list(actor="archive", reverse=True)
    late = paused.at + timedelta(seconds=1)

    answer = await browser.get("/orders", params={"actor": "archive", **at(late)})

    assert re.search(r">[01]s ago</time>", answer.text)


@pytest.mark.parametrize("path", WITHOUT)
async def test_ages_of_a_page_without_a_past_are_as_of_now(browser, now, path):
    answer = await browser.get(path, params=at(now - BEFORE))

    lasts = re.findall(r"<time datetime=[^>]*>in ([^<]*)</time>", answer.text)
    assert not {each for each in lasts if each.startswith(("1d", "2d"))}


async def test_an_episode_of_the_past_has_no_number_that_nobody_knows(browser, addresses, now):
    path = addresses["blocked episode"]
    then, is_ = [(await browser.get(path, params=when)).text for when in (at(now), {})]

    assert "<dt>Turns</dt>" in is_
    assert "<dt>Attempts</dt>" in then
    assert "<dt>Turns</dt>" not in then
    assert "<dt>Takeovers</dt>" not in then


def test_links_lead_to_the_same_time_and_those_to_now_do_not():
    page = (
        '<a href="/a">a</a><a class="b" href="/a?b=1#c">a</a><a data-now href="/a">now</a>'
        '<a href="/static/x">x</a><link href="/b"><p>&lt;a href=&#34;/c&#34;&gt;</p>'
    )

    assert linked(page, "2030-01-01T00:00:00+00:00") == page.replace(
        '"/a">a', '"/a?at=2030-01-01T00%3A00%3A00%2B00%3A00">a'
    ).replace('"/a?b=1#c"', '"/a?b=1&amp;at=2030-01-01T00%3A00%3A00%2B00%3A00#c"')


async def test_the_slider_counts_from_when_its_page_was_drawn(browser):
    of = {"ago": "600", "of": "2026-01-01T12:00:00+00:00"}

    answer = await browser.get("/episodes", params=of)

    assert answer.headers["location"] == "/episodes?at=2026-01-01T11%3A50%3A00%2B00%3A00"


async def test_other_filters_stay_when_the_time_moves(browser, now):
    answer = await browser.get("/episodes", params={"status": "failed", "ago": "3600"})

    assert answer.status_code == 303
    assert re.match(r"/episodes\?status=failed&at=\d{4}-", answer.headers["location"])


async def test_no_time_ago_is_now(browser):
    answer = await browser.get("/episodes", params={"status": "failed", "ago": "0"})

    assert answer.headers["location"] == "/episodes?status=failed"


@pytest.mark.parametrize("text", ["yesterday", "2999-01-01T00:00:00+00:00"])
@pytest.mark.parametrize("path", ["/episodes", "/costs"])
async def test_what_can_be_no_time_is_said_in_a_line(browser, path, text):
    answer = await browser.get(path, params={"at": text})

    assert answer.status_code == 400
    assert "At: " in answer.text


def test_no_time_is_yet_to_come():
    now = datetime(2030, 1, 1, tzinfo=UTC)

    assert time_of("2029-12-31T23:59:59+00:00", now) < now
    with pytest.raises(Mistake, match="yet to come"):
        time_of("2030-01-01T00:00:01+00:00", now)
