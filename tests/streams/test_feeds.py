"""What may be declared as a feed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from streams.model.foreign_streams import FEED_SUBJECT_CHARS_MAX, ForeignStream, problem_of_feed

GOOD = ForeignStream(stream="ORDERS")


@pytest.mark.parametrize(
    "feed",
    [
        GOOD,
        ForeignStream(stream="a-b_C9" * 10),
        *(
            ForeignStream(stream="ORDERS", subject=each)
            for each in ("orders.>", "*.eu.*", "a", "ä.=.$x")
        ),
        ForeignStream(stream="ORDERS", subject="x" * FEED_SUBJECT_CHARS_MAX),
        *(ForeignStream(stream="ORDERS", start=each) for each in ("all", 1, 2**63 - 1)),
        ForeignStream(stream="ORDERS", start=datetime(2030, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_good_feed_has_no_problem(feed):
    assert problem_of_feed(feed) is None


@pytest.mark.parametrize("stream", ["", "a.b", "a b", "a*", ">", "x" * 65, "ä"])
def test_a_stream_has_to_have_a_name(stream):
    assert problem_of_feed(ForeignStream(stream=stream)).startswith("stream: ")


@pytest.mark.parametrize(
    ("subject", "why"),
    [
        ("", "words joined by dots"),
        (".a", "words joined by dots"),
        ("a..b", "words joined by dots"),
        ("a.", "words joined by dots"),
        ("a b", "words joined by dots"),
        ("a.\tb", "words joined by dots"),
        ("a.\ud800", "words joined by dots"),
        ("a*.b", "a word of its own"),
        ("a.b>", "a word of its own"),
        ("**", "a word of its own"),
        ("a.>.b", "last word"),
        (">.>", "last word"),
        ("x" * (FEED_SUBJECT_CHARS_MAX + 1), "characters"),
    ],
)
def test_a_subject_has_to_be_a_filter(subject, why):
    assert why in problem_of_feed(ForeignStream(stream="ORDERS", subject=subject))


def test_a_start_needs_a_time_zone():
    assert "time zone" in problem_of_feed(
        ForeignStream(stream="ORDERS", start=datetime(2030, 1, 1))  # noqa: DTZ001 - that is the point
    )


@pytest.mark.parametrize("start", ["", "now", 0, -1, 2**63, True, 1.5, None])
def test_a_start_is_a_word_a_time_or_a_sequence(start):
    assert problem_of_feed(ForeignStream(stream="ORDERS", start=start)).startswith("start: ")
