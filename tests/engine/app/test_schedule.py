"""When schedules tick, and what becomes of the ticks that were missed."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import accumulate, pairwise
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import example, settings
from hypothesis import given as forall
from hypothesis import strategies as st

from engine.app.dedupe import FIRST_WINDOW
from engine.app.triggers import (
    EXPRESSION_CHARS_MAX,
    MACROS,
    TICK_LATE_S,
    TICK_PAYLOAD_BYTES_MAX,
    TICKS_MAX,
    Catch,
    Cron,
    Every,
    checked_schedule,
    cron,
    due_ticks,
    every,
    next_tick,
    spec_of,
    tick_key,
)
from streams.subjects import Stack

BERLIN = "Europe/Berlin"
# Clocks in Berlin go from 02:00 to 03:00 on 2026-03-29, and from 03:00 to 02:00 on 2026-10-25;
# both times it is 01:00 UTC.


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def ticks_after(schedule, start, count):
    ticks = [next_tick(schedule, start)]
    while len(ticks) < count:
        ticks.append(next_tick(schedule, ticks[-1]))
    return ticks


def ticks_between(schedule, start, end):
    """Every tick later than `start`, up to `end`, by walking."""
    ticks, tick = [], next_tick(schedule, start)
    while tick <= end:
        ticks.append(tick)
        tick = next_tick(schedule, tick)
    return ticks


# What may be declared.


@pytest.mark.parametrize("interval", [900, 900.0, "15m", "900s", timedelta(minutes=15)])
def test_an_interval_may_be_written_in_any_way(interval):
    assert every(interval) == Every(interval_s=900)


@pytest.mark.parametrize(
    ("interval", "problem"),
    [
        (0, "every(): interval: 0 is not from 1s to 366d long"),
        ("367d", "'367d' is not from 1s to 366d long"),
        (1.5, "every(): interval: 1.5 is not whole seconds"),
        ("1500ms", "'1500ms' is not whole seconds"),
        ("hourly", "'hourly' is not a duration; write 90, '15m' or '1h30m'"),
        (None, "None is not a duration"),
    ],
)
def test_an_interval_that_cannot_work_is_refused(interval, problem):
    with pytest.raises(ValueError, match=re.escape(problem)):
        every(interval)


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("*/5 9-17 * * 1-5", "*/5 9-17 * * 1-5"),
        ("  0   12\t1,15 jan-jun mon ", "0 12 1,15 JAN-JUN MON"),
        ("0 0 * * 7", "0 0 * * 7"),
        ("0 0 29 2 *", "0 0 29 2 *"),
        ("@Hourly", "0 * * * *"),
        ("0 0 L * *", "0 0 L * *"),
    ],
)
def test_an_expression_is_kept_in_one_spelling(written, kept):
    assert cron(written) == Cron(expression=kept)


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "* * * *",
        "0 * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "5-1 * * * *",
        "*/0 * * * *",
        "* * * * FUN",
        "@reboot",
        "0" * (EXPRESSION_CHARS_MAX + 1),
        None,
        5,
    ],
)
def test_an_expression_that_cannot_work_is_refused_with_what_to_write(expression):
    with pytest.raises(ValueError, match=r"^cron\(\): expression: ") as refused:
        cron(expression)
    assert repr(expression) in str(refused.value)
    assert "write minute, hour, day of month, month and day of week" in str(refused.value)


@pytest.mark.parametrize(
    "expression", ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 30 2 */2", "0 0 * 2 MON#5"]
)
def test_an_expression_that_fits_no_day_of_four_years_is_refused(expression):
    with pytest.raises(ValueError, match=r"^cron\(\): expression: "):
        cron(expression)


@pytest.mark.parametrize(
    "tz", ["Mars/Olympus", "europe/berlin", "", "localtime", "../zone", "Europe", None, 2, UTC]
)
def test_an_unknown_time_zone_is_refused(tz):
    with pytest.raises(ValueError, match=r"^cron\(\): tz: .* is not a time zone; write one such"):
        cron("* * * * *", tz=tz)


@pytest.mark.parametrize("declare", [partial(every, 60), partial(cron, "@daily")])
def test_an_unknown_catch_up_or_window_is_refused(declare):
    for catch_up in ("some", None, ["one"]):
        with pytest.raises(ValueError, match=r"catch_up: .* is not one of skip, one, all"):
            declare(catch_up=catch_up)
    for window in ("h2", 3600, ["h1"]):
        with pytest.raises(ValueError, match=r"window: .* is not one of m1, m5, m15, h1"):
            declare(window=window)


@settings(deadline=None)
@forall(st.lists(st.text("0123456789*/,-#LW@MONJAN²\x00", max_size=4), max_size=6).map(" ".join))
def test_whatever_is_written_is_accepted_or_refused_and_what_is_accepted_ticks(expression):
    try:
        schedule = cron(expression, tz=BERLIN)
    except ValueError:
        return
    assert cron(schedule.expression, tz=BERLIN) == schedule
    assert len(ticks_after(schedule, FIRST_WINDOW, 3)) == 3


@pytest.mark.parametrize(
    "schedule",
    [every("1d", catch_up="all", window="w1"), cron("@daily", tz=BERLIN, catch_up="skip")],
)
def test_what_was_declared_passes_the_check_as_it_is(schedule):
    assert checked_schedule(schedule) == schedule


@pytest.mark.parametrize(
    ("schedule", "problem"),
    [
        (Every(0), "interval"),
        (Every(1.5), "interval"),
        (Every(60, "some"), "catch_up"),
        (Cron("* *"), "expression"),
        (Cron("@daily", "Mars"), "tz"),
        (Cron("@daily", "UTC", "one", "h2"), "window"),
    ],
)
def test_what_was_made_by_hand_is_checked_like_what_was_declared(schedule, problem):
    with pytest.raises(ValueError, match=problem):
        checked_schedule(schedule)


# Payloads.


@pytest.mark.parametrize("declared", [partial(every, 60), partial(cron, "@daily")])
def test_a_payload_is_kept_as_it_was_declared(declared):
    given = {"services": ["shop"]}
    schedule = declared(payload=given)
    given["services"].append("till")
    assert schedule.payload == {"services": ["shop"]}
    assert checked_schedule(schedule) == schedule


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        ("shop", r"payload: 'shop' is not a dict"),
        ({"at": object()}, r"payload: JSON has no such value at \$\.at: an instance of object"),
        ({"low": float("nan")}, r"payload: JSON has no such value at \$\.low: nan"),
        ({"text": "x" * TICK_PAYLOAD_BYTES_MAX}, r"payload: 16,395 bytes, the limit is 16,384"),
    ],
)
@pytest.mark.parametrize("declared", [partial(every, 60), partial(cron, "@daily")])
def test_what_cannot_be_a_payload_is_refused_where_it_is_declared(declared, payload, problem):
    with pytest.raises(ValueError, match=rf"{declared.func.__name__}\(\): {problem}"):
        declared(payload=payload)


# Names.


@pytest.mark.parametrize(
    ("schedule", "spec"),
    [
        (every("15m"), "every 900s"),
        (every(900, catch_up="all", window="h1"), "every 900s"),
        (cron("*/5 * * * *", tz=BERLIN), "cron */5 * * * * Europe/Berlin"),
        (cron("@daily"), "cron 0 0 * * * UTC"),
        (cron("0 0 * * *", catch_up="skip"), "cron 0 0 * * * UTC"),
        (every(60, payload={}), "every 60s"),
        (every(60, payload={"a": 1, "b": 2}), "every 60s #3d0089be7edf6746"),
        (every(60, payload={"b": 2, "a": 1}), "every 60s #3d0089be7edf6746"),
        (cron("@daily", payload={"a": 1}), "cron 0 0 * * * UTC #1f8c00645b7df6ce"),
    ],
)
def test_a_schedule_is_named_by_when_it_ticks_and_by_its_payload(schedule, spec):
    assert spec_of(schedule) == spec


def test_the_longest_spec_fits_into_the_key_of_a_timer_beside_an_expectation():
    expression = "00" + ",*" * 95 + " * * * *"
    assert len(expression) == EXPRESSION_CHARS_MAX
    zone = "America/Argentina/ComodRivadavia"
    schedule = cron(expression, tz=zone, payload={"service": "shop"})
    assert Stack("s").timer("a", "tick", f"{'x' * 64}/{spec_of(schedule)}")


@pytest.mark.parametrize(
    ("schedule", "tick", "key"),
    [
        (every(10), "2030-01-01T10:00:10", "schedule:2030-01-01T10:00:10Z"),
        (every(10, window="m1"), "2030-01-01T10:00:10", "schedule:2030-01-01T10:00:00Z@m1"),
        (every(10, window="m1"), "2030-01-01T10:00:50", "schedule:2030-01-01T10:00:00Z@m1"),
        (every(10, window="m1"), "2030-01-01T10:01:00", "schedule:2030-01-01T10:01:00Z@m1"),
        (cron("@daily"), "2030-01-01T00:00:00", "schedule:2030-01-01T00:00:00Z"),
        (cron("@daily", window="w1"), "2030-01-01T00:00:00", "schedule:2029-12-31T00:00:00Z@w1"),
        (
            every(10, payload={"a": 1}),
            "2030-01-01T10:00:10",
            "schedule:2030-01-01T10:00:10Z #1f8c00645b7df6ce",
        ),
        (
            every(10, window="m1", payload={"a": 1}),
            "2030-01-01T10:00:10",
            "schedule:2030-01-01T10:00:00Z@m1 #1f8c00645b7df6ce",
        ),
    ],
)
def test_a_ticks_key_is_the_same_for_ever(schedule, tick, key):
    assert tick_key(schedule, utc(tick)) == key
    assert tick_key(schedule, utc(tick).astimezone(ZoneInfo(BERLIN))) == key


# When it ticks.


@pytest.mark.parametrize(
    ("interval", "after", "tick"),
    [
        ("15m", "2030-01-01T10:00:00", "2030-01-01T10:15:00"),
        ("15m", "2030-01-01T10:14:59.999999", "2030-01-01T10:15:00"),
        ("1s", "2030-01-01T10:00:00.5", "2030-01-01T10:00:01"),
        ("1d", "2030-01-01T10:00:00", "2030-01-02T00:00:00"),
        ("1w", "2030-01-01T10:00:00", "2030-01-07T00:00:00"),
        ("7s", "1970-01-05T00:00:00", "1970-01-05T00:00:07"),
        ("7s", "1970-01-04T23:59:59", "1970-01-05T00:00:00"),
    ],
)
def test_an_interval_ticks_at_its_multiples_in_utc(interval, after, tick):
    assert next_tick(every(interval), utc(after)) == utc(tick)


@pytest.mark.parametrize(
    ("expression", "tz", "after", "ticks"),
    [
        ("*/5 * * * *", "UTC", "2030-01-01T10:00:00", ["01-01T10:05", "01-01T10:10"]),
        ("*/5 * * * *", "UTC", "2030-01-01T10:04:59.9", ["01-01T10:05", "01-01T10:10"]),
        ("0 9-17/4 * * *", "UTC", "2030-01-01T10:00:00", ["01-01T13:00", "01-01T17:00"]),
        ("30 7 * * MON", BERLIN, "2030-01-01T00:00:00", ["01-07T06:30", "01-14T06:30"]),
        ("0 0 * * 0", "UTC", "2030-01-01T00:00:00", ["01-06T00:00", "01-13T00:00"]),
        ("0 0 * * 7", "UTC", "2030-01-01T00:00:00", ["01-06T00:00", "01-13T00:00"]),
        ("0 0 1 * 5", "UTC", "2030-01-25T00:00:00", ["02-01T00:00", "02-08T00:00"]),
        ("0 0 13 * 5", "UTC", "2030-01-12T00:00:00", ["01-13T00:00", "01-18T00:00"]),
        ("0 0 29 2 *", "UTC", "2032-01-01T00:00:00", ["02-29T00:00"]),
    ],
)
def test_cron_ticks_by_the_clock_of_its_zone(expression, tz, after, ticks):
    start = utc(after)
    expected = [utc(f"{start.year}-{tick}:00") for tick in ticks]
    assert ticks_after(cron(expression, tz=tz), start, len(ticks)) == expected


@pytest.mark.parametrize(
    ("macro", "tick"),
    [
        ("@hourly", "2030-01-01T11:00:00"),
        ("@daily", "2030-01-02T00:00:00"),
        ("@midnight", "2030-01-02T00:00:00"),
        ("@weekly", "2030-01-06T00:00:00"),
        ("@monthly", "2030-02-01T00:00:00"),
        ("@yearly", "2031-01-01T00:00:00"),
        ("@annually", "2031-01-01T00:00:00"),
    ],
)
def test_a_macro_ticks_as_it_says(macro, tick):
    assert macro in MACROS
    assert next_tick(cron(macro), utc("2030-01-01T10:30:00")) == utc(tick)


def test_a_schedule_made_by_hand_that_never_ticks_says_so():
    with pytest.raises(ValueError, match=r"cron 0 0 \*/30 2 MON#5 UTC never ticks"):
        next_tick(Cron("0 0 */30 2 MON#5"), utc("2030-01-01"))


# When clocks are changed.


@pytest.mark.parametrize(
    ("what", "expression", "ticks"),
    [
        ("a skipped time comes at the end of the gap", "30 2 * * *", ["01:00"]),
        ("skipped times come together, once", "0,15,30 2 * * *", ["01:00"]),
        ("and with what is due there, once", "0,30 2,3 * * *", ["01:00", "01:30"]),
        ("what is not skipped stays where it is", "30 1,3 * * *", ["00:30", "01:30"]),
        ("with any minute, what is skipped is left out", "*/20 2 * * *", []),
        ("with any hour, too", "30 */2 * * *", ["02:30", "04:30"]),
    ],
)  # fmt: skip
def test_an_hour_that_is_skipped(what, expression, ticks):
    schedule = cron(expression, tz=BERLIN)
    found = ticks_between(schedule, utc("2026-03-29T00:00:00"), utc("2026-03-29T05:00:00"))
    assert [f"{tick:%H:%M}" for tick in found] == ticks, what


@pytest.mark.parametrize(
    ("what", "expression", "ticks"),
    [
        ("a fixed time comes the first time only", "30 2 * * *", ["00:30"]),
        ("so do several", "0,30 2,3 * * *", ["00:00", "00:30", "02:00", "02:30"]),
        ("with any minute, it comes both times", "*/30 2 * * *",
         ["00:00", "00:30", "01:00", "01:30"]),
        ("with any hour, too", "30 * * * *", ["00:30", "01:30", "02:30"]),
    ],
)  # fmt: skip
def test_an_hour_that_comes_twice(what, expression, ticks):
    schedule = cron(expression, tz=BERLIN)
    found = ticks_between(schedule, utc("2026-10-24T23:59:00"), utc("2026-10-25T02:59:00"))
    assert [f"{tick:%H:%M}" for tick in found] == ticks, what


def test_nothing_comes_again_to_a_node_that_starts_in_the_second_of_two_hours():
    schedule = cron("30 2 * * *", tz=BERLIN)
    assert next_tick(schedule, utc("2026-10-25T01:10:00")) == utc("2026-10-26T01:30:00")


def test_in_the_second_of_two_hours_the_newest_tick_may_be_of_the_first():
    schedule = cron("30 2 * * *", tz=BERLIN)
    catch = due_ticks(schedule, utc("2026-10-20T00:30:00"), utc("2026-10-25T01:10:00"))
    assert catch == Catch((utc("2026-10-25T00:30:00"),), utc("2026-10-26T01:30:00"))


def test_a_whole_day_may_be_skipped():
    # Samoa crossed the date line: 2011-12-31 followed 2011-12-29, at 10:00 UTC.
    schedule = cron("30 12 * * *", tz="Pacific/Apia")
    found = ticks_after(schedule, utc("2011-12-29T00:00:00"), 3)
    assert found == [utc(f"2011-12-{tick}:00") for tick in ("29T22:30", "30T10:00", "30T22:30")]


# What was missed.

START = utc("2030-01-01T10:00:00")


def seconds(*counts: float) -> tuple[datetime, ...]:
    return tuple(START + timedelta(seconds=count) for count in counts)


@pytest.mark.parametrize("catch_up", ["skip", "one", "all"])
@pytest.mark.parametrize("late_s", [-5.0, 0.0, 0.25, TICK_LATE_S])
def test_a_tick_in_time_opens_whatever_the_policy(catch_up, late_s):
    schedule = every("15m", catch_up=catch_up)
    [now] = seconds(late_s)
    assert due_ticks(schedule, START, now) == Catch((START,), *seconds(900))


@pytest.mark.parametrize(
    ("catch_up", "late_s", "opens", "arms"),
    [
        ("one", 61, [0], 900),
        ("one", 899, [0], 900),
        ("one", 900, [900], 1800),
        ("one", 3_000, [2_700], 3_600),
        ("all", 61, [0], 900),
        ("all", 900, [0, 900], 1800),
        ("all", 3_000, [0, 900, 1_800, 2_700], 3_600),
        ("skip", 60.001, [], 900),
        ("skip", 899, [], 900),
        ("skip", 900, [900], 1_800),
        ("skip", 960, [900], 1_800),
        ("skip", 960.001, [], 1_800),
    ],
)
@pytest.mark.parametrize("declared", [Every(900), Cron("*/15 * * * *")])
def test_ticks_that_were_missed_are_made_up_for_by_policy(declared, catch_up, late_s, opens, arms):
    schedule = msgspec.structs.replace(declared, catch_up=catch_up)
    [now] = seconds(late_s)
    assert due_ticks(schedule, START, now) == Catch(seconds(*opens), *seconds(arms))


def test_only_so_many_are_made_up_for_in_one_go_and_the_next_go_follows_at_once():
    schedule, [now] = every(10, catch_up="all"), seconds(10 * TICKS_MAX)
    first = due_ticks(schedule, START, now)
    assert len(first.opens) == TICKS_MAX
    assert first.arms == now
    assert due_ticks(schedule, first.arms, now) == Catch((now,), now + timedelta(seconds=10))


@pytest.mark.parametrize("catch_up", ["skip", "one", "all"])
@pytest.mark.parametrize("declared", [Every(1), Cron("* * * * *"), Cron("* * * * *", BERLIN)])
def test_a_century_that_was_missed_is_not_walked_through(declared, catch_up):
    schedule = msgspec.structs.replace(declared, catch_up=catch_up)
    now = START.replace(year=2130)
    catch = due_ticks(schedule, START, now)
    assert (catch.opens[-1] == now) == (catch_up != "all")
    assert catch.arms == next_tick(schedule, catch.opens[-1])


def test_ticks_are_in_utc_wherever_the_times_that_are_given_come_from():
    tokyo = ZoneInfo("Asia/Tokyo")
    schedule = cron("@daily", tz=BERLIN, catch_up="all")
    catch = due_ticks(schedule, next_tick(schedule, START).astimezone(tokyo),
                      (START + timedelta(days=3)).astimezone(tokyo))  # fmt: skip
    assert {tick.tzinfo for tick in (*catch.opens, catch.arms)} == {UTC}


# For any schedule, at any time.


def period_s(schedule):
    return schedule.interval_s if isinstance(schedule, Every) else 60


ZONES = ["UTC", BERLIN, "America/Santiago", "Africa/Cairo", "Asia/Kathmandu", "Pacific/Apia"]
EXPRESSIONS = [
    "* * * * *", "*/7 * * * *", "30 * * * *", "30 2 * * *", "0,30 0-3 * * *", "*/20 2 * * *",
    "15 */3 * * *", "0 0 * * MON-FRI", "0 0 1,15 * 3", "45 23 L * *", "0 0 29 2 *",
]  # fmt: skip

moments = st.datetimes(datetime(2010, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - hypothesis adds the zone
changes = st.builds(  # Some hours around the days on which clocks are changed.
    lambda day, minutes: utc(day) + timedelta(minutes=minutes),
    st.sampled_from(["2026-03-28", "2026-10-24", "2026-04-04", "2026-09-05", "2023-04-27",
                     "2023-10-26", "2011-12-29"]),
    st.integers(0, 3 * 24 * 60),
)  # fmt: skip


def schedules(catch_up):
    return st.one_of(
        st.builds(lambda s: every(s, catch_up=catch_up), st.integers(1, 100_000)),
        st.builds(
            lambda expression, tz: cron(expression, tz=tz, catch_up=catch_up),
            st.sampled_from(EXPRESSIONS),
            st.sampled_from(ZONES),
        ),
    )


@settings(deadline=None)
@forall(schedules("one"), moments | changes)
def test_ticks_strictly_increase_and_nothing_lies_between_two(schedule, start):
    ticks = ticks_after(schedule, start, 5)
    assert all(one < other for one, other in pairwise([start, *ticks]))
    for one, other in pairwise([start, *ticks]):
        assert next_tick(schedule, one + (other - one) / 2) == other


@settings(deadline=None)
@forall(schedules("one"), moments | changes, st.integers(0, 200_000))
@example(cron("30 2 * * *", tz=BERLIN, catch_up="one"), utc("2026-10-24T00:00:00"), 90_000)
def test_one_is_the_newest_of_all_that_came_due(schedule, start, passed_s):
    tick = next_tick(schedule, start)
    now = tick + timedelta(seconds=min(passed_s, 500 * period_s(schedule)))
    catch = due_ticks(schedule, tick, now)
    assert catch.opens == (ticks_between(schedule, start, now)[-1],)
    assert catch.arms == next_tick(schedule, now)


@settings(deadline=None)
@forall(schedules("all"), moments | changes, st.lists(st.integers(0, 50_000), max_size=6))
def test_all_opens_the_same_ticks_however_often_anyone_looks(schedule, start, pauses_s):
    pauses = [timedelta(seconds=min(each, 300 * period_s(schedule))) for each in pauses_s]
    nows = list(accumulate(pauses, initial=start))
    opened, armed = [], next_tick(schedule, start)
    for now in nows:
        while armed <= now:
            catch = due_ticks(schedule, armed, now)
            assert len(catch.opens) <= TICKS_MAX
            opened, armed = [*opened, *catch.opens], catch.arms
    assert opened == ticks_between(schedule, start, nows[-1])


@settings(deadline=None)
@forall(st.sampled_from(["skip", "one", "all"]).flatmap(schedules), moments | changes,
        st.integers(-60, 10**9))  # fmt: skip
def test_what_is_armed_next_comes_after_all_that_was_answered_for(schedule, start, passed_s):
    tick = next_tick(schedule, start)
    catch = due_ticks(schedule, tick, tick + timedelta(seconds=passed_s))
    assert list(catch.opens) == sorted(set(catch.opens))
    assert all(tick <= opened < catch.arms for opened in catch.opens)
    assert catch.arms > tick
