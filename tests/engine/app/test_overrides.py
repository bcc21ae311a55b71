"""How overrides are said, and what cannot stand for the outside."""

from __future__ import annotations

import json

import pytest
from msgspec import Raw

from engine.app.actions import NAME_CHARS_MAX
from engine.app.tools import (
    OVERRIDES_BYTES_MAX,
    PREFIX,
    overrides,
    parse_overrides,
    parse_step_overrides,
    problem_of_overrides,
)
from streams.json import NOTHING, raw
from streams.model.triggers import Overrides


def test_without_a_word_nothing_stands_for_anything():
    assert overrides() == Overrides() == parse_overrides("{}")


def test_a_result_is_any_value_also_none():
    made = overrides(tools={"mail.send": {"id": 7}, "disk.free": None})
    assert made.tools == {"mail.send": raw({"id": 7}), "disk.free": NOTHING}


def test_an_action_may_hold_dots_a_capability_does_not():
    assert list(overrides(tools={"aws.s3.put": 1}).tools) == ["aws.s3.put"]


@pytest.mark.parametrize(
    ("asked", "kept"), [(False, ""), (True, PREFIX), ("what_if", "what_if"), (PREFIX, PREFIX)]
)
def test_findings_are_kept_under_a_prefix_or_not_at_all(asked, kept):
    assert overrides(persist_findings=asked).persist_findings == kept


def test_json_says_the_same():
    said = {"tools": {"mail.send": [1]}, "synthesis": "fine", "persist_findings": "what_if"}
    assert parse_overrides(json.dumps(said)) == overrides(**said)


IMPOSSIBLE = [
    ({"tools": ["mail.send"]}, "tools: .* is not a dict"),
    ({"tools": {"mail": 1}}, "tools: 'mail' is not a capability and an action, such as"),
    ({"tools": {".send": 1}}, "tools: '.send' is not"),
    ({"tools": {"mail.": 1}}, "tools: 'mail.' is not"),
    ({"tools": {"m" * (NAME_CHARS_MAX + 1) + ".send": 1}}, "the limit is 256 characters"),
    ({"tools": {"mail.send": "x" * OVERRIDES_BYTES_MAX}}, "the limit is 196,608"),
    ({"synthesis": "x" * OVERRIDES_BYTES_MAX}, "the limit is 196,608"),
    ({"persist_findings": ""}, "persist_findings: '' is not a name"),
    ({"persist_findings": "no:colon"}, "persist_findings: 'no:colon' is not a name"),
    ({"persist_findings": 1}, "persist_findings: 1 is not True, False or a name"),
]


@pytest.mark.parametrize(("said", "why"), IMPOSSIBLE)
def test_what_cannot_be_is_refused_with_the_field(said, why):
    with pytest.raises(ValueError, match=rf"^overrides\(\): .*{why}"):
        overrides(**said)


@pytest.mark.parametrize(("said", "why"), IMPOSSIBLE)
def test_what_cannot_be_is_refused_in_json_too(said, why):
    with pytest.raises(ValueError, match=why):
        parse_overrides(json.dumps(said))


def test_a_result_that_json_cannot_say_is_refused():
    with pytest.raises(ValueError, match=r"tools: disk.free: "):
        overrides(tools={"disk.free": object()})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not JSON"),
        (b"\xff", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not a JSON object of tools, synthesis, persist_findings"),
        ('{"synthesis": null}', "synthesis: null stands for none; leave it out"),
        ('{"tool": {}}', "no field 'tool'; there are tools, synthesis, persist_findings"),
    ],
)
def test_json_that_says_no_overrides_is_refused_in_one_line(text, why):
    with pytest.raises(ValueError, match=why) as refused:
        parse_overrides(text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "given",
    [
        {"tools": {}},
        Overrides(tools=7),
        Overrides(tools={"mail.send": {"id": 7}}),
        Overrides(tools={"mail.send": Raw(b"{")}),
        Overrides(tools={7: NOTHING}),
        Overrides(synthesis="text"),
        Overrides(persist_findings=True),
    ],
)
def test_what_was_made_by_hand_is_looked_at(given):
    assert problem_of_overrides(given)


def test_what_was_made_well_has_no_problem():
    assert problem_of_overrides(overrides(tools={"a.b": 1}, persist_findings=True)) is None


def test_overrides_of_steps_are_said_by_the_steps_name():
    said = '{"rate": {"synthesis": "well"}, "screen": {}}'
    assert parse_step_overrides(said) == {
        "rate": overrides(synthesis="well"),
        "screen": overrides(),
    }


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("{", "not a JSON object of step to overrides"),
        ("[]", "not a JSON object of step to overrides"),
        ('{"rate": 7}', "rate: not a JSON object of tools"),
        ('{"rate": {"tool": {}}}', "rate: no field 'tool'"),
    ],
)
def test_what_is_wrong_with_overrides_of_steps_is_named_with_the_step(said, why):
    with pytest.raises(ValueError, match=f"^{why}"):
        parse_step_overrides(said)
