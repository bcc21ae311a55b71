"""Dead letters, decided on in a real browser."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

from tests.web.signing import sign_in

pytestmark = pytest.mark.nightly

TO = "later@example.org"
LETTER = "select 1 from dead_letters where output_key = 'mail:later@example.org'"
STATUS = "select status from outputs where output_key = 'mail:later@example.org'"


async def test_a_dead_letter_is_requeued_and_its_output_delivered(page, served):
    served.publish("mail.wanted", to=TO, adapter="fax")
    served.command.wait_for("sql", LETTER, until=bool)
    await sign_in(page, served, to="/dead-letters")
    await page.get_by_role("row").filter(has_text=TO).get_by_role("link").first.click()
    await expect(page.get_by_text("the output is delivered again, with new")).to_be_visible()

    await page.get_by_role("button", name="Requeue").click()

    await expect(page.locator(".head .pill")).to_have_text("requeued")
    await expect(page.get_by_role("button", name="Requeue")).to_have_count(0)
    served.command.wait_for("sql", STATUS, until=lambda rows: rows == [{"status": "delivered"}])
    await page.get_by_role("link", name=re.compile(re.escape(TO))).first.click()
    await expect(page.locator(".head .pill")).to_have_text("delivered")
