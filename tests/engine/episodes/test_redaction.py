"""What people may see of a step under each log strategy; a replay gets all of it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.episodes import episode as episodes
from engine.episodes.redaction import REDACTED, as_shown, cut, in_short, without_prompts
from streams.json import NOTHING, raw, unraw
from streams.model.events import (
    GRANTED,
    EpisodeStarted,
    KeptJson,
    KeptPrompt,
    StepKind,
    StepRecorded,
    StoredResult,
)
from streams.model.triggers import LogStrategy
from tests.projections import lives

STORED = StoredResult(digest="cd" * 32, size_bytes=5_242_882)

QUIET = [LogStrategy.NONE, LogStrategy.SUMMARY_ONLY]

RESULT = {"text": "x" * 300, "count": 3, "list": [1, 2], "map": {"b": 1, "a": 2}}

PROMPT = {"system": "s3cret", "unit": "%", "turns": [{"role": "user", "message": "s3cret"}]}


def step(kind=StepKind.TOOL_CALL, *, args=NOTHING, result=NOTHING, **fields):
    given = {"args": args, "result": result}
    encoded = {name: each if each is NOTHING else raw(each) for name, each in given.items()}
    return StepRecorded(step_no=1, kind=kind, fingerprint="f", **encoded, **fields)


def seen(shown):
    """Return the arguments and the result that people may see."""
    if shown.is_hidden:
        return unraw(shown.args), None
    result = shown.result if shown.result_shown == NOTHING else shown.result_shown
    return unraw(shown.args), unraw(result)


@pytest.mark.parametrize("kind", StepKind)
@pytest.mark.parametrize("strategy", QUIET)
def test_a_quiet_strategy_shows_neither_arguments_nor_results_of_any_step(kind, strategy):
    shown = as_shown(step(kind, args={"a": 1}, result={"b": 2}, result_shown=raw("c")), strategy)
    assert seen(shown) == (None, None)
    assert unraw(shown.result) == {"b": 2}, "a replay needs it"


@pytest.mark.parametrize("strategy", [*QUIET, LogStrategy.TIMELINE])
def test_what_a_model_was_asked_is_kept_under_full_debug_alone(strategy):
    agent, messages = KeptJson(stored=STORED), KeptJson(json=raw(["s3cret"]))
    asked = step(StepKind.MODEL_REQUEST, prompt=KeptPrompt(agent=agent, messages=messages))
    assert as_shown(asked, strategy).prompt == KeptPrompt(agent=agent)
    assert as_shown(asked, LogStrategy.FULL_DEBUG).prompt == asked.prompt


@pytest.mark.parametrize("strategy", QUIET)
def test_what_people_have_granted_is_shown_as_the_budget_is(strategy):
    grant = step(StepKind.APPROVAL, result={"plan": {"turns": 3}}, path=f"{GRANTED}4")
    assert seen(as_shown(grant, strategy))[1] == {"plan": {"turns": 3}}


@pytest.mark.parametrize("strategy", QUIET)
def test_a_step_without_a_result_hides_none(strategy):
    assert not as_shown(step(args={"a": 1}), strategy).is_hidden


def test_a_timeline_shows_the_result_of_a_tool_in_short_and_no_arguments():
    shown = as_shown(step(args={"a": 1}, result=RESULT), LogStrategy.TIMELINE)
    short = {"text": "x" * 200 + "…", "count": 3, "list": "2 items", "map": ["a", "b"]}
    assert seen(shown) == (None, short)
    assert unraw(shown.result) == RESULT


def test_a_quiet_strategy_hides_a_large_result_as_well():
    assert as_shown(step(stored=STORED), LogStrategy.NONE).is_hidden


def test_a_timeline_shows_what_the_tool_shows_of_a_large_result_and_else_nothing():
    assert as_shown(step(stored=STORED), LogStrategy.TIMELINE).is_hidden
    shown = as_shown(step(stored=STORED, result_shown=raw([1, 2])), LogStrategy.TIMELINE)
    assert seen(shown) == (None, "2 items")


def test_a_full_log_shows_a_large_result_by_what_refers_to_it():
    given = step(stored=STORED)
    assert as_shown(given, LogStrategy.FULL_DEBUG) == given


def test_what_nobody_may_see_is_not_shown_in_short_either():
    shown = as_shown(step(result={"a": [1, 2]}, is_hidden=True), LogStrategy.TIMELINE)
    assert (shown.is_hidden, shown.result_shown) == (True, NOTHING)


def test_a_timeline_shows_an_observation_in_short():
    shown = as_shown(step(StepKind.OBSERVATION, result=[1, 2, 3]), LogStrategy.TIMELINE)
    assert seen(shown) == (None, "3 items")


def test_a_full_log_shows_what_a_model_was_asked():
    shown = as_shown(step(StepKind.SYNTHESIS, args=PROMPT, result="ok"), LogStrategy.FULL_DEBUG)
    assert seen(shown) == (PROMPT, "ok")


def test_a_timeline_redacts_prompts():
    shown = as_shown(step(StepKind.SYNTHESIS, args=PROMPT, result="ok"), LogStrategy.TIMELINE)
    assert seen(shown) == ({"system": REDACTED, "unit": "%", "turns": "1 items"}, "ok")


def test_prompts_are_redacted_at_any_depth():
    shown = without_prompts(PROMPT)
    assert (shown["system"], shown["unit"]) == (REDACTED, "%")
    assert "s3cret" not in str(shown)


def test_a_prompt_that_is_a_text_alone_is_redacted():
    assert without_prompts("s3cret") == REDACTED


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        (["s3cret", 7, ["s3cret"]], [REDACTED, 7, [REDACTED]]),
        ([{"role": "user", "content": "s3cret"}], [{"role": "user", "content": REDACTED}]),
        (
            {"model": "m", "messages": ["s3cret"], "stop": ["."]},
            {"model": "m", "messages": REDACTED, "stop": ["."]},
        ),
    ],
)
def test_prompts_that_are_lists_are_redacted(asked, shown):
    assert without_prompts(asked) == shown


@pytest.mark.parametrize(
    ("strategy", "most"), [(LogStrategy.TIMELINE, 2_000), (LogStrategy.FULL_DEBUG, 50_000)]
)
def test_the_texts_of_an_answer_share_what_is_shown_of_it(strategy, most):
    answer = ["a" * (most - 10), "b" * 20, "c", 7]
    shown = as_shown(step(StepKind.SYNTHESIS, args={}, result=answer), strategy)
    assert seen(shown)[1] == ["a" * (most - 10), "b" * 10 + "…", "…", 7]


def test_a_full_log_shows_all_of_a_tool_call_as_the_tool_redacted_it():
    given = step(args={"a": 1}, result={"b": 2}, result_shown=raw("***"))
    assert as_shown(given, LogStrategy.FULL_DEBUG) == given


def test_what_a_tool_redacted_is_not_shown_in_short_either():
    given = step(result={"key": "s3cret"}, result_shown=raw({"key": "***"}))
    assert seen(as_shown(given, LogStrategy.TIMELINE)) == (None, {"key": "***"})


@pytest.mark.parametrize("strategy", [LogStrategy.TIMELINE, LogStrategy.FULL_DEBUG])
def test_approvals_and_other_steps_are_shown_in_full(strategy):
    given = step(StepKind.APPROVAL, args={"plan": "x" * 300}, result={"by": "ann"})
    assert as_shown(given, strategy) == given


def test_a_text_is_never_cut_within_a_character():
    assert cut("aé", most_bytes=2) == "a…"
    assert in_short("é" * 101) == "é" * 100 + "…"


def recorded_by(opened, kind, args, *, result="s3cret"):
    """Return the step that is recorded in an episode with this opening."""
    episode = episodes.UNOPENED
    for event in (opened, EpisodeStarted(node="n1", attempt=1)):
        episode = episodes.evolve(episode, event)
    performed = episodes.Performed(kind=kind, fingerprint="f", args=raw(args), result=raw(result))
    return episodes.decide(episode, performed)


def test_by_default_nothing_is_hidden_and_only_long_answers_are_cut():
    shown = recorded_by(lives.opened(), StepKind.SYNTHESIS, {"prompt": "why"})
    assert seen(shown) == ({"prompt": "why"}, "s3cret")
    long = recorded_by(lives.opened(), StepKind.SYNTHESIS, {}, result="a" * 50_001)
    assert seen(long) == ({}, "a" * 50_000 + "…")
    assert seen(recorded_by(lives.opened(), StepKind.TOOL_CALL, {"a": 1})) == ({"a": 1}, "s3cret")


def test_the_strategy_of_the_opening_is_that_of_each_step():
    opened = replace(lives.opened(), log_strategy=LogStrategy.NONE)
    recorded = recorded_by(opened, StepKind.TOOL_CALL, {"a": 1})
    assert (recorded.args, recorded.is_hidden) == (NOTHING, True)
    assert unraw(recorded.result) == "s3cret"
