"""How ids, times and errors read in tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from vigil.printing.columns import (
    Column,
    Form,
    Listing,
    age,
    error_of,
    in_brief,
    length,
    marked,
    marks,
    output_status,
    sheet,
    short_ids,
    told,
    took,
    with_intervals,
)

NOW = datetime(2030, 1, 31, 9, tzinfo=UTC)
A = "3f2a9c1e-88b0-4d7e-9a51-0c6d2f4b7e11"
B = "3f2a9c1e-1c44-4b02-8f00-5d1a7b9e2c33"
C = "a81c07d2-5e19-4f6b-b2c3-91d04e7f8a22"
LISTING = Listing(
    (
        Column("id", "id", Form.ID),
        Column("age", "at", Form.AGE, wide="opened"),
        Column("why", "why"),
    )
)


def test_an_id_is_as_short_as_tells_it_from_those_beside_it():
    assert short_ids([A, B, C, None]) == {A: "3f2a9c1e-88b0", B: "3f2a9c1e-1c44", C: "a81c07d2"}


def test_a_key_has_so_much_of_the_id_that_it_ends_with_and_another_stays_whole():
    listing = Listing((Column("key", "key", Form.KEY),))
    rows = [{"key": f"episode.{A}"}, {"key": C}, {"key": "output.0123456789"}]
    assert [row["key"] for row in told(rows, listing, now=NOW)] == [
        "episode.3f2a9c1e",
        "a81c07d2",
        "output.0123456789",
    ]
    assert told(rows, listing, now=NOW, is_wide=True) == rows


@pytest.mark.parametrize(
    ("ago_s", "said"),
    [(0, "0s"), (59, "59s"), (60, "1m"), (7_199, "1h"), (4 * 86_400, "4d"), (-420, "in 7m")],
)
def test_an_age_is_in_its_largest_unit(ago_s, said):
    assert age(NOW - timedelta(seconds=ago_s), NOW) == said


def test_a_column_that_is_empty_in_every_row_is_left_out():
    rows = [{"id": A, "at": NOW, "why": None}, {"id": C, "at": NOW, "why": ""}]
    assert told(rows, LISTING, now=NOW) == [
        {"id": "3f2a9c1e", "age": "0s"},
        {"id": "a81c07d2", "age": "0s"},
    ]


def test_a_wide_table_has_ids_and_times_in_full_and_says_once_that_these_are_in_utc():
    rows = [{"id": A, "at": NOW, "why": "x"}]
    assert told(rows, LISTING, now=NOW, is_wide=True) == [
        {"id": A, "opened (UTC)": NOW, "why": "x"}
    ]


@pytest.mark.parametrize(
    ("ms", "said"), [(None, None), (81, "81ms"), (2_004, "2s"), (4_210, "4.2s"), (91_000, "1m")]
)
def test_a_duration_is_as_exact_as_people_need(ms, said):
    assert took(ms) == said


def test_a_sentence_in_brief_has_short_ids_and_says_how_far_away_its_times_are():
    at, ago = NOW + timedelta(minutes=8), NOW - timedelta(days=2)
    text = f"from {ago:%Y-%m-%d %H:%M:%S} UTC until {at:%Y-%m-%d %H:%M:%S} UTC, by episode {A}"
    assert in_brief(text, NOW) == (
        f"from {ago:%Y-%m-%d %H:%M} UTC (2d ago) until {at:%H:%M} UTC (in 8m), by episode {A[:8]}"
    )


@pytest.mark.parametrize(
    ("seconds", "said"), [(90, "90s"), (5_400, "90m"), (7_200, "2h"), (2_592_000, "30d")]
)
def test_an_interval_is_exact(seconds, said):
    assert with_intervals(f"tick every {seconds}s, next") == f"tick every {said}, next"


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.5, "0.5s"), (0, "0s"), (90.0, "90s"), (120, "2m")]
)
def test_how_long_something_is_to_last_is_exact(seconds, said):
    assert length(seconds) == said


def test_what_sets_an_episode_apart_stands_beside_its_status():
    assert marked({"status": "done", "mode": "dry_run", "forked_from": A}) == "done, dry run, fork"
    assert marked({"status": "done", "mode": "live"}) == "done"


def test_an_output_that_could_not_be_delivered_yet_is_retried():
    statuses = [("proposed", 0), ("proposed", 2), ("failed", 2)]
    assert [output_status({"status": each, "attempts": count}) for each, count in statuses] == [
        "proposed",
        "retrying",
        "failed",
    ]


def test_an_error_is_its_class_and_the_line_that_says_what_it_is_once():
    failed = {"error_class": "timed_out", "error_detail": "no answer within 2 s\n(watch.py:40)"}
    assert error_of(failed) == "timed_out: no answer within 2 s"
    assert (
        error_of({"error_class": "KeyError", "error_detail": "KeyError: host"}) == "KeyError: host"
    )
    assert error_of({"error_class": None, "error_detail": None}) is None


def test_dry_runs_and_forks_are_marked():
    assert marks({"mode": "dry_run", "forked_from": A}) == "dry run, fork"
    assert marks({"mode": "live", "forked_from": None}) is None


def test_what_goes_without_saying_is_not_said_of_one_thing():
    row = {"generation": 0, "priority": 5, "node": None, "actor_id": "a", "stack": "s"}
    assert sheet(row, usual={"generation": 0, "priority": 0}, hidden=["stack"]) == {
        "priority": 5,
        "actor": "a",
    }
