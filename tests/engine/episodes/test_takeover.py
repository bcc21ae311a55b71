"""What becomes of an episode whose node is gone."""

from __future__ import annotations

import pytest

from engine.app.actor import ATTEMPTS_MAX
from engine.episodes.episode import Status
from engine.episodes.recovery import Takeover, is_suspect, take_over
from streams.json import raw
from streams.model.events import (
    CheckpointSaved,
    EpisodeConverged,
    EpisodeLeft,
    EpisodeOpened,
    EpisodeStarted,
    StepAnnounced,
    StepKind,
    StepRecorded,
)
from streams.model.triggers import Budget, ManualTrigger
from tests.spec import given

opened = EpisodeOpened(
    episode_id="e1",
    actor_id="monitor",
    expectation_id="limits",
    trigger=ManualTrigger(requested_by="ada"),
    dedupe_key="d",
    budget=Budget(),
)
converged = EpisodeConverged(summary="all is well")
left = EpisodeLeft(node="n1")
announced = StepAnnounced(step_no=1, fingerprint="a", tool_name="mail.send", idempotency_key="k")


def started(attempt, *, fresh=False):
    return EpisodeStarted(node=f"n{attempt}", attempt=attempt, claim_revision=attempt, fresh=fresh)


def step(number, *, tokens=0):
    return StepRecorded(
        step_no=number, kind=StepKind.OBSERVATION, fingerprint="a", cost_tokens=tokens
    )


def saved(number, *, after_step):
    return CheckpointSaved(
        checkpoint_no=number, step_no=after_step, phase="init", state=raw({"n": number})
    )


def next_owner(*past, policy="resume", attempts_max=ATTEMPTS_MAX, repeatable=()):
    episode = given(*past).episode
    return take_over(
        episode, policy, attempts_max=attempts_max, repeatable=lambda tool: tool in repeatable
    )


@pytest.mark.parametrize("policy", ["resume", "restart", "fail"])
def test_an_episode_that_nobody_ran_just_starts(policy):
    assert next_owner(opened, policy=policy) == Takeover()


@pytest.mark.parametrize("policy", ["resume", "restart", "fail"])
def test_one_that_was_left_on_purpose_just_goes_on(policy):
    assert next_owner(opened, started(1), left, policy=policy) == Takeover()


def test_after_a_crash_it_goes_on_by_default():
    assert next_owner(opened, started(1), step(1)) == Takeover()


def test_after_a_crash_it_may_begin_anew():
    assert next_owner(opened, started(1), step(1), policy="restart") == Takeover(fresh=True)


def test_after_a_crash_it_may_fail_as_orphaned():
    takeover = next_owner(opened, started(1), step(1), policy="fail")
    assert (takeover.error_class, takeover.fresh) == ("orphaned", False)
    assert "n1" in takeover.detail


@pytest.mark.parametrize("policy", ["restart", "fail"])
def test_what_it_decided_is_carried_out_whatever_the_policy(policy):
    assert next_owner(opened, started(1), converged, policy=policy) == Takeover()


def test_crashes_that_reach_the_limit_end_it():
    past = [opened, started(1), started(2), started(3)]
    takeover = next_owner(*past)
    assert takeover.error_class == "attempts_exhausted"
    assert "3 nodes crashed" in takeover.detail
    assert next_owner(*past[:-1]) == Takeover()


def test_a_recorded_step_forgives_the_crashes_before_it():
    """An episode that lives for months survives any number of power cuts."""
    past = [opened, started(1)]
    for number in range(1, 10):
        past += [started(2 * number), step(number), started(2 * number + 1)]
    assert given(*past).episode.crashes == 1
    assert next_owner(*past) == Takeover()


def test_steps_that_are_done_again_after_a_restart_forgive_nothing():
    past = [opened, started(1), step(1), step(2)]
    for attempt in (2, 3):
        past += [started(attempt, fresh=True), step(2 * attempt - 1), step(2 * attempt)]
    assert given(*past).episode.crashes == 2
    assert next_owner(*past, policy="restart").error_class == "attempts_exhausted"
    further = step(7)
    assert given(*past, further).episode.crashes == 0


def alone(attempt):
    return EpisodeStarted(node=f"a{attempt}", attempt=attempt, claim_revision=attempt, alone=True)


@pytest.mark.parametrize(
    ("past", "attempts_max", "expected"),
    [
        ([opened], 3, False),
        ([opened, started(1)], 3, False),
        ([opened, started(1), started(2)], 3, True),
        ([opened, started(1), started(2), started(3), started(4)], 3, True),
        ([opened, started(1), started(2), alone(3)], 3, False),
        ([opened, started(1)], 2, True),
        ([opened, started(1)], 1, False),
        ([opened, started(1), started(2), left], 3, False),
        ([opened, started(1), started(2), converged], 3, False),
    ],
)
def test_an_episode_that_the_next_crash_would_end_is_a_suspect(past, attempts_max, expected):
    assert is_suspect(given(*past).episode, attempts_max=attempts_max) is expected


def test_where_suspects_run_alone_only_a_crash_alone_ends_one():
    in_company = given(opened, started(1), started(2), started(3)).episode
    by_itself = given(opened, started(1), started(2), alone(3)).episode

    def verdict(episode, *, attempts_max=3):
        return take_over(
            episode, "resume", attempts_max=attempts_max, repeatable=bool, is_isolated=True
        ).error_class

    assert (verdict(in_company), verdict(by_itself)) == ("", "attempts_exhausted")
    assert verdict(given(opened, started(1)).episode, attempts_max=1) == "attempts_exhausted"


def test_leaving_on_purpose_is_no_crash():
    deploys = [event for n in range(1, 20) for event in (started(n), left)]
    assert given(opened, *deploys).episode.crashes == 0
    assert next_owner(opened, *deploys) == Takeover()


def test_carrying_out_is_never_given_up():
    """Some of its findings may be there: an end that does not say so would be a lie."""
    past = (opened, started(1), converged, *(started(n) for n in range(2, 20)))
    assert next_owner(*past) == Takeover()


def test_it_does_not_begin_anew_if_a_tool_may_have_had_an_effect_that_cannot_be_repeated():
    """I3"""
    takeover = next_owner(opened, started(1), announced, policy="restart")
    assert takeover.error_class == "outcome_unknown"
    assert "mail.send" in takeover.detail
    recorded = (opened, started(1), announced, step(1))
    assert next_owner(*recorded, policy="restart").error_class == "outcome_unknown"
    ok = next_owner(*recorded, policy="restart", repeatable={"mail.send"})
    assert ok == Takeover(fresh=True)


def test_beginning_anew_forgets_what_was_folded_and_keeps_what_was_spent():
    past = (opened, started(1), saved(0, after_step=0), step(1, tokens=5), announced)
    episode = given(*past, started(2, fresh=True)).episode
    assert episode.status is Status.RUNNING
    assert episode.steps_recorded == 1
    assert (episode.tokens_used, episode.crashes) == (5, 1)
    assert (episode.announced, episode.effects, episode.traces) == ((), (), ())
    assert episode.schema_version == 0
