"""What an expectation may listen to, and what its episode gets to know."""

from __future__ import annotations

import pytest

from engine.filters import gt, in_
from engine.trigger import (
    ENTITY_CHARS_MAX,
    SOURCES_MAX,
    EventSource,
    entity_id,
    event,
    sources_of,
    trigger_of,
)
from streams.triggers import EventTrigger
from streams.world import DomainEvent
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


@pytest.mark.parametrize(
    ("on", "problem"),
    [
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
