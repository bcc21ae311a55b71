"""A key for each hour, day or week, as people at some place count them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from engine.app.dedupe import WINDOWS
from engine.app.outputs import bucket

AT = datetime(2030, 1, 30, 22, 47, 12, tzinfo=UTC)
"""A Wednesday."""

BERLIN = "Europe/Berlin"


@pytest.mark.parametrize(
    ("window", "utc", "berlin"),
    [
        ("m1", "2030-01-30T22:47+00:00", "2030-01-30T23:47+01:00"),
        ("m5", "2030-01-30T22:45+00:00", "2030-01-30T23:45+01:00"),
        ("m15", "2030-01-30T22:45+00:00", "2030-01-30T23:45+01:00"),
        ("h1", "2030-01-30T22:00+00:00", "2030-01-30T23:00+01:00"),
        ("h4", "2030-01-30T20", "2030-01-30T20"),
        ("h24", "2030-01-30", "2030-01-30"),
        ("w1", "2030-01-28", "2030-01-28"),
    ],
)
def test_a_window_is_named_by_its_start_as_it_is_there(window, utc, berlin):
    assert (bucket(AT, window), bucket(AT, window, tz=BERLIN)) == (utc, berlin)


def test_a_day_ends_at_the_midnight_of_its_place():
    later = AT + timedelta(hours=1)
    assert (bucket(later, "h24"), bucket(later, "h24", tz=BERLIN)) == ("2030-01-30", "2030-01-31")


def test_two_days_are_one_window_and_the_third_is_another():
    days = [bucket(AT + timedelta(days=day), "h48") for day in range(4)]
    assert len(set(days)) in (2, 3)
    assert bucket(datetime(1970, 1, 5, tzinfo=UTC), "h48") == "1970-01-05"
    assert bucket(datetime(1970, 1, 6, 23, tzinfo=UTC), "h48") == "1970-01-05"
    assert bucket(datetime(1970, 1, 7, tzinfo=UTC), "h48") == "1970-01-07"


@pytest.mark.parametrize("window", WINDOWS)
def test_the_same_moment_has_one_name_in_whichever_zone_it_is_told(window):
    elsewhere = AT.astimezone(timezone(timedelta(hours=-7)))
    assert bucket(elsewhere, window, tz=BERLIN) == bucket(AT, window, tz=BERLIN)


def test_an_hour_that_comes_twice_is_two_and_the_day_around_it_is_one():
    first = datetime(2030, 10, 27, 0, 30, tzinfo=UTC)
    second = first + timedelta(hours=1)
    assert [bucket(each, "h1", tz=BERLIN) for each in (first, second)] == [
        "2030-10-27T02:00+02:00",
        "2030-10-27T02:00+01:00",
    ]
    for window in ("h4", "h24", "w1"):
        assert bucket(first, window, tz=BERLIN) == bucket(second, window, tz=BERLIN)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ((AT, "h2"), "window 'h2' is not one of m1, m5"),
        ((AT.replace(tzinfo=None), "h1"), "has no time zone"),
        ((AT, "h1", "Mars/Olympus"), "tz 'Mars/Olympus' is no time zone"),
        ((AT, "h1", ""), "tz '' is no time zone"),
    ],
)
def test_what_is_no_window_and_no_time_is_refused(given, problem):
    at, window, *tz = given
    with pytest.raises(ValueError, match=problem):
        bucket(at, window, **({"tz": tz[0]} if tz else {}))
