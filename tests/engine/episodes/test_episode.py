"""An episode's life, as rules."""

from __future__ import annotations

from itertools import product

import msgspec
import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

from engine.episodes.episode import (
    ENDED,
    TRANSITIONS,
    UNOPENED,
    WINDOW_STEPS,
    Announce,
    AnswerEpisode,
    Begin,
    BlockEpisode,
    CancelEpisode,
    FailEpisode,
    Finish,
    Leave,
    Performed,
    Save,
    Status,
    decide,
    evolve,
)
from engine.errors import Rejected
from streams.json import raw
from streams.model.events import (
    BlockReason,
    CheckpointSaved,
    EndStatus,
    EpisodeApprovalGiven,
    EpisodeBlocked,
    EpisodeConverged,
    EpisodeDeferred,
    EpisodeFinished,
    EpisodeLeft,
    EpisodeOpened,
    EpisodeResolved,
    EpisodeStarted,
    Resolution,
    StepAnnounced,
    StepKind,
    StepRecorded,
)
from streams.model.findings import FindingOutcome
from streams.model.triggers import Budget, ManualTrigger
from streams.model.waits import Wait
from tests.spec import EPOCH, given

opened = EpisodeOpened(
    episode_id="e1",
    actor_id="monitor",
    expectation_id="limits",
    trigger=ManualTrigger(requested_by="ada"),
    dedupe_key="d",
    budget=Budget(),
)
started = EpisodeStarted(node="n1", attempt=1, claim_revision=7)
announced = StepAnnounced(step_no=1, fingerprint="a", tool_name="mail.send", idempotency_key="k")
converged = EpisodeConverged(summary="all is well")

left = EpisodeLeft(node="n1")
wait = Wait(ref="payment:42")
blocked = EpisodeBlocked(step_no=1, reason=BlockReason.WAIT, fingerprint="a", wait=wait)
resolved = EpisodeResolved(step_no=1, resolution=Resolution.RESOLVED, by="ada")
deferred = EpisodeDeferred(pending=("mail:1",))
given_by_one = EpisodeApprovalGiven(step_no=1, by="ada", blocked=blocked, since=EPOCH)

begin = Begin(node="n2", claim_revision=9)
leave = Leave(node="n1")
announce = Announce(fingerprint="a", tool_name="mail.send", idempotency_key="k")
performed = Performed(kind=StepKind.OBSERVATION, fingerprint="a", result=raw(1), cost_tokens=5)
save = Save(phase="half", state=raw({"n": 1}))
finish = Finish()
fail = FailEpisode(error_class="crash", error_detail="boom")
cancel = CancelEpisode(error_class="canceled", error_detail="by ada")
block = BlockEpisode(reason=BlockReason.WAIT, fingerprint="a", wait=wait)
answer = AnswerEpisode(resolution=Resolution.RESOLVED, by="ada")


def step(number, *, tokens=0, fingerprint="a", took_ms=0, used_ms=0):
    return StepRecorded(
        step_no=number,
        kind=StepKind.OBSERVATION,
        fingerprint=fingerprint,
        cost_tokens=tokens,
        cost_ms=took_ms,
        wall_used_ms=used_ms,
    )


def finished(status=EndStatus.DONE):
    return EpisodeFinished(status=status)


COMMANDS = {
    "EpisodeOpened": opened,
    "Begin": begin,
    "Leave": leave,
    "Announce": announce,
    "Performed": performed,
    "Save": save,
    "BlockEpisode": block,
    "AnswerEpisode": answer,
    "EpisodeApprovalGiven": given_by_one,
    "EpisodeConverged": converged,
    "EpisodeDeferred": deferred,
    "Finish": finish,
    "FailEpisode": fail,
    "CancelEpisode": cancel,
}

PASTS = {
    Status.UNOPENED: (),
    Status.QUEUED: (opened,),
    Status.RUNNING: (opened, started),
    Status.BLOCKED: (opened, started, blocked),
    Status.CONVERGING: (opened, started, converged),
    Status.DELIVERING: (opened, started, converged, deferred),
    Status.DONE: (opened, started, converged, finished()),
    Status.FAILED: (opened, started, finished(EndStatus.FAILED)),
    Status.PARTIALLY_FAILED: (opened, started, finished(EndStatus.PARTIALLY_FAILED)),
    Status.CANCELED: (opened, started, finished(EndStatus.CANCELED)),
}

