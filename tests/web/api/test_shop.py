"""The API of a stack that runs: every question is answered as the document says, and orders count.

Over HTTP, from a server, on NATS and Postgres, where a node runs the shop (`tests/web/world.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import httpx
import pytest
from jsonschema import Draft202012Validator

from engine.operations.decide_request import ApprovalTarget
from projections.embedded import EmbeddedPostgres
from streams.embedded import EmbeddedNats
from tests.vigil.program import Vigil
from tests.web.api.conftest import ADMIN, NAME, ROLE, SCOPES, TOKEN, api_on
from tests.web.api.served import serving
from tests.web.conftest import addresses, happen
from vigil.client import Client, SyncClient
from vigil.web.api.openapi import document
from vigil.web.api.table import OPERATIONS

DOCUMENT = document()
LOOKS_MAX = 600

SINCE = (datetime.now(UTC) - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vigil]:
    """A shop of this file's own: what is ordered here is seen by no other test."""
    folder = tmp_path_factory.mktemp("ordered")
    with (
        EmbeddedNats(folder / "nats") as nats,
        EmbeddedPostgres(tmp_path_factory.mktemp("postgres")) as postgres,
    ):
        command = Vigil(folder, VIGIL_NATS_URL=nats.url, VIGIL_POSTGRES_DSN=postgres.dsn)
        with command.running("node", "--app", "tests.web.world:app", "--node-name", "shop-1"):
            happen(command)
            charge(command)
            with SyncClient(**addresses(command), by="root") as client:
                client.people.add("ann", role="admin")
            yield command


def charge(command: Vigil) -> None:
    """Approve a step of each workflow that waits for that, so that there are outputs."""
    with SyncClient(**addresses(command), by="ann") as client:
        for each in client.inbox(kind="workflow_step"):
            if each.expectation_id != "charge":
                continue  # It has failed, and asks for no approval.
            client.approvals.decide(ApprovalTarget("step", each.id, "charge"), "approve")


@pytest.fixture
async def api(shop: Vigil):
    """What asks the API of the shop as an admin, over HTTP."""
    async with (
        Client(**addresses(shop), by="console") as client,
        serving(api_on(client)) as url,
        httpx.AsyncClient(base_url=url, headers=ADMIN, timeout=60) as sending,
    ):
        yield sending


async def got(api, path, **query) -> dict:
    answer = await api.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def until(api, path, holds, **query):
    """Return what is at `path` once that holds."""
    for _ in range(LOOKS_MAX):
        answer = await api.get(path, params=query)
        if answer.status_code == 200 and holds(answer.json()):
            return answer.json()
        await asyncio.sleep(0.05)
    raise AssertionError(f"{path}: {answer.text}")


async def one(api, path, **query) -> dict:
    """Return the first of a list, once it has one."""
    found = await until(api, path, lambda page: page["items"], limit=1, **query)
    return found["items"][0]


def schema_of(name: str) -> dict:
    """Return the schema of an operation's answer, as the document has it."""
    for methods in DOCUMENT["paths"].values():
        for each in methods.values():
            if each["operationId"] == name:
                (content,) = each["responses"]["200"]["content"].values()
                return content["schema"] | {"components": DOCUMENT["components"]}
    raise AssertionError(name)


def faults(name: str, value: object) -> list[str]:
    validator = Draft202012Validator(schema_of(name))
    return [f"{each.json_path}: {each.message[:200]}" for each in validator.iter_errors(value)]


