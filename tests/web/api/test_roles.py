"""Who may ask for what: every operation, for every role, by people and by programs."""

from __future__ import annotations

import pytest

from engine.people.identity import Role
from tests.web.api.conftest import ROLE, SCOPES, TOKEN
from vigil.web.api.operation import PUBLISH, READ, AnyOperation
from vigil.web.api.operations.people import VIEWS
from vigil.web.api.table import OPERATIONS

REFUSED = {401, 403}


def address(operation: AnyOperation) -> str:
    """Return the path of an operation, for something that there is not."""
    return operation.path.replace("{", "").replace("}", "")


async def ask(api, operation, **headers):
    body = {"json": {}} if operation.has_body else {}
    return await api.request(operation.method, address(operation), headers=headers, **body)


async def test_nobody_may_ask_for_anything(api):
    del api.headers[ROLE]
    for operation in OPERATIONS:
        answer = await ask(api, operation)
        assert answer.status_code == 401, operation.name
        assert answer.json()["type"] == "urn:vigil:problem:unsigned"
        assert answer.headers["www-authenticate"].startswith("Bearer")


FINITE = [each for each in OPERATIONS if not each.is_stream]
"""An answer that goes on has tests of its own."""


@pytest.mark.parametrize("role", Role)
async def test_a_person_may_ask_for_what_the_role_has(api, role):
    for operation in FINITE:
        answer = await ask(api, operation, **{ROLE: role})
        if role.includes(operation.role):
            assert answer.status_code not in {*REFUSED, 500}, operation.name
        else:
            assert answer.status_code == 403, operation.name
            problem = answer.json()
            assert problem["needs"] == {"role": operation.role}
            assert operation.role in problem["detail"]


async def test_a_program_may_ask_for_what_its_token_is_for(api):
    token = {TOKEN: "t1", ROLE: "admin"}
    for operation in FINITE:
        other = await ask(api, operation, **token, **{SCOPES: "something:else"})
        fitting = await ask(api, operation, **token, **{SCOPES: f"x {operation.scope}"})
        whole = await ask(api, operation, **token)
        assert other.status_code == 403, operation.name
        if operation.of_people:
            assert other.json()["needs"] == {"person": "true"}
            assert {fitting.status_code, whole.status_code} == {403}, operation.name
        else:
            assert other.json()["needs"] == {"scope": operation.scope}
            assert not {fitting.status_code, whole.status_code} & REFUSED, operation.name


@pytest.mark.parametrize("verb", ["approve", "deny"])
async def test_no_program_decides_whatever_its_token(api, verb):
    headers = {TOKEN: "agent-7", ROLE: "admin"}
    answer = await api.post(f"/approvals/output/mail/{verb}", json={}, headers=headers)
    assert answer.status_code == 403
    assert answer.json()["detail"] == (f"approvals.{verb}: only people may, and ann is a program")


async def test_a_token_for_publishing_reads_nothing(api):
    headers = {TOKEN: "t1", ROLE: "operator", SCOPES: PUBLISH}
    published = await api.post("/events/disk.full", json={"host": "a"}, headers=headers)
    listed = await api.get("/actors", headers=headers)
    assert (published.status_code, listed.status_code) == (200, 403)


def test_what_only_looks_takes_a_viewer_and_what_changes_takes_more():
    for each in OPERATIONS:
        if each.scope == VIEWS:  # Everybody's own.
            assert (each.role, each.of_people) == (Role.VIEWER, True), each.name
        elif each.scope == READ and each.name != "repairs.doctor":
            assert each.role is Role.VIEWER, each.name
        elif each.method != "GET":
            assert each.role is not Role.VIEWER, each.name


def test_prompts_are_read_by_operators_alone():
    readers = {each.name: each.role for each in OPERATIONS if each.scope == "prompts:read"}
    assert readers == {"episodes.prompt": Role.OPERATOR, "episodes.replay": Role.OPERATOR}
