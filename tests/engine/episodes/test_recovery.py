"""Where a replay begins, and whether it is still the same."""

from __future__ import annotations

import pytest

from engine.app.actions import fingerprint, observe, tool_call
from engine.episodes.recovery import Tail, check_same, tail
from engine.errors import NondeterministicReplay
from streams.json import raw
from streams.model.events import (
    CheckpointSaved,
    EpisodeStarted,
    StepAnnounced,
    StepKind,
    StepRecorded,
)
from tests.spec import at


def saved(number, *, after_step):
    return CheckpointSaved(
        checkpoint_no=number, step_no=after_step, phase="p", state=raw({"n": number})
    )


def step(number, *, tokens=0, action=None):
    return StepRecorded(
        step_no=number,
        kind=StepKind.OBSERVATION,
        fingerprint=fingerprint(action or observe(number)),
        cost_tokens=tokens,
    )


started = EpisodeStarted(node="n1", attempt=1, claim_revision=1)


def test_before_the_first_step_there_is_nothing_to_replay():
    assert tail([at(0, started)]) == Tail(checkpoint=None, turns=[], left=[], tokens_before=0)


def test_a_replay_folds_the_steps_after_the_first_state():
    steps = (step(1, tokens=3), step(2, tokens=4))
    found = tail([at(0, started), at(1, saved(0, after_step=0)), at(2, *steps)])
    assert found == Tail(
        checkpoint=saved(0, after_step=0),
        turns=[[each] for each in steps],
        left=[],
        tokens_before=0,
    )


def test_a_replay_starts_from_the_newest_checkpoint():
    found = tail(
        [
            at(0, saved(0, after_step=0), step(1, tokens=3), step(2, tokens=4)),
            at(1, saved(1, after_step=2), step(3, tokens=5)),
            at(2, started),
            at(3, step(4)),
        ]
    )
    assert found.checkpoint == saved(1, after_step=2)
    assert [one.step_no for (one,) in found.turns] == [3, 4]
    assert found.turns_before == 2
    assert found.tokens_before == 7


def test_asking_for_the_same_again_is_fine():
    check_same(step(1, action=observe("x")), asked=fingerprint(observe("x")), action=observe("x"))


def test_asking_for_another_action_names_both():
    recorded = StepRecorded(
        step_no=3, kind=StepKind.TOOL_CALL, fingerprint="a" * 64, tool_name="disk.read"
    )
    asked = tool_call("mail", "send", {"to": "ada"})
    with pytest.raises(NondeterministicReplay) as refused:
        check_same(recorded, asked="b" * 64, action=asked)
    said = str(refused.value)
    assert all(part in said for part in ("step 3", "tool_call disk.read", "mail", "send"))


def test_an_announced_step_must_be_the_same_too():
    announced = StepAnnounced(
        step_no=2, fingerprint="a" * 64, tool_name="mail.send", idempotency_key="k"
    )
    with pytest.raises(NondeterministicReplay, match=r"step 2 was tool_call mail\.send"):
        check_same(announced, asked="b" * 64, action=observe("x"))


def test_other_values_are_said_to_be_others_and_a_hash_of_them_confirms_no_guess():
    with pytest.raises(NondeterministicReplay) as refused:
        check_same(step(1), asked=fingerprint(observe("pin 42")), action=observe("pin 42"))
    said = str(refused.value)
    assert said == "step 1 was observation; the replay asks for observation with other values"


def test_no_secret_gets_into_the_message():
    asked = tool_call("mail", "send", {"_token": "s3cret"})
    with pytest.raises(NondeterministicReplay) as refused:
        check_same(step(1), asked=fingerprint(asked), action=asked)
    assert "s3cret" not in str(refused.value)
