"""What fires an expectation, and why something does not."""

from __future__ import annotations

import pytest

from engine.trigger import ENTITY_CHARS_MAX, EventSource, Fire, Refuse, event, problem_of, rule
from streams.events import EventTrigger
from streams.world import HOPS_MAX, DomainEvent
from tests.spec import EPOCH


def happened(name="disk.measured", payload=None, *, hops=0):
    return DomainEvent(id="x1", name=name, payload=payload or {}, seq=1, at=EPOCH, hops=hops)


def test_an_event_of_that_name_fires_with_all_that_it_says():
    fired = rule(
        event("disk.measured"), happened(payload={"host": "web-1"}, hops=2), subject_key="host"
    )
    assert fired == Fire(
        EventTrigger(
            event_id="x1",
            event_type="disk.measured",
            payload={"host": "web-1"},
            entity_id="web-1",
            hops=2,
        )
    )


def test_any_of_several_names_fires():
    source = event("disk.measured", "disk.changed")
    assert isinstance(rule(source, happened("disk.changed"), subject_key=""), Fire)


@pytest.mark.parametrize("name", ["disk", "disk.measured.twice", "disk.*"])
def test_another_name_does_not_fire(name):
    assert rule(event("disk.measured"), happened(name), subject_key="") == Refuse("not_watched")


@pytest.mark.parametrize(
    ("wanted", "payload"),
    [
        ({"mount": "/"}, {"mount": "/"}),
        ({"mount": ["/", "/var"]}, {"mount": "/var"}),
        ({"mount": ("/", "/var")}, {"mount": "/"}),
        ({"level": {1, 2}}, {"level": 2}),
        ({"mount": None}, {"mount": None}),
        ({"mount": {"a": 1}}, {"mount": {"a": 1}}),
        ({"mount": "/", "level": 1}, {"mount": "/", "level": 1, "more": True}),
        ({}, {}),
    ],
)
def test_a_payload_that_fits_the_filter_fires(wanted, payload):
    source = event("disk.measured", filter=wanted)
    assert isinstance(rule(source, happened(payload=payload), subject_key=""), Fire)


@pytest.mark.parametrize(
    ("wanted", "payload", "key"),
    [
        ({"mount": "/"}, {"mount": "/var"}, "mount"),
        ({"mount": ["/", "/var"]}, {"mount": "/home"}, "mount"),
        ({"mount": []}, {"mount": "/"}, "mount"),
        ({"mount": "/"}, {"mount": None}, "mount"),
        ({"mount": "/"}, {"mount": ["/"]}, "mount"),
        ({"mount": "/", "level": 1}, {"mount": "/", "level": 2}, "level"),
    ],
)
def test_a_payload_that_does_not_fit_is_refused_by_key(wanted, payload, key):
    source = event("disk.measured", filter=wanted)
    assert rule(source, happened(payload=payload), subject_key="") == Refuse("filter", key)


def test_an_event_that_lacks_a_filtered_key_does_not_fire():
    source = event("disk.measured", filter={"mount": None})
    assert rule(source, happened(), subject_key="") == Refuse("filter_key_missing", "mount")


def test_a_chain_of_engine_made_events_ends():
    source = event("disk.measured")
    assert isinstance(rule(source, happened(hops=HOPS_MAX), subject_key=""), Fire)
    assert rule(source, happened(hops=HOPS_MAX + 1), subject_key="") == Refuse(
        "too_many_hops", "17 of at most 16"
    )


@pytest.mark.parametrize(
    ("value", "entity_id"),
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
def test_the_subject_is_the_payloads_value_as_text(value, entity_id):
    fired = rule(event("disk.measured"), happened(payload={"host": value}), subject_key="host")
    assert fired.trigger.entity_id == entity_id


@pytest.mark.parametrize("subject_key", ["", "absent"])
def test_without_a_key_or_a_value_there_is_no_subject(subject_key):
    fired = rule(event("disk.measured"), happened(payload={"": "x"}), subject_key=subject_key)
    assert fired.trigger.entity_id == ""


@pytest.mark.parametrize("names", [(), ("",), ("disk measured",), ("disk.*",), (".a",), ("a.",)])
def test_a_trigger_needs_names_that_events_can_have(names):
    with pytest.raises(ValueError, match="name"):
        event(*names)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("disk.measured", "is not a trigger; use event('some.name')"),
        (None, "None is not a trigger"),
        (EventSource(()), "name at least one domain event"),
        (EventSource(("a b",)), "'a b' is not a dotted name"),
    ],
)
def test_what_is_no_trigger_is_told_so(source, problem):
    assert problem in problem_of(source)


def test_a_trigger_has_no_problem():
    assert problem_of(event("disk.measured", filter={"mount": ["/"]})) is None
