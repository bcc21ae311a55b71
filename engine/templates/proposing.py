"""The outputs that a template proposes for its findings. Pure.

    {"adapter": "pager", "payload": {"text": "{subject_id}: {summary}"}, "severities": ["critical"]}

An output is proposed when its finding is raised, never when it is cleared; after a crash with the
same key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import Field, ValidationInfo, field_validator, model_validator

from engine.app.actions import SUMMARY_CHARS_MAX, ExpiryOfApproval
from engine.app.outputs import propose_output
from engine.app.strategy import Needs
from engine.errors import InvalidOutput, Unencodable
from engine.templates.gather import GatherConfig
from engine.templates.reporting import FindingConfig, Report, key_of, summary_of, words_of
from engine.templates.rules import CLASS_CHARS_MAX
from engine.templates.wording import absent, check_payload, filled, worded, wording_of_output
from engine.validation import Graded, Listed, Strict, wrong
from streams.json import JsonObject
from streams.model.outputs import OutputIntent

OUTPUTS_MAX: Final = 10
"""Most outputs of one template."""

CLASSES_MAX: Final = 100
"""Most classes for which one output is proposed."""

_LEFT_OUT: Final[Mapping[str, str]] = {
    "classes": "[] names none; leave it out for all but the default class",
    "severities": "[] names none; leave it out for all",
    "dedupe_key_template": "it is empty; leave it out, or write a key",
}
"""Options that may be omitted but not empty → what to do instead."""

TERMS: Final = (
    "summary_template",
    "approvers",
    "expires_s",
    "on_expiry",
    "remind_every_s",
    "quorum",
    "requester_may_approve",
)
"""The options of an approval; they count only if one is required."""


class OutputConfig(Strict):
    """What to deliver, and for which findings; see `engine.app.outputs.propose_output`."""

    adapter: str
    """A name in `App.outputs`."""
    payload: object
    """Any JSON value; see `engine.templates.wording`."""
    dedupe_key_template: str = ""
    """Outputs of any episodes with the same key are delivered once. Empty: once per cause."""
    classes: Listed[str] = Field(default=(), max_length=CLASSES_MAX)
    """Classes of findings for which it is proposed; none: all but the default one."""
    severities: Listed[Graded] = ()
    """Severities for which it is proposed; none: all."""
    requires_approval: bool = False
    summary_template: str = ""
    """The question to people; empty: the summary of the finding."""
    approvers: Listed[str] = ()
    expires_s: float | None = None
    on_expiry: ExpiryOfApproval = "deny"
    remind_every_s: float | None = None
    quorum: int = 1
    requester_may_approve: bool = True

    @field_validator("adapter", "payload", "approvers", "expires_s", "remind_every_s", "quorum")
    @classmethod
    def _may_be_proposed(cls, value: object, info: ValidationInfo) -> object:
        """Check each field alone, so that the error names it."""
        field = str(info.field_name)
        said: dict[str, Any] = {"adapter": "any", "payload": None, field: value}
        try:
            propose_output(**said)
        except (InvalidOutput, Unencodable) as error:
            problem = str(error).removeprefix("output: ").removeprefix(f"{field}: ")
            raise ValueError(problem) from error
        return value

    @field_validator("payload")
    @classmethod
    def _can_be_filled(cls, payload: object) -> object:
        check_payload(payload)
        return payload

    @field_validator(*_LEFT_OUT)
    @classmethod
    def _says_something(cls, value: object, info: ValidationInfo) -> object:
        """Refuse fields that are present but empty."""
        if not value:  # guard: output-choice-not-empty
            raise ValueError(_LEFT_OUT[str(info.field_name)])
        return value

    @field_validator("dedupe_key_template", "summary_template")
    @classmethod
    def _is_wording(cls, text: str) -> str:
        wording_of_output(text)
        return text

    @model_validator(mode="after")
    def _asks_somebody(self) -> OutputConfig:
        said = [term for term in TERMS if term in self.model_fields_set]
        if said and not self.requires_approval:  # guard: unasked-approval-terms
            raise wrong(said[0], "nobody is asked; write requires_approval: true as well")
        return self


class ReportConfig(GatherConfig):
    """What to gather, and what to report."""

    default_class: str = Field(default="healthy", min_length=1, max_length=CLASS_CHARS_MAX)
    """The class if nothing special was found."""
    finding_config: FindingConfig = FindingConfig()
    outputs: Listed[OutputConfig] = Field(default=(), max_length=OUTPUTS_MAX)
    """The outputs to propose."""

    @model_validator(mode="after")
    def _proposes_nothing_about_nothing(self) -> ReportConfig:
        for index, each in enumerate(self.outputs):
            # guard: no-output-for-clearing-class
            if self.finding_config.clear_on_default and self.default_class in each.classes:
                raise wrong(
                    f"outputs.{index}.classes",
                    f"{self.default_class!r} clears the finding, and nothing is proposed then;"
                    " leave it out, or write clear_on_default: false",
                )
        return self

    @model_validator(mode="after")
    def _tells_them_apart(self) -> ReportConfig:
        first: dict[str, int] = {}
        for index, each in enumerate(self.outputs):
            key = each.dedupe_key_template
            if key and first.setdefault(key, index) != index:  # guard: template-outputs-visible
                raise wrong(
                    f"outputs.{index}.dedupe_key_template",
                    f"outputs.{first[key]} has the same, and what has one key is delivered once;"
                    " write another one",
                )
        return self


def needs_of(config: ReportConfig) -> Needs:
    """Return what a strategy with `config` needs from its app."""
    return Needs(gatherer=config.gatherer, outputs=tuple(each.adapter for each in config.outputs))


def outputs_of(config: ReportConfig, report: Report, words: JsonObject) -> list[OutputIntent]:
    """Return the outputs for a report; a payload over 256 KiB is `Unencodable`."""
    return list(_due(config, report, words)) if config.outputs else []


def _due(config: ReportConfig, report: Report, words: JsonObject) -> Iterator[OutputIntent]:
    told = {
        **words_of(report, words),
        "finding_key": key_of(config.finding_config, report, words),
        "summary": summary_of(config.finding_config, report, words),
        "confidence": report.confidence,
        "evidence": report.evidence,
    }
    for index, each in enumerate(config.outputs):
        if _is_due(each, report):
            yield _intent(each, told, place=f"outputs.{index}")


def _is_due(config: OutputConfig, report: Report) -> bool:
    # guard: cleared-proposes-nothing
    is_of_class = report.class_ in config.classes if config.classes else not report.is_default
    # guard: template-severities
    return is_of_class and (not config.severities or report.severity in config.severities)


def _intent(config: OutputConfig, words: JsonObject, *, place: str) -> OutputIntent:
    dedupe_key = _dedupe_key(config, words)
    return propose_output(
        config.adapter,
        filled(config.payload, words),
        dedupe_key=dedupe_key,
        # One cause, one finding: the place tells the outputs of that apart.
        key=None if dedupe_key else place,  # guard: template-key-of-cause
        requires_approval=config.requires_approval,
        summary=_asked(config, words),
        approvers=config.approvers or None,
        expires_s=config.expires_s,
        on_expiry=config.on_expiry,
        remind_every_s=config.remind_every_s,
        quorum=config.quorum,
        requester_may_approve=config.requester_may_approve,
    )


def _dedupe_key(config: OutputConfig, words: JsonObject) -> str | None:
    if not config.dedupe_key_template:
        return None
    wording = wording_of_output(config.dedupe_key_template)
    if lacking := absent(wording, words):  # guard: key-lacks-no-word
        raise InvalidOutput(f"dedupe key {config.dedupe_key_template!r}: nothing is at {lacking!r}")
    return worded(wording, words)


def _asked(config: OutputConfig, words: JsonObject) -> str:
    if not config.requires_approval:
        return ""
    text = config.summary_template or "{summary}"
    return worded(wording_of_output(text), words)[:SUMMARY_CHARS_MAX]
