"""What each screen tells of the rows of a busy day."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from html import unescape
from urllib.parse import unquote

import pytest

from tests.web.world import HTML
from vigil.web.screens.actors import firings


def text_of(page: str) -> str:
    """Return the words of a page, without its marks."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


@pytest.fixture
def read(browser):
    async def read(path: str, **filters: str) -> str:
        answer = await browser.get(path, params=filters or None)
        assert answer.status_code == 200, answer.text
        return answer.text

    return read


async def test_findings_are_narrowed_by_severity_status_and_actor(read):
    bad = await read("/findings", severity="critical")
    cleared = await read("/findings", status="cleared")
    theirs = await read("/findings", actor="stores")

    assert "web-2: disk 99% used" in bad
    assert "web-1: disk 97% used" not in bad
    assert "No finding fits these filters" in cleared
    assert "checkout answers in 4,200 ms" in theirs
    assert "disk 97%" not in theirs


async def test_findings_of_a_status_are_counted_so_far_and_a_plus_says_that_there_are_more(
    read, monkeypatch
):
    exact = text_of(await read("/findings"))
    monkeypatch.setattr("vigil.web.screens.findings.COUNTED_MAX", 1)
    bounded = text_of(await read("/findings"))

    assert re.search(r"active (\d+) cleared 0", exact)[1] > "1"
    assert "active 1+ cleared 0" in bounded


async def test_a_finding_has_what_explains_it_and_what_it_explains(read):
    page = text_of(await read("/findings/site:slow:checkout"))

    assert "web-1: disk 97% used, most of it /var/log/checkout.log explains it" in page
    assert "checkout sells less than yesterday explained by it" in page
    assert "3 findings" in page


async def test_a_finding_leads_to_the_episode_that_raised_it(read, client):
    (episode,) = await client.episodes.list(expectation="site_is_fast")

    page = await read("/findings/site:slow:checkout")

    assert f'href="/episodes/{episode.episode_id}"' in page
    assert "Raised by episode" in text_of(page)


async def test_an_output_has_its_payload_on_its_own_page_alone(read, addresses):
    assert "your order" not in await read("/outputs")

    page = text_of(await read("/outputs/mail:ann@example.org"))

    assert "your order" in page
    assert "Delivered , attempt 1" in page


async def test_an_output_that_failed_says_why(read, addresses):
    page = text_of(await read(addresses["output"]))

    assert "no_line: nobody answers the fax of" in page


async def test_a_workflow_is_drawn_with_the_states_of_its_steps(read, addresses):
    page = await read(addresses["workflow"])

    assert 'aria-label="look, done"' in page
    assert 'aria-label="pack, paused"' in page
    assert 'aria-label="post, pending"' in page
    assert "3 items" in page
    assert "the vase is broken" in page


async def test_a_workflow_is_seen_as_large_as_it_is_by_a_link(read, addresses):
    fitted = await read(addresses["workflow"])
    whole = await read(addresses["workflow"], zoom="100")

    assert 'class="graph wide fit"' in fitted
    assert 'class="graph wide"' in whole
    assert f"{addresses['workflow']}?zoom=100" in fitted


async def test_a_step_that_asks_leads_to_the_inbox(read, client):
    first, *_ = await client.workflows.list(workflow="order_to_cash")

    page = await read(f"/workflows/{first.instance_id}")

    assert 'href="/inbox?kind=workflow_step"' in page


async def test_a_dead_letter_says_what_each_decision_will_do(read, addresses):
    page = text_of(await read(addresses["dead letter"]))

    assert "Requeue : the output is delivered again" in page
    assert "Discard : it is settled" in page


async def test_actors_are_told_with_their_state(read):
    page = text_of(await read("/actors"))

    assert re.search(r"archive .*? paused", page)
    assert re.search(r"stores .*? up", page)


async def test_an_expectation_has_its_last_firings_and_refusals_with_reasons(read):
    page = text_of(await read("/actors/stores"))

    assert "milk is shown right" in page
    assert "filter currency = EUR: the event has USD" in page
    assert "cooldown" in page


