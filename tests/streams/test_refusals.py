"""How a refusal is told to people, and how it is written."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from streams.model.refusals import (
    AgainstBreaker,
    AgainstCooldown,
    AgainstDebounce,
    AgainstEpisode,
    AgainstFilter,
    AgainstHolder,
    AgainstHops,
    AgainstLane,
    AgainstSample,
    Refusal,
    shown,
)
from streams.wire.refusals import decode_refusal, encode_refusal

AT = datetime(2026, 11, 28, 14, 7, tzinfo=UTC)


def refusal(reason, against, *, subject="web-1"):
    return Refusal(
        event_id="x1",
        event="disk.measured",
        actor="monitor",
        expectation="disk",
        subject=subject,
        at=AT,
        node="n1",
        reason=reason,
        against=against,
    )


TOLD = [
    (
        "filter",
        AgainstFilter(path="mount", wanted="/", found="/var"),
        "filter mount = /: the event has /var",
    ),
    (
        "filter",
        AgainstFilter(path="used", wanted={"gt": 90, "lte": 100}, found=5),
        "filter used > 90 and <= 100: the event has 5",
    ),
    (
        "filter",
        AgainstFilter(path="state", wanted=["new", 1], found={"a": None}),
        'filter state is one of ["new",1]: the event has {"a":null}',
    ),
    (
        "filter",
        AgainstFilter(path="test", wanted={"exists": False}, found=None),
        "filter test is not there: the event has null",
    ),
    (
        "filter_key_missing",
        AgainstFilter(path="a.b", wanted="", is_missing=True),
        'filter a.b = "": the event has none',
    ),
    (
        "cooldown",
        AgainstCooldown(episode_id="e1", until=AT),
        "cooldown until 2026-11-28 14:07:00 UTC, begun by episode e1",
    ),
    ("cooldown", AgainstCooldown(episode_id="e1"), "cooldown, begun by episode e1"),
    ("overlap", AgainstHolder(episode_id="e1"), "subject web-1 is held by episode e1"),
    (
        "waits_for_calm",
        AgainstDebounce(debounce_s=30),
        "it waits to fire: subject web-1 must have had no event for 30 s",
    ),
    (
        "superseded",
        AgainstDebounce(debounce_s=30),
        "a newer event waits to fire, or has fired: subject web-1 must have had no event for 30 s",
    ),
    ("superseded", None, "a newer event about the subject waits to fire, or has fired"),
    (
        "breaker_open",
        AgainstBreaker(status="half_open", failures=("e1", "e2"), until=AT),
        "circuit breaker half open until 2026-11-28 14:07:00 UTC, failed: e1, e2",
    ),
    (
        "sampled_out",
        AgainstSample(share=0.51234, sample=0.1),
        "its place is 0.5123, and the sample is 0.1",
    ),
    (
        "too_many_hops",
        AgainstHops(hops=17, hops_max=16),
        "it is 17 events of the engine away from the outside, of at most 16",
    ),
    (
        "duplicate",
        AgainstEpisode(episode_id="e1", dedupe_key="value:a=1"),
        "episode e1 was opened by the same cause: value:a=1",
    ),
    (
        "overflow",
        AgainstLane(admitted=2, waiting=0, overflow="drop"),
        "2 episodes have a turn, and the overflow is drop",
    ),
    (
        "overflow",
        AgainstLane(admitted=2, waiting=5, queue_max=5, overflow="shed_oldest"),
        "2 episodes have a turn, 5 of at most 5 wait, and the overflow is shed_oldest",
    ),
    ("of_a_newer_version", None, "of_a_newer_version"),
]


@pytest.mark.parametrize(("reason", "against", "words"), TOLD)
def test_a_refusal_is_told_in_one_line(reason, against, words):
    assert refusal(reason, against).words == words


@pytest.mark.parametrize(("reason", "against"), [each[:2] for each in TOLD])
def test_a_refusal_is_read_as_it_was_written(reason, against):
    told = refusal(reason, against)
    assert decode_refusal(encode_refusal(told)) == told


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b'{"against":{"kind":"newer"}}'])
def test_what_this_version_cannot_read_is_no_refusal(data):
    assert decode_refusal(data) is None


def test_without_a_subject_it_is_about_the_event():
    held = refusal("overlap", AgainstHolder(episode_id="e1"), subject="")
    assert held.words == "it is held by episode e1"


@pytest.mark.parametrize("value", [None, True, 0, 1.5, "x" * 200, [1, {"a": 2}], {"a": "b"}])
def test_a_short_value_is_held_as_it_is(value):
    assert shown(value) == value


@pytest.mark.parametrize("value", ["x" * 201, ["x" * 200], {"a": list(range(200))}])
def test_a_long_value_is_cut(value):
    assert isinstance(shown(value), str)
    assert len(shown(value)) == 200
