"""What follows from a commit."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import pytest
from msgspec.structs import replace

from engine.episodes import dry_run
from engine.episodes import open as placing
from engine.episodes.breakers.breaker import TRIPPED
from engine.reactor import follow_up
from engine.reactor.follow_up import Effect, SendCommand, SendTimer
from engine.runtime.publish import PublicEvent
from streams.model.children import ChildEnd, ChildStart, WithParent
from streams.model.commands import Attend, ChildEnded, ShareDecision, Start, StepDone
from streams.model.events import (
    ActorPaused,
    ActorResumed,
    BlockReason,
    EndStatus,
    EpisodeBlocked,
    EpisodeFinished,
    EpisodeOpened,
    Fork,
    StepAnnounced,
    StepKind,
    StepRecorded,
)
from streams.model.service_levels import LevelOutcome, ServiceLevel
from streams.model.triggers import Budget, EpisodeTrigger, PublicEvents
from streams.model.waits import Wait
from streams.ports.log import Recorded
from tests.engine.reactor import journals as given

EPISODE = given.STACK.episode("e1")
OUTPUT = given.STACK.output("o1")
FINDING = given.STACK.finding("disk")


def of_episode(*parts, told: int | None = None) -> list[Effect]:
    """Return what follows from all commits of an episode, or from the last `told` of them."""
    state, found = None, []
    for record in given.commits(EPISODE, *parts):
        state, effects = follow_up.of_episode(state, record)
        found.append(effects)
    return [each for effects in found[-(told or len(found)) :] for each in effects]


def of_output(records: Sequence[Recorded], opened: EpisodeOpened = given.OPENED) -> list[Effect]:
    state, found = None, []
    for record in records:
        state, events = follow_up.of_output(state, record, opened)
        found += events
    return found


def of_finding(*events, opened: EpisodeOpened | None = given.OPENED) -> list[PublicEvent]:
    records = given.commits(FINDING, *events)
    return [each for record in records for each in follow_up.of_finding(opened, record)]


def names(effects: Sequence[Effect]) -> list[str]:
    return [each.name for each in effects if isinstance(each, PublicEvent)]


def ids(effects: Sequence[Effect]) -> list[str]:
    return [each.id for each in effects]


def sent(effects: Sequence[Effect]) -> list[SendCommand]:
    return [each for each in effects if isinstance(each, SendCommand)]


def test_an_episode_that_was_only_opened_is_started():
    triggered, start = of_episode(given.OPENED)
    assert (triggered.name, triggered.id) == ("expectation.triggered", "e1.triggered")
    assert start == SendCommand(Start(actor_id="monitor", episode_id="e1"), "start.e1")


def test_one_in_a_lane_is_started_by_the_lane():
    assert sent(of_episode(replace(given.OPENED, in_lane=True))) == []


def test_one_that_its_node_has_begun_is_not():
    effects = of_episode((given.OPENED, given.STARTED))
    assert names(effects) == ["expectation.triggered", "episode.started"]
    assert sent(effects) == []


def test_a_whole_life_in_one_commit_is_told_in_order():
    life = (given.OPENED, given.STARTED, given.STEP, given.CONVERGED, given.FINISHED)
    told = of_episode(life)
    assert ids(told) == ["e1.triggered", "e1.started.1", "e1.ended"]
    assert told[-1].payload["summary"] == "all is well"
    assert {each.payload["journal_seq"] for each in told} == {1}
    assert {each.hops for each in told} == {4}


def test_an_actor_may_leave_out_what_every_episode_publishes_before_its_end():
    quiet = replace(given.OPENED, public_events=PublicEvents.WITHOUT_STARTS)
    life = (quiet, given.STARTED, given.STEP, given.CONVERGED, given.FINISHED)
    assert ids(of_episode(life)) == ["e1.ended"]


def test_the_end_tells_what_was_concluded_before():
    (ended,) = of_episode((given.OPENED, given.STARTED), given.CONVERGED, given.FINISHED, told=1)
    assert (ended.payload["summary"], ended.payload["confidence"]) == ("all is well", 0.9)
    assert ended.payload["classification"] == {"primary": "ok"}


def test_steps_are_nobodys_business():
    assert of_episode((given.OPENED, given.STARTED), given.STEP, told=1) == []


def asked(step_no: int, usd: str) -> StepRecorded:
    cost, kind = Decimal(usd), StepKind.MODEL_REQUEST
    return StepRecorded(step_no=step_no, kind=kind, fingerprint="f", cost_usd=cost)


LIMITED = replace(given.OPENED, budget=Budget(usd="1.00"))


@pytest.mark.parametrize(
    ("costs", "percents"),
    [
        (["0.49", "0.01", "0.29"], [50]),
        (["0.50", "0.30", "0.20"], [50, 80, 100]),
        (["0.49", "0.31"], [50, 80]),
        (["1.10", "0.10"], [50, 80, 100]),
        (["0.49"], []),
    ],
)
def test_shares_of_its_dollars_that_an_episode_has_spent_are_told_once_each(costs, percents):
    steps = [asked(number, usd) for number, usd in enumerate(costs, start=1)]
    told = [
        each
        for each in of_episode((LIMITED, given.STARTED), *steps)
        if isinstance(each, PublicEvent) and each.name == "episode.budget_used"
    ]
    assert [each.payload["percent"] for each in told] == percents
    assert ids(told) == [f"e1.budget_used.{percent}" for percent in percents]


def test_what_an_episode_without_a_limit_spends_is_nobodys_business():
    assert of_episode((given.OPENED, given.STARTED), asked(1, "9"), told=1) == []


def test_what_a_child_has_spent_counts_for_the_share_of_its_parent():
    step = replace(given.STEP, child=ChildEnd(episode_id="c1", usd=Decimal("0.50")))
    (told,) = of_episode((LIMITED, given.STARTED), step, told=1)
    assert (told.payload["used"], told.payload["budget"]) == ("0.50", "1.00")


def test_what_a_fork_began_with_is_told_of_the_other_episode_and_counts():
    fork = replace(LIMITED, fork=Fork(episode_id="e0", step_no=1, by="ann"))
    effects = of_episode((fork, asked(1, "0.60")), given.STARTED, asked(2, "0.20"))
    told = [each for each in effects if isinstance(each, PublicEvent)]
    assert [each.payload["percent"] for each in told if "percent" in each.payload] == [80]


SECOND = replace(given.STARTED, attempt=2, node="n2")


def test_a_takeover_tells_whose_claim_was_lost():
    lost, started = of_episode((given.OPENED, given.STARTED), SECOND, told=1)
    assert ids([lost, started]) == ["e1.claim_lost.1", "e1.started.2"]
    assert (lost.payload["node"], started.payload["node"]) == ("n1", "n2")


@pytest.mark.parametrize("leaving", [given.LEFT, given.BLOCKED, given.DEFERRED], ids=str)
def test_whoever_left_it_has_lost_nothing(leaving):
    effects = of_episode((given.OPENED, given.STARTED), leaving, SECOND)
    assert not [each for each in names(effects) if each == "episode.claim_lost"]


def test_whoever_only_delivers_what_is_left_has_not_started_it():
    life = ((given.OPENED, given.STARTED, given.CONVERGED), given.DEFERRED, SECOND, given.FINISHED)
    assert names(of_episode(*life))[1:] == ["episode.started", "episode.completed"]


def test_an_episode_that_a_breaker_canceled_is_told_as_that_too():
    canceled = EpisodeFinished(
        status=EndStatus.CANCELED, error_class=TRIPPED, error_detail="the breaker is open"
    )
    ended, by_breaker = of_episode((given.OPENED, given.STARTED), canceled, told=1)
    assert (ended.name, by_breaker.name) == ("episode.canceled", "circuit_breaker.canceled_episode")
    assert by_breaker.payload["detail"] == "the breaker is open"


@pytest.mark.parametrize(
    ("outcome", "events"),
    [
        (LevelOutcome.LATE_END, ["episode.completed", "service_level.missed"]),
        (LevelOutcome.MET, ["episode.completed"]),
        (None, ["episode.completed"]),
    ],
)
def test_an_episode_that_broke_what_was_promised_is_told_as_that_too(outcome, events):
    opened = replace(given.OPENED, service_level=ServiceLevel(end_s=3))
    end = replace(given.FINISHED, service_level=outcome)
    assert names(of_episode((opened, given.STARTED), end, told=1)) == events


def test_a_wait_and_its_answer_are_told_and_the_answer_calls_a_node():
    begun = (given.OPENED, given.STARTED)
    effects = of_episode(begun, given.BLOCKED, (given.STEP, given.RESOLVED), told=2)
    assert ids(effects) == ["e1.blocked.2", "e1.resumed.2", "answered.e1.2"]
    assert effects[-1].command == Start(actor_id="monitor", episode_id="e1", answered_step=2)


def test_a_decision_that_others_wait_for_is_brought_to_them():
    shared = replace(given.RESOLVED, request_no=1)
    effects = of_episode((given.OPENED, given.STARTED), given.BLOCKED, (given.STEP, shared), told=2)
    assert ids(effects)[2:] == ["share.e1.2", "answered.e1.2"]
    command = effects[2].command
    assert command == ShareDecision(actor_id="monitor", episode_id="e1", step_no=2)


def test_in_a_lane_the_answer_asks_for_a_place_at_once():
    in_lane = replace(given.OPENED, in_lane=True)
    effects = of_episode((in_lane, given.STARTED), given.BLOCKED, (given.RESOLVED,), told=2)
    assert ids(effects) == ["e1.blocked.2", "e1.resumed.2", "answered.e1.2"]
    assert effects[-1].timer == placing.place("monitor", "e1")


def test_the_end_of_a_step_is_reported_to_its_instance():
    effects = of_episode((given.OF_STEP, given.STARTED, given.FINISHED))
    done = StepDone(
        workflow="onboard", instance_id="w1", step="rate", item=2, attempt=1, episode_id="e1"
    )
    assert sent(effects) == [SendCommand(done, "done.e1")]


def test_a_dry_run_is_carried_on_and_nobody_hears_of_it():
    begun = (given.DRY, given.STARTED)
    effects = of_episode(begun, given.BLOCKED, given.RESOLVED, given.FINISHED)
    assert names(effects) == []
    assert ids(effects) == ["answered.e1.2"]


@pytest.mark.parametrize("cut", range(5))
def test_whoever_goes_on_with_a_story_gets_the_same(cut):
    records = given.commits(
        EPISODE,
        (given.OPENED, given.STARTED),
        given.BLOCKED,
        given.RESOLVED,
        given.CONVERGED,
        given.FINISHED,
    )
    state, first = None, []
    for record in records[:cut]:
        state, effects = follow_up.of_episode(state, record)
        first += effects
    again = None
    for record in records[:cut]:
        again, _ = follow_up.of_episode(again, record)
    assert again == state
    rest = []
    for record in records[cut:]:
        again, effects = follow_up.of_episode(again, record)
        rest += effects
    assert first + rest == of_episode(*(record.commit.events for record in records))


def test_a_story_keeps_nothing_large():
    state = None
    for record in given.commits(EPISODE, given.OPENED, given.CONVERGED):
        state, _ = follow_up.of_episode(state, record)
    assert state.opened.trigger.payload == {}
    assert (state.converged.findings, state.converged.outputs) == ((), ())


def test_a_finding_is_told_with_the_hops_of_its_episode():
    (raised,) = of_finding(given.RAISED)
    assert (raised.name, raised.id, raised.hops) == ("finding.raised", "e1.finding.0", 4)


def test_what_enriching_it_changed_is_an_update_of_its_own():
    raised, updated = of_finding(given.RAISED, given.ENRICHED)
    assert (raised.payload["summary"], updated.payload["summary"]) == ("", "web team")
    assert (updated.name, updated.id) == ("finding.updated", "e1.finding.0.enriched")


def test_what_time_does_to_a_finding_needs_no_episode():
    (expired,) = of_finding(given.EXPIRED, opened=None)
    assert (expired.name, expired.hops) == ("finding.expired", 1)
    assert follow_up.cause_of(given.recorded(FINDING, 1, given.EXPIRED)) == ""


def test_a_finding_of_a_dry_run_is_told_to_nobody():
    apart = replace(given.FINDING, actor_id=dry_run.found_by(given.KEPT))
    kept = replace(given.RAISED, finding=apart)
    assert of_finding(kept, opened=given.KEPT) == []


def test_an_output_is_told_from_proposal_to_delivery():
    records = given.commits(
        OUTPUT, given.TO_APPROVE, given.APPROVED, given.ATTEMPTED, given.DELIVERED
    )
    assert names(of_output(records)) == ["output.proposed", "output.approved", "output.delivered"]


def test_it_fails_once_for_each_time_that_it_is_tried():
    records = given.commits(
        OUTPUT, given.PROPOSED, given.FAILED, given.RETRIED, given.FAILED, given.PROPOSED
    )
    told = [each.id.split(".", 2)[2] for each in of_output(records)]
    assert told == ["1.proposed", "1.failed", "1.failed.1", "1.proposed"]


def test_an_output_of_a_dry_run_is_told_to_nobody():
    assert of_output(given.commits(OUTPUT, given.PROPOSED), given.DRY) == []


def test_whose_output_a_commit_is_about():
    proposed, delivered = given.commits(OUTPUT, given.PROPOSED, given.DELIVERED)
    assert follow_up.proposer_of(None, proposed) == "e1"
    state, _ = follow_up.of_output(None, proposed, given.OPENED)
    assert follow_up.proposer_of(state, delivered) == "e1"
    assert follow_up.proposer_of(None, delivered) == ""


def test_a_definition_is_told_as_it_is_applied_and_disabled():
    subject = given.STACK.definition("agent/monitor")
    records = given.commits(subject, given.APPLIED, given.DISABLED)
    applied, disabled = (each for record in records for each in follow_up.of_definition(record))
    assert applied.name == "definition.applied"
    assert applied.payload == {
        "kind": "agent",
        "id": "monitor",
        "revision": 2,
        "by": "ann",
        "reason": "why not",
        "journal_seq": 1,
    }
    assert (disabled.name, disabled.payload["journal_seq"]) == ("definition.disabled", 2)
    assert applied.id != disabled.id


def test_an_order_is_followed_and_told():
    subject = given.STACK.order("pause.monitor")
    paused = ActorPaused(actor_id="monitor", by="ann", reason="deploy")
    (record,) = given.commits(subject, (paused, ActorResumed(actor_id="monitor", by="bob")))

    follows, *told = follow_up.of_order(record, key="pause.monitor")

    assert follows == follow_up.FollowOrder("pause.monitor")
    assert names(told) == ["actor.paused", "actor.resumed"]
    assert len(set(ids(told))) == 2


def test_a_dead_letter_is_told_without_what_was_rejected():
    letter, found = None, []
    for record in given.commits(given.STACK.dead("events", "7"), given.LETTER, given.DISCARDED):
        letter, events = follow_up.of_dead_letter(letter, record, key="k")
        found += events
    assert names(found) == ["dead_letter.written", "dead_letter.discarded"]
    assert [each.payload["by"] for each in found] == ["", "ann"]
    assert {each.payload["reason"] for each in found} == {"unreadable"}
    assert "secret" not in str(found)
    assert len(set(ids(found))) == 2


CHILD = ChildStart(
    episode_id="c1", actor_id="worker", expectation_id="count", budget=Budget(), payload={"n": 1}
)
ANNOUNCED = StepAnnounced(
    step_no=1,
    fingerprint="ab",
    tool_name="worker.count",
    idempotency_key="e1:1:ab",
    path="1",
    child=CHILD,
)
OF_PARENT = EpisodeTrigger(parent_id="p1", parent_actor_id="boss", call="1", hops=1)


def test_an_announced_child_is_asked_for_once_and_one_hop_further():
    (asked,) = of_episode((given.OPENED, given.STARTED), ANNOUNCED, told=1)
    assert isinstance(asked, SendTimer)
    assert (asked.id, asked.timer.actor, asked.timer.purpose) == ("child.c1", "worker", "fire")
    assert asked.timer.payload["payload"] == {"n": 1}
    assert asked.timer.payload["hops"] == given.OPENED.trigger.hops + 1


def test_the_end_of_a_child_is_told_to_its_parent_and_that_of_its_fork_to_nobody():
    child = replace(given.OPENED, trigger=OF_PARENT)
    told = sent(of_episode((child, given.STARTED), given.FINISHED, told=1))
    command = ChildEnded(actor_id="boss", episode_id="p1", child_id="e1")
    assert told == [SendCommand(command, "child_ended.e1")]
    forked = replace(child, fork=Fork(episode_id="e0", step_no=0, by="ann"))
    assert sent(of_episode((forked, given.STARTED), given.FINISHED, told=1)) == []


def test_the_end_of_a_parent_cancels_the_children_whose_end_it_has_not():
    began = (given.OPENED, given.STARTED)
    canceled = sent(of_episode(began, ANNOUNCED, given.FINISHED, told=1))
    assert [each.id for each in canceled] == ["cancel.c1.parent"]
    ended = replace(given.STEP, path="1", child=ChildEnd(episode_id="c1"))
    assert sent(of_episode(began, ANNOUNCED, ended, given.FINISHED, told=1)) == []
    left = replace(ANNOUNCED, child=replace(CHILD, with_parent=WithParent.LEAVE))
    assert sent(of_episode(began, left, given.FINISHED, told=1)) == []


def test_a_call_that_the_functions_own_timeout_cut_off_cancels_its_child():
    given_up = replace(given.STEP, path="1", error_class="call_timeout")
    canceled = sent(of_episode((given.OPENED, given.STARTED), ANNOUNCED, given_up, told=1))
    assert [each.id for each in canceled] == ["cancel.c1.parent"]


def test_an_episode_that_waits_for_children_is_looked_after_at_once():
    blocked = EpisodeBlocked(
        step_no=1,
        reason=BlockReason.WAIT,
        fingerprint="ab",
        wait=Wait(ref=""),
        for_children=True,
    )
    effects = of_episode((given.OPENED, given.STARTED), (ANNOUNCED, blocked), told=1)
    look = SendCommand(Attend(actor_id="monitor", episode_id="e1"), "children.e1.1")
    assert look in effects
