"""What an expectation may listen to, and what its episode gets to know."""

from __future__ import annotations

import pytest

from engine.app.conditions import gt, in_
from engine.app.triggers import (
    ENTITY_CHARS_MAX,
    SOURCES_MAX,
    Cron,
    EventSource,
    Every,
    ManualSource,
    WorkflowSource,
    cron,
    entity_id,
    event,
    every,
    manual,
    schedules_of,
    sources_of,
    trigger_of,
    workflow,
)
from streams.model.foreign_streams import ForeignStream
from streams.model.triggers import CloudEvent, EventTrigger
from streams.ports.domain_events import DomainEvent
from tests.spec import EPOCH


def test_an_episode_gets_all_that_its_event_says():
    happened = DomainEvent(
        id="x1", name="disk.measured", payload={"host": "web-1"}, seq=1, at=EPOCH, hops=2
    )
    assert trigger_of(happened, subject_key="host") == EventTrigger(
        event_id="x1",
        event_type="disk.measured",
        payload={"host": "web-1"},
        entity_id="web-1",
        hops=2,
    )


def test_of_a_feed_it_also_gets_the_stream_and_what_a_cloud_event_says_of_itself():
    cloud = CloudEvent(type="placed", source="shop")
    happened = DomainEvent(
        id="ORDERS:7", name="orders.1", payload={}, seq=7, at=EPOCH, cloud=cloud, stream="ORDERS"
    )
    fired = trigger_of(happened, subject_key="", coalesced=3)
    assert (fired.event_type, fired.stream, fired.cloud) == ("orders.1", "ORDERS", cloud)
    assert fired.coalesced == 3


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("web-1", "web-1"),
        ("", ""),
        (7, "7"),
        (7.5, "7.5"),
        (True, "true"),
        (None, ""),
        ([1, "a"], '[1,"a"]'),
        ({"a": 1}, '{"a":1}'),
        ("x" * 600, "x" * ENTITY_CHARS_MAX),
    ],
)
def test_the_subject_is_the_payloads_value_as_text(value, text):
    assert entity_id({"host": value}, "host") == text


def test_the_subject_may_lie_deeper():
    assert entity_id({"order": {"id": "o-17"}}, "order.id") == "o-17"


@pytest.mark.parametrize("subject_key", ["", "absent", "x.y"])
def test_without_a_key_or_a_value_there_is_no_subject(subject_key):
    assert entity_id({"": "x"}, subject_key) == ""


@pytest.mark.parametrize("names", [(), ("",), ("disk measured",), ("disk.*",), (".a",), ("a.",)])
def test_a_trigger_needs_names_that_events_can_have(names):
    with pytest.raises(ValueError, match="name"):
        event(*names)


def test_a_filter_that_cannot_work_is_refused_where_it_is_written():
    with pytest.raises(ValueError, match=r"event\(\): filter: 'disk.used': gt\(None\): compare"):
        event("disk.measured", filter={"disk.used": gt(None)})


def test_one_trigger_or_several_are_kept_in_order():
    one, other = event("disk.measured", filter={"mount": ["/"]}), event("disk.changed")
    assert sources_of(one) == (one,)
    assert sources_of([one, other]) == sources_of((one, other)) == (one, other)


def test_a_list_of_values_is_a_choice():
    assert event("a.b", filter={"mount": ["/", "/var"]}) == event(
        "a.b", filter={"mount": in_("/", "/var")}
    )


ORDERS = event(stream="ORDERS", subject="orders.*.placed", start="all", filter={"n": gt(1)})


def test_a_stream_that_is_there_may_be_listened_to():
    assert ORDERS.foreign == ForeignStream(stream="ORDERS", subject="orders.*.placed", start="all")
    assert event(stream="ORDERS").foreign == ForeignStream(
        stream="ORDERS", subject=">", start="new"
    )
    assert sources_of(ORDERS) == (ORDERS,)


@pytest.mark.parametrize(
    ("source", "stream", "name", "watches"),
    [
        (ORDERS, "ORDERS", "orders.1.placed", True),
        (ORDERS, "ORDERS", "orders.1.paid", False),
        (ORDERS, "OTHERS", "orders.1.placed", False),
        (ORDERS, "", "orders.1.placed", False),
        (event("order.placed"), "", "order.placed", True),
        (event("order.placed"), "ORDERS", "order.placed", False),
    ],
)
def test_events_of_a_stream_and_our_own_are_told_apart(source, stream, name, watches):
    happened = DomainEvent(id="x", name=name, payload={}, seq=1, at=EPOCH, stream=stream)
    assert source.watches(happened) == watches


