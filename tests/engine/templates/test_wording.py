"""Texts with placeholders, and what they stand for."""

from __future__ import annotations

import pytest

from engine.templates.wording import PLACEHOLDERS, TEXT_CHARS_MAX, absent, worded, wording_of

WORDS = {
    **{name: name.upper() for name in PLACEHOLDERS},
    "payload": {"host": "web-1", "disk": {"used": 0.5}, "a.b": "dotted"},
    "observed": {"up": True, "tags": ["x"], "none": None},
}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("plain", "plain"),
        ("", ""),
        ("host:{payload.host}", "host:web-1"),
        ("{payload.disk.used} {payload.a.b}", "0.5 dotted"),
        ("{observed.up} {observed.tags}", 'true ["x"]'),
        ("{{{class}}}", "{CLASS}"),
        *((f"{{{name}}}", name.upper()) for name in PLACEHOLDERS),
    ],
)
def test_a_placeholder_stands_for_its_value(text, said):
    wording = wording_of(text)
    assert absent(wording, WORDS) is None
    assert worded(wording, WORDS) == said


@pytest.mark.parametrize(
    ("text", "alone"),
    [
        ("{payload.host}", "payload.host"),
        ("", ""),
        ("host", ""),
        (" {class}", ""),
        ("{class} ", ""),
        ("{class}{class}", ""),
        ("{{class}}", ""),
    ],
)
def test_a_placeholder_may_be_all_that_a_text_is(text, alone):
    assert wording_of(text).alone == alone


@pytest.mark.parametrize("path", ["payload.no", "observed.none", "observed.up.more"])
def test_what_stands_for_nothing_is_known_and_said_as_a_question(path):
    wording = wording_of(f"at {{{path}}}")
    assert absent(wording, WORDS) == path
    assert worded(wording, WORDS) == "at ?"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{host}", "{host} is no placeholder; write one of {subject_id}"),
        ("{}", "is no placeholder"),
        ("{payload}", "is no placeholder"),
        ("{payload.}", "is no placeholder"),
        ("{payload.a..b}", "is no placeholder"),
        ("{class!r}", "takes no format"),
        ("{payload.used:.0%}", "takes no format"),
        ("{class", "double a brace"),
        ("class}", "double a brace"),
        ("x" * (TEXT_CHARS_MAX + 1), "the limit is 500"),
    ],
)
def test_what_is_no_placeholder_is_refused(text, problem):
    with pytest.raises(ValueError, match=problem):
        wording_of(text)
