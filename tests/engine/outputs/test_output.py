"""The life of an output, and what is done about it next."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from engine.app.actions import RETRY_AFTER_S_MAX, Retries
from engine.app.outputs import NO_ADAPTER, output
from engine.app.outputs import propose_output as propose
from engine.errors import InvalidOutput, Refused, Rejected, StrategyError
from engine.outputs.decide import (
    EARLY_S,
    EARLY_SHARE,
    LACKS_MAX,
    OUTCOME_UNKNOWN,
    FailDelivery,
    Later,
    Propose,
    Settled,
    TryDelivery,
    after_failure,
    answered,
    check_round,
    expired,
    lacked,
    next_move,
    tried_again,
    wakes_at,
)
from engine.outputs.keys import idempotency_key, inline_key, intended, output_key, proposal
from engine.outputs.output import TRANSITIONS, UNPROPOSED, Output, decide, evolve, fold, outcome_of
from engine.validation import backoff_s
from streams.json import raw
from streams.model.commands import Decide, RetryOutput, Verdict
from streams.model.events import (
    EpisodeOpened,
    OutputApproved,
    OutputAttempted,
    OutputCanceled,
    OutputDelivered,
    OutputEvent,
    OutputFailed,
    OutputPostponed,
    OutputProposed,
    OutputRejected,
    OutputRetried,
)
from streams.model.outputs import OutputOutcome, OutputStatus
from streams.model.triggers import Budget, ManualTrigger
from streams.model.waits import Approval, OnExpiry
from streams.ports.log import Commit, Recorded

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
HASH = "f" * 64


def after(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def proposed(episode: str = "e1", *, no: int = 1, approval: Approval | None = None):
    return OutputProposed(
        output_key="k",
        adapter="pager",
        payload=raw({"text": "hi"}),
        episode_id=episode,
        actor_id="worker",
        expectation_id="thing",
        proposal_no=no,
        approval=approval,
    )


def asking(**said: object) -> OutputProposed:
    return proposed(approval=Approval(plan_hash=HASH, **said))


attempted = OutputAttempted(attempt=1)
postponed = OutputPostponed(attempt=1, error_class="busy", retry_at=after(60))
delivered = OutputDelivered(attempt=1)
failed = OutputFailed(attempt=1, error_class="gone", error_detail="for good")
approved = OutputApproved(by="ann", decision_id="d1")
rejected = OutputRejected(by="ann", reason="no", decision_id="d1")
canceled = OutputCanceled(reason="by bob")
retried = OutputRetried(by="ann", retry_id="r1")


def of(*past: OutputEvent) -> Output:
    """Return an output with this past, an event a second."""
    commits = (Commit(id=f"c{at}", at=after(at), events=(event,)) for at, event in enumerate(past))
    return fold(Recorded(subject="an.output", seq=1, commit=commit) for commit in commits)


def move(*past: OutputEvent, episode: str = "e1", at: float = 10, most: int | None = 3):
    return next_move(of(*past), "k", episode_id=episode, attempts_max=most, at=after(at))


def settled(outcome: str, error_class: str = "") -> Settled:
    return Settled(OutputOutcome(output_key="k", outcome=outcome, error_class=error_class))


PASTS = {
    None: (),
    OutputStatus.AWAITING_APPROVAL: (asking(),),
    OutputStatus.PROPOSED: (proposed(),),
    OutputStatus.DELIVERED: (proposed(), attempted, delivered),
    OutputStatus.FAILED: (proposed(), attempted, failed),
    OutputStatus.REJECTED: (asking(), OutputRejected(by="", is_expiry=True)),
    OutputStatus.CANCELED: (proposed(), canceled),
}
EVENTS = (
    proposed(), attempted, postponed, delivered, failed, approved, rejected, canceled, retried,
)  # fmt: skip


@pytest.mark.parametrize("status", list(PASTS))
def test_only_what_the_table_says_may_happen(status):
    before = of(*PASTS[status])
    assert before.status is status
    for event in EVENTS:
        if type(event) in TRANSITIONS[status]:
            assert evolve(before, decide(before, event), at=EPOCH) != before
        else:
            with pytest.raises(Rejected, match=type(event).__name__):
                decide(before, event)


# What comes next.


def test_what_nobody_has_proposed_is_proposed():
    assert move() == Propose(1)


def test_what_was_proposed_is_attempted():
    assert move(proposed()) == TryDelivery(1)


def test_an_attempt_that_a_crash_cut_off_is_made_again_as_the_next():
    assert move(proposed(), attempted) == TryDelivery(2)


def test_the_last_attempt_is_not_made_again_when_it_was_cut_off():
    event = move(proposed(), attempted, most=1)
    assert isinstance(event, FailDelivery)
    assert (event.event.error_class, event.event.attempt) == (OUTCOME_UNKNOWN, 1)


def test_what_is_postponed_waits_for_its_time():
    assert move(proposed(), attempted, postponed, at=10) == Later(after(60))
    assert move(proposed(), attempted, postponed, at=60) == TryDelivery(2)


def test_clocks_may_differ_by_a_little_when_the_time_has_come():
    assert move(proposed(), attempted, postponed, at=60 - EARLY_S) == TryDelivery(2)
    assert move(proposed(), attempted, postponed, at=60 - EARLY_S - 0.1) == Later(after(60))


def test_a_short_pause_is_kept_but_for_a_small_part_of_it():
    soon = OutputPostponed(attempt=1, error_class="busy", retry_at=after(2.5))
    early_s = 0.5 * EARLY_SHARE
    assert move(proposed(), attempted, soon, at=2) == Later(after(2.5))
    assert move(proposed(), attempted, soon, at=2.5 - early_s - 0.01) == Later(after(2.5))
    assert move(proposed(), attempted, soon, at=2.5 - early_s) == TryDelivery(2)


def test_what_waits_for_approval_is_not_attempted():
    assert move(asking()) == Later(None)
    assert move(asking(), approved) == TryDelivery(1)


@pytest.mark.parametrize(
    ("past", "outcome"),
    [
        ((proposed(), attempted, delivered), settled("delivered")),
        ((proposed(), attempted, failed), settled("failed", "gone")),
        ((asking(), rejected), settled("rejected")),
        ((proposed(), canceled), settled("canceled")),
    ],
)
def test_what_is_settled_stays_so_for_its_own_episode(past, outcome):
    assert move(*past) == outcome


@pytest.mark.parametrize("past", [(proposed(),), (asking(),), (proposed(), attempted, delivered)])
def test_for_another_episode_it_is_a_duplicate(past):
    assert move(*past, episode="e2") == settled("duplicate")


def test_what_people_rejected_is_rejected_for_every_episode():
    assert move(asking(), rejected, episode="e2") == settled("rejected")
    with pytest.raises(Rejected, match="OutputProposed while rejected"):
        decide(of(asking(), rejected), proposed("e2", no=2))


def test_what_nobody_decided_on_in_time_may_be_proposed_by_another_episode():
    late = OutputRejected(by="", is_expiry=True)
    assert move(asking(), late) == settled("rejected")
    assert move(asking(), late, episode="e2") == Propose(2)
    again = proposed("e2", no=2)
    assert decide(of(asking(), late), again) == again
    assert move(asking(), late, again) == settled("rejected")


@pytest.mark.parametrize("end", [failed, canceled])
def test_what_failed_or_was_canceled_may_be_proposed_by_another_episode(end):
    past = (proposed(), attempted, end) if end is failed else (proposed(), end)
    assert move(*past, episode="e2") == Propose(2)


def test_an_episode_whose_output_failed_knows_that_when_others_have_proposed_it_since():
    past = (proposed(), attempted, failed, proposed("e2", no=2))
    assert move(*past) == settled("failed", "gone")
    assert move(*past, episode="e2") == TryDelivery(1)
    assert move(*past, episode="e3") == settled("duplicate")


def test_nothing_has_become_of_what_was_never_proposed():
    assert outcome_of(UNPROPOSED, "k", episode_id="e1") is None


# What comes of a failure.


def fails(*past: OutputEvent, **said: object):
    given = {
        "error_class": "busy",
        "detail": "",
        "is_permanent": False,
        "attempts_max": 3,
        "pause_s": 4.0,
        "retry_after_s": None,
        "at": after(0),
    }
    return after_failure(of(*past), **{**given, **said})


def test_an_attempt_that_failed_for_now_is_made_again_after_a_pause():
    assert fails(proposed(), attempted) == OutputPostponed(
        attempt=1, error_class="busy", retry_at=after(4)
    )


def test_a_receiver_may_ask_for_a_longer_pause_and_not_for_a_shorter():
    assert fails(proposed(), attempted, retry_after_s=30.0).retry_at == after(30)
    assert fails(proposed(), attempted, retry_after_s=1.0).retry_at == after(4)
    assert fails(proposed(), attempted, retry_after_s=-5.0).retry_at == after(4)
    assert fails(proposed(), attempted, retry_after_s=1e9).retry_at == after(RETRY_AFTER_S_MAX)


def test_the_last_attempt_and_a_permanent_failure_are_the_end():
    last = OutputAttempted(attempt=3)
    assert isinstance(fails(proposed(), last), OutputFailed)
    assert isinstance(fails(proposed(), attempted, is_permanent=True), OutputFailed)


def test_after_a_person_had_it_tried_again_attempts_are_counted_anew():
    last, again = OutputAttempted(attempt=3), OutputAttempted(attempt=4)
    past = (proposed(), last, failed, retried, again)
    assert isinstance(fails(*past), OutputPostponed)
    assert move(proposed(), last, failed, retried) == TryDelivery(4)


# What people decide.


def decision(verdict: Verdict = Verdict.APPROVE, **said: object) -> Decide:
    given = {"actor_id": "worker", "episode_id": "e1", "id": "d1", "plan_hash": HASH, "by": "ann"}
    return Decide(verdict=verdict, output_key="k", **{**given, **said})


def test_people_approve_or_reject():
    assert answered(of(asking()), decision(), at=EPOCH) == approved
    assert answered(of(asking()), decision(Verdict.DENY, reason="no"), at=EPOCH) == rejected


def test_the_same_decision_told_twice_is_one():
    assert answered(of(asking(), approved), decision(), at=EPOCH) is None


@pytest.mark.parametrize(
    ("past", "said", "why"),
    [
        ((), {}, "no such output"),
        ((proposed(),), {}, "does not wait for approval"),
        ((asking(), approved), {"id": "d2"}, "it was approved by ann at 2030-01-01 00:00:01"),
        ((asking(), rejected), {"id": "d2"}, "it was rejected by ann"),
        ((asking(), OutputRejected(by="", is_expiry=True)), {}, "it was rejected at 2030"),
        ((asking(),), {"plan_hash": "0" * 64}, "another plan"),
        ((asking(approvers=("bob",)),), {}, "none of those who may decide: bob"),
        ((asking(expires_at=after(-1)),), {}, "it expired at"),
    ],
)
def test_a_decision_that_cannot_stand_says_why(past, said, why):
    with pytest.raises(Refused, match=why):
        answered(of(*past), decision(**said), at=EPOCH)


def test_what_nobody_decides_in_time_is_decided_by_that():
    def late(on_expiry: OnExpiry, at: float = 5):
        return expired(of(asking(expires_at=after(5), on_expiry=on_expiry)), at=after(at))

    assert late(OnExpiry.DENY, at=4.9) is None
    assert isinstance(late(OnExpiry.APPROVE), OutputApproved)
    denied = late(OnExpiry.DENY)
    assert isinstance(denied, OutputRejected)
    assert (denied.is_expiry, denied.by) == (True, "")
    event = late(OnExpiry.FAIL)
    assert isinstance(event, OutputFailed)
    assert (event.error_class, event.attempt) == ("approval_expired", 0)
    assert expired(of(asking()), at=after(1e9)) is None


def test_what_waits_is_looked_at_when_it_expires_or_people_are_to_be_reminded():
    def wakes(at: float, **said: object):
        return wakes_at(of(asking(**said)), at=after(at))

    assert wakes(0) is None
    assert wakes(0, expires_at=after(25)) == after(25)
    assert wakes(0, expires_at=after(25), remind_every_s=10.0) == after(10)
    assert wakes(10, expires_at=after(25), remind_every_s=10.0) == after(20)
    assert wakes(20, expires_at=after(25), remind_every_s=10.0) == after(25)


def lacking() -> OutputPostponed:
    return OutputPostponed(attempt=0, error_class=NO_ADAPTER, retry_at=after(60), lacked=True)


@pytest.mark.parametrize(("lacks", "pause_s"), [(0, 1), (1, 2), (5, 32), (6, 60), (63, 60)])
def test_an_output_whose_adapter_a_node_lacks_is_put_off_for_longer_and_longer(lacks, pause_s):
    output = of(proposed(), *[lacking()] * lacks)
    event = lacked(output, detail="no fax", at=after(30))
    assert event == OutputPostponed(
        attempt=0,
        error_class=NO_ADAPTER,
        error_detail="no fax",
        retry_at=after(30 + pause_s),
        lacked=True,
    )


def test_an_output_whose_adapter_no_node_has_fails_in_the_end():
    output = of(proposed(), *[lacking()] * LACKS_MAX)
    event = lacked(output, detail="no fax", at=after(30))
    assert event == OutputFailed(attempt=0, error_class=NO_ADAPTER, error_detail="no fax")


def test_nobody_knows_what_came_of_an_attempt_whose_adapter_is_gone_since():
    output = of(proposed(), attempted, *[lacking()] * LACKS_MAX)
    event = lacked(output, detail="no fax", at=after(30))
    assert event == OutputFailed(
        attempt=1,
        error_class=OUTCOME_UNKNOWN,
        error_detail="a node died during attempt 1, and no fax",
    )


@pytest.mark.parametrize("had", [attempted, retried])
def test_the_count_begins_anew_once_an_attempt_was_made_or_a_person_retried(had):
    assert of(proposed(), lacking(), had).lacks == 0


def test_what_nodes_lack_is_put_off_and_a_person_may_retry_it():
    past = (proposed(), attempted, lacking())
    assert isinstance(tried_again(of(*past), retry(), at=after(1)), OutputRetried)


def test_a_node_without_the_adapter_leaves_an_open_attempt_as_it_is():
    past = (proposed(), attempted, lacking())
    assert of(*past).is_attempted
    assert isinstance(move(*past, at=100, most=1), FailDelivery)
    assert move(proposed(), attempted, at=100, most=None) == TryDelivery(2)


def test_an_adapter_may_call_its_own_error_as_ours():
    own = OutputPostponed(attempt=1, error_class=NO_ADAPTER, retry_at=after(60))
    output = of(proposed(), attempted, own)
    assert (output.lacks, output.is_attempted) == (0, False)


def retry(**said: object) -> RetryOutput:
    given = {"actor_id": "worker", "episode_id": "e1", "id": "r1", "output_key": "k", "by": "ann"}
    return RetryOutput(**{**given, **said})


def test_a_person_may_have_a_failed_output_tried_again():
    assert tried_again(of(proposed(), attempted, failed), retry(), at=EPOCH) == retried
    assert tried_again(of(proposed(), attempted, failed, retried), retry(), at=EPOCH) is None


@pytest.mark.parametrize(
    "since", [(), (OutputRetried(by="bob", retry_id="r2"), OutputAttempted(attempt=3), failed)]
)
@pytest.mark.parametrize("anew", [(), (proposed(), attempted, failed)])
def test_what_a_person_wanted_once_is_not_done_again_when_the_command_comes_again(since, anew):
    past = (proposed(), attempted, failed, retried, OutputAttempted(attempt=2), failed)
    assert tried_again(of(*past, *since, *anew), retry(), at=EPOCH) is None


@pytest.mark.parametrize(
    ("past", "why"),
    [
        ((), "no such output"),
        ((proposed(), attempted, delivered), "it is delivered; only what has failed"),
        ((proposed(),), "it is proposed; only what has failed"),
        ((proposed(), attempted, postponed, OutputAttempted(attempt=2)), "it is proposed; only"),
        ((asking(),), "it is awaiting_approval; only"),
        ((proposed("e2"), attempted, failed), "it is of episode e2"),
    ],
)
def test_what_has_not_failed_is_not_tried_again(past, why):
    with pytest.raises(Refused, match=why):
        tried_again(of(*past), retry(), at=EPOCH)


def test_what_is_put_off_is_tried_at_once_and_its_attempts_count_on():
    again = tried_again(of(proposed(), attempted, postponed), retry(), at=after(5))
    assert again == retried
    past = (proposed(), attempted, postponed, retried)
    assert move(*past, at=6) == TryDelivery(2)
    assert of(*past).attempts_counted == 1


def test_what_nobody_approved_in_time_is_asked_for_once_more_before_it_is_tried_again():
    late = OutputFailed(attempt=0, error_class="approval_expired")
    past = (asking(expires_at=after(25), on_expiry=OnExpiry.FAIL), late)
    again = tried_again(of(*past), retry(), at=after(100))
    assert again.approval.expires_at == after(125)
    asked = of(*past, again)
    assert (asked.status, asked.asked_at) == (OutputStatus.AWAITING_APPROVAL, after(2))
    assert answered(asked, decision(), at=after(120)) == approved
    with pytest.raises(Refused, match="it expired at"):
        answered(asked, decision(), at=after(126))
    with pytest.raises(Refused, match=r"it is failed \(approval_expired\)"):
        answered(of(*past), decision(), at=after(26))


def test_what_was_approved_once_is_tried_again_without_asking():
    assert tried_again(of(asking(), approved, attempted, failed), retry(), at=EPOCH) == retried


# What was said before.


@pytest.mark.parametrize(
    "past", [(asking(), approved, attempted, failed, retried), (asking(), canceled, asking())]
)
def test_what_was_said_about_one_round_of_an_output_is_nothing_to_the_next(past):
    first, second = of(asking()), of(*past)
    check_round(first, replace(decision(), round_no=first.round_no))
    check_round(second, replace(decision(), round_no=second.round_no))
    with pytest.raises(Refused, match="it was proposed or tried again since"):
        check_round(second, replace(decision(), round_no=first.round_no))


def test_a_retry_of_what_is_put_off_is_the_same_round():
    assert of(proposed(), attempted, postponed, retried).round_no == of(proposed()).round_no


# Keys.


def opened(dedupe_key: str = "event:x1", episode_id: str = "e1") -> EpisodeOpened:
    return EpisodeOpened(
        episode_id=episode_id,
        actor_id="worker",
        expectation_id="thing",
        trigger=ManualTrigger(requested_by="ann"),
        dedupe_key=dedupe_key,
        budget=Budget(),
    )


def test_a_dedupe_key_is_the_key():
    assert output_key(propose("pager", {}, dedupe_key="k"), opened(), place="0") == "k"


def test_without_keys_each_output_of_an_episode_is_one_of_its_own():
    intents = (propose("pager", {}), propose("pager", {}))
    assert list(intended(intents, opened())) == ["e1.0", "e1.1"]


def test_a_key_means_the_same_output_for_the_same_cause_whatever_the_episode():
    intent = propose("pager", {}, key="a")
    key = output_key(intent, opened(), place="0")
    assert output_key(intent, opened(episode_id="e2"), place="7") == key
    assert output_key(intent, opened("event:x2"), place="0") != key
    assert output_key(propose("mail", {}, key="a"), opened(), place="0") != key
    assert output_key(propose("pager", {}, key="b"), opened(), place="0") != key


def test_a_step_means_the_same_output_on_the_same_turn():
    action = output("pager", {"n": 1})
    key = inline_key(action, opened(), turn=2)
    assert key == inline_key(output("pager", {"n": 1}), opened(), turn=2)
    assert key.startswith("e1.turn.2.")
    assert key != inline_key(action, opened(), turn=3)
    assert key != inline_key(output("pager", {"n": 2}), opened(), turn=2)


def test_of_two_intents_with_one_key_the_first_is_meant():
    first, second = propose("pager", 1, dedupe_key="k"), propose("pager", 2, dedupe_key="k")
    assert intended((first, second), opened()) == {"k": first}


def test_an_idempotency_key_is_an_outputs_and_a_stacks_own():
    key = idempotency_key("vigil", "k")
    assert len(key) == 64
    assert key != idempotency_key("vigil", "l")
    assert key != idempotency_key("other", "k")


@pytest.mark.parametrize(
    "said",
    [
        {"adapter": "no such.name"},
        {"adapter": 7},
        {"dedupe_key": ""},
        {"dedupe_key": "x" * 1025},
        {"key": "x" * 513},
        {"requires_approval": True, "expires_s": -1.0},
        {"requires_approval": True, "on_expiry": "continue"},
        {"on_expiry": "shrug"},
        {"requires_approval": True, "approvers": [7]},
        {"summary": 7, "requires_approval": True},
    ],
)
def test_an_impossible_output_is_refused_where_it_is_said(said):
    with pytest.raises(InvalidOutput):
        propose(**{"adapter": "pager", "payload": {}, **said})


def test_terms_of_an_approval_mean_nothing_where_none_is_required():
    asked = {"summary": "page them?", "approvers": ["ann"], "expires_s": 5.0}
    intent = propose(adapter="pager", payload={}, requires_approval=False, **asked)
    assert proposal(intent, "k", opened(), proposal_no=1, at=EPOCH).approval is None


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"expires_s": 0, "requires_approval": True}, "expires_s: 0 is not more than 0; write"),
        ({"expires_s": "60", "requires_approval": True}, "expires_s must be a number of seconds"),
        ({"remind_every_s": 0, "requires_approval": True}, "remind_every_s: 0 is not more"),
        ({"on_expiry": "continue", "requires_approval": True}, "'continue'; use approve or deny"),
        ({"approvers": [], "requires_approval": True}, "approvers: an empty list names nobody"),
        ({"dedupe_key": "k", "key": "a"}, "key: there is a dedupe_key, which says it all"),
        ({"payload": {"load": float("nan")}}, r"payload: JSON has no such value at \$\.load: nan"),
    ],
)
def test_an_impossible_output_says_what_is_wrong_with_it(said, why):
    with pytest.raises(StrategyError, match=why):
        propose(**{"adapter": "pager", "payload": {}, **said})


def test_attempts_are_spread_over_up_to_an_hour_unless_the_route_says_otherwise():
    retries = Retries()
    pauses = [
        backoff_s(tries, first_s=retries.first_s, most_s=retries.most_s)
        for tries in range(1, retries.attempts_max)
    ]
    assert sum(pauses) == 3_511


def approving(output, by, **more):
    said = {"actor_id": "monitor", "episode_id": "e1", "output_key": "k", "by": by}
    asked = output.pending.terms
    given = {"id": f"d-{by}", "verdict": Verdict.APPROVE, "plan_hash": asked.plan_hash, **more}
    event = answered(output, Decide(**said, **given), at=after(20))
    return event, evolve(output, event, at=after(20))


def asking_two(**more):
    intent = propose("mail", {"to": "ops"}, requires_approval=True, quorum=2, **more)
    trigger = ManualTrigger(requested_by="ann")
    opened = EpisodeOpened(
        episode_id="e1", actor_id="monitor", expectation_id="e", trigger=trigger, dedupe_key="d",
        budget=Budget(turns=1),
    )  # fmt: skip
    return evolve(UNPROPOSED, proposal(intent, "k", opened, proposal_no=1, at=EPOCH), at=EPOCH)


def test_an_output_that_two_have_to_approve_is_delivered_once_both_have():
    given, one = approving(asking_two(), "ann")
    assert one.status is OutputStatus.AWAITING_APPROVAL
    assert [each.by for each in given.approval.given] == ["ann"]
    with pytest.raises(Refused, match="'ann' has approved it already"):
        approving(one, "ann", id="d2")
    assert (
        answered(one, replace(DECISION_OF_ANN, plan_hash=given.approval.plan_hash), at=EPOCH)
        is None
    )
    approved, two = approving(one, "bob")
    assert (approved.by, two.status) == ("ann, bob", OutputStatus.PROPOSED)


def test_who_has_asked_for_its_episode_does_not_approve_an_output():
    output = asking_two(requester_may_approve=False)
    with pytest.raises(Refused, match="'ann' has asked for it"):
        approving(output, "ann")


def test_an_output_that_was_changed_is_delivered_as_the_others_have_approved_it():
    _, one = approving(asking_two(), "ann")
    changed = raw({"to": "all"})
    given, other = approving(one, "bob", edited_hash="c" * 64, edited_plan=changed)
    assert [each.by for each in given.approval.given] == ["bob"]
    approved, two = approving(other, "cid")
    assert (approved.by, approved.edited_hash) == ("bob, cid", "c" * 64)
    assert two.proposed.payload == changed


def test_approvals_before_an_output_expired_do_not_count_once_it_is_asked_for_again():
    _, one = approving(asking_two(expires_s=60, on_expiry="fail"), "ann")
    over = evolve(one, expired(one, at=after(61)), at=after(61))
    again = tried_again(
        over,
        RetryOutput(actor_id="monitor", episode_id="e1", id="r1", output_key="k", by="ann"),
        at=after(70),
    )
    assert again.approval.given == ()
    _, asked = approving(evolve(over, again, at=after(70)), "ann", id="d9")
    assert asked.status is OutputStatus.AWAITING_APPROVAL


DECISION_OF_ANN = Decide(
    actor_id="monitor", episode_id="e1", id="d-ann", verdict=Verdict.APPROVE, plan_hash=HASH,
    by="ann", output_key="k",
)  # fmt: skip