LEGAL = {
    (Status.UNOPENED, "EpisodeOpened"): Status.QUEUED,
    (Status.QUEUED, "Begin"): Status.RUNNING,
    (Status.RUNNING, "Begin"): Status.RUNNING,
    (Status.RUNNING, "Leave"): Status.QUEUED,
    (Status.RUNNING, "Announce"): Status.RUNNING,
    (Status.RUNNING, "Performed"): Status.RUNNING,
    (Status.RUNNING, "Save"): Status.RUNNING,
    (Status.RUNNING, "EpisodeConverged"): Status.CONVERGING,
    (Status.RUNNING, "BlockEpisode"): Status.BLOCKED,
    (Status.RUNNING, "Finish"): Status.DONE,
    (Status.RUNNING, "FailEpisode"): Status.FAILED,
    (Status.RUNNING, "CancelEpisode"): Status.CANCELED,
    (Status.QUEUED, "CancelEpisode"): Status.CANCELED,
    (Status.BLOCKED, "Performed"): Status.BLOCKED,
    (Status.BLOCKED, "AnswerEpisode"): Status.QUEUED,
    (Status.BLOCKED, "EpisodeApprovalGiven"): Status.BLOCKED,
    (Status.BLOCKED, "CancelEpisode"): Status.CANCELED,
    (Status.CONVERGING, "Begin"): Status.CONVERGING,
    (Status.CONVERGING, "EpisodeDeferred"): Status.DELIVERING,
    (Status.CONVERGING, "Finish"): Status.DONE,
    (Status.CONVERGING, "FailEpisode"): Status.FAILED,
    (Status.CONVERGING, "CancelEpisode"): Status.CANCELED,
    (Status.DELIVERING, "Begin"): Status.CONVERGING,
    (Status.DELIVERING, "CancelEpisode"): Status.CANCELED,
}


@pytest.mark.parametrize("status", Status)
def test_its_past_says_where_it_is(status):
    assert given(*PASTS[status]).episode.status is status


@pytest.mark.parametrize(("status", "name"), LEGAL)
def test_a_legal_command_leads_on(status, name):
    before = given(*PASTS[status]).episode
    after = evolve(before, decide(before, COMMANDS[name]))
    assert after.status is LEGAL[status, name]


@pytest.mark.parametrize(
    ("status", "name"), [pair for pair in product(Status, COMMANDS) if pair not in LEGAL]
)
def test_an_illegal_command_is_rejected_and_says_why(status, name):
    given(*PASTS[status]).when(COMMANDS[name]).then_rejected(f"^{name} while {status}$")


def test_the_table_knows_every_status_and_leads_only_where_events_lead():
    assert set(TRANSITIONS) == set(Status)
    for status, moves in TRANSITIONS.items():
        for kind, to in moves.items():
            events = [
                one
                for past in PASTS.values()
                for one in (*past, announced, left, step(1), saved, resolved, given_by_one)
            ]
            only = EpisodeFinished(status=EndStatus.CANCELED) if to is Status.CANCELED else None
            event = only or next(one for one in events if type(one) is kind)
            reached = evolve(given(*PASTS[status]).episode, event).status
            assert reached is to or (to is None and reached in ENDED)


saved = CheckpointSaved(checkpoint_no=0, step_no=0, phase="init", state=raw({}))


def test_a_trigger_opens_it():
    given().when(opened).then(opened)


def test_a_node_begins_it():
    given(opened).when(begin).then(EpisodeStarted(node="n2", attempt=1, claim_revision=9))


def test_every_takeover_is_another_attempt():
    given(opened, started).when(begin).then(EpisodeStarted(node="n2", attempt=2, claim_revision=9))


def test_a_takeover_while_converging_goes_on_converging():
    again = EpisodeStarted(node="n2", attempt=2, claim_revision=9)
    taken = given(opened, started, converged, again).episode
    assert (taken.status, taken.attempts, taken.node) == (Status.CONVERGING, 2, "n2")
    assert taken.converged == converged


def test_steps_count_from_one_without_gaps():
    given(opened, started).when(performed).then(
        StepRecorded(**{**msgspec.structs.asdict(performed), "step_no": 1})
    )
    given(opened, started, step(1)).when(performed).then(
        StepRecorded(**{**msgspec.structs.asdict(performed), "step_no": 2})
    )


def test_an_announced_step_has_the_number_that_it_is_recorded_with():
    given(opened, started, step(1)).when(announce).then(
        StepAnnounced(step_no=2, fingerprint="a", tool_name="mail.send", idempotency_key="k")
    )


def test_an_announcement_stands_until_its_step_is_recorded_even_over_a_takeover():
    again = EpisodeStarted(node="n2", attempt=2, claim_revision=9)
    assert given(opened, started, announced, again).episode.announced == (announced,)
    assert given(opened, started, announced, again, step(1)).episode.announced == ()


def test_checkpoints_count_from_zero_and_name_the_step_they_follow():
    given(opened, started, saved, step(1), step(2)).when(save).then(
        CheckpointSaved(checkpoint_no=1, step_no=2, phase="half", state=raw({"n": 1}))
    )


