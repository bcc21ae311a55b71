"""Several commands to one instance, written in one commit."""

from __future__ import annotations

from engine.workflows import decide
from engine.workflows.decide import decide_all
from streams.json import raw
from streams.model.workflows import StepOutcome
from tests.engine.workflows.flows import decided, flow, given, in_words, needs, resumed

THREE = flow("a", "b", ("c", needs("a", "b")))


def ends(told, *steps, result=1):
    return [told.end(step, outcome=StepOutcome.DONE, result=raw(result)) for step in steps]


def test_ends_of_several_steps_and_what_follows_are_one_commit():
    told = given(THREE).flow
    made = decide_all(told.instance, ends(told, "a", "b"), code=told.code, at=told.now)
    said = [in_words(event) for event in made.events]
    assert (said, made.taken) == (["done a", "done b", "prepare c", "begin c"], 2)


def test_the_same_end_told_twice_counts_once():
    told = given(THREE).flow
    twice = ends(told, "a", "a")
    made = decide_all(told.instance, twice, code=told.code, at=told.now)
    assert ([in_words(event) for event in made.events], made.taken) == (["done a"], 2)


def test_what_would_be_too_large_for_one_message_is_left_for_the_next(monkeypatch):
    monkeypatch.setattr(decide, "FIRST_BYTES_MAX", 10)
    told = given(THREE).flow
    made = decide_all(told.instance, ends(told, "a", "b"), code=told.code, at=told.now)
    assert ([in_words(event) for event in made.events], made.taken) == (["done a"], 1)


def test_what_cannot_stand_is_said_and_the_others_are_decided():
    told = given(THREE).flow
    refused = _command(resumed("a", "retry"), told)
    made = decide_all(told.instance, [refused, *ends(told, "a")], code=told.code, at=told.now)
    assert [in_words(event) for event in made.events] == ["done a"]
    assert [number for number, _ in made.refused] == [0]
    assert "not paused" in made.refused[0][1]


def _command(happens, told):
    """Return the command that `happens` would put."""
    caught = []

    class Told:
        instance = told.instance

        def put(self, command):
            caught.append(command)

    happens(Told())
    return caught[0]


def test_a_decision_that_cannot_stand_changes_nothing():
    told = given(flow(("a", {"requires_approval": True}))).flow
    wrong = _command(decided("a", "approve", plan_hash="0" * 64), told)
    made = decide_all(told.instance, [wrong], code=told.code, at=told.now)
    assert (made.events, made.taken, len(made.refused)) == ((), 1, 1)
