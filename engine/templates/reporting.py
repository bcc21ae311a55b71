"""The finding that a template reports, as its configuration says. Pure."""

from __future__ import annotations

from typing import Final

import msgspec
from pydantic import Field, field_validator, model_validator

from engine.app.findings import clear_finding, raise_finding
from engine.errors import InvalidFinding
from engine.templates.wording import absent, worded, wording_of
from engine.validation import Strict, problem_of_path, wrong
from streams.json import JsonObject
from streams.model.findings import FindingIntent

KEY: Final = "{actor_id}:{expectation_id}:{subject_id}"
KEY_ALONE: Final = "{actor_id}:{expectation_id}"
"""The default key of a finding: with a subject, and without one."""

SUMMARY: Final = "{subject_id}: {class}"
SUMMARY_ALONE: Final = "{class}"
"""The default summary."""

FIELD_CHARS_MAX: Final = 128
"""Longest name of a field or a subject kind, in characters."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What was found about one subject."""

    class_: str
    severity: str
    confidence: float
    evidence: object = None
    summary: str = ""
    """The synthesizer's; empty: the configuration's template is used."""
    is_default: bool = False
    """Whether nothing special was found."""


class FindingConfig(Strict):
    """The key, summary and subject of findings."""

    key_template: str = ""
    """One finding per key is active. Empty: actor, expectation and subject."""
    summary_template: str = ""
    """One sentence for people; empty: the synthesizer's, or subject and class."""
    subject_kind: str = Field(default="", max_length=FIELD_CHARS_MAX)
    """The subject's kind; empty: the finding has no subject."""
    subject_id_key: str = ""
    """Path into the payload to the subject's id; empty: the episode's subject."""
    clear_on_default: bool = True
    """Whether the default class clears the finding instead of raising it."""

    @field_validator("key_template", "summary_template")
    @classmethod
    def _is_wording(cls, text: str) -> str:
        wording_of(text)
        return text

    @field_validator("subject_id_key")
    @classmethod
    def _is_path(cls, path: str) -> str:
        if path and (problem := problem_of_path(path)):
            raise ValueError(problem)
        return path

    @model_validator(mode="after")
    def _finds_it_again(self) -> FindingConfig:
        said = wording_of(self.key_template).placeholders
        if self.clear_on_default and not said.isdisjoint({"class", "severity", "episode_id"}):
            raise wrong(
                "key_template",
                "with {class}, {severity} or {episode_id} in its key, a finding could not be found"
                " again to be cleared; leave them out, or write clear_on_default: false",
            )
        return self


class AnswerConfig(FindingConfig):
    """The same for a synthesizer that answers with a JSON object."""

    class_field: str = Field(default="class", min_length=1, max_length=FIELD_CHARS_MAX)
    severity_field: str = Field(default="severity", min_length=1, max_length=FIELD_CHARS_MAX)
    summary_field: str = Field(default="summary", min_length=1, max_length=FIELD_CHARS_MAX)
    confidence_field: str = Field(default="confidence", min_length=1, max_length=FIELD_CHARS_MAX)
    evidence_field: str = Field(default="evidence", min_length=1, max_length=FIELD_CHARS_MAX)

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the answer's fields: class, severity, summary, confidence and evidence."""
        return (
            self.class_field,
            self.severity_field,
            self.summary_field,
            self.confidence_field,
            self.evidence_field,
        )


class ObservedConfig(FindingConfig):
    """The same for rules."""

    evidence_field: str = ""
    """Path into the gathered facts to the evidence; empty: the values that the rule compared."""

    @field_validator("evidence_field")
    @classmethod
    def _leads_somewhere(cls, path: str) -> str:
        if path and (problem := problem_of_path(path)):
            raise ValueError(problem)
        return path


def summary_of(config: FindingConfig, report: Report, words: JsonObject) -> str:
    """Return the summary of a report."""
    if report.summary and not config.summary_template:
        return report.summary
    usual = SUMMARY if words["subject_id"] else SUMMARY_ALONE
    return worded(wording_of(config.summary_template or usual), words_of(report, words))


def intent_of(config: FindingConfig, report: Report, words: JsonObject) -> FindingIntent:
    """Return the finding intent for a report; `InvalidFinding` if the key lacks a value."""
    key = key_of(config, report, words)
    if report.is_default and config.clear_on_default:
        return clear_finding(key, reason=report.class_)
    return raise_finding(
        key,
        class_=report.class_,
        severity=report.severity,
        confidence=report.confidence,
        summary=summary_of(config, report, words),
        subject=(config.subject_kind, words["subject_id"]) if config.subject_kind else None,
        evidence=report.evidence,
    )


def key_of(config: FindingConfig, report: Report, words: JsonObject) -> str:
    """Return the key of the report's finding; `InvalidFinding` if a placeholder has no value."""
    usual = KEY if words["subject_id"] else KEY_ALONE
    wording = wording_of(config.key_template or usual)
    told = words_of(report, words)
    if lacking := absent(wording, told):
        raise InvalidFinding(f"finding key {config.key_template!r}: nothing is at {lacking!r}")
    return worded(wording, told)


def words_of(report: Report, words: JsonObject) -> JsonObject:
    """Return the values of placeholders once there is a report."""
    return {**words, "class": report.class_, "severity": report.severity}
