"""Who may use a stack, and tokens of programs, by the API."""

from __future__ import annotations

from engine.people.identity import Role
from tests.web.api.conftest import NAME, ROLE, SCOPES, TOKEN


async def test_people_are_added_and_changed_by_admins(client, api):
    headers = {NAME: "root"}
    body = {"name": "bob", "role": "operator", "groups": ["oncall"], "reason": "new here"}
    added = await api.post("/people", json=body, headers=headers)
    again = await api.post("/people", json=body, headers=headers)
    role = await api.put("/people/bob/role", json={"role": "viewer"}, headers=headers)
    same = await api.put("/people/bob/role", json={"role": "viewer"}, headers=headers)
    groups = await api.put("/people/bob/groups", json={"groups": []}, headers=headers)
    found = (await api.get("/people/bob")).json()
    assert (added.status_code, again.status_code) == (200, 409)
    assert (added.json()["added_by"], added.json()["has_password"]) == ("root", False)
    assert (role.json(), same.json()) == ({"is_made": True}, {"is_made": False})
    assert groups.json() == {"is_made": True}
    assert (found["role"], found["groups"]) == ("viewer", [])
    removed = await api.delete("/people/bob?reason=left", headers=headers)
    assert removed.json() == {"is_made": True}
    assert (await api.get("/people/bob")).status_code == 404


async def test_a_password_is_no_part_of_the_api(api):
    body = {"name": "bob", "password": "correct horse battery"}
    answer = await api.post("/people", json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "password"


async def test_a_token_is_issued_told_once_and_revoked(client, api):
    body = {"name": "deploys", "role": "operator", "scopes": ["events:publish"]}
    issued = (await api.post("/tokens", json={**body, "expires_in": "30d"})).json()
    identity = await client.people.identify(issued["secret"])
    assert (identity.name, identity.role) == ("token:deploys", Role.OPERATOR)
    assert (identity.scopes, identity.is_person) == ({"events:publish"}, False)
    revoked = await api.delete(f"/tokens/{issued['token_id']}")
    again = await api.delete(f"/tokens/{issued['token_id']}")
    assert (revoked.json(), again.json()) == ({"is_made": True}, {"is_made": False})
    endless = await api.post("/tokens", json={**body, "expires_in": "800d"})
    assert (endless.status_code, "expires_in" in endless.json()["detail"]) == (422, True)


async def test_no_program_gives_itself_rights(api):
    program = {TOKEN: "t1", SCOPES: "people:read people:write"}
    issued = await api.post("/tokens", json={"name": "x"}, headers=program)
    added = await api.post("/people", json={"name": "x"}, headers=program)
    assert (issued.status_code, added.status_code) == (403, 403)
    assert (await api.get("/people", headers=program)).json()["items"] == []


async def test_views_are_those_of_who_asks(api):
    viewer = {ROLE: "viewer", NAME: "eve"}
    body = {"name": "Failed", "address": "/episodes?status=failed&after=x"}
    saved = await api.put("/views", json=body, headers=viewer)
    foreign = {"name": "Foreign", "address": "https://evil.example/episodes"}
    refused = await api.put("/views", json=foreign, headers=viewer)
    chosen = {"page": "/episodes", "name": "Failed"}
    default = await api.put("/views/default", json=chosen, headers=viewer)
    mine = (await api.get("/views", headers=viewer)).json()["items"]
    others = (await api.get("/views", headers={**viewer, NAME: "bob"})).json()["items"]

    assert (saved.json(), default.json()) == ({"is_made": True}, {"is_made": True})
    assert (refused.status_code, "is no list" in refused.text) == (422, True)
    assert mine == [{"name": "Failed", "address": "/episodes?status=failed", "is_default": True}]
    assert others == []
    gone = await api.delete("/views?page=/episodes&name=Failed", headers=viewer)
    assert gone.json() == {"is_made": True}
    assert (await api.get("/views", headers=viewer)).json()["items"] == []
