"""Which episodes keep what their expectation promised, and how the world is told of the others."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta

import pytest
from msgspec.structs import replace

from engine.app.actions import tool_call
from engine.episodes.service_level import judge, times_of
from streams.model.events import (
    EndStatus,
    EpisodeFinished,
    EpisodeLeft,
    EpisodeOpened,
    EpisodeStarted,
    Fork,
)
from streams.model.service_levels import LevelOutcome, ServiceLevel
from streams.model.triggers import Budget, ManualTrigger, Mode
from streams.ports.log import START, Commit
from tests.engine.lane_stage import begun, lane_reached, laned, publish
from tests.engine.stage import (
    CLOCK,
    Counter,
    Scripted,
    app_of,
    ask_start,
    lived,
    opening,
    play,
    ports_in_memory,
    running,
    told,
)
from tests.spec import EPOCH, at

LEVEL = ServiceLevel(start_s=5, end_s=60)
OPENED = EpisodeOpened(
    episode_id="e1",
    actor_id="monitor",
    expectation_id="limits",
    trigger=ManualTrigger(requested_by="ann"),
    dedupe_key="manual:k",
    budget=Budget(),
    service_level=LEVEL,
)
STARTED = EpisodeStarted(node="n1", attempt=1)
DONE, FAILED = EndStatus.DONE, EndStatus.FAILED
PARTLY, CANCELED = EndStatus.PARTIALLY_FAILED, EndStatus.CANCELED
NEVER = None


def outcome(status, *, start=1.0, end=2.0, opened=OPENED):
    """Return the outcome of an episode that starts and ends so many seconds after its opening."""
    records = [at(0, opened)] + ([] if start is NEVER else [at(start, STARTED)])
    _, events = judge(
        times_of(records), [EpisodeFinished(status=status)], at=EPOCH + timedelta(seconds=end)
    )
    return events[-1].service_level


@pytest.mark.parametrize("status", [DONE, PARTLY])
def test_an_episode_that_starts_and_ends_in_time_and_does_not_fail_keeps_it(status):
    assert outcome(status) is LevelOutcome.MET


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (5, 60, LevelOutcome.MET),
        (5.001, 60, LevelOutcome.LATE_START),
        (5, 60.001, LevelOutcome.LATE_END),
        (5.001, 60.001, LevelOutcome.LATE_START),
    ],
)
def test_there_is_time_until_the_last_moment(start, end, expected):
    assert outcome(DONE, start=start, end=end) is expected


def test_what_was_broken_first_counts():
    assert outcome(FAILED, start=6, end=100) is LevelOutcome.LATE_START
    assert outcome(FAILED, start=1, end=100) is LevelOutcome.FAILED


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (1, 2, None),
        (NEVER, 2, None),
        (NEVER, 6, LevelOutcome.LATE_START),
        (1, 61, LevelOutcome.LATE_END),
    ],
)
def test_a_canceled_episode_counts_only_if_it_was_late_by_then(start, end, expected):
    assert outcome(CANCELED, start=start, end=end) is expected


def test_a_promise_of_nothing_but_success_is_kept_at_any_time():
    opened = replace(OPENED, service_level=ServiceLevel())
    assert outcome(DONE, start=1e6, end=2e6, opened=opened) is LevelOutcome.MET
    assert outcome(FAILED, opened=opened) is LevelOutcome.FAILED


@pytest.mark.parametrize(
    "opened",
    [
        replace(OPENED, service_level=None),
        replace(OPENED, mode=Mode.DRY_RUN),
        replace(OPENED, fork=Fork(episode_id="e0", step_no=1, by="ann")),
    ],
)
def test_without_a_promise_in_dry_runs_and_in_forks_there_is_no_outcome(opened):
    assert outcome(FAILED, opened=opened) is None


def test_the_first_start_counts_whatever_follows():
    again = EpisodeStarted(node="n2", attempt=2)
    records = [at(0, OPENED), at(2, STARTED), at(3, EpisodeLeft(node="n1")), at(30, again)]
    _, (end,) = judge(
        times_of(records), [EpisodeFinished(status=DONE)], at=EPOCH + timedelta(seconds=31)
    )
    assert end.service_level is LevelOutcome.MET


class Hopeless(Scripted):
    def next_step(self, state, ctx):
        raise LookupError("it is no use")


async def fired(ports, strategy, *, opened_s_ago=0.0, **declared):
    """Let an event that came so many seconds ago open an episode, and return its life."""
    app = app_of(strategy, **declared)
    opened = replace(
        opening(app), service_level=app.actors["worker"].expectations["thing"].service_level
    )
    commit = Commit(id="open", at=CLOCK.now() - timedelta(seconds=opened_s_ago), events=(opened,))
    await ports.log.append(ports.stack.episode(opened.episode_id), commit, after=START)
    await ask_start(ports, opened.episode_id)
    async with running(app, ports):
        return await lived(ports, opened.episode_id)


async def test_the_end_on_the_journal_tells_whether_it_was_kept():
    life = await fired(ports_in_memory(), Scripted(), service_level=LEVEL)
    assert life.end.service_level is LevelOutcome.MET
    life = await fired(ports_in_memory(), Scripted(), service_level=LEVEL, opened_s_ago=6)
    assert life.end.service_level is LevelOutcome.LATE_START


async def test_an_episode_that_is_opened_and_run_at_once_tells_it_too(ports):
    app = app_of(Scripted(), service_level=LEVEL)
    async with running(app, ports):
        await begun(ports)
        await publish(ports, "x1")
        life = await lived(ports, opening(app).episode_id)
    assert life.events[0].service_level == LEVEL
    assert life.end.service_level is LevelOutcome.MET


async def test_one_that_its_lane_sheds_too_late_has_broken_it(ports):
    tool = Counter(open_=False)
    app = laned(
        Scripted(tool_call("tool", "a")),
        tools={"tool": tool},
        overflow="shed_oldest",
        queue_max=1,
        thing={"service_level": ServiceLevel(start_s=1e-9)},
    )
    async with running(app, ports):
        await begun(ports)
        for number in (1, 2):
            await publish(ports, f"x{number}")
            await lane_reached(ports, lambda lane, n=number: lane.newest_number == n)
        await publish(ports, "x3")
        shed = await lived(ports, opening(app, id_="x2").episode_id)
        tool.gate.set()
    assert shed.end.status is CANCELED
    assert shed.end.service_level is LevelOutcome.LATE_START


async def test_an_end_tells_nothing_where_nothing_was_promised():
    assert (await play(Scripted())).end.service_level is None


async def test_the_world_is_told_of_an_episode_that_broke_it(ports):
    await fired(ports, Hopeless(), service_level=ServiceLevel(start_s=5, end_s=60))
    published = dict(told(ports))
    assert published["service_level.missed"]["outcome"] == "failed"
    assert published["service_level.missed"]["end_s"] == 60


async def test_nobody_is_told_of_one_that_kept_it(ports):
    tool = Counter()
    await fired(ports, Scripted(tool_call("tool", "a")), tools={"tool": tool}, service_level=LEVEL)
    assert "service_level.missed" not in dict(told(ports))


PROGRAM = """
import asyncio, json

from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))

from tests.engine.episodes.test_service_level import LEVEL, Hopeless, Scripted, fired
from tests.engine.stage import ports_in_memory

for strategy in (Scripted(), Hopeless()):
    asyncio.run(fired(ports_in_memory(), strategy, service_level=LEVEL))
(resource,) = reader.get_metrics_data().resource_metrics
for scope in resource.scope_metrics:
    for metric in scope.metrics:
        if metric.name == "vigil.service_levels":
            for point in metric.data.data_points:
                print(json.dumps([point.value, dict(point.attributes)]))
"""
"""In a process of its own: a provider of metrics stays for good."""


def test_a_metric_counts_what_came_of_it():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    counted = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[1, ")]
    of = {"actor": "worker", "expectation": "thing"}
    assert sorted(counted, key=str) == [
        [1, {**of, "outcome": "failed"}],
        [1, {**of, "outcome": "met"}],
    ]