async def test_a_paused_actor_says_why_and_when_it_would_fire(read):
    page = text_of(await read("/actors/archive"))

    assert "Paused: its tables are moved" in page
    assert len(re.findall(r"in \d+[hdm]", page)) >= 5


async def test_the_events_that_fired_nothing_are_listed_and_narrowed(read):
    everything = text_of(await read("/events"))
    cooled = text_of(await read("/events", reason="cooldown"))

    assert "filter currency = EUR: the event has USD" in everything
    assert "begun by episode" in cooled
    assert "the event has USD" not in cooled


async def test_why_an_event_did_not_fire_leads_to_what_held_it(read, client):
    (begun,) = await client.episodes.list(expectation="price_is_shown")
    (refused,) = await client.events.refusals(reason="cooldown")

    page = await read(f"/events/{refused.event_id}")

    assert "cooldown" in page
    assert f'href="/episodes/{begun.episode_id}"' in page


async def test_an_event_that_nobody_watches_is_found_among_those_published_lately(read, client):
    await client.publish("nobody.watches", {}, id="lost-1")

    page = await read("/events")

    assert 'href="/events/lost-1"' in page
    assert "finding.raised" not in page.partition("Published lately")[2]


async def test_an_event_that_nobody_watches_is_told_so(read):
    page = text_of(await read("/events/why", id="event-39"))

    assert "no expectation of a node that is up watches" in page


async def test_what_an_event_would_fire_is_told_before_it_is_published(browser, client):
    payload = '{"sku": "tea", "currency": "USD"}'
    asked = {"id": "trial-1", "name": "price.seen", "payload:json": payload}

    answer = await browser.post("/publish", data=asked)

    page = text_of(answer.text)
    assert "filter currency = EUR: the event has USD" in page
    assert 'value="trial-1"' in answer.text
    assert payload in unescape(answer.text)
    assert (await client.events.why("trial-1")).name == ""


async def test_an_event_that_would_fire_says_so_and_one_that_nobody_watches_whom_else(browser):
    async def would(**fields):
        answer = await browser.post("/publish", data={"payload:json": "{}", **fields})
        return unescape(text_of(answer.text))

    assert re.search(
        "prices / price_is_plausible .*? would fire", await would(name="price.changed")
    )
    assert "did you mean price.changed" in await would(name="price.change")
    assert "its tables are moved" in await would(name="order.old")


async def test_what_is_no_payload_stays_in_the_form_with_the_reason(browser):
    asked = {"name": "price.seen", "payload:json": "{nonsense"}

    answer = await browser.post("/publish", data=asked)

    assert answer.status_code == 200
    assert "{nonsense" in answer.text
    assert "That cannot be published" in answer.text


async def test_publishing_leads_to_the_event_and_says_who_hears_it(browser):
    form = await browser.get("/publish", params={"name": "nobody.hears"})
    fields = dict(re.findall(r'type="hidden" name="([^"]+)" value="([^"]+)"', form.text))

    kept = {name: fields[name] for name in ("id", "back")}
    answer = await browser.post(
        "/do/events.publish", data={"name": "nobody.hears", "payload:json": "{}", **kept}
    )

    assert answer.headers["location"] == f"/events/{fields['id']}"
    assert "no node that is up listens to" in unquote(answer.headers["set-cookie"])


async def test_a_dry_run_is_marked_in_lists(browser, client):
    fired = await client.fire(
        "releases", "release_is_wanted", {"version": "9.9-dry"}, key="dry-9", dry_run=True
    )
    await client.episodes.wait(fired.episode_id, timeout_s=30)

    page = text_of((await browser.get("/episodes", params={"subject": "9.9-dry"})).text)

    assert f"{fired.episode_id[:8]} · dry run" in page


