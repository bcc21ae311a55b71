"""Identity from causes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

from engine.app.dedupe import (
    KEY_CHARS_MAX,
    VALUE_CHARS_MAX,
    WINDOWS,
    by_event,
    by_payload,
    by_value,
    episode_id,
    event_key,
    key_of,
    problem_of_dedupe,
)
from engine.errors import StrategyError
from streams.ports.domain_events import DomainEvent
from tests.spec import EPOCH

CAUSE = {"stack": "vigil", "actor": "monitor", "expectation": "limits", "dedupe_key": "event:x1"}


@pytest.mark.parametrize(
    ("cause", "id_"),
    [
        (CAUSE, "f0d1e0b4-0d4a-870d-abee-e50ae7d1c755"),
        ({**CAUSE, "generation": 1}, "6814fc11-29fa-8c69-8583-8949fb0267cb"),
        ({**CAUSE, "dedupe_key": "event:ä/…"}, "8909291a-5152-855d-9200-35965b8fa3e1"),
    ],
)
def test_the_same_cause_gives_the_same_id_for_ever(cause, id_):
    assert episode_id(**cause) == id_


@forall(st.text(), st.integers(min_value=0, max_value=2**31))
def test_an_id_is_a_uuid_of_version_8_and_the_rfc_9562_variant(key, generation):
    id_ = UUID(episode_id(**{**CAUSE, "dedupe_key": key.encode(errors="replace").decode()},
                          generation=generation))  # fmt: skip
    assert (id_.version, id_.variant) == (8, RFC_4122)


@pytest.mark.parametrize("part", [*CAUSE, "generation"])
def test_any_other_part_gives_another_id(part):
    other = 1 if part == "generation" else CAUSE[part] + "x"
    assert episode_id(**{**CAUSE, part: other}) != episode_id(**CAUSE)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"stack": "ab", "actor": "c"}, {"stack": "a", "actor": "bc"}),
        ({"actor": "ab", "expectation": "c"}, {"actor": "a", "expectation": "bc"}),
        ({"actor": "a,b", "expectation": "c"}, {"actor": "a", "expectation": "b,c"}),
        ({"expectation": "ab", "dedupe_key": "c"}, {"expectation": "a", "dedupe_key": "bc"}),
        ({"expectation": 'a","b', "dedupe_key": "c"}, {"expectation": "a", "dedupe_key": 'b","c'}),
        ({"dedupe_key": "k1", "generation": 1}, {"dedupe_key": "k", "generation": 11}),
    ],
)
def test_a_shifted_boundary_gives_another_id(one, other):
    assert episode_id(**{**CAUSE, **one}) != episode_id(**{**CAUSE, **other})


def happened(payload=None, *, id_="x1", at=EPOCH):
    return DomainEvent(id=id_, name="a.b", payload=payload or {}, seq=1, at=at)


def key(dedupe, payload=None, **said):
    return key_of(dedupe, happened(payload, **said))


def test_an_events_key_is_its_identity_and_nothing_else():
    again = DomainEvent(id="x1", name="c.d", payload={"n": 1}, seq=9, at=EPOCH + timedelta(days=1))
    assert (
        event_key(happened().id) == event_key(again.id) == key_of(by_event(), again) == "event:x1"
    )


@pytest.mark.parametrize(
    ("dedupe", "payload", "expected"),
    [
        (by_payload(), {"b": 1, "a": [None]}, "payload:d3078a9103809d9a054c7a2638edcc44"),
        (
            by_payload("a", "b.c"),
            {"a": 1, "b": {"c": 2}},
            "payload:263154cc07a4273c9b9c8669aed18ccc",
        ),
        (by_value("order.id"), {"order": {"id": "o-17"}}, 'value:order.id="o-17"'),
        (by_value("order.id"), {"order": {"id": 17}}, "value:order.id=17"),
        (by_value("open"), {"open": True}, "value:open=true"),
        (by_value("n"), {"n": {"b": 1, "a": "ä"}}, 'value:n={"a":"ä","b":1}'),
        (by_value("n", window="h1"), {"n": 1}, "value:n=1@h1/2030-01-01T00:00Z"),
        (lambda event: f"{event.name}/{event.payload['n']}", {"n": 1}, "own:a.b/1"),
    ],
)
def test_a_key_is_the_same_for_ever(dedupe, payload, expected):
    assert key(dedupe, payload) == expected


def test_the_id_and_the_order_of_keys_do_not_matter_to_a_payload():
    one, other = {"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}
    assert key(by_payload(), one, id_="x1") == key(by_payload(), other, id_="x2")
    assert key(by_payload("a", "b.c"), one, id_="x1") == key(by_payload("a", "b.c"), other)


@pytest.mark.parametrize(
    ("dedupe", "one", "other"),
    [
        (by_payload(), {"a": 1}, {"a": 2}),
        (by_payload(), {"a": 1}, {"a": 1, "b": 1}),
        (by_payload("a", "b"), {"a": 1}, {"b": 1}),
        (by_payload("a", "b"), {"a": 1, "b": 2}, {"a": 2, "b": 1}),
        (by_payload("a"), {"a": "1"}, {"a": 1}),
        (by_payload("a"), {"a": 1}, {"a": True}),
        (by_value("a"), {"a": "1"}, {"a": 1}),
        (by_value("a"), {"a": "x" * 300}, {"a": "x" * 301}),
        (lambda event: str(event.payload["a"]), {"a": 1}, {"a": 2}),
    ],
)
def test_what_differs_in_what_is_compared_has_another_key(dedupe, one, other):
    assert key(dedupe, one) != key(dedupe, other)


def test_what_is_not_compared_does_not_matter():
    assert key(by_payload("a"), {"a": 1, "b": 1}) == key(by_payload("a"), {"a": 1, "b": 2})
    assert key(by_value("a"), {"a": 1, "b": 1}) == key(by_value("a"), {"a": 1, "b": 2})


@pytest.mark.parametrize("payload", [{}, {"order": None}, {"order": {"id": None}}])
@pytest.mark.parametrize("dedupe", [by_value("order.id"), by_payload("order.id", "order.no")])
def test_an_event_without_the_value_is_known_by_its_id(dedupe, payload):
    assert key(dedupe, payload, id_="x7") == "event:x7"


def test_one_absent_value_of_several_counts_as_null():
    dedupe = by_payload("a", "b")
    assert key(dedupe, {"a": 1}) == key(dedupe, {"a": 1, "b": None})


def test_a_long_value_is_spelled_as_its_hash():
    short, long = "x" * (VALUE_CHARS_MAX - 2), "x" * (VALUE_CHARS_MAX - 1)
    assert key(by_value("a"), {"a": short}) == f'value:a="{short}"'
    assert key(by_value("a"), {"a": long}).startswith("value:a=#")
    assert len(key(by_value("a"), {"a": "x" * 100_000})) == len("value:a=#") + 32


KINDS = [
    by_event(),
    by_payload(),
    by_payload("a"),
    by_value("a"),
    lambda event: event.payload["a"],
]


@forall(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_no_two_kinds_ever_mean_the_same(id_, value):
    id_, value = (text.encode(errors="replace").decode() for text in (id_, value))
    keys = [key(kind, {"a": value}, id_=id_) for kind in KINDS]
    assert len(set(keys)) == len(KINDS)


# 2030-01-01 is a Tuesday.
@pytest.mark.parametrize(
    ("window", "at", "start"),
    [
        ("m1", "2030-01-01T10:17:59.999999", "2030-01-01T10:17Z"),
        ("m5", "2030-01-01T10:17:59", "2030-01-01T10:15Z"),
        ("m15", "2030-01-01T10:14:59", "2030-01-01T10:00Z"),
        ("h1", "2030-01-01T10:17:59", "2030-01-01T10:00Z"),
        ("h4", "2030-01-01T10:17:59", "2030-01-01T08:00Z"),
        ("h24", "2030-01-01T23:59:59", "2030-01-01T00:00Z"),
        ("h48", "2030-01-01T10:17:59", "2029-12-31T00:00Z"),
        ("h48", "2030-01-02T00:00:00", "2030-01-02T00:00Z"),
        ("w1", "2030-01-06T23:59:59", "2029-12-31T00:00Z"),
        ("w1", "2030-01-07T00:00:00", "2030-01-07T00:00Z"),
    ],
)
def test_a_window_is_aligned_to_utc_and_a_week_begins_on_monday(window, at, start):
    stored_at = datetime.fromisoformat(at).replace(tzinfo=UTC)
    made = key(by_value("n", window=window), {"n": 1}, at=stored_at)
    assert made == f"value:n=1@{window}/{start}"


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("rule", [by_payload, by_value])
def test_the_same_cause_counts_anew_in_the_next_window(rule, window):
    def in_window(since):
        return key(rule("n", window=window), {"n": 1}, at=start + since)

    size = WINDOWS[window]
    start = datetime(2030, 1, 7, tzinfo=UTC)  # A Monday; all windows of an hour or a day begin.
    start = start if window != "h48" else start - timedelta(days=1)
    last = size - timedelta(microseconds=1)
    assert in_window(timedelta()) == in_window(last) != in_window(size)


def test_without_a_window_a_cause_counts_once_for_ever():
    later = EPOCH + timedelta(days=10_000)
    assert key(by_payload(), {"n": 1}) == key(by_payload(), {"n": 1}, at=later)


def test_another_window_is_another_key():
    made = {key(by_payload("n", window=window), {"n": 1}) for window in [*WINDOWS, None]}
    assert len(made) == len(WINDOWS) + 1


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        (None, "dedupe= returned a value of type NoneType, not a text"),
        (7, "dedupe= returned a value of type int, not a text"),
        (b"x", "dedupe= returned a value of type bytes, not a text"),
        ("", "dedupe= returned 0 characters, not 1 to 512"),
        ("x" * (KEY_CHARS_MAX + 1), "dedupe= returned 513 characters, not 1 to 512"),
        ("\ud800", "which is not Unicode text"),
    ],
)
def test_a_function_must_return_a_key(returned, problem):
    with pytest.raises(StrategyError) as refused:
        key(lambda event: returned)
    assert problem in str(refused.value)


def test_what_a_function_raises_is_passed_on():
    with pytest.raises(KeyError, match="order"):
        key(lambda event: event.payload["order"])


async def waits(event):
    return "x"


@pytest.mark.parametrize(
    ("dedupe", "problem"),
    [
        ("order.id", "'order.id' is no rule; use by_value('order.id'), by_payload() or a function"),
        (None, "None is no rule"),
        (by_value, "by_value must be called, as in by_value('order.id')"),
        (by_payload, "by_payload must be called"),
        (by_event, "by_event must be called"),
        (waits, "is async; a key is made without waiting"),
        (by_value(""), "'' is not a path"),
        (by_payload("a", "b..c"), "'b..c' is not a path"),
        (by_payload(["a"]), "['a'] is not text"),
        (by_payload(window="h2"), "window 'h2' is not one of m1, m5, m15, h1, h4, h24, h48, w1"),
        (by_value("a", window=3600), "window 3600 is not one of"),
        (by_value("a", window=["h1"]), "window ['h1'] is not one of"),
    ],
)
def test_what_cannot_tell_events_apart_is_told_so(dedupe, problem):
    assert problem in problem_of_dedupe(dedupe)


@pytest.mark.parametrize("dedupe", [*KINDS, by_payload(window="w1"), str])
def test_every_kind_can_be_declared(dedupe):
    assert problem_of_dedupe(dedupe) is None
