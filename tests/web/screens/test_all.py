"""What holds for every screen: it is drawn, for its role, and what users write is text on it."""

from __future__ import annotations

import re

import pytest

from engine.people.identity import Role
from tests.web.conftest import ROLE
from tests.web.world import HTML
from vigil.web.drawing.layout import SECTIONS
from vigil.web.table import SCREENS

LISTS = [each.path for each in SCREENS if "{" not in each.path]
ABOUT_ONE = (
    "finding",
    "hostile finding",
    "output",
    "workflow",
    "dead letter",
    "actor",
    "paused actor",
    "defined actor",
    "event",
    "hostile event",
    "definition",
    "queued episode",
    "blocked episode",
    "failures",
    "costs by finding",
)
OF_ALL = {"/do/theme", "/do/sign_out", "/do/people.save_view"}
"""The forms that everybody has."""


def forms_of(page: str) -> set[str]:
    return set(re.findall(r'action="(/do/[^"]*)"', page)) - OF_ALL


@pytest.mark.parametrize("name", ABOUT_ONE)
async def test_a_page_about_one_thing_is_there_and_what_users_write_is_text(
    browser, addresses, name
):
    answer = await browser.get(addresses[name])

    assert answer.status_code == 200, answer.text
    assert HTML not in answer.text


@pytest.mark.parametrize("path", LISTS)
async def test_what_users_write_is_text_in_lists(browser, path):
    answer = await browser.get(path, params={"status": "any"} if "letters" in path else {})

    assert HTML not in answer.text


@pytest.mark.parametrize("name", ABOUT_ONE)
async def test_who_may_only_look_gets_no_forms(browser, addresses, name):
    answer = await browser.get(addresses[name], headers={ROLE: Role.VIEWER.value})

    assert answer.status_code == 200
    assert not forms_of(answer.text)


@pytest.mark.parametrize(
    ("name", "operations"),
    [
        ("finding", {"findings.acknowledge", "findings.clear", "findings.note"}),
        ("output", {"outputs.retry"}),
        ("workflow", {"workflows.retry", "workflows.skip", "workflows.cancel"}),
        ("dead letter", {"dead_letters.requeue", "dead_letters.discard"}),
        ("actor", {"actors.pause"}),
        ("paused actor", {"actors.resume"}),
        ("definition", {"definitions.disable"}),
        ("queued episode", {"episodes.cancel"}),
    ],
)
async def test_an_operator_gets_the_forms_of_what_can_be_done(browser, addresses, name, operations):
    answer = await browser.get(addresses[name], headers={ROLE: Role.OPERATOR.value})

    assert forms_of(answer.text) == {f"/do/{each}" for each in operations}


@pytest.mark.parametrize("name", ["/publish", "/fire", "/doctor"])
async def test_what_only_operators_do_is_for_them(browser, name):
    answer = await browser.get(name, headers={ROLE: Role.VIEWER.value})

    assert answer.status_code == 403


async def test_every_entry_of_the_navigation_has_a_page(browser):
    for href, word in SECTIONS:
        page = (await browser.get(href)).text

        assert f"<h1>{word}</h1>" in page


NO_FILTER = {
    "/", "/inbox", "/actors", "/bulk", "/compare", "/doctor", "/events/why", "/fire", "/go",
    "/nodes", "/people", "/publish",
}  # fmt: skip


@pytest.mark.parametrize("path", [each for each in LISTS if each not in NO_FILTER])
async def test_a_list_without_rows_says_so_and_what_brings_some(browser, path):
    nobody = {"actor": "nobody", "workflow": "nobody", "kind": "workflow", "since": "1d"}

    page = (await browser.get(path, params=nobody)).text

    assert 'class="empty"' in page or path == "/costs"


@pytest.mark.parametrize("filter_", ["status", "severity", "by", "since", "kind", "from"])
async def test_a_filter_that_cannot_be_is_said_in_a_line(browser, filter_):
    paths = {
        "status": "/outputs",
        "severity": "/findings",
        "by": "/costs",
        "since": "/costs",
        "kind": "/definitions",
        "from": "/definitions/actor/watch",
    }

    answer = await browser.get(paths[filter_], params={filter_: "<b>"})

    assert answer.status_code == 400
    assert "&lt;b&gt;" in answer.text


@pytest.mark.parametrize(
    "path",
    [
        "/findings/nothing",
        "/outputs/nothing",
        "/workflows/00000000-0000-0000-0000-000000000000",
        "/dead-letters/nothing",
        "/actors/nobody",
        "/definitions/actor/nobody",
    ],
)
async def test_a_page_of_what_is_not_there_says_so(browser, path):
    answer = await browser.get(path)

    assert answer.status_code == 404