async def test_a_form_that_fires_does_so_once(read):
    first = await read("/fire", actor="stores", expectation="customer_knows")
    again = await read("/fire")

    key = re.compile(r'name="key" value="(console-[^"]+)"')
    assert 'value="customer_knows"' in first
    assert key.search(first)[1] != key.search(again)[1]
    assert 'name="dry_run" value="true"' in first
    assert "checked" not in first


async def test_two_revisions_of_a_definition_are_compared(read):
    page = await read("/definitions/actor/watch", **{"from": "1", "to": "2"})

    assert "<del>10.0</del> → <ins>12.5</ins>" in page
    assert "prices rise" in page


async def test_nodes_are_told_with_their_mode_and_how_far_all_is(read):
    page = text_of(await read("/nodes"))

    assert "shop-1" in page
    assert "full own setting" in page
    assert "reactor on shop-1" in page
    assert "archive its tables are moved" in page


async def test_the_examination_has_what_the_doctor_has(read):
    page = text_of(await read("/doctor"))

    assert "stream vigil-journal as it must be ok" in page


async def test_orders_say_who_and_why(read):
    page = text_of(await read("/orders"))

    assert "actor archive its tables are moved" in page
    assert "actor paused ann" in page


@pytest.mark.parametrize("by", ["actor", "model", "agent", "day", "finding", "episode"])
async def test_costs_are_summed_by_what_is_asked(read, by):
    page = text_of(await read("/costs", by=by))

    assert "Requests 2" in page


async def test_a_day_of_costs_leads_to_the_episodes_that_its_sum_is_of(read):
    days = await read("/costs", by="day", since="all")
    ((day, _),) = re.findall(r'href="/costs\?by=episode&amp;day=([-0-9]+)"[^>]*>([-0-9]+)<', days)

    page = text_of(await read("/costs", by="episode", day=day))
    assert "Requests 2" in page
    assert f"Of {day} in UTC" in page
    before = date.fromisoformat(day) - timedelta(days=1)
    assert "No model was asked" in text_of(await read("/costs", by="episode", day=str(before)))


@pytest.mark.parametrize("day", ["yesterday", "2030-02-30", "9999-12-31"])
async def test_a_day_of_costs_that_is_none_is_told(browser, day):
    page = await browser.get("/costs", params={"day": day})

    assert page.status_code == 400
    assert "is no day such as" in page.text


async def test_the_chart_marks_when_nodes_started_and_what_was_defined(read):
    page = await read("/")

    assert re.search(r"<title>[^<]*node shop-1 started, Vigil \d", page)
    assert re.search(r"<title>[^<]*agent watch applied, revision 2", page)


async def test_what_has_no_price_is_not_told_as_free(read):
    page = text_of(await read("/costs", by="episode"))

    assert "Cost not priced" in page
    assert "$0" not in page


async def test_an_event_says_what_has_become_of_what_it_fired(read, client):
    failed, *_ = await client.episodes.list(expectation="stock_is_known", status="failed")
    event = (await client.episodes.get(failed.episode_id)).trigger_ref["event_id"]

    page = await read(f"/events/{event}")

    assert "Failed 1" in text_of(page)
    assert re.search(rf'href="/episodes/{failed.episode_id}".*?class="pill failed"', page)


async def test_requests_with_one_title_are_told_apart(read, client):
    page = text_of(await read("/inbox"))

    for each in await client.episodes.list(status="blocked", expectation="release_is_wanted"):
        assert f"{each.subject_id} · {str(each.episode_id)[:8]}" in page


async def test_who_approved_what_is_one_page_that_orders_lead_to(read, client):
    fired = await client.fire("releases", "release_is_wanted", {"version": "3.0-told"}, key="told")
    while not (await client.episodes.list(subject="3.0-told", status="blocked")).items:
        await client.connections.clock.sleep(0.05)
    await client.approvals.decide(fired.episode_id, "approve", reason="it was tried", by="bob")
    await client.episodes.wait(fired.episode_id)

    page = text_of(await read("/decisions", by="bob"))

    assert 'href="/decisions"' in await read("/orders")
    assert re.search("put 3.0-told into production .* it was tried approved bob", page)