async def filled(api) -> dict[str, tuple[str, dict]]:
    """Return a path and a query that something is found with, for every question of the table."""
    episode = await one(api, "/episodes", actor="prices", status="done")
    other = (await got(api, "/episodes", actor="prices", limit=2))["items"][1]
    agents = await one(api, "/episodes", actor="hosts", expectation="host_is_fast")
    finding = await one(api, "/findings")
    output = await one(api, "/outputs")
    instance = await one(api, "/workflows")
    letter = await one(api, "/dead-letters", status="any")
    pending = await one(api, "/inbox", kind="output")
    steps = (await got(api, f"/episodes/{episode['episode_id']}/steps"))["items"]
    words = {
        "episode": episode["episode_id"],
        "finding": quote(finding["finding_key"], safe=""),
        "output": quote(output["output_key"], safe=""),
        "instance": instance["instance_id"],
        "letter": letter["letter_key"],
    }
    own = {
        "episodes.get": (f"/episodes/{words['episode'][:13]}", {}),
        "episodes.result": (f"/episodes/{words['episode']}/steps/{steps[0]['step_no']}/result", {}),
        "episodes.prompt": (f"/episodes/{agents['episode_id']}/prompt", {}),
        "episodes.replay": (f"/episodes/{agents['episode_id']}/journal", {}),
        "episodes.diff": (
            f"/episodes/{words['episode']}/diff",
            {"other": other["episode_id"]},
        ),
        "episodes.count_over_time": (None, {"since": SINCE, "span_s": 60}),
        "approvals.read": (f"/approvals/output/{quote(pending['id'], safe='')}", {}),
        "findings.get": (f"/findings/{words['finding']}", {}),
        "findings.causal_chain": (f"/findings/{words['finding']}/causes", {}),
        "findings.related": (f"/findings/{words['finding']}/related", {}),
        "outputs.get": (f"/outputs/{words['output']}", {}),
        "workflows.get": (f"/workflows/{words['instance']}", {}),
        "dead_letters.get": (f"/dead-letters/{words['letter']}", {}),
        "dead_letters.list": (None, {"status": "any"}),
        "actors.refusals": ("/actors/hosts/expectations/disk_has_room/refusals", {}),
        "nodes.read": ("/nodes/shop-1", {}),
        "people.get": ("/people/ann", {}),
        "people.sessions": ("/people/ann/sessions", {}),
        "events.why": (None, {"id": "event-0"}),
        "events.why_unheard": (None, {"name": "disk.measured"}),
        "definitions.changes": (None, {"since": SINCE}),
        "episodes.list": (None, {"since": SINCE, "actor": ["prices", "hosts"], "limit": 3}),
    }
    found = {}
    for each in OPERATIONS:
        if each.method != "GET" or each.is_stream:
            continue
        path, query = own.get(each.name, (None, {}))
        path = path or each.path.replace("{id}", words["episode"]).replace("{actor}", "prices")
        found[each.name] = (path, query)
    return found


NEED_A_DEFINITION = {"definitions.read", "definitions.diff", "definitions.history"}
"""The shop has none; they have a test of their own."""


async def test_every_question_is_answered_as_the_document_says(api):
    asked = await filled(api)
    wrong: dict[str, object] = {}
    for name, (path, query) in asked.items():
        if name in NEED_A_DEFINITION:
            continue
        answer = await api.get(path, params=query)
        if answer.status_code != 200:
            wrong[name] = (answer.status_code, answer.text[:300])
        elif found := faults(name, answer.json()):
            wrong[name] = found[:3]
    assert wrong == {}


PAYLOADS = {"payload", "args_redacted", "result", "evidence_refs", "details", "headers", "body"}


async def test_lists_have_no_payloads(api):
    for name, (path, query) in (await filled(api)).items():
        if name in NEED_A_DEFINITION or name == "episodes.replay":
            continue
        value = await got(api, path, **query)
        for item in value.get("items", ()) if isinstance(value, dict) else ():
            if isinstance(item, dict) and name != "workflows.get":
                assert not PAYLOADS & item.keys(), (name, PAYLOADS & item.keys())


async def test_a_list_is_read_page_by_page(api):
    seen, after = [], None
    for _ in range(20):
        query = {"limit": 4, "actor": "prices", **({"after": after} if after else {})}
        page = await got(api, "/episodes", **query)
        seen += [each["episode_id"] for each in page["items"]]
        if (after := page["next"]) is None:
            break
    whole = await got(api, "/episodes", actor="prices", limit=1000)
    assert seen == [each["episode_id"] for each in whole["items"]]
    assert len(seen) > 8
    counted = (await got(api, "/counts/episodes", actor="prices"))["counts"]
    assert sum(counted.values()) == len(seen)
    misplaced = await api.get("/findings", params={"after": "x"})
    assert misplaced.status_code == 404


