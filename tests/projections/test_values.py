"""Whatever text and JSON people send, Postgres takes it."""

from __future__ import annotations

import json as stdlib_json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections import rows


class Said(msgspec.Struct):
    what: msgspec.Raw


def in_document(given_json: bytes) -> str:
    """Return JSON as it stands in a document of one row."""
    return rows.document([Said(msgspec.Raw(given_json))]).removeprefix('[{"what":')[:-2]


def test_nul_in_a_key_becomes_the_replacement_character():
    assert rows.key("a\0b") == "a\N{REPLACEMENT CHARACTER}b"


def test_bytes_that_are_no_utf8_become_the_replacement_character():
    assert in_document(b'"a\xffb"') == '"a\N{REPLACEMENT CHARACTER}b"'


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
    assert in_document(given_json) == becomes


@given(st.text())
def test_replacing_in_json_is_replacing_in_text(text: str):
    encoded = stdlib_json.dumps(text).encode()
    expected = "".join("\ufffd" if c == "\0" or "\ud800" <= c <= "\udfff" else c for c in text)
    assert stdlib_json.loads(in_document(encoded)) == expected


@pytest.mark.parametrize(
    "spelling", ["operator", "", "0193E6A0-0000-8000-8000-000000000001", "0" * 32]
)
def test_only_the_usual_spelling_is_a_uuid(spelling: str):
    assert rows.uuid_or_none(spelling) is None


def test_a_uuid_stays_as_it_is():
    usual = "0193e6a0-0000-8000-8000-000000000001"
    assert rows.uuid_or_none(usual) == usual