@pytest.mark.parametrize(
    ("names", "said", "problem"),
    [
        (("a.b",), {"stream": "S"}, "name events, or a stream with a subject, not both"),
        (("a.b",), {"subject": "x.>"}, "subject= and start= need stream=, the name of a JetStream"),
        (("a.b",), {"start": "all"}, "subject= and start= need stream="),
        ((), {"subject": "x.>"}, "subject= and start= need stream="),
        ((), {"stream": ""}, "name at least one domain event"),
        ((), {"stream": "a b"}, "stream: 'a b' is not a stream; use 1 to 64 of A-Z a-z 0-9 _ -"),
        ((), {"stream": 5}, "stream: 5 is not text"),
        ((), {"stream": "S", "subject": 5}, "subject: 5 is not text"),
        ((), {"stream": "S", "subject": ""}, "subject: '' is not words joined by dots"),
        ((), {"stream": "S", "subject": "a*"}, "'a*'; a wildcard is a word of its own"),
        ((), {"stream": "S", "subject": "a.>.b"}, "> is the last word or none"),
        ((), {"stream": "S", "start": "later"}, 'use "new", "all", a time or a sequence from 1'),
        ((), {"stream": "S", "start": 0}, 'use "new", "all", a time or a sequence from 1'),
        ((5,), {}, "5 is not the name of a domain event"),
        (("a b",), {}, "'a b'"),
    ],
)
def test_names_and_streams_that_cannot_be_listened_to_are_told_so(names, said, problem):
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the message is asserted below
        event(*names, **said)
    assert problem in str(refused.value)
    assert str(refused.value).startswith("event(): ")


def test_schedules_people_and_workflows_are_triggers_among_others():
    on = [event("a.b"), every("15m"), manual(), cron("@daily"), workflow()]
    assert sources_of(on) == (
        event("a.b"),
        Every(900),
        ManualSource(),
        Cron("0 0 * * *"),
        WorkflowSource(),
    )
    assert schedules_of(sources_of(on)) == (Every(900), Cron("0 0 * * *"))


@pytest.mark.parametrize(
    ("function", "call"),
    [
        (manual, "manual()"),
        (workflow, "workflow()"),
        (event, "event('some.name')"),
        (every, "every('15m')"),
        (cron, "cron('@hourly')"),
    ],
)
def test_a_trigger_that_was_not_called_is_told_how(function, call):
    for on in (function, [event("a.b"), function]):
        with pytest.raises(ValueError, match="must be called") as refused:
            sources_of(on)
        assert f"as in {call}" in str(refused.value)


@pytest.mark.parametrize(
    ("on", "problem"),
    [
        (Every(0), "every(): interval: 0 is not from 1s to 366d long"),
        (Cron("* * * *"), "cron(): expression: '* * * *': 4 fields, not 5; write minute, hour"),
        (Cron("* * * * *", tz="Mars"), "cron(): tz: 'Mars' is not a time zone; write one such as"),
        (EventSource((), {}, ForeignStream(stream="a b")), "stream: 'a b' is not a stream"),
        (EventSource(("a.b",), {}, ForeignStream(stream="S")), "name events, or a stream"),
        ("disk.measured", "'disk.measured' is not a trigger; use event('some.name')"),
        (None, "None is not a trigger"),
        ({event("a.b").names}, "is not a trigger"),
        ([], "0 triggers; give 1 to 64"),
        ([event("a.b")] * (SOURCES_MAX + 1), "65 triggers; give 1 to 64"),
        ([event("a.b"), "c.d"], "'c.d' is not a trigger; use event('some.name')"),
        ([event("a.b"), None], "None is not a trigger; use event('some.name')"),
        (EventSource(()), "name at least one domain event"),
        ([EventSource(("a b",))], "'a b' is not a dotted name"),
        (EventSource(("a.b",), {"it": gt(None)}), "gt(None): compare with"),
    ],
)
def test_what_is_no_trigger_is_told_so(on, problem):
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the message is asserted below
        sources_of(on)
    assert problem in str(refused.value)
