"""Whether a replay asks for the same."""

from __future__ import annotations

import pytest

from engine.app.actions import fingerprint, observe, tool_call
from engine.episodes.recovery import check_same
from engine.errors import NondeterministicReplay
from streams.model.events import (
    StepAnnounced,
    StepKind,
    StepRecorded,
)


def step(number, *, action=None):
    return StepRecorded(
        step_no=number,
        kind=StepKind.OBSERVATION,
        fingerprint=fingerprint(action or observe(number)),
        path=f"{number}",
    )


def test_asking_for_the_same_again_is_fine():
    check_same(
        step(1, action=observe("x")),
        asked=fingerprint(observe("x")),
        action=observe("x"),
        is_strict=True,
    )


def test_asking_for_another_action_names_both():
    recorded = StepRecorded(
        step_no=3, kind=StepKind.TOOL_CALL, fingerprint="a" * 64, tool_name="disk.read", path="3"
    )
    asked = tool_call("mail", "send", {"to": "ada"})
    with pytest.raises(NondeterministicReplay) as refused:
        check_same(recorded, asked="b" * 64, action=asked, is_strict=False)
    said = str(refused.value)
    assert all(part in said for part in ("call 3", "tool_call disk.read", "mail", "send"))


def test_an_announced_step_must_be_the_same_too():
    announced = StepAnnounced(
        step_no=2, fingerprint="a" * 64, tool_name="mail.send", idempotency_key="k", path="2"
    )
    with pytest.raises(NondeterministicReplay, match=r"call 2 was tool_call mail\.send"):
        check_same(announced, asked="b" * 64, action=observe("x"), is_strict=False)


def test_other_values_are_said_to_be_others_and_a_hash_of_them_confirms_no_guess():
    asked = observe("pin 42")
    with pytest.raises(NondeterministicReplay) as refused:
        check_same(step(1), asked=fingerprint(asked), action=asked, is_strict=True)
    said = str(refused.value)
    assert said == "call 1 was observation; the replay asks for observation with other values"


def test_no_secret_gets_into_the_message():
    asked = tool_call("mail", "send", {"_token": "s3cret"})
    with pytest.raises(NondeterministicReplay) as refused:
        check_same(step(1), asked=fingerprint(asked), action=asked, is_strict=False)
    assert "s3cret" not in str(refused.value)
