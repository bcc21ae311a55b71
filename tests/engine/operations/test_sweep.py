"""Which episodes count as forgotten."""

from __future__ import annotations

import pytest

from engine.episodes.episode import UNOPENED, fold
from engine.episodes.recovery import SweepVerdict
from engine.operations import sweep
from streams.model.commands import Recover, Start
from streams.model.events import EndStatus, EpisodeFinished, EpisodeLeft, EpisodeStarted
from tests.engine.dead_letters.test_dead import OPENED
from tests.spec import at

STARTED = EpisodeStarted(node="n1", attempt=1, claim_revision=1)
LEFT = EpisodeLeft(node="n1")


def lived(*events):
    return fold([at(0, OPENED, *events)])


@pytest.mark.parametrize("status", list(EndStatus))
def test_an_episode_that_has_ended_needs_nobody(status):
    ended = lived(STARTED, EpisodeFinished(status=status))
    assert sweep.judge_episode(ended, silent_s=1e6, stale_after_s=120) is SweepVerdict.ENDED


def test_an_episode_that_the_journal_does_not_hold_needs_nobody():
    assert sweep.judge_episode(UNOPENED, silent_s=1e6, stale_after_s=120) is SweepVerdict.ENDED


@pytest.mark.parametrize("events", [(), (STARTED,), (STARTED, LEFT)])
def test_an_episode_is_left_alone_until_it_has_been_silent_for_long_enough(events):
    episode = lived(*events)
    assert sweep.judge_episode(episode, silent_s=119.9, stale_after_s=120) is SweepVerdict.HELD
    assert sweep.judge_episode(episode, silent_s=120.0, stale_after_s=120) is SweepVerdict.RECOVERED


def test_an_episode_that_never_began_is_started():
    assert sweep.call_for(lived()) == Start(actor_id="monitor", episode_id="e1")


@pytest.mark.parametrize("events", [(STARTED,), (STARTED, LEFT)])
def test_an_episode_that_had_begun_is_recovered(events):
    expected = Recover(actor_id="monitor", episode_id="e1", reason="swept")
    assert sweep.call_for(lived(*events)) == expected
