"""How far an attempt at an episode gets, and when its cause is acknowledged."""

from __future__ import annotations

import pytest

from engine.episodes.attempt import ATTEMPT_TRANSITIONS, Attempt, AttemptState
from engine.runtime.claim import NO_CLAIM, Busy, EpisodeClaim
from engine.runtime.leases import Keeper
from streams.errors import LeaseLost
from streams.memory import memory_ports
from streams.model.events import EndStatus, EpisodeFinished, EpisodeStarted
from tests.engine.reactor.journals import BLOCKED, CONVERGED, DEFERRED, STEP
from tests.engine.stage import CLOCK, Scripted, app_of, opening

STARTED = EpisodeStarted(node="n1", attempt=1, claim_revision=0)
FINISHED = EpisodeFinished(status=EndStatus.DONE)


class Event:
    """What an attempt is begun for: counts how often it is acknowledged."""

    acks = 0

    async def ack(self):
        self.acks += 1


@pytest.fixture
def leases():
    return memory_ports(clock=CLOCK).leases


@pytest.fixture
def event():
    return Event()


@pytest.fixture
def attempt(leases, event):
    return attempt_of(leases, event, node="n1")


def attempt_of(leases, event, *, node) -> Attempt:
    keeper = Keeper(leases, holder=node, clock=CLOCK)
    claim = EpisodeClaim(keeper, "episode.worker.e1", attempt=1, on_lost=lambda: None)
    return Attempt(opening(app_of(Scripted())), claim, event)


async def test_a_first_commit_with_the_end_in_it_needs_no_claim(attempt):
    await attempt.claim_for([STARTED, FINISHED])
    assert attempt.claim.revision == NO_CLAIM
    assert attempt.state is AttemptState.NEW


async def test_any_other_first_commit_is_claimed(attempt):
    await attempt.claim_for([STARTED])
    assert attempt.claim.revision > NO_CLAIM
    assert attempt.state is AttemptState.CLAIMED


async def test_a_claim_that_another_node_has_is_busy(leases, event, attempt):
    await attempt.make_claim()
    with pytest.raises(Busy):
        await attempt_of(leases, event, node="n2").make_claim()


async def test_under_a_claim_the_cause_is_acknowledged_once_the_first_commit_is_durable(
    attempt, event
):
    await attempt.claim_for([STARTED])
    assert event.acks == 0
    await attempt.note_fenced()
    assert event.acks == 1
    await attempt.finish()
    assert (event.acks, attempt.state) == (1, AttemptState.DONE)


async def test_without_a_claim_it_is_acknowledged_when_all_is_done(attempt, event):
    await attempt.note_fenced()
    assert event.acks == 0
    await attempt.finish()
    assert event.acks == 1


@pytest.mark.parametrize("left", [BLOCKED, DEFERRED, CONVERGED])
async def test_a_commit_that_leaves_something_for_later_is_claimed_before(attempt, left):
    """Its journal does not show any more that a node has something to do."""
    await attempt.note_fenced()
    await attempt.claim_for([STEP])
    assert attempt.claim.revision == NO_CLAIM
    await attempt.claim_for([left])
    assert attempt.claim.revision > NO_CLAIM


async def test_an_end_with_outputs_left_is_claimed_before(attempt):
    await attempt.note_fenced()
    await attempt.claim_for([FINISHED], has_outputs_left=True)
    assert attempt.claim.revision > NO_CLAIM


async def test_who_finds_its_episode_with_another_node_after_the_fence_has_lost_it(leases, attempt):
    await attempt.note_fenced()
    await leases.acquire("episode.worker.e1", holder="n2")
    with pytest.raises(LeaseLost):
        await attempt.claim_for([BLOCKED])


@pytest.mark.parametrize(("is_fenced", "becomes"), [(True, "lost"), (False, "not_begun")])
async def test_what_is_for_another_node_was_begun_here_or_not(attempt, is_fenced, becomes):
    if is_fenced:
        await attempt.note_fenced()
    attempt.lose()
    assert attempt.state.value == becomes


async def test_what_is_done_cannot_be_lost(attempt):
    await attempt.note_fenced()
    await attempt.finish()
    attempt.lose()
    assert attempt.state is AttemptState.DONE


def test_every_result_is_final_and_everything_else_goes_on():
    results = {state for state in AttemptState if state not in ATTEMPT_TRANSITIONS}
    assert results == set(list(AttemptState)[-4:])
