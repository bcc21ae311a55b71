"""What deliveries become: pure functions of headers and body."""

from __future__ import annotations

import json
import re
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.web.webhooks import sent
from vigil.web.webhooks.alerts import alerts_of
from vigil.web.webhooks.cloud_events import of_cloud_events
from vigil.web.webhooks.mapping import (
    BadDelivery,
    MappedEvent,
    WebhookDelivery,
    as_id,
    as_name,
    checked,
)
from vigil.web.webhooks.own import own_mapping
from vigil.web.webhooks.services import of_github, of_pagerduty, of_standard

STRUCTURED = {"content-type": "application/cloudevents+json; charset=utf-8"}


def delivery(body, headers=None):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return WebhookDelivery(headers=headers or {}, body=data)


def test_a_group_of_alerts_is_an_event_for_each_alert():
    firing, resolved = alerts_of(delivery(sent.ALERTMANAGER))
    assert (firing.name, resolved.name) == ("alert.firing", "alert.resolved")
    assert firing.id == "1a30ba71cca2921f/2026-11-29T09:08:45.828Z/firing"
    assert resolved.id == "7c6e0f7f0d0a1b22/2026-11-29T08:00:00Z/resolved"
    assert firing.payload == {
        "status": "firing",
        "labels": sent.ALERTMANAGER["alerts"][0]["labels"],
        "annotations": {"summary": "https://pay.example has been down for 5 minutes"},
        "starts_at": "2026-11-29T09:08:45.828Z",
        "ends_at": None,
        "fingerprint": "1a30ba71cca2921f",
        "generator_url": sent.ALERTMANAGER["alerts"][0]["generatorURL"],
        "receiver": "vigil",
        "group_key": sent.ALERTMANAGER["groupKey"],
        "group_labels": {"alertname": "ProbeFailed"},
        "external_url": "http://alertmanager.example:9093",
        "truncated_alerts": 0,
    }
    assert resolved.payload["ends_at"] == "2026-11-29T09:05:00Z"


def test_an_alert_of_an_old_alertmanager_is_told_by_its_labels():
    alert = {key: v for key, v in sent.ALERTMANAGER["alerts"][0].items() if key != "fingerprint"}
    other = {**alert, "labels": {**alert["labels"], "instance": "other"}}
    mapped = alerts_of(delivery({"alerts": [alert, alert, other]}))
    first, again, third = (each.id for each in mapped)
    assert first == again != third
    assert mapped[0].payload["fingerprint"] == first.partition("/")[0]


def test_grafana_tells_more_of_an_alert():
    (alert,) = alerts_of(delivery(sent.GRAFANA))
    assert alert.id == "c6eadffa33fcdf37/2026-11-29T09:51:03.157076+02:00/firing"
    assert alert.payload["values"] == {"B": 44.23, "C": 1.0}
    assert alert.payload["silence_url"] == "https://grafana.example/alerting/silence/new"


def test_github_is_told_by_event_and_action():
    (event,) = of_github(delivery(sent.GITHUB, sent.GITHUB_HEADERS))
    assert event == MappedEvent(
        name="github.issues.opened",
        payload=sent.GITHUB,
        id="72d3162e-cc78-11e3-81ab-4c9367dc0958",
    )
    (pushed,) = of_github(
        delivery({"ref": "main"}, {**sent.GITHUB_HEADERS, "x-github-event": "push"})
    )
    assert pushed.name == "github.push"


def test_github_sends_a_form_unless_it_is_told_otherwise():
    form = urlencode({"payload": json.dumps(sent.GITHUB)}).encode()
    headers = {**sent.GITHUB_HEADERS, "content-type": "application/x-www-form-urlencoded"}
    (event,) = of_github(delivery(form, headers))
    assert event.payload == sent.GITHUB
    for bad in (b"", b"payload=1&payload=2", b"payload=%7B", b"\xff=1"):
        with pytest.raises(BadDelivery):
            of_github(delivery(bad, headers))


def test_what_github_says_adds_no_word_to_the_name():
    headers = {**sent.GITHUB_HEADERS, "x-github-event": "finding.raised"}
    (event,) = of_github(delivery({"action": "a.b c"}, headers))
    assert event.name == "github.finding_raised.a_b_c"


