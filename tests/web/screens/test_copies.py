"""What people copy from pages: commands that are typed, JSON, and tests that run."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.web.world import HTML
from vigil.web.screens.episodes.as_test import RepeatedOutput, why_not

ROOT = Path(__file__).parents[3]
APP = "from tests.web.world import app\n"
CONFIG = "[pytest]\n"


async def copied(browser, path: str) -> dict[str, str]:
    """Return what a page has to be copied: what it is → its text."""
    page = (await browser.get(path)).text
    found = re.findall(
        r"<summary>(As [^<]*)</summary><div class=\"copied\">.*?<code>(.*?)</code>", page, re.DOTALL
    )
    return {says: unescape(text) for says, text in found}


def run(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Write a copied test beside an app, and run it as whoever copied it does."""
    (folder / "app.py").write_text(APP)
    (folder / "test_copied.py").write_text(text)
    (folder / "pytest.ini").write_text(CONFIG)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_copied.py"]
    environ = {"PYTHONPATH": f"{folder}:{ROOT}", "PATH": "", "HOME": str(folder)}
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=120, check=False
    )


async def ended(client, expectation: str, **asked: str):
    """Return an episode that has ended by itself."""
    statuses = ["done", "failed", "partially_failed"]
    return (await client.episodes.list(expectation=expectation, status=statuses, **asked)).items[0]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"expectation": "price_is_plausible"}, "('done', '')"),
        ({"expectation": "stock_is_known"}, "('failed', 'crash')"),
        ({"expectation": "disk_has_room"}, "host:disk:"),
        ({"expectation": "fleet_is_well"}, "billing.charge_card"),
        ({"expectation": "customer_knows", "subject": "ann@example.org"}, "sent == ["),
        ({"expectation": "customer_knows", "subject": HTML}, "DeliveryFailed('no_line'"),
    ],
)
async def test_a_copied_test_runs_and_holds(browser, client, tmp_path, wanted, said):
    episode = await ended(client, **wanted)

    text = (await copied(browser, f"/episodes/{episode.episode_id}"))["As a test of vigil.testing"]
    ran = run(tmp_path, text)

    assert said in text
    assert ran.returncode == 0, ran.stdout + ran.stderr + text
    assert "1 passed" in ran.stdout


async def test_a_copied_test_decides_as_people_did(browser, client, tmp_path):
    fired = await client.fire("releases", "release_is_wanted", {"version": "c-1"}, key="c-1")
    while not (await client.episodes.list(subject="c-1", status="blocked")).items:
        await client.connections.clock.sleep(0.05)
    await client.approvals.decide(fired.episode_id, "deny", reason="it's Friday", by="bob")
    await client.episodes.wait(fired.episode_id)

    text = (await copied(browser, f"/episodes/{fired.episode_id}"))["As a test of vigil.testing"]
    ran = run(tmp_path, text)

    assert "vigil.deny(by='bob'" in text
    assert ran.returncode == 0, ran.stdout + ran.stderr + text


async def test_a_copied_test_fails_if_the_app_acts_in_another_way(browser, client, tmp_path):
    episode = await ended(client, "price_is_plausible")
    text = (await copied(browser, f"/episodes/{episode.episode_id}"))["As a test of vigil.testing"]

    ran = run(tmp_path, re.sub(r"'read_price.call': \d+", "'read_price.call': 1", text))

    assert ran.returncode == 1
    assert "costs 0.01" in ran.stdout


async def test_what_makes_no_test_says_why(browser, client):
    blocked, *_ = await client.episodes.list(expectation="release_is_wanted", status="blocked")

    page = (await browser.get(f"/episodes/{blocked.episode_id}")).text

    assert "It has not ended by itself" in page


@pytest.mark.parametrize("status", ["failed", "delivered"])
async def test_an_output_that_was_sent_after_the_end_makes_no_test(client, status):
    episode = await ended(client, "price_is_plausible")
    record = replace(await client.episodes.get(episode.episode_id), status="partially_failed")
    sent = RepeatedOutput(output_key="k", adapter="fax", status=status)

    said = why_not(record, [], [], [sent])

    assert ("sent after it had ended" in said) is (status == "delivered")


async def test_json_is_what_the_command_prints(browser, client):
    episode = await ended(client, "price_is_plausible")

    ways = await copied(browser, f"/episodes/{episode.episode_id}")

    assert json.loads(ways["As JSON"])["episode_id"] == str(episode.episode_id)
    assert ways["As a command"] == f"vigil episodes show {episode.episode_id}"


async def test_a_command_is_quoted_for_the_shell(browser, addresses):
    ways = await copied(browser, addresses["hostile finding"])

    assert shlex.split(ways["As a command"]) == ["vigil", "findings", "show", f"host:disk:{HTML}"]
    assert json.loads(ways["As JSON"])["finding_key"] == f"host:disk:{HTML}"


async def test_an_event_is_copied_as_the_command_that_tells_of_it(browser, addresses):
    ways = await copied(browser, addresses["event"])

    assert ways["As a command"] == "vigil events why event-30"
    assert "verdicts" in ways["As JSON"]