async def test_two_agents_are_compared_by_what_they_asked_and_called(read, client):
    one, other = [
        str(each.episode_id) for each in await client.episodes.list(expectation="host_is_fast")
    ][:2]

    page = text_of(await read("/compare", left=one, right=other))

    assert re.search(r"Requests to models \d+ \d+", page)
    assert "read_metric" in page


async def test_failures_that_are_alike_are_one_row(read, client):
    page = await read("/episodes", status="failed", group="1")
    five = next(each for each in await client.episodes.failures() if each.actor_id == "prices")

    assert five.episodes == 5
    assert f"crash in {five.tool_name}" in page
    assert "among the latest 1,000" in page
    assert "among the latest 10,000" in await read("/episodes", status="failed", group="more")
    link = re.search(r'href="([^"]*expectation=stock_is_known[^"]*)"', page)[1]
    members = await read(link.replace("&amp;", "&"))
    assert members.count("stock_is_known</a>") == 5


async def test_an_episode_that_waits_says_what_holds_it(read, client, addresses):
    (running,) = await client.episodes.list(actor="backups", status="running")

    queued = await read("/episodes", status="queued")
    page = await read(addresses["queued episode"])
    blocked = await read("/episodes", status="blocked")

    for each in (queued, page):
        assert f'href="/episodes/{running.episode_id}"' in each
        assert "number 1 in its lane; 1 episode of its actor runs" in text_of(each)
    assert "somebody has to approve it" in blocked
    assert "the signal payment:o-42 has not come" in text_of(blocked)


async def test_a_page_keeps_its_own_address_whatever_a_key_has_in_it(read, addresses):
    page = await read(addresses["hostile finding"])

    live = re.search(r'data-live="([^"]*)"', page)[1]
    assert await read(live)
    assert HTML not in live


def test_the_next_firings_of_a_schedule_follow_from_the_first():
    at = datetime(2030, 1, 1, 9, tzinfo=UTC)

    assert [each.hour for each in firings("every 3600s", at)] == [9, 10, 11, 12, 13]
    assert firings("nonsense", at) == [at]


async def test_a_mode_is_set_and_unset_by_the_forms_of_a_node(browser, read, client):
    async def sent(operation: str, **fields: str) -> None:
        answer = await browser.post(f"/do/{operation}", data={"back": "/nodes", **fields})
        assert answer.status_code == 303

    await sent("nodes.set_mode", node="spare-1", mode="disabled", reason="its disk is old")
    ordered = await read("/nodes")
    await sent("nodes.unset_mode", node="spare-1", reason="it is new")
    orders = text_of(await read("/orders", node="spare-1"))

    assert 'action="/do/nodes.unset_mode"' in ordered
    assert "its disk is old" in ordered
    assert "it is new mode unset" in orders
    assert "spare-1" not in await read("/nodes")


async def test_an_event_of_which_nothing_is_known_is_not_said_to_have_fired_nothing(read):
    page = text_of(await read("/events/never-published"))

    assert "No such event" in page
    assert "It may be older than that" in page
    assert "Fired" not in page
    assert "Nobody watches it" not in page


async def test_why_an_event_was_refused_is_said_once(read):
    page = unescape(text_of(await read("/events/event-29")))

    assert "filter currency = EUR: the event has USD" in page
    assert "filter: filter" not in page


async def test_an_episode_says_how_long_it_ran_without_its_waits(read, client):
    (ended, *_) = await client.episodes.list(actor="prices", status="done")

    page = await read(f"/episodes/{ended.episode_id}")

    assert re.search(r'<dt>Ran</dt><dd><span title="Without what it waited for [^"]*">\S', page)
    assert "<dt>Took</dt>" not in page


async def test_costs_by_episode_say_whose_each_is(read):
    page = await read("/costs", by="episode", since="all")

    assert re.search(r'<a href="/episodes/([^"]*)">hosts / host_is_fast</a><small>\1', page)