async def test_an_episode_is_fired_once_by_its_key_and_waited_for(api):
    said = {"actor": "releases", "expectation": "release_is_wanted", "payload": {"version": "9.1"}}
    headers = {"idempotency-key": '"release-9.1"', NAME: "bob"}
    first = (await api.post("/episodes", json=said, headers=headers)).json()
    record = await until(
        api, f"/episodes/{first['episode_id']}", lambda found: found["status"] == "blocked"
    )
    again = (await api.post("/episodes", json=said, headers=headers)).json()
    assert first["episode_id"] == again["episode_id"]
    assert (first["is_new"], again["is_new"]) == (True, False)
    assert "was used before" in again["used"]
    assert record["trigger_ref"]["requested_by"] == "bob"
    open_ = await api.get(f"/episodes/{first['episode_id']}/end", params={"timeout_s": 0})
    assert open_.status_code == 409


async def test_a_person_approves_what_was_looked_at_and_the_journal_has_the_name(api):
    said = {"actor": "releases", "expectation": "release_is_wanted", "payload": {"version": "9.2"}}
    id_ = (await api.post("/episodes", json=said)).json()["episode_id"]
    waiting = await until(api, f"/approvals/episode/{id_}", lambda _: True)
    assert not faults("approvals.read", waiting)
    path = f"/approvals/episode/{id_}/approve"
    program = await api.post(path, json={}, headers={TOKEN: "agent"})
    viewer = await api.post(path, json={}, headers={ROLE: "viewer"})
    other = await api.post(path, json={"plan_hash": "0" * 8})
    assert [each.status_code for each in (program, viewer, other)] == [403, 403, 409]
    headers = {ROLE: "approver", NAME: "carol"}
    seen = {"plan_hash": waiting["plan_hash"][:8], "reason": "tests are green"}
    approved = await api.post(path, json=seen, headers=headers)
    assert approved.status_code == 200, approved.text
    again = await api.post(path, json=seen, headers=headers)
    assert again.status_code == 409
    lines = await until(
        api,
        f"/episodes/{id_}/timeline",
        lambda found: any(each["person"] == "carol" for each in found["items"]),
    )
    assert lines["items"]


async def test_orders_count_and_are_told_of_with_who_gave_them(api):
    operator = {ROLE: "operator", NAME: "dora"}
    paused = await api.post("/actors/billing/pause", json={"reason": "audit"}, headers=operator)
    actor = await got(api, "/actors/billing")
    resumed = await api.post("/actors/billing/resume", headers=operator)
    assert paused.json() == {"is_new": True, "says": "paused"}
    assert actor["summary"]["paused"] == "audit"
    assert resumed.json()["says"] == "resumed"
    mode = await api.put("/nodes/shop-9/mode", json={"mode": "disabled"}, headers=operator)
    unset = await api.delete("/nodes/shop-9/mode?reason=gone", headers=operator)
    assert (mode.status_code, unset.status_code) == (200, 200)
    orders = await until(api, "/orders", lambda found: len(found["items"]) > 1, actor="billing")
    assert {each["person"] for each in orders["items"]} == {"dora"}
    unknown = await api.post("/actors/biling/pause", json={})
    assert (unknown.status_code, unknown.json()["type"]) == (404, "urn:vigil:problem:not-found")


async def test_what_is_asked_of_several_has_an_outcome_for_each(api):
    answer = await api.post("/deliveries/retry", json={"keys": ["none:such", "nor:this"]})
    assert answer.status_code == 200
    assert [each["name"] for each in answer.json()["items"]] == ["none:such", "nor:this"]
    assert all(each["refused"] for each in answer.json()["items"])
    assert faults("outputs.retry", answer.json()) == []


