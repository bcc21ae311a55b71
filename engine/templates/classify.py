"""The template `observe_classify_converge`: gather facts, and classify them by rules.

The first rule that fits gives class and severity, with confidence 1; else the defaults apply.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import Field, model_validator

from engine.app.actions import Action, converge
from engine.app.context import Context, EpisodeView
from engine.app.strategy import Abort, ConvergeResult, StepTaken, Strategy
from engine.templates.gather import TemplateState, begin, gather_step, keep
from engine.templates.proposing import ReportConfig, needs_of, outputs_of
from engine.templates.reporting import ObservedConfig, Report, intent_of, summary_of
from engine.templates.rules import RULES_MAX, Rule, first_fit
from engine.validation import Graded, Listed, parsed, wrong
from streams.json import ABSENT, JsonObject, value_at
from streams.model.findings import Severity
from streams.model.triggers import Trigger

SURE: Final = 1.0
"""The confidence of a rule."""


class ClassifyConfig(ReportConfig):
    """What to gather, and the rules."""

    rules: Listed[Rule] = Field(min_length=1, max_length=RULES_MAX)
    """In order: the first one that fits decides."""
    default_severity: Graded = Severity.LOW
    finding_config: ObservedConfig = ObservedConfig()

    @model_validator(mode="after")
    def _can_find_what_it_proposes(self) -> ClassifyConfig:
        said = dict.fromkeys([*(rule.class_ for rule in self.rules), self.default_class])
        for index, each in enumerate(self.outputs):
            for class_ in each.classes:
                if class_ not in said:  # guard: no-output-for-unknown-class
                    known = ", ".join(said)
                    problem = f"nothing is ever of class {class_!r}; write some of {known}"
                    raise wrong(f"outputs.{index}.classes", problem)
        return self


class ObserveClassifyConverge(Strategy[TemplateState]):
    """The strategy that the template makes of a configuration."""

    State = TemplateState

    def __init__(self, config: ClassifyConfig) -> None:
        self.config = config
        self.gatherer = config.gatherer
        self.needs = needs_of(config)

    def init(self, episode: EpisodeView, trigger: Trigger) -> TemplateState:
        """Store the episode's subject and trigger."""
        return begin(episode, trigger, subject_id_key=self.config.finding_config.subject_id_key)

    def next_step(self, state: TemplateState, ctx: Context) -> Action:
        """Gather once, then decide."""
        del ctx
        return gather_step(self.config, state.payload) if state.observed is None else converge()

    def handle_result(
        self,
        state: TemplateState,
        step: StepTaken,
        result: Any,  # noqa: ANN401 - JSON
    ) -> TemplateState | Abort:
        """Store the facts."""
        del step
        return keep(state, result, gatherer=self.gatherer)

    def converge(self, state: TemplateState, ctx: Context) -> ConvergeResult:
        """Report the class."""
        del ctx
        finding_config = self.config.finding_config
        fit = first_fit(self.config.rules, state.observed or {})
        report = self._report(fit, state.observed or {})
        return ConvergeResult(
            classification={"primary": report.class_, "severity": report.severity, "rule": fit},
            confidence=report.confidence,
            summary=summary_of(finding_config, report, state.words),
            findings=[intent_of(finding_config, report, state.words)],
            outputs=outputs_of(self.config, report, state.words),
        )

    def _report(self, fit: int | None, observed: JsonObject) -> Report:
        rule = None if fit is None else self.config.rules[fit]
        class_ = self.config.default_class if rule is None else rule.class_
        return Report(
            class_=class_,
            severity=self.config.default_severity if rule is None else rule.severity,
            confidence=SURE,
            evidence=self._evidence(rule, observed),
            is_default=class_ == self.config.default_class,
        )

    def _evidence(self, rule: Rule | None, observed: JsonObject) -> object:
        if path := self.config.finding_config.evidence_field:
            value = value_at(observed, path)
            return None if value is ABSENT else value
        paths = () if rule is None else rule.when
        seen = {path: value_at(observed, path) for path in paths}
        return {path: value for path, value in seen.items() if value is not ABSENT} or None


def observe_classify_converge(config: JsonObject) -> ObserveClassifyConverge:
    """Return the strategy for the fields of `ClassifyConfig`; `BadDefinition` names a wrong one."""
    return ObserveClassifyConverge(parsed(ClassifyConfig, config))
