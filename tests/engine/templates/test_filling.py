"""Payloads with placeholders, and what they are filled with."""

from __future__ import annotations

import pytest
from pydantic_core import PydanticCustomError

from engine.templates.wording import (
    DEPTH_MAX,
    NAMES,
    PAYLOAD_TEXT_CHARS_MAX,
    PLACEHOLDERS_MAX,
    check_payload,
    filled,
)

WORDS = {
    **{name: name.upper() for name in NAMES},
    "confidence": 0.5,
    "payload": {"host": "web-1", "tags": ["a"], "none": None},
    "observed": {"used": 97, "up": True},
    "evidence": None,
}


def nested(depth):
    payload = "{class}"
    for _ in range(depth):
        payload = [payload]
    return payload


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ("{subject_id}: {summary}", "SUBJECT_ID: SUMMARY"),
        ({"a": ["{class}", {"b": "{severity}!"}]}, {"a": ["CLASS", {"b": "SEVERITY!"}]}),
        ({"a": 5, "b": None, "c": [True, 0.5]}, {"a": 5, "b": None, "c": [True, 0.5]}),
        ({"{class}": "{{class}}"}, {"{class}": "{class}"}),
        ("{finding_key} at {confidence}", "FINDING_KEY at 0.5"),
    ],
)
def test_texts_are_filled_however_deep_they_are_and_nothing_else(payload, said):
    check_payload(payload)
    assert filled(payload, WORDS) == said


@pytest.mark.parametrize(
    ("placeholder", "value"),
    [
        ("{observed.used}", 97),
        ("{observed.up}", True),
        ("{payload.tags}", ["a"]),
        ("{confidence}", 0.5),
        ("{payload}", WORDS["payload"]),
        ("{observed}", WORDS["observed"]),
    ],
)
def test_a_placeholder_alone_keeps_the_type_of_its_value(placeholder, value):
    check_payload([placeholder])
    assert filled([placeholder], WORDS) == [value]
    assert isinstance(filled(f"{placeholder} ", WORDS), str)


@pytest.mark.parametrize(
    "placeholder", ["{payload.no}", "{payload.none}", "{evidence}", "{evidence.a}"]
)
def test_what_is_not_there_is_null_or_in_a_longer_text_a_question(placeholder):
    check_payload(placeholder)
    assert filled(placeholder, WORDS) is None
    assert filled(f"at {placeholder}", WORDS) == "at ?"


@pytest.mark.parametrize(
    ("payload", "field", "problem"),
    [
        ({"a": [{"b": "{host}"}]}, "a.0.b", "{host} is no placeholder; write one of {subject_id}"),
        ({"a": "{class!r}"}, "a", "takes no format"),
        ({"a": "{"}, "a", "double a brace"),
        ({"a": "x" * (PAYLOAD_TEXT_CHARS_MAX + 1)}, "a", "4,001 characters, the limit is 4,000"),
    ],
)
def test_a_text_that_cannot_be_filled_is_refused_at_its_place(payload, field, problem):
    with pytest.raises(PydanticCustomError, match=problem) as refused:
        check_payload(payload)
    assert (refused.value.context or {})["field"] == field


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        ("{host}", "{host} is no placeholder"),
        (["{class}"] * (PLACEHOLDERS_MAX + 1), "101 placeholders, the limit is 100"),
        ("{class}" * (PLACEHOLDERS_MAX + 1), "101 placeholders, the limit is 100"),
        (nested(DEPTH_MAX + 1), "more than 32 objects and lists"),
    ],
)
def test_what_is_too_much_or_is_one_text_is_refused_as_a_whole(payload, problem):
    with pytest.raises(ValueError, match=problem):
        check_payload(payload)


@pytest.mark.parametrize(
    "payload",
    [["{class}"] * PLACEHOLDERS_MAX, nested(DEPTH_MAX), "x" * PAYLOAD_TEXT_CHARS_MAX],
)
def test_what_reaches_a_limit_is_taken(payload):
    check_payload(payload)