def test_its_end_says_what_was_used_and_what_became_of_its_findings():
    outcome = FindingOutcome(finding_key="k", outcome="raised", raise_no=1)
    command = Finish(findings=(outcome,))
    given(opened, started, step(1, tokens=20), step(2, tokens=22), converged).when(command).then(
        EpisodeFinished(status=EndStatus.DONE, turns_used=3, tokens_used=42, findings=(outcome,))
    )


def test_a_failure_says_its_class_and_what_was_used():
    given(opened, started, step(1, tokens=7)).when(fail).then(
        EpisodeFinished(
            status=EndStatus.FAILED,
            turns_used=1,
            tokens_used=7,
            error_class="crash",
            error_detail="boom",
        )
    )


def test_turns_are_counted_over_all_attempts_also_when_the_strategy_began_anew():
    anew = EpisodeStarted(node="n2", attempt=2, claim_revision=9, fresh=True)
    past = (opened, started, step(1), step(2), anew, step(3))
    given(*past).when(finish).then(EpisodeFinished(status=EndStatus.DONE, turns_used=4))
    given(*past).when(fail).then(
        EpisodeFinished(
            status=EndStatus.FAILED, turns_used=3, error_class="crash", error_detail="boom"
        )
    )


def test_running_time_is_what_the_newest_record_says_over_all_attempts():
    again = EpisodeStarted(node="n2", attempt=2, claim_revision=9)
    past = (opened, started, step(1, used_ms=1_500), again, step(2, used_ms=2_000))
    assert given(*past).episode.wall_used_s == 2


@pytest.mark.parametrize("command", [performed, leave, block, converged, finish, fail, cancel])
def test_what_is_recorded_says_how_long_the_episode_has_run(command):
    runs = given(opened, started).episode
    event = decide(msgspec.structs.replace(runs, wall_used_s=1.25), command)
    assert event.wall_used_ms == 1_250


@pytest.mark.parametrize("command", [performed, leave, block, converged])
def test_who_goes_on_knows_how_long_the_episode_has_run(command):
    runs = given(opened, started).episode
    event = decide(msgspec.structs.replace(runs, wall_used_s=1.25), command)
    assert evolve(runs, event).wall_used_s == 1.25


def test_the_time_of_branches_at_the_same_time_counts_once():
    past = (opened, started, *(step(n, took_ms=1_000, used_ms=1_000) for n in range(1, 13)))
    assert given(*past).episode.wall_used_s == 1


def test_only_the_newest_steps_are_kept_for_loops():
    steps = [step(number, fingerprint=str(number)) for number in range(1, 31)]
    traces = given(opened, started, *steps).episode.traces
    assert [trace.fingerprint for trace in traces] == [str(n) for n in range(31 - WINDOW_STEPS, 31)]


def test_what_it_waits_for_is_its_next_step():
    given(opened, started, step(1)).when(block).then(
        EpisodeBlocked(step_no=2, reason=BlockReason.WAIT, fingerprint="a", wait=wait)
    )


def test_the_answer_is_of_the_step_that_was_just_recorded():
    given(opened, started, blocked, step(1)).when(answer).then(resolved)


def test_it_is_known_what_it_waited_for_last():
    past = (opened, started, blocked)
    assert given(opened, started).episode.blocked is None
    assert given(*past, step(1), resolved).episode.blocked == blocked
    again = EpisodeBlocked(step_no=2, reason=BlockReason.WAIT, fingerprint="a", wait=wait)
    assert given(*past, step(1), resolved, started, again).episode.blocked == again
    assert given(*past, finished(EndStatus.CANCELED)).episode.blocked == blocked


def test_no_crash_is_counted_of_what_nobody_has():
    again = EpisodeStarted(node="n2", attempt=2, claim_revision=9)
    assert given(opened, started, blocked, step(1), resolved, again).episode.crashes == 0
    assert given(opened, started, converged, deferred, again).episode.crashes == 0


@forall(st.lists(st.sampled_from(sorted(COMMANDS)), max_size=40))
def test_whatever_it_is_told_it_ends_at_most_once_and_nothing_follows(names):
    episode, life = UNOPENED, []
    for name in names:
        try:
            event = decide(episode, COMMANDS[name])
        except Rejected:
            continue
        life.append(event)
        episode = evolve(episode, event)
    ends = [index for index, event in enumerate(life) if isinstance(event, EpisodeFinished)]
    steps = [event.step_no for event in life if isinstance(event, StepRecorded)]
    starts = [event.attempt for event in life if isinstance(event, EpisodeStarted)]
    assert ends in ([], [len(life) - 1])
    assert (episode.status in ENDED) == bool(ends)
    assert steps == list(range(1, len(steps) + 1))
    assert starts == list(range(1, len(starts) + 1))
    assert episode.tokens_used == 5 * len(steps)
