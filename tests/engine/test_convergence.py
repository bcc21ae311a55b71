"""What a strategy may end in."""

from __future__ import annotations

import pytest

from engine.convergence import CONVERGED_BYTES_MAX, ConvergeResult, conclude
from engine.errors import InvalidResult, Unencodable
from engine.finding import SUMMARY_CHARS_MAX, clear_finding, raise_finding
from streams.events import EpisodeConverged
from streams.json import raw


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


def test_a_result_may_say_nothing():
    assert conclude(ConvergeResult()) == EpisodeConverged(classification=raw({}))


@pytest.mark.parametrize(
    ("nonsense", "problem"),
    [
        (None, "converge() returned None; it must return a ConvergeResult"),
        ({"summary": "x"}, "converge() returned a dict"),
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


def test_a_classification_that_json_cannot_say_is_refused():
    with pytest.raises(Unencodable, match="classification"):
        conclude(ConvergeResult(classification={"at": object()}))


def test_a_result_too_large_for_one_message_is_refused_with_its_size():
    evidence = "x" * 200_000
    findings = [raise_finding(f"k{n}", class_="c", evidence=evidence) for n in range(4)]
    with pytest.raises(InvalidResult, match=rf"4 findings make .* {CONVERGED_BYTES_MAX:,}"):
        conclude(ConvergeResult(findings=findings))


def test_a_long_summary_is_cut():
    assert len(conclude(ConvergeResult(summary="x" * 9_999)).summary) == SUMMARY_CHARS_MAX
