"""Whatever text and JSON people send, Postgres takes it."""

from __future__ import annotations

import json as stdlib_json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections import values
from streams.json import NOTHING, raw


def test_nul_in_text_becomes_the_replacement_character():
    assert values.text("a\0b") == "a\N{REPLACEMENT CHARACTER}b"


def test_empty_text_says_nothing_where_it_may():
    assert values.text_or_none("") is None
    assert values.text_or_none("\0") == "\N{REPLACEMENT CHARACTER}"


def test_json_null_says_nothing():
    assert values.json(NOTHING) is None
    assert values.json(raw({"a": None})) == '{"a":null}'


@pytest.mark.parametrize(
    ("given_json", "becomes"),
    [
        (rb'"\u0000"', r'"\ufffd"'),
        (rb'{"\u0000":"a\u0000"}', r'{"\ufffd":"a\ufffd"}'),
        (rb'"\\u0000"', r'"\\u0000"'),
        (rb'"\\\u0000"', r'"\\\ufffd"'),
        (rb'"\ud83d\ude00"', r'"\ud83d\ude00"'),
        (rb'"\ud83d"', r'"\ufffd"'),
        (rb'"\ude00\ud83d"', r'"\ufffd\ufffd"'),
        (rb'"\ud83d\u0000"', r'"\ufffd\ufffd"'),
        (rb'"\u00e9\n"', r'"\u00e9\n"'),
    ],
)
def test_only_what_jsonb_refuses_is_replaced(given_json: bytes, becomes: str):
    assert values.json(msgspec.Raw(given_json)) == becomes


@given(st.text())
def test_replacing_in_json_is_replacing_in_text(text: str):
    encoded = msgspec.Raw(stdlib_json.dumps(text).encode())
    expected = "".join("\ufffd" if c == "\0" or "\ud800" <= c <= "\udfff" else c for c in text)
    assert stdlib_json.loads(values.json(encoded) or "null") == expected


@pytest.mark.parametrize(
    "spelling", ["operator", "", "0193E6A0-0000-8000-8000-000000000001", "0" * 32]
)
def test_only_the_usual_spelling_is_a_uuid(spelling: str):
    assert values.uuid_or_none(spelling) is None


def test_a_uuid_stays_as_it_is():
    usual = "0193e6a0-0000-8000-8000-000000000001"
    assert values.uuid_or_none(usual) == usual