def test_pagerduty_is_told_by_its_event_type():
    (event,) = of_pagerduty(delivery(sent.PAGERDUTY))
    assert event == MappedEvent(
        name="pagerduty.incident.triggered",
        payload=sent.PAGERDUTY["event"],
        id="01CH754SM17TWPE2V2H4VPBRO7",
    )


def test_standard_webhooks_are_told_by_their_type():
    (event,) = of_standard(delivery(sent.STANDARD, {"webhook-id": "msg_1"}))
    assert event == MappedEvent(name="invoice.paid", payload=sent.STANDARD, id="msg_1")


def test_a_cloud_event_is_the_same_in_structured_and_in_binary_mode():
    (structured,) = of_cloud_events(delivery(sent.CLOUD_EVENT, STRUCTURED))
    headers = {
        f"ce-{name}": value
        for name, value in sent.CLOUD_EVENT.items()
        if name not in {"data", "datacontenttype"}
    }
    json_type = {"content-type": "application/json"}
    (binary,) = of_cloud_events(delivery(sent.CLOUD_EVENT["data"], {**headers, **json_type}))
    assert structured == binary
    assert structured == MappedEvent(
        name="com.example.disk.measured",
        payload=sent.CLOUD_EVENT,
        id="/hosts/web-7/C234-1234-1234",
    )


def test_cloud_events_come_in_batches_too():
    batch = {"content-type": "application/cloudevents-batch+json"}
    events = of_cloud_events(delivery([sent.CLOUD_EVENT, {**sent.CLOUD_EVENT, "id": "C2"}], batch))
    assert [each.id for each in events] == ["/hosts/web-7/C234-1234-1234", "/hosts/web-7/C2"]
    assert of_cloud_events(delivery([], batch)) == []


def test_a_binary_cloud_event_may_have_text_or_bytes():
    headers = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "s%20t", "ce-type": "t"}
    (text,) = of_cloud_events(delivery(b"full", {**headers, "content-type": "text/plain"}))
    assert (text.payload["data"], text.payload["source"]) == ("full", "s t")
    (octets,) = of_cloud_events(delivery(b"\xff\x00", {**headers, "content-type": "x/y"}))
    assert octets.payload["data_base64"] == "/wA="
    (empty,) = of_cloud_events(delivery(b"", headers))
    assert "data" not in empty.payload


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"specversion": "0.3"}, "is not 1.0"),
        ({"id": ""}, "at least one character"),
        ({"type": None}, "no CloudEvent"),
    ],
)
def test_what_is_no_cloud_event_of_version_1_is_refused(change, says):
    with pytest.raises(BadDelivery, match=says):
        of_cloud_events(delivery({**sent.CLOUD_EVENT, **change}, STRUCTURED))
    with pytest.raises(BadDelivery, match="neither of type"):
        of_cloud_events(delivery(sent.CLOUD_EVENT, {"content-type": "application/json"}))


def test_a_mapping_of_ones_own_takes_name_id_and_payload_from_where_it_is_told():
    mapping = own_mapping(
        event="build.{body.status}",
        id="{headers.x-delivery}/{body.build.id}",
        payload="body.build",
    )
    body = {"status": "fai.led", "build": {"id": 17}}
    (event,) = mapping.events(delivery(body, {"x-delivery": "d1"}))
    assert event == MappedEvent(name="build.fai_led", payload={"id": 17}, id="d1/17")


def test_a_mapping_of_ones_own_may_be_an_event_for_each_item():
    mapping = own_mapping(
        event="host.{item.state}", id="{body.run}/{item.host}", each="body.hosts", payload="item"
    )
    body = {"run": 3, "hosts": [{"host": "a", "state": "up"}, {"host": "b", "state": "down"}]}
    events = mapping.events(delivery(body))
    assert [(each.name, each.id) for each in events] == [("host.up", "3/a"), ("host.down", "3/b")]
    assert mapping.events(delivery({**body, "hosts": []})) == []


