"""The table, second part: schedules, and what becomes of ticks while no node runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from engine.app.triggers import cron, event, every
from tests.gates.scenario import DOOR, Kill, Opened, Publish, Scenario, Start, Stop

MINUTE: Final = 60.0

SERVICES: Final = ({"service": "shop"}, {"service": "till"})
SPECS: Final = ("every 900s #9eafd217593f6a3d", "every 900s #c973b774bd3aaa33")


def ticks(*at_s: float, opened_s: float | None = None) -> Sequence[Opened]:
    """Return the episodes of ticks: each opened in time, or all of them at `opened_s`."""
    return [Opened(each if opened_s is None else opened_s, f"tick+{each:g}") for each in at_s]


def utc(month: int, day: int, hour: int, minute: int) -> datetime:
    return datetime(2030, month, day, hour, minute, tzinfo=UTC)


def on_tick(
    at: datetime, schedule: str, payload: Mapping[str, object] | None = None
) -> dict[str, object]:
    """Return what the trigger and the opening of a tick say."""
    _, mark, digest = schedule.partition(" #")
    key = f"schedule:{at:%Y-%m-%dT%H:%M:%SZ}{mark}{digest}"
    return {
        "scheduled_at": at,
        "schedule": schedule,
        "dedupe_key": key,
        "payload": payload or {},
        "entity_id": payload["service"] if payload else "",
    }


TIMES: Final = (
    Scenario(
        name="every two seconds it ticks, on even seconds",
        declared={"on": every("2s")},
        nodes=("n1", "n2"),
        until_s=7.0,
        opened=ticks(2, 4, 6),
        counted={"fire": 3},
        is_short=True,
        aligned_s=2,
    ),
    Scenario(
        name="every quarter of an hour it ticks on the quarters, whenever the node began",
        declared={"on": every("15m")},
        begins=utc(1, 1, 0, 7),
        until_s=40 * MINUTE,
        opened=[
            Opened(8 * MINUTE, "tick+480", on_tick(utc(1, 1, 0, 15), "every 900s")),
            Opened(23 * MINUTE, "tick+1380", on_tick(utc(1, 1, 0, 30), "every 900s")),
            Opened(38 * MINUTE, "tick+2280", on_tick(utc(1, 1, 0, 45), "every 900s")),
        ],
        counted={"fire": 3},
    ),
    Scenario(
        name="schedules with different payloads tick beside each other, each for its subject",
        declared={
            "on": [every("15m", payload=each) for each in SERVICES],
            "subject_key": "service",
        },
        begins=utc(1, 1, 0, 7),
        until_s=10 * MINUTE,
        opened=[
            Opened(8 * MINUTE, f"tick+480 {each['service']}", on_tick(utc(1, 1, 0, 15), spec, each))
            for spec, each in zip(SPECS, SERVICES, strict=True)
        ],
        counted={"fire": 2},
    ),
    Scenario(
        name="ticks in one window open one episode",
        declared={"on": every("10m", window="h1")},
        begins=utc(1, 1, 0, 35),
        until_s=60 * MINUTE,
        opened=[
            Opened(5 * MINUTE, "tick+300", {"dedupe_key": "schedule:2030-01-01T00:00:00Z@h1"}),
            Opened(25 * MINUTE, "tick+1500", {"dedupe_key": "schedule:2030-01-01T01:00:00Z@h1"}),
        ],
        counted={"fire": 2, "duplicate": 4},
    ),
    Scenario(
        name="events and two schedules fire the same expectation",
        declared={"on": [every("4s"), event(DOOR), every("6s")]},
        happens=[(5.0, Publish("e1"))],
        until_s=13.0,
        opened=[*ticks(4), Opened(5.0, "e1"), *ticks(6, 8, 12)],
        counted={"fire": 5, "duplicate": 1},
    ),
    Scenario(
        name="cron ticks by the clock of its zone, until working hours end",
        declared={"on": cron("*/10 9-17 * * MON-FRI", tz="Europe/Berlin")},
        begins=utc(1, 4, 16, 35),  # A Friday: 17:35 in Berlin.
        until_s=90 * MINUTE,
        opened=[
            Opened(
                5 * MINUTE,
                "tick+300",
                on_tick(utc(1, 4, 16, 40), "cron */10 9-17 * * MON-FRI Europe/Berlin"),
            ),
            *ticks(15 * MINUTE),
        ],
        counted={"fire": 2},
    ),
    Scenario(
        name="cron begins again when the working week does",
        declared={"on": cron("*/30 9-17 * * MON-FRI", tz="Europe/Berlin")},
        begins=utc(1, 7, 7, 15),  # A Monday: 8:15 in Berlin.
        until_s=80 * MINUTE,
        opened=ticks(45 * MINUTE, 75 * MINUTE),
        counted={"fire": 2},
    ),
    Scenario(
        name="a time that the clocks skip in spring ticks once, when they have",
        declared={"on": cron("30 2 * * *", tz="Europe/Berlin")},
        begins=utc(3, 31, 0, 50),
        until_s=90 * MINUTE,
        opened=[Opened(10 * MINUTE, "tick+600", {"scheduled_at": utc(3, 31, 1, 0)})],
        counted={"fire": 1},
    ),
    Scenario(
        name="a time that comes twice in autumn ticks the first time",
        declared={"on": cron("30 2 * * *", tz="Europe/Berlin")},
        begins=utc(10, 27, 0, 20),
        until_s=90 * MINUTE,
        opened=[Opened(10 * MINUTE, "tick+600", {"scheduled_at": utc(10, 27, 0, 30)})],
        counted={"fire": 1},
    ),
    Scenario(
        name="every half hour it ticks both times that the clock shows it",
        declared={"on": cron("*/30 2 * * *", tz="Europe/Berlin")},
        begins=utc(10, 26, 23, 50),
        until_s=150 * MINUTE,
        opened=ticks(*(minutes * MINUTE for minutes in (10, 40, 70, 100))),
        counted={"fire": 4},
    ),
    *(
        Scenario(
            name=f"of the ticks that nobody was there for, {policy} is caught up with: {what}",
            declared={"on": every("10m", catch_up=policy)},
            happens=[(12 * MINUTE, gone), (55 * MINUTE, Start("n2"))],
            until_s=65 * MINUTE,
            opened=[
                *ticks(10 * MINUTE),
                *ticks(*(minutes * MINUTE for minutes in caught), opened_s=55 * MINUTE),
                *ticks(60 * MINUTE),
            ],
            counted={"fire": 2 + len(caught)},
        )
        for policy, caught in (("skip", ()), ("one", (50,)), ("all", (20, 30, 40, 50)))
        for what, gone in (("the node stopped", Stop("n1")), ("the node died", Kill("n1")))
    ),
    Scenario(
        name="a tick that is less than a minute late is not missed",
        declared={"on": every("10m", catch_up="skip")},
        happens=[(5 * MINUTE, Stop("n1")), (10 * MINUTE + 50, Start("n1"))],
        until_s=15 * MINUTE,
        opened=ticks(10 * MINUTE, opened_s=10 * MINUTE + 50),
        counted={"fire": 1},
    ),
    Scenario(
        name="cron catches up, too",
        declared={"on": cron("*/15 * * * *", tz="Asia/Kolkata", catch_up="all")},
        happens=[(20 * MINUTE, Kill("n1")), (50 * MINUTE, Start("n1"))],
        until_s=62 * MINUTE,
        opened=[
            *ticks(15 * MINUTE),
            *ticks(30 * MINUTE, 45 * MINUTE, opened_s=50 * MINUTE),
            *ticks(60 * MINUTE),
        ],
        counted={"fire": 4},
    ),
    Scenario(
        name="all that was missed for a day is caught up with, a hundred at a time",
        declared={"on": every("5m", catch_up="all")},
        happens=[(1.0, Stop("n1")), (1_440 * MINUTE + 1, Start("n1"))],
        until_s=1_443 * MINUTE,
        opened=ticks(*(5 * n * MINUTE for n in range(1, 289)), opened_s=1_440 * MINUTE + 1),
        counted={"fire": 288},
    ),
    Scenario(
        name="the newest of the ticks that were missed is caught up with in a moment",
        declared={"on": every("1s", catch_up="one")},
        happens=[(2.5, Stop("n1")), (6.5, Start("n1"))],
        until_s=8.5,
        opened=[*ticks(1, 2), *ticks(6, opened_s=6.5), *ticks(7, 8)],
        counted={"fire": 5},
        is_short=True,
    ),
    Scenario(
        name="all ticks that were missed are caught up with in a moment",
        declared={"on": every("2s", catch_up="all")},
        happens=[(3.0, Kill("n1")), (9.0, Start("n1"))],
        until_s=11.0,
        opened=[*ticks(2), *ticks(4, 6, 8, opened_s=9.0), *ticks(10)],
        counted={"fire": 5},
        is_short=True,
        aligned_s=2,
    ),
    Scenario(
        name="neither cooldown nor calm holds a tick back",
        declared={"on": [every("2s"), event(DOOR)], "cooldown_s": 60, "debounce_s": 30},
        until_s=7.0,
        opened=ticks(2, 4, 6),
        counted={"fire": 3},
    ),
)
