"""What a request may say, and how it is told what it may not."""

from __future__ import annotations

import json

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.web.api.conftest import ADMIN, api_on, asking
from vigil.client import Client
from vigil.web.api.asking import BODY_BYTES_MAX

JSON = {"content-type": "application/json"}

PATIENT = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
"""A busy machine makes examples slowly."""

FIRE = {"actor": "dba", "expectation": "disk"}


def kind(answer: httpx.Response) -> tuple[int, str]:
    """Return the status of a problem, and the last part of what programs tell it by."""
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, answer.json()["type"].rpartition(":")[2]


async def test_a_field_of_a_wrong_type_is_named(api):
    answer = await api.post("/episodes", json={**FIRE, "priority": "high"})
    assert kind(answer) == (422, "mistake")
    assert answer.json()["detail"] == "priority: expected int, got str"
    assert answer.json()["errors"] == [
        {"field": "priority", "says": "priority: expected int, got str"},
    ]


async def test_a_field_within_a_field_is_named(api):
    overrides = {"failures": {"disk.read": {"error_clas": "timeout"}}}
    answer = await api.post("/episodes", json={**FIRE, "overrides": overrides})
    assert kind(answer) == (422, "mistake")
    assert answer.json()["errors"][0]["field"] == "overrides.failures[...]"


async def test_an_unknown_field_is_refused(api):
    answer = await api.post("/episodes", json={**FIRE, "prioritty": 1})
    assert kind(answer) == (422, "mistake")
    assert answer.json()["detail"] == "prioritty: contains unknown field prioritty"


async def test_a_missing_field_is_named(api):
    answer = await api.post("/episodes", json={"actor": "dba"})
    assert kind(answer) == (422, "mistake")
    assert answer.json()["errors"][0]["field"] == "expectation"


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=x", "limit"),
        ("limit=1&limit=2", "limit"),
        ("reverse=perhaps", "reverse"),
        ("since=2026-01-01T00:00:00", "since"),
        ("sinse=2026-01-01T00:00:00Z", "sinse"),
    ],
)
async def test_what_a_query_may_not_say_is_named(api, query, field):
    answer = await api.get(f"/episodes?{query}")
    assert kind(answer) == (422, "mistake")
    assert answer.json()["errors"][0]["field"] == field


async def test_an_unknown_status_is_told_with_a_remedy(api):
    answer = await api.get("/episodes?status=don&status=failed")
    assert kind(answer) == (422, "mistake")
    assert answer.json()["remedy"] == "did you mean done?"


async def test_what_the_path_says_is_not_said_again(api):
    in_body = await api.post("/findings/disk/notes", json={"key": "other", "text": "x"})
    in_query = await api.get("/episodes/3f2a/steps?id=4f")
    assert kind(in_body) == kind(in_query) == (422, "mistake")
    assert in_body.json()["errors"][0]["field"] == "key"


async def test_fields_of_a_body_are_not_taken_from_the_query(api):
    answer = await api.post("/episodes?priority=1", json=FIRE)
    assert kind(answer) == (422, "mistake")


async def test_a_body_must_say_that_it_is_json(api):
    for content_type in ("text/plain", "application/x-www-form-urlencoded", ""):
        headers = {"content-type": content_type}
        answer = await api.post("/episodes", content=json.dumps(FIRE), headers=headers)
        assert kind(answer) == (415, "not-json")
        assert answer.headers["accept-post"] == "application/json"


async def test_a_body_that_is_no_json_is_malformed(api):
    for body in (b"{", b"\xff\xfe", b'{"actor": NaN}', b'{"a":1}x', b"["):
        answer = await api.post("/episodes", content=body, headers=JSON)
        assert kind(answer) == (400, "malformed")


async def test_a_body_that_is_no_object_is_a_mistake(api):
    for body in (b"[]", b"1", b"null", b'"x"'):
        answer = await api.post("/episodes", content=body, headers=JSON)
        assert kind(answer) == (422, "mistake")


async def test_a_body_that_is_nested_too_deep_is_refused(api):
    for depth in (65, 100_000):
        body = b'{"payload":' + b"[" * depth + b"]" * depth + b"}"
        answer = await api.post("/episodes", content=body, headers=JSON)
        assert kind(answer) == (400, "malformed")
        assert "nested" in answer.json()["detail"] or "recursion" in answer.json()["detail"]