@pytest.mark.parametrize(
    "body",
    [{}, {"status": None, "build": {}}, {"status": "ok"}, {"status": "ok", "build": [1]}, []],
)
def test_what_a_mapping_of_ones_own_does_not_find_is_refused(body):
    mapping = own_mapping(event="build.{body.status}", payload="body.build")
    with pytest.raises(BadDelivery):
        mapping.events(delivery(body))
    listing = own_mapping(event="x", each="body.hosts", payload="item")
    with pytest.raises(BadDelivery):
        listing.events(delivery({"hosts": {}}))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"event": "build.{status}"}, "event: {status} is no placeholder"),
        ({"event": "build.{item.x}"}, "event: {item.x} is no placeholder"),
        ({"event": "build status"}, "event: "),
        ({"event": "x", "id": "{y}"}, "id: {y} is no placeholder"),
        ({"event": "x", "payload": "item"}, "payload: 'item' begins with none of body, headers"),
        ({"event": "x", "each": "item.x"}, "each: 'item.x' begins with none of body, headers"),
        ({"event": "x", "payload": "body..x"}, "payload: 'body..x' is not a path"),
    ],
)
def test_a_mapping_of_ones_own_that_cannot_work_is_told(given, says):
    with pytest.raises(ValueError, match=rf"^{re.escape(says)}"):
        own_mapping(**given)


EVENT = MappedEvent(name="a.b", payload={}, id="1")


@pytest.mark.parametrize(
    ("event", "says"),
    [
        (MappedEvent(name="a b", payload={}, id="1"), "event 2: "),
        (MappedEvent(name="", payload={}, id="1"), "event 2: "),
        (MappedEvent(name="finding.raised", payload={}, id="1"), "of the engine or of people"),
        (MappedEvent(name="wait.resolved", payload={}, id="1"), "of the engine or of people"),
        (MappedEvent(name="a", payload={"x": "y" * 600_000}, id="1"), "the limit of an event"),
    ],
)
def test_nothing_is_published_of_a_delivery_that_cannot_be_as_a_whole(event, says):
    with pytest.raises(BadDelivery, match=says):
        checked([EVENT, event])


def test_a_payload_that_is_nested_too_deep_is_refused():
    deep: dict = {}
    for _ in range(70):
        deep = {"x": deep}
    with pytest.raises(BadDelivery, match="nested deeper"):
        checked([MappedEvent(name="a", payload=deep, id="1")])


def test_a_delivery_has_a_limit_of_events():
    with pytest.raises(BadDelivery, match="1,001 events"):
        checked([EVENT] * 1_001)


def test_ids_and_names_fit():
    assert as_id("a", "b") == "a/b"
    assert len(as_id("x" * 600)) == 32
    assert as_id("x" * 600) != as_id("x" * 601)
    assert as_name("com.example/x.v1") == "com.example_x.v1"


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=10,
)

MAPPINGS = {
    "alerts": alerts_of,
    "github": of_github,
    "pagerduty": of_pagerduty,
    "standard": of_standard,
    "cloud_events": of_cloud_events,
    "own": own_mapping(event="x.{body.a}", id="{body.b}", each="body.c", payload="item").events,
}

SENT = [sent.ALERTMANAGER, sent.GITHUB, sent.PAGERDUTY, sent.CLOUD_EVENT, sent.STANDARD]


@pytest.mark.parametrize("name", MAPPINGS)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    body=st.binary(max_size=60)
    | ANY.map(lambda value: json.dumps(value).encode())
    | st.tuples(st.sampled_from(SENT), st.dictionaries(st.text(max_size=6), ANY)).map(
        lambda pair: json.dumps({**pair[0], **pair[1]}).encode()
    ),
    headers=st.sampled_from(
        [
            {},
            {**sent.GITHUB_HEADERS, "webhook-id": "m"},
            STRUCTURED,
            {"ce-id": "1", "ce-source": "s", "ce-type": "t", "ce-specversion": "1.0"},
        ]
    ),
)
def test_whatever_is_sent_becomes_events_or_is_refused(name, body, headers):
    try:
        events = MAPPINGS[name](WebhookDelivery(headers=headers, body=body))
    except BadDelivery:
        return
    assert all(isinstance(each, MappedEvent) for each in events)
