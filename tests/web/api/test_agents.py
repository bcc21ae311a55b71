"""What a token that is marked as an agent's asks for is a dry run, by whichever way it comes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route

from engine.people.identity import Role
from tests.web.api.conftest import AGENT, ROLE, SCOPES, TOKEN, ByHeader, api_on, asking
from tests.web.webhooks import sent
from vigil.web import do
from vigil.web.api import routes
from vigil.web.api.operation import AnyOperation
from vigil.web.api.table import OPERATIONS
from vigil.web.webhooks.file import read_webhooks

TRIED = [each for each in OPERATIONS if "dry_run" in each.asks.__struct_fields__]
"""What can be tried only."""

BODIES: dict[str, dict[str, Any]] = {
    "events.publish": {"payload": {"host": "a"}},
    "episodes.fire": {"actor": "monitor", "expectation": "disk_has_room"},
    "episodes.fork": {"at": 1},
    "episodes.fork_each": {"ids": ["a"], "at": 1},
    "workflows.start": {"workflow": "deploy"},
    "definitions.apply": {"definitions": [{"id": "monitor"}]},
}
"""What each needs beside its path; all others need nothing."""

PERSON = {ROLE: "admin"}
PROGRAM = {**PERSON, TOKEN: "t1"}
AN_AGENT = {**PROGRAM, AGENT: "yes"}

WHO = [
    ("person", PERSON, False),
    ("program", PROGRAM, False),
    ("agent", AN_AGENT, True),
    ("agent that publishes", {**AN_AGENT, SCOPES: "events:publish"}, True),
]
"""Who asks, with which headers, and whether what is left open is a dry run then."""


@pytest.fixture
def done(monkeypatch) -> Iterator[list[bool]]:
    """Whether each was a dry run that was asked of the client."""
    found: list[bool] = []

    async def call(_, asked, by):
        found.append(asked.dry_run)
        return {}

    noted = [replace(each, call=call) if each in TRIED else each for each in OPERATIONS]
    monkeypatch.setattr(routes, "OPERATIONS", noted)
    monkeypatch.setattr(do, "_BY_NAME", {each.name: each for each in noted})
    return found


class Case(NamedTuple):
    """An operation that can be tried, who asks for it, and how."""

    operation: AnyOperation
    who: str
    headers: dict[str, str]
    said: bool | None
    """What the request says of `dry_run`; None: nothing."""
    is_dry: bool
    """Whether it is one."""


CASES = [
    Case(each, name, headers, said, by_default if said is None else said)
    for each in TRIED
    for name, headers, by_default in WHO
    for said in (None, True, False)
    if each.scope in headers.get(SCOPES, each.scope)
]


async def test_what_an_agent_asks_of_the_api_is_a_dry_run_unless_it_says_not(client, done):
    async with asking(api_on(client)) as api:
        for case in CASES:
            operation = case.operation
            path = operation.path.replace("{", "").replace("}", "")
            body = dict(BODIES.get(operation.name, {}))
            query = {}
            if operation.whole:
                body = body[operation.whole]
            if case.said is not None:
                (query if operation.whole else body)["dry_run"] = case.said
            answer = await api.request(
                operation.method, path, json=body, params=query, headers=case.headers
            )
            assert (answer.status_code, done) == (200, [case.is_dry]), (case, answer.text)
            done.clear()


async def test_what_an_agent_asks_by_a_form_is_a_dry_run_unless_it_says_not(client, done):
    app = Starlette(
        routes=[Route("/api/v1/do/{operation}", do.do, methods=["POST"])],
        middleware=[Middleware(ByHeader, client=client)],
    )
    async with asking(app) as forms:
        for case in CASES:
            operation = case.operation
            fields = {word[1:-1]: "x" for word in operation.words if word.startswith("{")}
            fields["back"] = "/"
            for name, value in BODIES.get(operation.name, {}).items():
                is_text = isinstance(value, str)
                fields[name if is_text else f"{name}:json"] = (
                    value if is_text else json.dumps(value)
                )
            if case.said is not None:
                fields["dry_run"] = str(case.said).lower()
            answer = await forms.post(f"/do/{operation.name}", data=fields, headers=case.headers)
            assert done == [case.is_dry], (case, answer.headers["set-cookie"])
            done.clear()


@pytest.fixture
async def hooks(client, tmp_path) -> AsyncIterator[httpx.AsyncClient]:
    """What sends to a webhook."""
    file = tmp_path / "webhooks.toml"
    file.write_text('[webhooks.cloud]\nsource = "cloud_events"\n')
    sending = {"content-type": "application/cloudevents+json"}
    async with asking(api_on(client, read_webhooks(file)), **sending) as hooks:
        yield hooks


@pytest.mark.parametrize(
    ("query", "headers", "published"),
    [
        ("", AN_AGENT, 0),
        ("?dry_run=true", PROGRAM, 0),
        ("?dry_run=false", AN_AGENT, 1),
        ("", PROGRAM, 1),
    ],
)
async def test_a_delivery_that_an_agent_sends_is_a_dry_run_too(
    hooks, ports, query, headers, published
):
    answer = await hooks.post(f"/events/cloud{query}", json=sent.CLOUD_EVENT, headers=headers)
    assert answer.status_code == 200
    assert [each["seq"] for each in answer.json()["events"]] == [published]
    assert len(await ports.domain_events.page(after=0)) == published


async def test_a_delivery_says_nothing_else_beside_its_body(hooks, ports):
    for query in ("dry_run=perhaps", "name=other", "payload=x", "id=1", "unknown=1"):
        answer = await hooks.post(f"/events/cloud?{query}", json=sent.CLOUD_EVENT, headers=PROGRAM)
        assert answer.status_code == 422, query
    assert await ports.domain_events.page(after=0) == []


async def test_an_event_that_is_only_tried_is_checked_and_not_stored(ports, client):
    async with asking(api_on(client), **AN_AGENT) as api:
        tried = await api.post("/events/disk.full", json={"host": "a"})
        wrong = await api.post("/events/disk..full", json={"host": "a"})
        stored = await api.post("/events/disk.full?dry_run=false", json={"host": "a"})
    assert (tried.json()["seq"], tried.json()["is_new"]) == (0, False)
    assert wrong.status_code == 422
    assert (stored.json()["seq"], stored.json()["is_new"]) == (1, True)


def test_all_that_can_be_tried_is_for_operators_at_least():
    assert {each.role for each in TRIED} <= {Role.OPERATOR, Role.ADMIN}
