"""observe_synthesize_converge: a synthesizer says what it is, and that becomes a finding."""

from __future__ import annotations

import msgspec
import pytest

from engine.app.actions import Retries
from engine.app.actor import Actor
from engine.app.app import App
from engine.app.tools import Synthesis, ToolFailed
from engine.app.triggers import manual
from engine.errors import BadDefinition, DeclarationError
from engine.templates.synthesize import observe_synthesize_converge
from streams.model.events import EndStatus, StepKind, StepRecorded
from streams.model.findings import ClearFinding, RaiseFinding
from tests.engine.templates.stage import Facts, app_of, opened_for, play

OBSERVED = {"errors": 12}
ANSWER = {
    "class": "errors_rising",
    "severity": "high",
    "summary": "errors rise since noon",
    "confidence": 0.8,
    "evidence": {"since": "12:00"},
}


class Model:
    """A synthesizer that gives its answers one by one, and remembers what it was asked."""

    def __init__(self, *answers: object):
        self.answers, self.asked = list(answers), []

    async def think(self, prompt, transient, ctx):
        self.asked.append(prompt)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def configured(**config):
    return observe_synthesize_converge(
        {"gatherer": "facts", "system_prompt": "Look at the errors.", **config}
    )


async def lived_with(model, strategy=None, payload=None):
    app = app_of(strategy or configured(), Facts(OBSERVED), synthesizer=model.think)
    return await play(app, opened_for(app, payload))


def only_finding(life):
    assert life.end.status is EndStatus.DONE, life.end
    (intent,) = life.episode.converged.findings
    return intent


def syntheses(life):
    return [step for step in life.of(StepRecorded) if step.kind is StepKind.SYNTHESIS]


async def test_the_answer_makes_the_finding():
    intent = only_finding(life := await lived_with(Model(ANSWER)))

    assert isinstance(intent, RaiseFinding)
    assert intent.finding_key == "worker:thing:web-1"
    assert (intent.class_, intent.severity, intent.confidence) == ("errors_rising", "high", 0.8)
    assert intent.summary == "errors rise since noon" == life.episode.converged.summary
    assert msgspec.json.decode(intent.evidence_json) == {"since": "12:00"}
    assert life.episode.converged.confidence == 0.8


async def test_the_synthesizer_is_told_what_was_gathered_and_what_to_answer_with():
    model = Model(ANSWER)
    await lived_with(model, payload={"host": "web-1"})

    (prompt,) = model.asked
    assert prompt == {
        "system": "Look at the errors.",
        "subject_id": "web-1",
        "payload": {"host": "web-1"},
        "observed": OBSERVED,
        "answer_fields": ["class", "severity", "summary", "confidence", "evidence"],
    }


@pytest.mark.parametrize(
    "text",
    [
        '{"class": "odd"}',
        ' {"class": "odd"}\n',
        '```json\n{"class": "odd"}\n```',
        '```\n{"class": "odd"}\n```\n',
    ],
)
async def test_a_text_that_holds_the_answer_is_one(text):
    intent = only_finding(await lived_with(Model(Synthesis(content=text, output_tokens=5))))

    assert (intent.class_, intent.severity, intent.confidence) == ("odd", "medium", 0.5)
    assert intent.summary == "web-1: odd"


async def test_the_configuration_says_where_the_answer_has_what():
    config = {
        "class_field": "verdict",
        "severity_field": "grade",
        "summary_field": "text",
        "confidence_field": "sure",
        "evidence_field": "why",
        "summary_template": "{class} of {subject_id} at {observed.errors} errors",
    }
    answer = {"verdict": "odd", "grade": "low", "text": "unused", "sure": 1, "why": [1]}
    intent = only_finding(await lived_with(Model(answer), configured(finding_config=config)))

    assert (intent.class_, intent.severity, intent.confidence) == ("odd", "low", 1.0)
    assert intent.summary == "odd of web-1 at 12 errors"
    assert msgspec.json.decode(intent.evidence_json) == [1]


async def test_the_default_class_clears_the_finding():
    intent = only_finding(
        await lived_with(Model({"class": "fine"}), configured(default_class="fine"))
    )
    assert intent == ClearFinding(finding_key="worker:thing:web-1", reason="fine")


@pytest.mark.parametrize(
    "useless",
    [
        ToolFailed("overloaded", "try later"),
        "no JSON",
        "[1]",
        7,
        {},
        {"class": ""},
        {"class": 5},
        {"class": "odd", "severity": "terrible"},
        {"class": "odd", "confidence": 2},
        {"class": "odd", "confidence": True},
        {"class": "odd", "summary": ["x"]},
    ],
)
async def test_an_answer_that_is_of_no_use_is_asked_for_again(useless):
    life = await lived_with(Model(useless, ANSWER))

    assert only_finding(life).class_ == "errors_rising"
    assert len(syntheses(life)) == 2


async def test_it_is_asked_for_three_times_at_most():
    life = await lived_with(Model("no", ToolFailed("overloaded", "later"), {}, ANSWER))

    assert len(syntheses(life)) == 3
    assert (life.end.status, life.end.error_class) == (EndStatus.FAILED, "invalid_answer")
    assert "class: None is no class" in life.end.error_detail


async def test_the_last_failure_is_the_one_that_counts():
    life = await lived_with(Model(*[ToolFailed("overloaded", "later")] * 3))
    assert (life.end.error_class, life.end.error_detail) == ("overloaded", "later")


SOON = {"attempts_max": 3, "first_s": 0.001, "most_s": 0.002}


async def test_a_model_that_is_busy_is_asked_again_after_pauses():
    busy = ToolFailed("tool_rate_limited", "slow down")
    life = await lived_with(Model(busy, busy, ANSWER), configured(retries=SOON))
    assert only_finding(life).class_ == "errors_rising"
    pauses = [step.retry_s for step in syntheses(life)]
    assert [0 < each <= 0.002 for each in pauses] == [True, True, False]


async def test_a_model_that_stays_busy_is_asked_as_often_as_the_retries_say():
    model = Model(*[ToolFailed("tool_rate_limited", "slow down")] * 9)
    life = await lived_with(model, configured(retries=SOON))
    assert (life.end.error_class, len(model.asked)) == ("tool_rate_limited", 3)


def test_without_a_word_it_is_asked_three_times_with_two_seconds_between():
    assert configured().config.retries.made() == Retries(attempts_max=3, first_s=2, most_s=60)


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ({"retries": {"attempts_max": 0}}, "retries"),
        ({"retries": {"first_s": 9, "most_s": 3}}, "retries"),
        ({"system_prompt": ""}, "system_prompt"),
        ({"system_prompt": None}, "system_prompt"),
        ({"default_severity": "bad"}, "default_severity"),
        ({"finding_config": {"class_field": ""}}, "finding_config.class_field"),
        ({"rules": []}, "rules"),
    ],
)
def test_a_configuration_that_cannot_work_says_where(config, path):
    with pytest.raises(BadDefinition) as refused:
        configured(**config)
    assert refused.value.path == path


def test_an_app_must_have_a_synthesizer():
    """Without one, what is asked would come back as the answer."""
    with pytest.raises(DeclarationError, match="there is no synthesizer to ask"):
        app_of(configured(), Facts(OBSERVED))


def test_the_synthesizer_may_be_the_actors_own():
    actor = Actor("worker", synthesizer=Model(ANSWER).think)
    actor.expect("thing", configured(), on=manual())
    assert App(actors=[actor], gatherers={"facts": Facts(OBSERVED).gather}).actors
