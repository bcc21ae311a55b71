"""Keys of the registry and the gates: readable, bounded, and never the same for two subjects."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from streams.errors import BadName
from streams.keys import (
    breaker_key,
    calmed_key,
    cancel_key,
    cooldown_key,
    mode_key,
    name_in,
    node_key,
    pause_key,
    workflow_subject_key,
)
from streams.tokens import SUBJECT_BYTES_MAX

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
NAMES = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
LONG = "x" * (SUBJECT_BYTES_MAX + 1)


def token(subject):
    return cooldown_key("a", "e", subject).removeprefix("cooldown.a.e.")


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (mode_key("n1"), "mode.n1"),
        (pause_key("monitor"), "pause.monitor"),
        (node_key("n1"), "node.n1"),
        (cancel_key("e1"), "cancel.e1"),
        (workflow_subject_key("review", ""), "workflow.review.="),
        (workflow_subject_key("review", "7"), "workflow.review.7"),
        (breaker_key("monitor", "disk"), "breaker.monitor.disk"),
        (cooldown_key("monitor", "disk", "web-1"), "cooldown.monitor.disk.web-1"),
        (cooldown_key("monitor", "disk", "a.b"), "cooldown.monitor.disk.a=2Eb"),
        (cooldown_key("monitor", "disk", ""), "cooldown.monitor.disk.="),
        (calmed_key("monitor", "disk", "web-1"), "calmed.monitor.disk.web-1"),
        (cooldown_key("m", "d", LONG), "cooldown.m.d.=hb9ee96f69e8210c624fee55d71d5a54f"),
    ],
)
def test_a_key_is_the_same_for_ever(key, said):
    assert key == said


@given(TEXT, NAMES, NAMES)
@example("\0" * 200, "x" * 64, "x" * 64)
def test_a_key_is_short_and_keeps_to_the_alphabet_of_keys(subject, actor, expectation):
    key = calmed_key(actor, expectation, subject)
    assert re.fullmatch(r"calmed(\.[A-Za-z0-9_=-]+){3}", key)
    assert len(key.rpartition(".")[2]) <= SUBJECT_BYTES_MAX


@given(TEXT, TEXT)
@example("", "=")
@example(LONG, token(LONG))
def test_different_subjects_have_different_keys(one, other):
    assume(one != other)
    assert token(one) != token(other)


def test_a_subject_is_readable_up_to_the_limit_of_its_encoding():
    assert token("x" * SUBJECT_BYTES_MAX) == "x" * SUBJECT_BYTES_MAX
    assert token("." * (SUBJECT_BYTES_MAX // 3)) == "=2E" * (SUBJECT_BYTES_MAX // 3)
    for long in (LONG, "." * (SUBJECT_BYTES_MAX // 3 + 1), "ü" * 1_000_000):
        assert re.fullmatch(r"=h[0-9a-f]{32}", token(long))


def test_a_subject_that_is_no_text_is_refused():
    with pytest.raises(BadName, match="subject"):
        token("\ud800")


@pytest.mark.parametrize("bad", ["", "a.b", "*", "ü", "x" * 65])
def test_what_is_no_name_has_no_key(bad):
    for key_of, of in ((mode_key, "node"), (node_key, "node"), (pause_key, "actor")):
        with pytest.raises(BadName, match=of):
            key_of(bad)
    for key_of in (cooldown_key, calmed_key):
        with pytest.raises(BadName, match="actor"):
            key_of(bad, "e", "s")
        with pytest.raises(BadName, match="expectation"):
            key_of("a", bad, "s")
    with pytest.raises(BadName, match="expectation"):
        breaker_key("a", bad)


@given(NAMES)
def test_the_name_that_a_key_is_about_can_be_read_from_it(plain):
    assert {name_in(key_of(plain)) for key_of in (mode_key, node_key, pause_key)} == {plain}
