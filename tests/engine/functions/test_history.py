"""What a replay is fed with: everything since the newest checkpoint."""

from __future__ import annotations

from engine.app.actions import fingerprint, observe
from engine.functions.history import History, history_of
from streams.json import raw
from streams.model.events import (
    CheckpointSaved,
    EpisodeStarted,
    StepAnnounced,
    StepKind,
    StepRecorded,
)
from tests.spec import at

STARTED = EpisodeStarted(node="n1", attempt=1, claim_revision=1)
ANEW = EpisodeStarted(node="n2", attempt=2, claim_revision=2, fresh=True)
ANNOUNCED = StepAnnounced(
    step_no=1, fingerprint="a", tool_name="mail.send", idempotency_key="k", path="1"
)


def saved(number, *, after_step):
    return CheckpointSaved(
        checkpoint_no=number, step_no=after_step, phase="p", state=raw({"n": number})
    )


def step(number, *, tokens=0, path=""):
    return StepRecorded(
        step_no=number,
        kind=StepKind.OBSERVATION,
        fingerprint=fingerprint(observe(number)),
        cost_tokens=tokens,
        path=path or f"{number}",
    )


def test_before_the_first_step_there_is_nothing():
    assert history_of([at(0, STARTED)]) == History()


def test_steps_without_a_checkpoint_are_those_of_a_function():
    steps = step(1, tokens=3), step(2, tokens=4)
    assert history_of([at(0, STARTED), at(1, *steps)]) == History(steps=steps)


def test_a_state_before_the_first_step_is_that_of_a_class():
    first, steps = saved(0, after_step=0), (step(1, tokens=3), step(2, tokens=4))
    found = history_of([at(0, STARTED), at(1, first), at(2, *steps)])
    assert found == History(checkpoint=first, is_of_class=True, steps=steps)


def test_it_begins_at_the_newest_checkpoint():
    found = history_of(
        [
            at(0, saved(0, after_step=0), step(1, tokens=3), step(2, tokens=4)),
            at(1, saved(1, after_step=2), step(3, tokens=5)),
            at(2, STARTED),
            at(3, step(4)),
        ]
    )
    assert (found.checkpoint, found.steps) == (saved(1, after_step=2), (step(3, tokens=5), step(4)))
    assert (found.calls_before, found.tokens_before) == (2, 7)


def test_attempts_before_a_checkpoint_are_one_call():
    repeated = step(1), step(2, path="1.0.1"), step(3, path="1.0.2")
    assert history_of([at(0, *repeated, saved(0, after_step=3))]).calls_before == 1


def test_a_checkpoint_after_a_checkpoint_is_of_the_same_call():
    records = [at(0, step(1), saved(0, after_step=1)), at(1, saved(1, after_step=1))]
    assert history_of(records).calls_before == 1


def test_a_new_beginning_begins_at_the_top_and_what_was_spent_stays_spent():
    before = at(0, saved(0, after_step=0), step(1, tokens=5), step(2, tokens=6), ANNOUNCED)
    assert history_of([before, at(1, ANEW)]) == History(tokens_before=11)
    again = saved(1, after_step=2), step(3, path="1")
    found = history_of([before, at(1, ANEW), at(2, *again)])
    assert (found.checkpoint, found.steps, found.calls_before) == (again[0], (again[1],), 0)


def test_what_was_announced_and_is_recorded_is_not_announced_any_more():
    assert history_of([at(0, STARTED, ANNOUNCED)]).announced == (ANNOUNCED,)
    assert history_of([at(0, STARTED, ANNOUNCED, step(1))]).announced == ()
