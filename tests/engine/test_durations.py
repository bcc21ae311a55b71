"""Durations as people write them."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

from engine.validation import seconds_of

YEAR_S = 366 * 86_400


def seconds(value, *, least_s=0.0, most_s=float(YEAR_S)):
    return seconds_of(value, least_s=least_s, most_s=most_s)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (90, 90.0),
        (0.25, 0.25),
        (timedelta(minutes=15), 900.0),
        (timedelta(milliseconds=1), 0.001),
        ("500ms", 0.5),
        ("90s", 90.0),
        ("15m", 900.0),
        ("1h30m", 5_400.0),
        ("2d", 172_800.0),
        ("1w", 604_800.0),
        ("1w2d3h4m5s6ms", 788_645.006),
        ("0s", 0.0),
        ("007s", 7.0),
    ],
)
def test_a_duration_is_seconds(written, expected):
    assert seconds(written) == expected
    assert isinstance(seconds(written), float)


@pytest.mark.parametrize(
    "written",
    [
        "", "90", "s", "m15", "15M", "15 m", " 15m", "1.5h", "-5s", "1m1h", "1m1m", "5y", "٣s",
        "15m\n", True, None, [], b"15m", Decimal(90), float("nan"), float("inf"), float("-inf"),
    ],
)  # fmt: skip
def test_what_is_no_duration_is_refused_with_what_to_write(written):
    with pytest.raises(ValueError, match="is not a duration") as refused:
        seconds(written)
    assert str(refused.value).startswith(repr(written))
    assert "write 90, '15m' or '1h30m'" in str(refused.value)


@pytest.mark.parametrize("written", [1, "1s", timedelta(seconds=1), "366d", YEAR_S])
def test_a_bound_itself_is_allowed(written):
    seconds(written, least_s=1)


@pytest.mark.parametrize(
    "written", [0.999, 0, -1, "999ms", timedelta(-1), "366d1ms", 10**400, "999999999999w", 1e300]
)
def test_what_is_too_short_or_too_long_is_refused_with_the_bounds(written):
    with pytest.raises(ValueError, match="is not from 1s to 366d long"):
        seconds(written, least_s=1)


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        ({"least_s": 0.5, "most_s": 90}, "from 500ms to 90s"),
        ({"least_s": 3_600, "most_s": 604_800}, "from 1h to 1w"),
        ({"least_s": 60, "most_s": 60_000 * 86_400}, "from 1m to 60,000d"),
    ],
)
def test_bounds_are_said_as_people_read_them(bounds, said):
    with pytest.raises(ValueError, match=said):
        seconds(-1, **bounds)


@forall(st.integers(0, YEAR_S * 1000))
def test_however_it_is_written_it_means_the_same(ms):
    meant = timedelta(milliseconds=ms)
    text = f"{meant.days}d{meant.seconds}s{meant.microseconds // 1000}ms"
    assert seconds(text) == seconds(meant) == seconds(ms / 1000)
