"""Which aggregates are open, and what a journal that was purged still tells of one that ended."""

from __future__ import annotations

import pytest

from engine.archive.lives import decode_lives, encode_lives, note, still_there
from engine.episodes.episode import ENDED, fold
from engine.outputs.output import fold as fold_output
from engine.workflows.instance import INSTANCE_ENDED, fold_instance
from streams.model.events import (
    OutputCanceled,
    OutputForgone,
    OutputRejected,
    WorkflowFinished,
)
from streams.model.outputs import OutputStatus
from streams.model.workflows import WorkflowStatus
from tests.engine.reactor import journals as given
from tests.streams.samples import EVENTS
from tests.streams.workflow_samples import WORKFLOW_EVENTS

STACK = given.STACK


def lives_after(*commits) -> dict[str, tuple[int, bool]]:
    """Return sequence and end of the lives that are left after commits of subject and events."""
    lives = {}
    for seq, (subject, *events) in enumerate(commits, start=1):
        note(lives, given.recorded(subject, seq, *events))
    return {subject: (life.seq, life.is_ended) for subject, life in lives.items()}


def test_an_episode_is_open_from_its_first_commit_until_its_end():
    assert lives_after(("e", given.OPENED), ("e", given.STEP)) == {"e": (1, False)}
    assert lives_after(("e", given.OPENED), ("e", given.STEP, given.FINISHED)) == {}
    assert lives_after(("e", given.OPENED, given.FINISHED)) == {}


def test_a_delivered_output_has_ended_for_good():
    assert lives_after(("o", given.PROPOSED), ("o", given.DELIVERED)) == {}


@pytest.mark.parametrize(
    "end", [given.FAILED, OutputCanceled(by="ann"), OutputRejected(by="ann", is_expiry=True)]
)
def test_an_output_that_may_be_tried_again_is_kept_in_mind(end):
    ended = [("o", given.PROPOSED), ("o", end)]
    assert lives_after(*ended) == {"o": (1, True)}
    assert lives_after(*ended, ("o", given.RETRIED)) == {"o": (1, False)}
    assert lives_after(*ended, ("o", given.PROPOSED)) == {"o": (1, False)}


def test_an_output_that_will_never_be_proposed_is_not_open():
    forgone = OutputForgone(episode_id="e1")
    assert lives_after(("o", forgone)) == {"o": (1, True)}
    assert lives_after(("o", given.PROPOSED), ("o", forgone)) == {"o": (1, False)}


def test_an_output_whose_beginning_is_gone_is_forgotten():
    lives = {}
    note(lives, given.recorded("o", 3, given.PROPOSED))
    note(lives, given.recorded("o", 4, given.FAILED))
    note(lives, given.recorded("e", 3, given.OPENED))
    assert [*still_there(lives, first_seq=3)] == ["o", "e"]
    assert [*still_there(lives, first_seq=4)] == ["e"]


def test_lives_survive_as_bytes():
    lives = {}
    note(lives, given.recorded("e", 3, given.OPENED))
    assert decode_lives(encode_lives(lives)) == lives


def test_what_is_left_of_an_episode_that_ended_is_an_episode_that_ended():
    life = [given.OPENED, given.STARTED, given.STEP, given.CONVERGED, given.FINISHED]
    records = [given.recorded("e", seq, each) for seq, each in enumerate(life, start=1)]
    for begin in range(len(life)):
        assert fold(records[begin:]).status in ENDED


def test_what_is_left_of_an_output_that_ended_is_an_output_that_ended():
    life = [given.TO_APPROVE, given.APPROVED, given.ATTEMPTED, given.DELIVERED]
    records = [given.recorded("o", seq, each) for seq, each in enumerate(life, start=1)]
    for begin in range(len(life)):
        assert fold_output(records[begin:]).status is OutputStatus.DELIVERED


def test_what_is_left_of_an_instance_that_ended_is_an_instance_that_ended():
    end = WorkflowFinished(status=WorkflowStatus.DONE)
    assert fold_instance([given.recorded("w", 9, end)]).status in INSTANCE_ENDED


ENDS = {
    "episode": (fold, given.FINISHED),
    "output": (fold_output, given.DELIVERED),
    "workflow": (fold_instance, WorkflowFinished(status=WorkflowStatus.DONE)),
}

REST = [
    (tag, each)
    for tag, samples in {**EVENTS, **WORKFLOW_EVENTS}.items()
    if tag.partition(".")[0] in ENDS
    for each in samples
]


@pytest.mark.parametrize(("tag", "first"), REST, ids=[tag for tag, _ in REST])
def test_a_past_that_was_cut_off_anywhere_can_be_folded(tag, first):
    """A node may read what a purge has left of an aggregate that ended long ago."""
    whole, end = ENDS[tag.partition(".")[0]]
    state = whole([given.recorded("x", 7, first), given.recorded("x", 8, end)])
    assert state.status.value == ("delivered" if tag.startswith("output") else "done")