async def test_a_body_that_is_too_long_is_refused_with_or_without_its_length(api):
    async def parts():
        for _ in range(3):
            yield b" " * (BODY_BYTES_MAX // 2)

    announced = await api.post("/episodes", content=b" " * (BODY_BYTES_MAX + 1), headers=JSON)
    streamed = await api.post("/episodes", content=parts(), headers=JSON)
    assert kind(announced) == kind(streamed) == (413, "too-large")


async def test_a_path_that_there_is_not(api):
    for path in ("/episods", "/episodes/1/2/3/4", "/", "/findings//clear", "/%ff"):
        assert kind(await api.get(path)) == (404, "no-such-path")


async def test_a_method_that_a_path_has_not(api):
    answer = await api.delete("/episodes")
    assert kind(answer) == (405, "method-not-allowed")
    assert answer.headers["allow"] == "GET, HEAD, OPTIONS, POST"


async def test_other_origins_are_told_nothing(api):
    headers = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    answer = await api.options("/episodes", headers=headers)
    assert answer.status_code == 204
    assert answer.headers["allow"] == "GET, HEAD, OPTIONS, POST"
    assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_nothing_is_kept_by_caches(api):
    for path in ("/nodes", "/episodes?limit=0", "/nothing"):
        answer = await api.get(path)
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_a_key_may_have_slashes_and_dots_in_it(api):
    for key in ("host%2Fdisk", "a%2Fclear", "%2e%2e%2fsecret", "%00"):
        answer = await api.post(f"/findings/{key}/clear", json={})
        assert kind(answer) == (404, "not-found")


async def test_an_idempotency_key_opens_one_episode(api):
    first, again, bare = [
        await api.post("/episodes", json=FIRE, headers={"idempotency-key": key})
        for key in ('"deploy-7"', '"deploy-7"', "deploy-7")
    ]
    assert {each.json()["episode_id"] for each in (again, bare)} == {first.json()["episode_id"]}
    assert first.json()["is_new"]
    same = await api.post("/episodes", json={**FIRE, "key": "deploy-7"})
    assert same.json()["episode_id"] == first.json()["episode_id"]


async def test_two_idempotency_keys_are_refused(api):
    headers = {"idempotency-key": '"one"'}
    answer = await api.post("/episodes", json={**FIRE, "key": "two"}, headers=headers)
    assert kind(answer) == (400, "malformed")


@pytest.mark.parametrize("key", ["", '""', "x" * 513])
async def test_an_idempotency_key_has_a_length(api, key):
    answer = await api.post("/episodes", json=FIRE, headers={"idempotency-key": key})
    assert kind(answer) == (400, "malformed")


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/findings/disk/notes"), ("GET", "/nodes"), ("POST", "/actors/dba/pause")],
)
async def test_what_heeds_no_idempotency_key_refuses_it(api, method, path):
    headers = {"idempotency-key": '"k"'}
    body = {"json": {"text": "x"}} if "notes" in path else {}
    answer = await api.request(method, path, headers=headers, **body)
    assert kind(answer) == (400, "malformed")
    assert "does not heed it" in answer.json()["detail"]


async def test_an_event_is_published_once_by_its_idempotency_key(api):
    headers = {"idempotency-key": '"order-17/placed"'}
    first = await api.post("/events/order.placed", json={"order": 17}, headers=headers)
    again = await api.post("/events/order.placed", json={"order": 17}, headers=headers)
    assert (first.json()["id"], first.json()["is_new"]) == ("order-17/placed", True)
    assert (again.json()["seq"], again.json()["is_new"]) == (first.json()["seq"], False)


async def test_a_name_that_no_event_has_is_a_mistake(api):
    answer = await api.post("/events/disk%20full", json={})
    assert kind(answer) == (422, "mistake")


async def test_a_signal_is_not_published_as_an_event(api):
    answer = await api.post("/events/wait.resolved", json={"ref": "r", "by": "boss"})
    assert kind(answer) == (403, "forbidden")
    assert answer.json()["needs"] == {"scope": "signals:send"}


async def test_rows_that_there_are_not_are_trouble(api):
    answer = await api.get("/episodes")
    assert kind(answer) == (409, "trouble")
    assert answer.json()["detail"] == "this client has no rows to ask"


async def test_a_server_that_is_away_is_told_with_when_to_come_again():
    async with (
        Client(nats_url="nats://127.0.0.1:9", postgres_dsn="postgresql://127.0.0.1:9/x") as client,
        asking(api_on(client), **ADMIN) as api,
    ):
        for answer in (await api.get("/actors"), await api.get("/episodes")):
            assert kind(answer) == (503, "server-away")
            assert answer.headers["retry-after"] == "5"
            assert "vigil doctor" in answer.json()["remedy"]


async def test_what_nobody_expected_is_told_without_a_word_of_it(api, ports, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("the secret of the stack")

    monkeypatch.setattr(type(ports.gates), "entries", broken)
    answer = await api.get("/actors")
    assert kind(answer) == (500, "internal")
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text


@settings(suppress_health_check=PATIENT, deadline=None)
@given(body=st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
async def test_any_bytes_are_an_answer_and_no_failure(api, body):
    for path in ("/episodes", "/events/x", "/findings/k/clear", "/sql", "/definitions"):
        answer = await api.post(path, content=body, headers=JSON)
        assert answer.status_code != 500, answer.text


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)

FIELDS = st.sampled_from(
    ["actor", "expectation", "payload", "key", "at", "overrides", "budget", "metadata", "priority"]
)


@settings(suppress_health_check=PATIENT, deadline=None)
@given(body=st.dictionaries(FIELDS, VALUES))
async def test_any_json_is_an_answer_and_no_failure(api, body):
    answer = await api.post("/episodes", content=json.dumps(FIRE | body), headers=JSON)
    assert answer.status_code != 500, answer.text
