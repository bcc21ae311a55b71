"""What `vigil doctor` says of old things, and of how fast the rest grows."""

from __future__ import annotations

from datetime import timedelta

import pytest

from engine.retention.rules import DAY_S, KeptTimes
from engine.retention.step import StepReport
from engine.retention.worker import EVERY_S, RunReport
from projections.postgres.prune import OldRows
from streams.jetstream import StreamReport
from streams.subjects import Stack
from tests.spec import EPOCH
from vigil.asking.repairs.diagnosis import look_at_events
from vigil.asking.repairs.growth import (
    MB,
    TableSizes,
    of_results,
    of_retention,
    of_stream_growth,
    of_tables,
)

NOW = EPOCH + timedelta(days=9)
TIMES = KeptTimes({"done": DAY_S})


def ran(*, ago=timedelta(), problem=""):
    steps = [StepReport(step="rows", problem=problem)]
    return RunReport(at=NOW - ago, by="n1", took_s=0.1, steps=steps)


def old(count, **stay):
    return OldRows(kind="episodes", actor_id="a", state="done", before=NOW, count=count, stay=stay)


def test_where_everything_is_kept_for_ever_nothing_has_to_run():
    assert of_retention(KeptTimes(), None, [], now=NOW).status == "ok"


@pytest.mark.parametrize(
    ("times", "days"),
    [
        (KeptTimes(), None),
        (KeptTimes({"done": 90 * DAY_S}), None),
        (KeptTimes({"done": DAY_S, "failed": 180 * DAY_S}), (90, 180)),
        (KeptTimes({}, {"audit": {"done": 91 * DAY_S}}), (90, 91)),
        (KeptTimes({"done": 180 * DAY_S, "results": 180 * DAY_S}), None),
        (KeptTimes({"done": 180 * DAY_S}, {"a": {"results": 180 * DAY_S}}), (90, 180)),
        (KeptTimes({"done": 180 * DAY_S, "results": 120 * DAY_S}), (120, 180)),
    ],
)
def test_large_results_that_go_before_their_episodes_are_told(times, days):
    told = of_results(times, days=90)
    assert (told is None) is (days is None)
    if days is not None:
        results, episodes = days
        assert f"go after {results} days, while some episodes stay {episodes}" in told.says


SAID = KeptTimes({"events": 14 * DAY_S})


@pytest.mark.parametrize(
    ("times", "kept_s", "says"),
    [
        (KeptTimes(), 7 * DAY_S, None),
        (SAID, 14 * DAY_S, None),
        (SAID, 7 * DAY_S, "are kept for 7 days, and `events` of [retention] says 14 days"),
        (SAID, None, "are kept for ever, and `events` of [retention] says 14 days"),
    ],
)
def test_events_that_stay_for_another_time_than_is_said_are_told_with_what_to_run(
    times, kept_s, says
):
    report = StreamReport(name="vigil-events", exists=True, kept_s=kept_s)
    told = look_at_events(Stack("vigil"), times, [stream(), report])
    assert [each.says for each in told] == ([] if says is None else [says])
    assert all("nats stream edit vigil-events --max-age=336h" in each.remedy for each in told)


def test_what_is_over_due_and_what_stays_is_told():
    verdict = of_retention(TIMES, ran(), [old(5, held=2), old(4)], now=NOW)
    assert verdict.status == "ok"
    assert "rows: 7 old enough to go, 2 stay all the same" in verdict.says


@pytest.mark.parametrize(
    ("last", "status"),
    [
        (None, "note"),
        (ran(ago=timedelta(seconds=3 * EVERY_S)), "ok"),
        (ran(ago=timedelta(seconds=3 * EVERY_S + 1)), "problem"),
        (ran(problem="the stream is away"), "problem"),
    ],
)
def test_runs_that_are_missing_or_have_failed_are_told(last, status):
    assert of_retention(TIMES, last, [], now=NOW).status == status


def stream(name="vigil-journal", *, size_mb=80, days=10, full_mb=None):
    return StreamReport(
        name=name,
        exists=True,
        stored_bytes=size_mb * MB,
        first_at=NOW - timedelta(days=days),
        last_at=NOW,
        bytes_max=None if full_mb is None else full_mb * MB,
    )


@pytest.mark.parametrize(
    ("full_mb", "status", "says"),
    [
        (None, "ok", "80.0 MB, 8.0 MB a day, without a limit"),
        (1_000, "ok", "80.0 MB, 8.0 MB a day, full at 1,000.0 MB in 115 days"),
        (300, "note", "80.0 MB, 8.0 MB a day, full at 300.0 MB in 28 days"),
        (120, "problem", "80.0 MB, 8.0 MB a day, full at 120.0 MB in 5 days"),
    ],
)
def test_how_fast_a_stream_grows_and_when_it_is_full(full_mb, status, says):
    verdict = of_stream_growth(stream(full_mb=full_mb))
    assert (verdict.status, verdict.says) == (status, says)


def test_what_came_within_a_day_is_that_of_a_day():
    assert "80.0 MB a day" in of_stream_growth(stream(days=0.1)).says


def test_of_what_has_nothing_or_does_not_grow_nothing_is_told():
    assert of_stream_growth(StreamReport(name="vigil-journal", exists=True)) is None
    assert of_stream_growth(stream("KV_vigil-gates")) is None


def test_the_size_of_the_tables_what_is_empty_and_new_episodes_a_day_are_told():
    verdict = of_tables(TableSizes(size_bytes=12 * MB, empty_bytes=3 * MB, opened=70))
    assert verdict.says == (
        "12.0 MB in this schema, about 3.0 MB of it empty, 10 new episodes a day"
    )
