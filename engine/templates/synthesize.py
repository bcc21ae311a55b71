"""The template `observe_synthesize_converge`: gather facts, and classify them with a synthesizer.

It answers with a JSON object, or with a text that contains one. While it is down, busy or too slow
it is asked again after pauses, as `retries` say. If it fails otherwise, or the answer has no class,
it is asked again at once.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace
from pydantic import Field, model_validator

from engine.app.actions import Action, Retries, converge, problem_of_retries, synthesize
from engine.app.context import Context, EpisodeView
from engine.app.strategy import Abort, ConvergeResult, Retry, StepTaken, Strategy
from engine.app.tools import RETRIED, Failure
from engine.templates.gather import TemplateState, begin, gather_step, keep
from engine.templates.proposing import ReportConfig, needs_of, outputs_of
from engine.templates.reporting import AnswerConfig, Report, intent_of, summary_of
from engine.templates.rules import CLASS_CHARS_MAX
from engine.validation import Graded, Strict, parsed, shown
from streams.json import UNDECODABLE, JsonObject
from streams.model.events import StepKind
from streams.model.findings import Severity
from streams.model.triggers import Trigger

SYNTHESES_MAX: Final = 3
"""Most syntheses until one is usable."""

PROMPT_CHARS_MAX: Final = 32_000
"""Longest system prompt, in characters."""

UNSURE: Final = 0.5
"""The confidence of an answer that gives none."""

INVALID_ANSWER: Final = "invalid_answer"
"""Error class of an episode whose synthesizer gave no usable answer."""

_FENCE: Final = "```"


class RetriesConfig(Strict):
    """How often the synthesizer is asked again while it is down, busy or too slow."""

    attempts_max: int = 3
    """Attempts, the first included."""
    first_s: float = 2.0
    """Pause after the first attempt, in seconds; it doubles each time."""
    most_s: float = 60.0
    """Longest pause, in seconds."""

    @model_validator(mode="after")
    def _can_work(self) -> RetriesConfig:
        if problem := problem_of_retries(self.made()):
            raise ValueError(problem)
        return self

    def made(self) -> Retries:
        """Return the retries in code."""
        return Retries(attempts_max=self.attempts_max, first_s=self.first_s, most_s=self.most_s)


class AnsweredConfig(ReportConfig):
    """What to gather, and how to read the answer of a model."""

    default_severity: Graded = Severity.MEDIUM
    """For answers that give none."""
    finding_config: AnswerConfig = AnswerConfig()


class SynthesizeConfig(AnsweredConfig):
    """What to gather, and what to ask the synthesizer."""

    system_prompt: str = Field(min_length=1, max_length=PROMPT_CHARS_MAX)
    retries: RetriesConfig = RetriesConfig()


class ObserveSynthesizeConverge(Strategy[TemplateState]):
    """The strategy that the template makes of a configuration."""

    State = TemplateState

    def __init__(self, config: SynthesizeConfig) -> None:
        self.config = config
        self.gatherer = config.gatherer
        self.needs = replace(needs_of(config), synthesizer=True)

    def init(self, episode: EpisodeView, trigger: Trigger) -> TemplateState:
        """Store the episode's subject and trigger."""
        return begin(episode, trigger, subject_id_key=self.config.finding_config.subject_id_key)

    def next_step(self, state: TemplateState, ctx: Context) -> Action:
        """Gather once, ask until there is an answer, then decide."""
        del ctx
        if state.observed is None:
            return gather_step(self.config, state.payload)
        if state.answer is not None:
            return converge()
        return synthesize(self._prompt(state), retries=self.config.retries.made())

    def handle_result(
        self,
        state: TemplateState,
        step: StepTaken,
        result: Any,  # noqa: ANN401 - JSON
    ) -> TemplateState | Retry | Abort:
        """Store the facts, and the first usable answer."""
        if step.kind is not StepKind.SYNTHESIS:
            return keep(state, result, gatherer=self.gatherer)
        if isinstance(result, Failure):
            failed = Abort(result.error_class, result.detail)
            # It has been asked again, after pauses.
            # guard: template-obeys-retries
            return failed if result.error_class in RETRIED else _again(state, failed)
        try:
            answer = answer_of(result)
            report_of(self.config, answer)
        except ValueError as error:
            return _again(state, Abort(INVALID_ANSWER, str(error)))
        return replace(state, answer=answer)

    def converge(self, state: TemplateState, ctx: Context) -> ConvergeResult:
        """Report the synthesizer's answer."""
        del ctx
        finding_config = self.config.finding_config
        report = report_of(self.config, state.answer or {})
        return ConvergeResult(
            classification={"primary": report.class_, "severity": report.severity},
            confidence=report.confidence,
            summary=summary_of(finding_config, report, state.words),
            findings=[intent_of(finding_config, report, state.words)],
            outputs=outputs_of(self.config, report, state.words),
        )

    def _prompt(self, state: TemplateState) -> JsonObject:
        return {
            "system": self.config.system_prompt,
            "subject_id": state.names["subject_id"],
            "payload": state.payload,
            "observed": state.observed,
            "answer_fields": list(self.config.finding_config.fields),
        }


