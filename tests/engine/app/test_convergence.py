"""What a strategy may end in."""

from __future__ import annotations

import msgspec
import pytest

from engine.app.checks import COUNT_MAX
from engine.app.findings import SUMMARY_CHARS_MAX, clear_finding, raise_finding
from engine.app.outputs import propose_output
from engine.app.strategy import (
    CONVERGED_BYTES_MAX,
    FINDINGS_MAX,
    OUTPUTS_MAX,
    ConvergeResult,
    checked_result,
    conclude,
)
from engine.errors import InvalidResult, StrategyError, Unencodable
from streams.json import raw
from streams.model.events import EndStatus, EpisodeConverged, EpisodeFinished
from streams.model.findings import FindingOutcome
from streams.model.outputs import OutputIntent
from streams.ports.log import Commit
from streams.wire.codec import encode_commit
from tests.spec import EPOCH


def test_a_result_becomes_the_event_that_says_it():
    findings = [raise_finding("k", class_="c"), clear_finding("j")]
    result = ConvergeResult(
        classification={"primary": "full"}, confidence=1, summary="full", findings=findings
    )
    assert conclude(result) == EpisodeConverged(
        classification=raw({"primary": "full"}),
        confidence=1.0,
        summary="full",
        findings=tuple(findings),
    )


def test_what_a_step_of_a_workflow_brings_may_be_any_json():
    assert conclude(ConvergeResult(result=["a", 1])).result == raw(["a", 1])


def test_a_result_may_say_nothing():
    assert conclude(ConvergeResult()) == EpisodeConverged(classification=raw({}))


@pytest.mark.parametrize(("nonsense", "what"), [(None, "None"), ({"summary": "x"}, "a dict")])
def test_what_is_no_result_is_refused_in_words(nonsense, what):
    with pytest.raises(InvalidResult) as refused:
        checked_result(nonsense)
    assert str(refused.value) == f"converge() returned {what}; it must return a ConvergeResult"


@pytest.mark.parametrize(
    ("nonsense", "problem"),
    [
        (ConvergeResult(classification=[1]), "classification must be a dict, not a list"),
        (ConvergeResult(classification=None), "classification must be a dict, not None"),
        (ConvergeResult(summary=None), "summary must be text, not None"),
        (ConvergeResult(summary=b"x"), "summary must be text, not a bytes"),
        (ConvergeResult(confidence=1.01), "confidence must be a number from 0 to 1, not 1.01"),
        (ConvergeResult(confidence=-1), "confidence must be a number from 0 to 1, not -1"),
        (ConvergeResult(confidence="high"), "from 0 to 1, not 'high'"),
        (ConvergeResult(confidence=float("nan")), "from 0 to 1, not nan"),
        (ConvergeResult(findings=None), "findings must be a list, not None"),
        (ConvergeResult(findings="abc"), "findings must be a list, not a str"),
        (ConvergeResult(findings=[{}]), "findings must be made with raise_finding(…), not a dict"),
    ],
)
def test_nonsense_is_refused_in_words(nonsense, problem):
    with pytest.raises(InvalidResult) as refused:
        conclude(nonsense)
    assert problem in str(refused.value)


def test_a_result_for_later_steps_that_json_cannot_say_is_refused():
    with pytest.raises(Unencodable, match="result"):
        conclude(ConvergeResult(result=object()))


def test_a_classification_that_json_cannot_say_is_refused():
    with pytest.raises(Unencodable, match="classification"):
        conclude(ConvergeResult(classification={"at": object()}))


def test_a_result_too_large_for_one_message_is_refused_with_its_size():
    evidence = "x" * 200_000
    findings = [raise_finding(f"k{n}", class_="c", evidence=evidence) for n in range(4)]
    with pytest.raises(InvalidResult, match=rf"4 findings make .* {CONVERGED_BYTES_MAX:,}"):
        conclude(ConvergeResult(findings=findings))


def test_a_result_with_more_findings_than_its_end_can_name_is_refused():
    findings = [clear_finding(f"k{n}") for n in range(FINDINGS_MAX + 1)]
    with pytest.raises(InvalidResult, match="1,001 findings, the limit is 1,000"):
        conclude(ConvergeResult(findings=findings))


def test_the_end_of_the_largest_convergence_fits_in_one_message():
    """A key is said as often at the end as before it, and the control characters are the longest"""
    keys = [f"{n:04}" + "\x01" * 122 for n in range(FINDINGS_MAX)]
    converged = conclude(ConvergeResult(findings=[clear_finding(key) for key in keys]))
    assert len(msgspec.json.encode(converged)) > 0.95 * CONVERGED_BYTES_MAX
    end = EpisodeFinished(
        status=EndStatus.DONE,
        turns_used=COUNT_MAX,
        tokens_used=COUNT_MAX,
        findings=tuple(
            FindingOutcome(finding_key=key, outcome="unchanged", raise_no=COUNT_MAX) for key in keys
        ),
    )
    commit = Commit(id="c", at=EPOCH, events=(end,))
    assert len(encode_commit(commit)) < 1024 * 1024


def test_a_long_summary_is_cut():
    assert len(conclude(ConvergeResult(summary="x" * 9_999)).summary) == SUMMARY_CHARS_MAX


def test_outputs_are_part_of_what_was_decided():
    intent = propose_output("pager", {"text": "disk full"})
    assert conclude(ConvergeResult(outputs=[intent])).outputs == (intent,)


@pytest.mark.parametrize(
    ("outputs", "why"),
    [
        ("pager", "outputs must be a list"),
        (["pager"], "must be made with propose_output"),
        ([OutputIntent(adapter="no name", payload=raw(1))], "not a name"),
        ([OutputIntent(adapter="pager", payload=raw(1), key=7)], "key"),
        ([OutputIntent(adapter="pager", payload=raw(1))] * (OUTPUTS_MAX + 1), "the limit is 100"),
    ],
)
def test_impossible_outputs_are_refused(outputs, why):
    with pytest.raises(StrategyError, match=why):
        conclude(ConvergeResult(outputs=outputs))
