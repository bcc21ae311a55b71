"""The console in a real browser: signing in, deciding, forking, and what moves by itself."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, Page, expect

from tests.web.chromium import PHONE, chromium, paged
from tests.web.conftest import Served, addresses
from tests.web.signing import sign_in
from vigil.client import SyncClient


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


@pytest.fixture
async def page(browser: Browser) -> AsyncIterator[Page]:
    async with paged(browser) as page:
        yield page


def ask(served: Served, question: str) -> list[dict[str, object]]:
    return served.command.ask("sql", question)


async def test_a_person_signs_in_and_is_where_they_wanted_to_be(page, served):
    await sign_in(page, served, to="/episodes?status=failed")

    await expect(page.get_by_role("heading", level=1)).to_have_text("Episodes")
    await expect(page.locator(".who")).to_have_text("ann")


async def test_a_wrong_password_is_told_and_nothing_else(page, served):
    await page.goto(served.address)
    await page.get_by_label("Name").fill("ann")
    await page.get_by_label("Password").fill("a wrong password")
    await page.get_by_role("button", name="Sign in").click()

    await expect(page.get_by_role("alert")).to_contain_text("do not go together")


async def test_the_printed_link_signs_in_once(browser, served):
    async with paged(browser) as page:
        await page.goto(served.link)
        await page.get_by_role("button", name="Open the console").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    async with paged(browser) as again:
        await again.goto(served.link)
        await again.get_by_role("button", name="Open the console").click()
        await expect(again.get_by_role("alert")).to_contain_text("not good")


async def test_who_signs_out_is_out(page, served):
    await sign_in(page, served)
    await page.get_by_role("button", name="Sign out").click()
    await page.wait_for_url(f"{served.address}/login")

    await page.goto(served.address)
    await expect(page).to_have_url(re.compile("/login"))


async def test_a_page_moves_by_itself(page, served):
    await sign_in(page, served, to="/episodes?expectation=price_is_plausible&subject=new-sku")
    await expect(page.locator(".live")).to_have_text("Live")
    await expect(page.locator("tbody tr")).to_have_count(0)

    served.publish("price.changed", sku="new-sku")

    await expect(page.locator("tbody tr")).to_have_count(1)


async def test_an_approver_approves_with_a_change_after_seeing_what_it_makes(page, served):
    await sign_in(page, served, "bob", to="/inbox")
    await page.get_by_role("link", name="put 2.7 into production").click()
    await page.get_by_label("hosts").fill(json.dumps(["web-1"]))
    await page.get_by_role("button", name="See what becomes of it").click()

    await expect(page.locator(".diff del")).to_contain_text(["web-2"])
    await page.get_by_label("Reason").first.fill("one host first")
    await page.get_by_role("button", name="Approve with these changes").click()

    await page.wait_for_url(f"{served.address}/inbox")
    await expect(page.get_by_text("put 2.7 into production")).to_have_count(0)
    (ended,) = served.command.wait_for(
        "sql",
        "select summary from episodes where subject_id = '2.7' and status = 'done'",
        until=bool,
    )
    assert ended["summary"] == "2.7: approved by bob"


async def test_a_viewer_looks_and_decides_nothing(page, served):
    await sign_in(page, served, "eve", to="/inbox")
    await page.get_by_role("link", name="put 2.8 into production").click()

    await expect(page.get_by_text("Approvers decide. You may look.")).to_be_visible()
    await expect(page.get_by_role("button", name="Approve")).to_have_count(0)


async def test_an_episode_is_forked_and_compared_with_the_original(page, served):
    (original,) = ask(
        served, "select episode_id from episodes where subject_id = 'web-2' and turns_used = 2"
    )
    await sign_in(page, served, to=f"/episodes/{original['episode_id']}")
    await page.get_by_role("link", name="Fork", exact=True).click()
    await page.get_by_label("Payload of its trigger, as JSON").fill(
        '{"host": "web-2", "used": 0.2}'
    )
    await page.get_by_role("button", name="Fork").click()
    await page.wait_for_url(re.compile(r"/episodes/[0-9a-f-]{36}$"))

    await expect(page.locator(".head .pill")).to_have_text("done")
    await page.get_by_role("link", name="Compare with the original").click()
    await expect(page.get_by_role("heading", name="How they began")).to_be_visible()


async def test_the_slider_moves_the_page_and_its_links_through_time(page, served):
    await sign_in(page, served, to="/findings")
    await expect(page.locator("tbody tr").first).to_be_visible()
    await page.locator(".past summary").click()
    slider = page.locator("input[name=ago]").first
    await slider.focus()
    await page.keyboard.press("End")
    await expect(page.locator("#then")).to_contain_text("As it was at")
    await expect(page).to_have_url(re.compile(r"/findings\?at=20"))

    await expect(page.locator("tbody tr")).to_have_count(0)
    await page.get_by_role("link", name="Episodes", exact=True).click()
    await expect(page).to_have_url(re.compile(r"/episodes\?at=20"))
    await expect(page.locator(".empty")).to_be_visible()
    await page.get_by_role("link", name="Now", exact=True).click()
    await expect(page.locator("tbody tr").first).to_be_visible()
    await expect(page.locator("#then")).to_have_count(0)


async def test_keys_move_a_slider_and_the_page_follows_once_they_rest(page, served):
    await sign_in(page, served, to="/orders")
    went = []
    page.on("request", lambda sent: went.append(sent.url) if "ago=" in sent.url else None)
    await page.locator(".past summary").click()
    fine = page.locator("input[name=ago]").nth(1)
    await fine.focus()
    for _ in range(6):
        await page.keyboard.press("ArrowLeft")
    await expect(page.locator(".past output").nth(1)).to_contain_text("UTC")

    await expect(page).to_have_url(re.compile(r"/orders\?at=20"))
    assert [re.search(r"ago=(\d+)", each)[1] for each in went] == ["60"]


async def test_everything_is_reached_by_keys(page, served):
    await sign_in(page, served, to="/episodes")
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to the page")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("#main")).to_be_focused()

    await page.keyboard.press("j")
    await page.keyboard.press("j")
    second = page.locator("td.main a").nth(1)
    await expect(second).to_be_focused()
    await page.keyboard.press("Enter")
    await page.wait_for_url(re.compile(r"/episodes/[0-9a-f-]{36}"))


@pytest.mark.parametrize("to", ["/", "/inbox", "/episodes", "/compare"])
async def test_nothing_is_wider_than_a_phone(browser, served, to):
    async with paged(browser, viewport=PHONE, is_mobile=True, has_touch=True) as page:
        await sign_in(page, served, to=to)

        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


CUT = """() => [...document.querySelectorAll('td.main > *, td .pill')]
    .filter(each => each.scrollWidth > each.clientWidth + 1 && each.clientWidth)
    .map(each => each.textContent)"""


@pytest.mark.parametrize("to", ["/episodes", "/actors", "/events", "/findings", "/workflows"])
async def test_no_name_in_a_list_is_cut_off_on_a_phone(browser, served, to):
    async with paged(browser, viewport=PHONE, is_mobile=True, has_touch=True) as page:
        await sign_in(page, served, to=to)
        await expect(page.locator("tbody tr").first).to_be_visible()

        assert await page.evaluate(CUT) == []


async def test_without_scripts_all_works_but_the_moving(browser, served):
    async with paged(browser, java_script_enabled=False) as page:
        await sign_in(page, served, to="/episodes?status=failed")
        await page.locator("td.main a").first.click()

        await expect(page.get_by_role("heading", name="Timeline")).to_be_visible()
        await expect(page.locator(".head .pill")).to_have_text("failed")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_light_and_dark_are_chosen_by_hand_too(browser, served, scheme):
    async with paged(browser, color_scheme=scheme) as page:
        await sign_in(page, served)
        await page.get_by_role("button", name="Theme").click()
        await expect(page.locator("html")).to_have_attribute("data-theme", "light")
        await page.get_by_role("button", name="Theme").click()
        await expect(page.locator("html")).to_have_attribute("data-theme", "dark")


async def test_the_timeline_of_an_agent_grows_while_it_is_looked_at(page, served):
    served.publish("host.slow", host="web-9")
    (waiting,) = served.command.wait_for(
        "sql",
        "select episode_id as id from episodes where subject_id = 'web-9' and status = 'blocked'",
        until=bool,
    )
    await sign_in(page, served, to=f"/episodes/{waiting['id']}")
    await expect(page.locator(".head .pill")).to_have_text("waits for approval")
    await expect(page.locator(".live")).to_have_text("Live")
    before = await page.locator(".tl li").count()

    with SyncClient(**addresses(served.command), by="bob") as client:
        client.approvals.decide(waiting["id"], "approve")

    await expect(page.locator(".head .pill")).to_have_text("done")
    assert await page.locator(".tl li").count() > before
    await page.get_by_role("link", name="Conversation").click()
    await expect(page.get_by_text("The host web-9 is slow.", exact=True)).to_be_visible()


async def test_a_second_person_denies_with_a_reason(page, served):
    with SyncClient(**addresses(served.command), by="bob") as client:
        client.fire("releases", "release_is_wanted", {"version": "9.1"})
    served.command.wait_for("sql", "select 1 from inbox where subject_id = '9.1'", until=bool)
    await sign_in(page, served, to="/inbox")
    await page.get_by_role("link", name="put 9.1 into production").click()
    await page.get_by_label("Reason").last.fill("not on a Friday")
    await page.get_by_role("button", name="Deny").click()

    await page.wait_for_url(f"{served.address}/inbox")
    (ended,) = served.command.wait_for(
        "sql",
        "select summary from episodes where subject_id = '9.1' and status = 'done'",
        until=bool,
    )
    assert "ann" in ended["summary"]
    assert "not on a Friday" in ended["summary"]


async def test_all_that_match_run_again_once_their_number_was_seen(page, served):
    await sign_in(page, served, to="/episodes?status=failed&actor=prices")
    await page.get_by_role("link", name="Run again all that match").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text(
        re.compile(r"Run again \d+ episodes")
    )
    await page.get_by_role("button", name=re.compile("Run again these")).click()

    await page.wait_for_url(f"{served.address}/episodes")
    await expect(page.locator("tbody")).to_contain_text("prices / stock_is_known")


async def test_a_list_is_saved_made_the_default_and_forgotten(page, served):
    entry, status = (
        page.get_by_role("link", name="Episodes", exact=True),
        page.get_by_role("status"),
    )
    saved = page.get_by_role("navigation", name="Saved views")
    await sign_in(page, served, "eve", to="/episodes?status=failed")
    await page.get_by_text("Save this view").click()
    await page.get_by_label("Name", exact=True).fill("What has failed")
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(status).to_have_text("The view is saved.")
    here = saved.get_by_role("link", name="What has failed")
    await expect(here).to_have_attribute("aria-current", "true")

    await page.get_by_text("Change saved views").click()
    await page.get_by_role("button", name="Make it my default").click()
    await expect(status).to_have_text("The navigation leads there now.")
    await page.goto(served.address)
    await entry.click()
    await expect(page).to_have_url(f"{served.address}/episodes?status=failed")

    await saved.get_by_role("link", name="All").click()
    await expect(page).to_have_url(f"{served.address}/episodes")
    await expect(here).not_to_have_attribute("aria-current", "true")
    await here.click()
    await page.get_by_text("Change saved views").click()
    await page.get_by_role("button", name="Default no more").click()
    await expect(status).to_have_text("The navigation leads to the whole list now.")
    await expect(entry).to_have_attribute("href", "/episodes")

    await page.get_by_text("Change saved views").click()
    await page.get_by_role("button", name="Remove").click()
    await expect(status).to_have_text("The view is removed.")
    await expect(saved).to_have_count(0)