def _again(state: TemplateState, otherwise: Abort) -> Retry | Abort:
    failures = state.failures + 1
    # guard: useless-answers-max
    return Retry(replace(state, failures=failures)) if failures < SYNTHESES_MAX else otherwise


def answer_of(result: object) -> JsonObject:
    """Return the JSON object in a synthesizer's answer; raise `ValueError` if there is none."""
    if isinstance(result, str):
        try:
            result = msgspec.json.decode(_unfenced(result))
        except UNDECODABLE as error:
            raise ValueError(f"the answer is not JSON: {error}") from error
    if not isinstance(result, dict):
        raise ValueError(f"the answer is no JSON object: {shown(result)}")  # noqa: TRY004 - it is data
    return result


def _unfenced(text: str) -> str:
    text = text.strip()
    if not (text.startswith(_FENCE) and text.endswith(_FENCE)):
        return text
    return text.removesuffix(_FENCE).partition("\n")[2]


def report_of(config: AnsweredConfig, answer: JsonObject) -> Report:
    """Return the report in an answer; a `ValueError` names a field that is impossible."""
    fields = config.finding_config
    class_ = answer.get(fields.class_field)
    if not isinstance(class_, str) or not 1 <= len(class_) <= CLASS_CHARS_MAX:
        raise ValueError(f"{fields.class_field}: {shown(class_)} is no class")
    summary = answer.get(fields.summary_field) or ""
    if not isinstance(summary, str):
        raise ValueError(f"{fields.summary_field}: {shown(summary)} is not text")  # noqa: TRY004 - it is data
    return Report(
        class_=class_,
        severity=_severity(answer.get(fields.severity_field), config),
        confidence=_confidence(answer.get(fields.confidence_field), config),
        summary=summary,
        evidence=answer.get(fields.evidence_field),
        is_default=class_ == config.default_class,
    )


def _severity(value: object, config: AnsweredConfig) -> str:
    if value is None:
        return config.default_severity
    if value not in tuple(Severity):
        known = ", ".join(Severity)
        raise ValueError(
            f"{config.finding_config.severity_field}: {shown(value)} is none of {known}"
        )
    return str(value)


def _confidence(value: object, config: AnsweredConfig) -> float:
    if value is None:
        return UNSURE
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and isinstance(value, int | float) and 0 <= value <= 1):
        field = config.finding_config.confidence_field
        raise ValueError(f"{field}: {shown(value)} is no number from 0 to 1")
    return float(value)


def observe_synthesize_converge(config: JsonObject) -> ObserveSynthesizeConverge:
    """Return the strategy for fields of `SynthesizeConfig`; `BadDefinition` names a wrong one."""
    return ObserveSynthesizeConverge(parsed(SynthesizeConfig, config))
