"""Which of several episodes with an equal request a decision is for, by the rules alone."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from engine.errors import Refused
from engine.waits import equal_requests
from streams.errors import Unavailable
from streams.model.commands import Decide, Verdict
from streams.model.events import (
    BlockReason,
    EndStatus,
    EpisodeBlocked,
    EpisodeFinished,
    EpisodeResolved,
    Resolution,
)
from streams.model.waits import Approval
from streams.ports.log import Commit, Recorded
from tests.engine.waits.test_signal_rules import NOON, given, waited

DECISION = Decide(
    actor_id="worker",
    episode_id="young",
    id="d1",
    verdict=Verdict.APPROVE,
    plan_hash="h",
    by="ann",
    step_no=4,
    request_no=2,
)
OLD = waited("old", step_no=3)
ASKED = EpisodeBlocked(
    step_no=3,
    reason=BlockReason.APPROVAL,
    fingerprint="f",
    approval=Approval(plan_hash="h", expires_at=NOON + timedelta(hours=1)),
)


def journal(*events) -> list[Recorded]:
    return [
        Recorded(subject="old", seq=number, commit=Commit(id=f"{number}", at=NOON, events=(each,)))
        for number, each in enumerate(events, 1)
    ]


def for_older(*events, at=NOON, own_no=2):
    return equal_requests.for_older(DECISION, OLD, journal(*events), own_no=own_no, at=at)


def resolved(how=Resolution.APPROVED, **said) -> EpisodeResolved:
    return EpisodeResolved(step_no=3, resolution=how, by="bob", **said)


def test_an_older_episode_that_waits_gets_the_decision():
    assert for_older(ASKED) == replace(DECISION, episode_id="old", step_no=3)


@pytest.mark.parametrize(
    "end",
    [
        EpisodeFinished(status=EndStatus.CANCELED),
        resolved(Resolution.EXPIRED),
        resolved(request_no=1),
    ],
    ids=["canceled", "expired", "decided before the younger one had asked"],
)
def test_an_older_episode_that_waits_no_more_gets_nothing(end):
    assert for_older(ASKED, end) is None


def test_an_older_episode_without_the_request_gets_nothing():
    assert for_older() is None


@pytest.mark.parametrize("how", [Resolution.APPROVED, Resolution.DENIED])
def test_a_decision_on_an_older_request_that_was_for_both_stands(how):
    with pytest.raises(Refused, match=f"it was {how} by bob"):
        for_older(ASKED, resolved(how, request_no=2))


def test_nobody_decides_past_an_older_request_whose_expiry_is_not_recorded_yet():
    with pytest.raises(Unavailable):
        for_older(ASKED, at=NOON + timedelta(hours=1))


def test_a_decision_is_for_the_request_of_its_episode_however_few_were_counted():
    state = given(waited("old"), waited("young"))

    assert equal_requests.counted(state, replace(DECISION, request_no=1)).request_no == 2
    assert equal_requests.counted(state, replace(DECISION, request_no=7)).request_no == 7
