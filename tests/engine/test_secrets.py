"""Which texts are secrets, and texts without them."""

from __future__ import annotations

from base64 import b64encode

import pytest

from engine.secrets import hide, removed, texts_in, without

SECRET = "t0k/en"


@pytest.mark.parametrize(
    "quoted",
    [SECRET, "t0k%2Fen", "t0k%2fen", "t0k\\/en", b64encode(SECRET.encode()).decode()],
)
def test_a_secret_is_hidden_however_it_is_quoted(quoted):
    assert without(f"no {quoted} here", {SECRET}) == "no *** here"


def test_the_longest_secret_is_hidden_first():
    assert without("Bearer t0ken", {"t0ken", "Bearer t0ken"}) == "***"


def test_a_short_text_is_no_secret():
    assert without("a web page", {"web"}) == "a web page"


def test_a_secret_is_hidden_in_keys_and_texts_at_any_depth():
    value = {"a": [{"t0ken": "is t0ken", "n": 7}], "b": None}
    assert hide(value, {"t0ken"}) == {"a": [{"***": "is ***", "n": 7}], "b": None}


def test_a_number_that_is_secret_is_hidden_as_a_number_too():
    value = {"pin": 98765432, "as": ["98765432", 987654321, True], "n": 1.5}
    shown = {"pin": "***", "as": ["***", 987654321, True], "n": 1.5}
    assert hide(value, {"98765432", "True"}) == shown


def test_the_token_of_a_header_is_a_secret_on_its_own():
    given = {"Authorization": "Bearer t0ken", "n": [1234, True]}
    assert set(texts_in(given)) == {"Bearer t0ken", "t0ken", "1234"}


def test_the_words_of_a_sentence_are_not():
    assert set(texts_in("look at this configuration")) == {"look at this configuration"}


@pytest.mark.parametrize(
    ("given", "shown", "secrets"),
    [
        ({"a": "one", "b": "two"}, {"a": "one", "b": "***"}, {"two"}),
        ({"a": "one", "b": {"c": "two"}}, {"a": "one"}, {"two"}),
        ([{"a": "one"}, "two"], [{"a": "***"}, "two"], {"one"}),
        (["one", "two"], 2, {"one", "two"}),
        ("one", "***", {"one"}),
        ({"a": "one"}, {"a": "one"}, set()),
    ],
)
def test_what_redaction_takes_away_is_secret(given, shown, secrets):
    assert set(removed(given, shown)) == secrets
