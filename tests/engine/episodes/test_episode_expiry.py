"""Which episodes are not worth beginning any more."""

from __future__ import annotations

from datetime import timedelta

import pytest

from engine.episodes.episode import UNOPENED, CancelEpisode, expiry, fold
from streams.model.events import (
    EndStatus,
    EpisodeFinished,
    EpisodeLeft,
    EpisodeOpened,
    EpisodeStarted,
)
from streams.model.triggers import Budget, ManualTrigger
from tests.spec import EPOCH, at

LATE = EPOCH + timedelta(microseconds=1)


def opened(start_by=EPOCH):
    return EpisodeOpened(
        episode_id="e1",
        actor_id="monitor",
        expectation_id="limits",
        trigger=ManualTrigger(requested_by="ann"),
        dedupe_key="manual:k",
        budget=Budget(),
        start_by=start_by,
    )


def test_an_episode_that_was_not_begun_in_time_is_canceled():
    canceled = expiry(fold([at(0, opened())]), at=LATE)
    assert canceled == CancelEpisode(
        error_class="expired", error_detail="not begun by 2030-01-01T00:00:00+00:00"
    )


def test_there_is_time_until_the_last_moment():
    assert expiry(fold([at(0, opened())]), at=EPOCH) is None


def test_an_episode_that_has_all_the_time_waits_for_ever():
    assert expiry(fold([at(0, opened(start_by=None))]), at=LATE) is None


@pytest.mark.parametrize(
    "since",
    [
        (EpisodeStarted(node="n1", attempt=1),),
        (EpisodeStarted(node="n1", attempt=1), EpisodeLeft(node="n1")),
        (EpisodeFinished(status=EndStatus.CANCELED),),
    ],
)
def test_an_episode_that_has_begun_or_ended_does_not_expire(since):
    assert expiry(fold([at(0, opened(), *since)]), at=LATE) is None


def test_an_episode_that_was_never_opened_does_not_expire():
    assert expiry(UNOPENED, at=LATE) is None
