"""What is decided on does not change under the finger of who decides."""

from __future__ import annotations

from playwright.async_api import expect

from tests.web.conftest import Served, addresses
from tests.web.signing import sign_in
from vigil.client import SyncClient


def asked(served: Served, expectation: str, version: str) -> str:
    """Have an episode ask for approval, and return its id."""
    with SyncClient(**addresses(served.command), by="eve") as client:
        client.fire("releases", expectation, {"version": version})
    (waiting,) = served.command.wait_for(
        "sql",
        "select id, subject_id from inbox where kind = 'approval'",
        until=lambda rows: [each for each in rows if each["subject_id"] == version],
    )[-1:]
    return str(waiting["id"])


async def test_what_another_has_decided_meanwhile_is_refused_and_the_form_stays(page, served):
    id_ = asked(served, "release_is_wanted", "finger-1")
    await sign_in(page, served, to=f"/inbox/episode/{id_}")
    reason = page.get_by_label("Reason").first
    await reason.fill("all tests are green")

    with SyncClient(**addresses(served.command), by="bob") as client:
        client.approvals.decide(id_, "deny", reason="not today")
        client.episodes.wait(id_)
    await expect(page.get_by_role("button", name="Approve", exact=True)).to_be_visible()
    await page.get_by_role("button", name="Approve", exact=True).click()

    await expect(page.get_by_role("alert")).to_contain_text("denied by bob")
    await expect(reason).to_have_value("all tests are green")
    with SyncClient(**addresses(served.command), by="test") as client:
        assert client.episodes.get(id_).summary == "finger-1: not approved (by bob: not today)"


async def test_a_plan_that_another_has_changed_meanwhile_is_not_approved(page, served):
    id_ = asked(served, "release_is_agreed", "finger-2")
    await sign_in(page, served, to=f"/inbox/episode/{id_}")
    reason = page.get_by_label("Reason").first
    await reason.fill("as I have read it")

    with SyncClient(**addresses(served.command), by="bob") as client:
        client.approvals.decide(id_, "approve", changes={"deploy": "finger-3"})
    await expect(page.locator("#part-plan")).to_contain_text("finger-2")
    await page.get_by_role("button", name="Approve", exact=True).click()

    await expect(page.locator("#say")).to_contain_text("plan")
    await expect(reason).to_have_value("as I have read it")
    await expect(page.locator("#part-plan")).to_contain_text("finger-3")
    with SyncClient(**addresses(served.command), by="test") as client:
        assert client.episodes.get(id_).status == "blocked"
        assert client.approvals.read(id_).progress == "1 of 2 approved: bob"