async def test_findings_are_noted_acknowledged_and_cleared(api):
    finding = await one(api, "/findings")
    key = quote(finding["finding_key"], safe="")
    noted = await api.post(f"/findings/{key}/notes", json={"text": "seen"})
    acknowledged = await api.post(f"/findings/{key}/acknowledge")
    again = await api.post(f"/findings/{key}/acknowledge")
    assert noted.json() == {"is_made": True, "before": "active"}
    assert (acknowledged.json()["is_made"], again.json()["is_made"]) == (True, False)
    missing = await api.post("/findings/none/clear")
    assert missing.status_code == 404
    assert "vigil findings list" in missing.json()["remedy"]


STRATEGY = {
    "template": "observe_classify_converge",
    "config": {
        "gatherer": "disks",
        "rules": [{"when": {"disk.used": {"gte": 0.9}}, "class": "full", "severity": "high"}],
        "finding_config": {
            "key_template": "room:{subject_id}",
            "summary_template": "{subject_id} is full",
            "subject_kind": "host",
        },
    },
}


async def test_a_definition_is_applied_read_compared_and_disabled(api):
    watching = {"on": {"event": "api.seen"}, "subject_key": "host", "strategy": STRATEGY}
    body = {"id": "api_watch", "expectations": {"seen": watching}}
    later = {**body, "description": "Watches."}
    misspelt = {**body, "expectatons": {}}
    wrong = await api.post("/definitions", json={"definitions": [misspelt]})
    dry = await api.post("/definitions", json={"definitions": [body], "dry_run": True})
    missing = await api.get("/definitions/actor/api_watch")
    first = await api.post(
        "/definitions", json={"definitions": [body], "if_revision": 0}, headers={NAME: "dora"}
    )
    second = await api.post("/definitions", json={"definitions": [later], "reason": "words"})
    stale = await api.post("/definitions", json={"definitions": [body], "if_revision": 1})
    assert (wrong.status_code, missing.status_code, stale.status_code) == (422, 404, 409)
    assert "expectatons: there is no such field" in wrong.json()["detail"]
    assert [each.json()["items"][0]["revision"] for each in (dry, first, second)] == [1, 1, 2]
    assert faults("definitions.apply", second.json()) == []

    path = "/definitions/actor/api_watch"
    read = await got(api, path, revision=1)
    difference = await got(api, f"{path}/diff", since=1)
    history = await got(api, f"{path}/history")
    disabled = await api.post(f"{path}/disable", json={"reason": "tried"})
    listed = await got(api, "/definitions", kind="actor")
    assert read["definition"]["id"] == "api_watch"
    assert difference["items"] == ['+ description: "Watches."']
    assert [each["person"] for each in history["items"]] == ["dora", "ann"]
    assert faults("definitions.history", history) == []
    assert (disabled.json()["holds"], disabled.status_code) == (False, 200)
    assert ("api_watch", False) in [(each["id"], each["holds"]) for each in listed["items"]]


async def test_sql_is_asked_by_operators(api):
    text = {"text": "select count(*) as n from episodes"}
    viewer = await api.post("/sql", json=text, headers={ROLE: "viewer"})
    token = await api.post("/sql", json=text, headers={TOKEN: "t", SCOPES: "read"})
    operator = await api.post("/sql", json=text, headers={ROLE: "operator"})
    writing = await api.post("/sql", json={"text": "delete from episodes"})
    assert (viewer.status_code, token.status_code) == (403, 403)
    assert operator.json()["columns"] == ["n"]
    assert writing.status_code == 422


async def test_repairs_tell_what_they_would_do(api):
    for path, name in (("/recover", "repairs.recover"), ("/reconcile", "repairs.reconcile")):
        answer = await api.post(path, json={"dry_run": True})
        assert answer.status_code == 200, answer.text
        assert faults(name, answer.json()) == []
    rebuilt = await api.post("/orders/rebuild", json={"dry_run": True})
    assert rebuilt.json()["items"] == []
