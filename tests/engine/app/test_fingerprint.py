"""What makes two actions the same."""

from __future__ import annotations

import re

import pytest

from engine.app.actions import (
    approval,
    checkpoint,
    fingerprint,
    observe,
    synthesize,
    tool_call,
    without_transient,
)
from engine.errors import Unencodable

GOLDEN = {
    "tool_call": tool_call("disk", "read", {"mount": "/", "deep": True}),
    "observe": observe({"n": 1}),
    "synthesize": synthesize({"ask": "why"}),
    "checkpoint": checkpoint("half"),
}


@pytest.mark.parametrize(
    ("name", "mark"),
    [
        ("tool_call", "f063a541541c8a1c97723263b512f9bba64beebe69eaf6ea942d5c027e5dc564"),
        ("observe", "adcc26a28a59389b90a3fad8f60b3ee11a82bfa2eb8c1dd4ba5e5dbb7e4319d1"),
        ("synthesize", "b67d684070b9e41a20726f530d7b0a5749a9af0aafc9ed3340204c1f213b1552"),
        ("checkpoint", "eae03139578be7c3c5e09d037640f9930cff75aaeb8637a6ed92287be091d2f1"),
    ],
)
def test_a_fingerprint_on_a_journal_is_for_ever(name, mark):
    assert fingerprint(GOLDEN[name]) == mark


@pytest.mark.parametrize("action", GOLDEN.values())
def test_a_fingerprint_is_64_hex_digits(action):
    assert re.fullmatch("[0-9a-f]{64}", fingerprint(action))


def test_the_order_of_keys_does_not_matter_at_any_depth():
    one = tool_call("disk", "read", {"a": {"x": 1, "y": 2}, "b": 2})
    other = tool_call("disk", "read", {"b": 2, "a": {"y": 2, "x": 1}})
    assert fingerprint(one) == fingerprint(other)


@pytest.mark.parametrize(
    "other",
    [
        tool_call("disc", "read", {"a": 1}),
        tool_call("disk", "write", {"a": 1}),
        tool_call("disk", "read", {"a": 2}),
        tool_call("disk", "read", {"a": "1"}),
        tool_call("disk", "read"),
        observe({"capability": "disk", "action": "read", "args": {"a": 1}}),
    ],
)
def test_another_action_has_another_fingerprint(other):
    assert fingerprint(tool_call("disk", "read", {"a": 1})) != fingerprint(other)


def test_underscore_arguments_do_not_count():
    secret = tool_call("disk", "read", {"mount": "/", "_token": "s3cret"})
    assert fingerprint(secret) == fingerprint(tool_call("disk", "read", {"mount": "/"}))
    assert without_transient(secret.args) == {"mount": "/"}


def test_transient_prompts_do_not_count():
    secret = synthesize("why", transient={"key": "s3cret"})
    assert fingerprint(secret) == fingerprint(synthesize("why"))


def test_what_json_cannot_say_has_none():
    with pytest.raises(Unencodable, match="Observe"):
        fingerprint(observe(object()))


def test_of_a_plan_that_json_cannot_say_the_place_is_told():
    said = r"^RequestApproval: JSON has no such value at \$\.plan\.a: an instance of object$"
    with pytest.raises(Unencodable, match=said):
        fingerprint(approval({"a": object()}))
