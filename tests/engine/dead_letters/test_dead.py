"""The life of a dead letter, and how it can be tried again."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.app import dedupe
from engine.dead_letters import letter as dead_letter
from engine.episodes import episode
from engine.errors import Rejected
from engine.operations import dead_letters as dead
from engine.outputs import dead_letters
from streams.json import raw
from streams.layout import Stream
from streams.model.events import (
    DeadDiscarded,
    DeadLettered,
    DeadRequeued,
    EndStatus,
    EpisodeFinished,
    EpisodeOpened,
    EpisodeStarted,
    OutputCanceled,
    OutputFailed,
    OutputForgone,
    OutputProposed,
    OutputRetried,
)
from streams.model.triggers import Budget, EventTrigger
from streams.ports.log import Commit, Recorded
from streams.subjects import Stack
from tests.spec import EPOCH, at

STACK = Stack("orders")
EVENT = DeadLettered(
    reason="unreadable", detail="", stream="orders-events", seq=7, subject="orders.event.a"
)
COMMAND = DeadLettered(
    reason="unreadable", detail="", stream="orders-work", seq=3, subject="orders.inbox.episode.a.e"
)
EPISODE = DeadLettered(
    reason="attempts_exhausted",
    detail="",
    stream="orders-journal",
    seq=0,
    subject="orders.episode.e1",
    episode_id="e1",
)
REQUEUED = DeadRequeued(by="ann", event_seq=9)
DISCARDED = DeadDiscarded(by="ann", reason="a typo")
OPENED = EpisodeOpened(
    episode_id="e1",
    actor_id="monitor",
    expectation_id="limits",
    trigger=EventTrigger(event_id="ev-1", event_type="disk.measured", payload={"host": "h1"}),
    dedupe_key="event:ev-1",
    budget=Budget(),
)
FINISHED = EpisodeFinished(status=EndStatus.FAILED, error_class="attempts_exhausted")


def letter(*past):
    commit = Commit(id="c", at=EPOCH, events=past)
    return dead_letter.fold([Recorded(subject="orders.dead.a.b", seq=1, commit=commit)])


def proposed(number, *, episode_id="e1"):
    return OutputProposed(
        output_key="disk",
        adapter="pager",
        payload=raw(None),
        episode_id=episode_id,
        actor_id="monitor",
        expectation_id="limits",
        proposal_no=number,
    )


FAILED = OutputFailed(attempt=1, error_class="gone", error_detail="for good")
RETRIED = OutputRetried(by="ann")
FORGONE = OutputForgone(episode_id="e9")


def gone_on(*happened):
    """Return which failure of an output was gone on with, and how its letter is settled."""
    found = dead_letters.gone_on((event, EPOCH) for event in happened)
    return found and (dead_letters.cause_of(found[0]).split(".", 1)[1], found[1])


@pytest.mark.parametrize(
    "happened", [(), (proposed(1),), (proposed(1), FAILED), (proposed(1), FAILED, FORGONE)]
)
def test_the_letter_of_an_output_that_nobody_goes_on_with_waits(happened):
    assert gone_on(*happened) is None


def test_who_has_an_output_tried_again_settles_its_letter():
    settled = DeadRequeued(by="ann", episode_id="e1")
    assert gone_on(proposed(1), FAILED, RETRIED) == ("1.0", settled)


def test_the_actor_that_proposes_an_output_anew_settles_its_letter():
    happened = proposed(1), FAILED, FORGONE, proposed(2, episode_id="e2")
    assert gone_on(*happened) == ("1.0", DeadRequeued(by="actor monitor", episode_id="e2"))


def test_each_failure_that_is_gone_on_with_has_a_letter_of_its_own():
    happened = proposed(1), FAILED, RETRIED, FAILED, RETRIED, FAILED
    assert gone_on(*happened) == ("1.1", DeadRequeued(by="ann", episode_id="e1"))


def test_what_was_canceled_and_is_proposed_anew_had_no_letter():
    assert gone_on(proposed(1), OutputCanceled(), proposed(2)) is None


@pytest.mark.parametrize("decision", [REQUEUED, DISCARDED])
def test_a_letter_waits_for_one_decision(decision):
    assert letter(EVENT).status == "waiting"
    assert dead_letter.decide(letter(EVENT), decision) == decision


@pytest.mark.parametrize("before", [REQUEUED, DISCARDED])
@pytest.mark.parametrize("decision", [REQUEUED, DISCARDED])
def test_nothing_is_decided_twice(before, decision):
    with pytest.raises(Rejected, match="by ann at 2030-01-01 00:00:00 UTC"):
        dead_letter.decide(letter(EVENT, before), decision)
    with pytest.raises(Rejected, match="by ann"):
        dead.remedy(letter(EVENT, before), stack=STACK)


def test_a_letter_that_was_never_written_cannot_be_settled():
    with pytest.raises(Rejected, match="no such dead letter"):
        dead_letter.decide(dead_letter.UNWRITTEN, DISCARDED)


def test_an_event_is_published_again():
    assert dead.remedy(letter(EVENT), stack=STACK) == dead.Republish(7)


def test_for_an_episode_another_one_is_opened():
    assert dead.remedy(letter(EPISODE), stack=STACK) == dead.Reopen("e1")


def test_a_command_cannot_be_tried_again():
    assert COMMAND.stream == STACK.stream(Stream.WORK)
    with pytest.raises(Rejected, match="discard it"):
        dead.remedy(letter(COMMAND), stack=STACK)


def test_the_next_generation_is_of_the_same_trigger():
    ended = episode.fold([at(0, OPENED), at(1, FINISHED)])

    again = dead.reopened(ended, stack=STACK)

    assert (again.generation, again.trigger, again.dedupe_key) == (1, OPENED.trigger, "event:ev-1")
    assert again.episode_id == dedupe.episode_id(
        stack="orders",
        actor="monitor",
        expectation="limits",
        dedupe_key="event:ev-1",
        generation=1,
    )


def test_an_episode_that_a_person_wants_again_is_late_for_nobody_and_left_by_nobody():
    asked = replace(OPENED, opened_by="n1", is_request=True, start_by=EPOCH, priority=7)
    ended = episode.fold([at(0, asked), at(1, FINISHED)])

    again = dead.reopened(ended, stack=STACK)

    assert (again.opened_by, again.is_request, again.start_by) == ("", False, None)
    assert again.priority == 7


def test_the_same_episode_has_the_same_next_generation_whoever_asks():
    ended = episode.fold([at(0, OPENED), at(1, FINISHED)])
    assert dead.reopened(ended, stack=STACK) == dead.reopened(ended, stack=STACK)


@pytest.mark.parametrize("later", [(), (EpisodeStarted(node="n", attempt=1, claim_revision=1),)])
def test_an_episode_that_has_not_ended_has_no_next_generation(later):
    with pytest.raises(Rejected, match="is still"):
        dead.reopened(episode.fold([at(0, OPENED, *later)]), stack=STACK)


def test_an_episode_that_the_journal_forgot_has_no_next_generation():
    with pytest.raises(Rejected, match="not hold its episode any more"):
        dead.reopened(episode.UNOPENED, stack=STACK)
