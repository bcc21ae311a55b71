"""What is to be done about what stands, given what nodes declare."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from engine.app.triggers import cron, every, schedule_in, spec_of
from engine.cluster.nodes import ActorInfo, ExpectationInfo, NodeInfo
from engine.operations.census import OpenWait
from engine.operations.drift import (
    REASON_MAX,
    ActualState,
    Arm,
    CancelBlocked,
    Disarm,
    Forget,
    Mark,
    declared,
    plan,
    reason_of,
    why_unknown,
)
from streams.model.modes import NodeMode

NOW = datetime(2026, 11, 21, 12, 7, tzinfo=UTC)

QUARTERS = "every 900s"
HOURS = "every 3600s"

LEFT = ActualState(
    actor="worker",
    ticks=[f"old/{QUARTERS}", f"new/{QUARTERS}"],
    calms=["old/web-1", "new/web-1"],
    marks=[
        Mark(key="cooldown.worker.old.web-1", revision=1),
        Mark(key="cooldown.worker.new.web-1", revision=2),
        Mark(key="calmed.worker.old.web-1", revision=3),
        Mark(key="breaker.worker.old", revision=4),
        Mark(key="breaker.worker.new", revision=5),
    ],
    waiting=[
        OpenWait(actor_id="worker", expectation_id="old", episode_id="e1"),
        OpenWait(actor_id="worker", expectation_id="new", episode_id="e2"),
    ],
)
"""What an expectation `old` has left, and what belongs to `new`."""


def node(name="n1", *, wakes=True, watches=(), **schedules):
    """Return a node whose `worker` has these expectations, with these schedules, and triggers."""
    infos = {
        key: ExpectationInfo(schedules=specs, triggers=watches) for key, specs in schedules.items()
    }
    actor = ActorInfo(runs=True, wakes=wakes, slots=5, expectations=infos)
    full = NodeMode.FULL
    return NodeInfo(
        name=name,
        host="h",
        pid=1,
        since=NOW,
        mode=full,
        setting=full,
        lease_s=30.0,
        actors={"worker": actor},
    )


def planned(*nodes, standing=LEFT):
    known = declared(nodes, "worker")
    assert known is not None
    return plan(known, standing, now=NOW)


def of(kind, actions):
    return [each for each in actions if isinstance(each, kind)]


def test_all_that_an_expectation_left_which_nobody_declares_is_ended():
    actions = planned(node(new=(QUARTERS,)))
    assert [(each.purpose, each.key) for each in of(Disarm, actions)] == [
        ("tick", f"old/{QUARTERS}"),
        ("debounce", "old/web-1"),
    ]
    assert [each.episode_id for each in of(CancelBlocked, actions)] == ["e1"]
    assert [each.mark.revision for each in of(Forget, actions)] == [1, 3, 4]
    assert of(Arm, actions) == []
    assert {(each.actor_id, each.expectation_id) for each in actions} == {("worker", "old")}


def test_nothing_is_to_be_done_where_all_that_stands_is_declared():
    assert planned(node(new=(QUARTERS,), old=(QUARTERS,))) == []


def test_what_an_old_node_still_declares_stays_while_a_deploy_rolls():
    assert planned(node("n1", old=(QUARTERS,)), node("n2", new=(QUARTERS,))) == []


def test_a_schedule_whose_interval_changed_has_its_old_timer_disarmed_and_the_new_one_armed():
    standing = ActualState(actor="worker", ticks=[f"look/{QUARTERS}"])
    disarm, arm = planned(node(look=(HOURS,)), standing=standing)
    assert (disarm.key, arm.schedule) == (f"look/{QUARTERS}", HOURS)
    assert arm.at == datetime(2026, 11, 21, 13, tzinfo=UTC)


def test_both_intervals_tick_while_old_and_new_nodes_live_side_by_side():
    standing = ActualState(actor="worker", ticks=[f"look/{QUARTERS}"])
    (arm,) = planned(node("n1", look=(QUARTERS,)), node("n2", look=(HOURS,)), standing=standing)
    assert arm.schedule == HOURS


def test_a_schedule_of_nodes_that_wake_nothing_is_neither_armed_nor_disarmed():
    resting = node(wakes=False, look=(QUARTERS, HOURS))
    standing = ActualState(actor="worker", ticks=[f"look/{QUARTERS}"])
    assert planned(resting, standing=standing) == []


def test_a_schedule_that_only_a_newer_version_can_read_is_left_to_it():
    assert planned(node(look=("moon full",)), standing=ActualState(actor="worker")) == []


def test_what_waits_for_calm_goes_on_though_its_expectation_waits_no_more():
    standing = ActualState(actor="worker", calms=["look/web-1"])
    assert planned(node(look=()), standing=standing) == []


def test_events_that_no_node_watches_are_watched_no_more():
    standing = ActualState(actor="worker", watched=frozenset({"a.b", "c", "d"}))
    nodes = [
        node("n1", watches=("event c", "manual"), look=()),
        node("n2", watches=("event d", "stream ORDERS a.b"), look=()),
    ]
    (unwatch,) = planned(*nodes, standing=standing)
    assert (unwatch.name, unwatch.expectation_id, unwatch.events) == ("unwatch", "", ("a.b",))


def test_of_many_events_the_first_are_told():
    standing = ActualState(actor="worker", watched=frozenset("abcdefgh"))
    (unwatch,) = planned(node(look=()), standing=standing)
    assert unwatch.about == "stops watching a, b, c, d, e and 3 more"


def test_nothing_is_known_of_an_actor_that_no_node_has():
    assert declared([], "worker") is None
    assert declared([node(look=())], "other") is None
    assert why_unknown([node(look=())], "other") == "no node that is up has it"


def test_nothing_is_known_of_an_actor_that_one_node_had_too_much_to_say_about():
    nodes = [node("n1", look=()), node("n2")]
    assert declared(nodes, "worker") is None
    assert "node n2 does not say" in why_unknown(nodes, "worker")
    assert why_unknown([node(look=())], "worker") == ""


def test_why_an_episode_is_canceled_says_what_kind_of_reason_it_is_and_why_somebody_wanted_it():
    assert reason_of("") == "orphan_cleanup"
    assert reason_of("checks moved") == "orphan_cleanup: checks moved"
    assert len(reason_of("x" * REASON_MAX)) == 4_000


@pytest.mark.parametrize(
    "schedule",
    [every(1), every("15m"), every("366d"), cron("@daily"), cron("0 12 * * MON", tz="Asia/Tokyo")],
)
def test_a_schedule_is_known_by_its_name(schedule):
    assert spec_of(schedule_in(spec_of(schedule))) == spec_of(schedule)


def test_when_a_schedule_with_a_payload_ticks_is_known_by_its_name():
    schedule = cron("0 12 * * MON#2", tz="Asia/Tokyo", payload={"service": "shop"})
    assert schedule_in(spec_of(schedule)) == cron("0 12 * * MON#2", tz="Asia/Tokyo")


@pytest.mark.parametrize(
    "spec", ["", "every", "every 0s", "every 15m", "cron * * * * *", "cron @daily UTC", "moon full"]
)
def test_what_names_no_schedule_is_none(spec):
    assert schedule_in(spec) is None


def test_what_is_done_can_be_told_in_words():
    arm = planned(node(look=(HOURS,)), standing=ActualState(actor="worker"))[0]
    assert (arm.name, arm.about) == ("arm", "tick every 3600s, next 2026-11-21T13:00:00+00:00")
    disarm = planned(node(look=()))[0]
    assert (disarm.name, disarm.about) == ("disarm", f"tick {QUARTERS}")
