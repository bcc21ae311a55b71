"""How overrides are said, and what cannot stand for the outside."""

from __future__ import annotations

import json
import re

import pytest
from msgspec import Raw

from engine.app.actions import NAME_CHARS_MAX
from engine.app.actor import Actor
from engine.app.app import App
from engine.app.tools import (
    OVERRIDES_BYTES_MAX,
    PREFIX,
    Failure,
    ToolFailed,
    overrides,
    parse_overrides,
    parse_step_overrides,
    problem_of_overrides,
)
from engine.app.triggers import manual
from engine.errors import DeclarationError
from streams.json import NOTHING, raw
from streams.model.triggers import OverrideFailure, Overrides


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
        ("[]", "not a JSON object of tools, failures, synthesis, persist_findings"),
        ('{"synthesis": null}', "synthesis: null stands for none; leave it out"),
        ('{"tool": {}}', "no field 'tool'; there are tools, failures, synthesis, persist_findings"),
        ('{"failures": {"a.b": {"class": "x"}}}', "failures: "),
        ('{"failures": {"a.b": "x"}}', "failures: "),
        ('{"failures": {"mail": {"error_class": "x"}}}', "'mail' is not a capability"),
        (
            '{"tools": {"a.b": 1}, "failures": {"a.b": {"error_class": "x"}}}',
            "failures: 'a.b' has a result, too",
        ),
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


def test_a_failure_is_said_apart_from_results_that_look_like_one():
    said = {"error_class": "gone", "detail": "since May"}
    made = parse_overrides(json.dumps({"tools": {"a.b": said}, "failures": {"c.d": said}}))
    assert made.tools == {"a.b": raw(said)}
    assert made.failures == {"c.d": OverrideFailure(error_class="gone", detail="since May")}


def test_a_failure_of_python_is_the_same_as_that_of_json():
    text = '{"failures": {"a.b": {"error_class": "gone"}, "synthesis": {"error_class": "busy"}}}'
    made = overrides(tools={"a.b": Failure("gone")}, synthesis=ToolFailed("busy"))
    assert made == parse_overrides(text)


def test_a_failure_has_a_class():
    with pytest.raises(ValueError, match=r"a\.b: error_class: 1 to"):
        overrides(tools={"a.b": Failure("")})


def test_a_declared_override_for_a_tool_that_is_not_there_is_refused():
    async def send(args, ctx):
        return None

    async def strategy(ctx, trigger):
        return None

    def app_with(name):
        mailer = Actor("mailer", tools={"mail": send})
        mailer.expect("x", strategy, on=manual(), dry_run=overrides(tools={name: 1}))
        return App(actors=[mailer])

    app_with("mail.send")
    said = "an override is for 'mial.send', and no tool is called that; did you mean mail.send?"
    with pytest.raises(DeclarationError, match=re.escape(said)):
        app_with("mial.send")
