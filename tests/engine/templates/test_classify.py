"""observe_classify_converge: what was gathered is classified by rules, and becomes a finding."""

from __future__ import annotations

import msgspec
import pytest

from engine.app.actor import Actor
from engine.app.app import App
from engine.app.tools import ToolFailed, gather
from engine.app.triggers import manual
from engine.errors import BadDefinition, DeclarationError
from engine.templates.classify import observe_classify_converge
from streams.model.events import EndStatus, FindingCleared, FindingRaised, StepRecorded
from streams.model.findings import ClearFinding, RaiseFinding
from tests.engine.stage import STARTED, ask_start, did, lived, running, write
from tests.engine.templates.stage import Facts, app_of, opened_for, play

RULES = [
    {"when": {"disk.used": {"gte": 95}}, "class": "disk_full", "severity": "critical"},
    {"when": {"disk.used": {"gte": 80}}, "class": "disk_filling"},
]
FULL = Facts({"disk": {"used": 97}})


def configured(**config):
    return observe_classify_converge({"gatherer": "facts", "rules": RULES, **config})


async def converged(strategy, facts, payload=None, **changed):
    app = app_of(strategy, facts)
    life = await play(app, opened_for(app, payload, **changed))
    assert life.end.status is EndStatus.DONE, life.end
    return life.episode.converged


async def test_the_first_rule_that_fits_makes_the_finding():
    result = await converged(configured(), FULL)

    assert msgspec.json.decode(result.classification) == {
        "primary": "disk_full",
        "severity": "critical",
        "rule": 0,
    }
    (intent,) = result.findings
    assert isinstance(intent, RaiseFinding)
    assert (intent.finding_key, intent.class_) == ("worker:thing:web-1", "disk_full")
    assert (intent.severity, intent.confidence) == ("critical", 1.0)
    assert msgspec.json.decode(intent.evidence_json) == {"disk.used": 97}
    assert intent.summary == result.summary == "web-1: disk_full"


async def test_what_no_rule_fits_is_of_the_default_class_and_clears_the_finding():
    result = await converged(configured(default_class="roomy"), Facts({"disk": {"used": 3}}))

    assert msgspec.json.decode(result.classification)["primary"] == "roomy"
    assert result.findings == (ClearFinding(finding_key="worker:thing:web-1", reason="roomy"),)


async def test_the_default_class_may_be_a_finding_like_any_other():
    config = {"default_severity": "low", "finding_config": {"clear_on_default": False}}
    result = await converged(configured(**config), Facts({}))

    (intent,) = result.findings
    assert (intent.class_, intent.severity) == ("healthy", "low")


async def test_the_configuration_has_the_words():
    config = {
        "key_template": "host:disk:{payload.host.name}",
        "summary_template": "{subject_id}: {observed.disk.used} %, {class}",
        "subject_kind": "host",
        "subject_id_key": "host.name",
        "evidence_field": "disk",
    }
    result = await converged(
        configured(finding_config=config), FULL, {"host": {"name": "db-7"}}, entity_id=""
    )

    (intent,) = result.findings
    assert intent.finding_key == "host:disk:db-7"
    assert intent.summary == "db-7: 97 %, disk_full"
    assert (intent.subject_kind, intent.subject_id) == ("host", "db-7")
    assert msgspec.json.decode(intent.evidence_json) == {"used": 97}


async def test_without_a_subject_the_finding_is_that_of_the_expectation():
    (intent,) = (await converged(configured(), FULL, entity_id="")).findings
    assert (intent.finding_key, intent.summary) == ("worker:thing", "disk_full")


async def test_findings_are_raised_and_cleared_again(ports):
    facts = Facts({"disk": {"used": 97}})
    app = app_of(configured(), facts)
    raised = await play(app, opened_for(app), ports=ports)
    facts.answer = {"disk": {"used": 1}}
    again = opened_for(app, episode_id="11111111-1111-8111-8111-111111111111")
    await play(app, again, ports=ports)

    history = await ports.log.read(ports.stack.finding("worker:thing:web-1"))
    events = [event for record in history for event in record.commit.events]
    assert [type(event) for event in events] == [FindingRaised, FindingCleared]
    assert events[0].finding.raised_by_episode_id == raised.episode.opened.episode_id


async def test_the_gatherer_gets_payload_and_options_and_the_journal_keeps_the_options():
    facts = Facts({})
    app = app_of(configured(options={"since": "1h"}), facts)
    life = await play(app, opened_for(app, {"host": "secret-host"}))

    assert facts.asked == [({"host": "secret-host"}, {"since": "1h"})]
    (step,) = life.of(StepRecorded)
    assert step.tool_name == "gather.facts"
    assert msgspec.json.decode(step.args) == {"options": {"since": "1h"}}


async def test_after_a_crash_the_same_facts_are_decided_on(ports):
    facts = Facts({"disk": {"used": 1}})
    app = app_of(configured(), facts)
    opened = opened_for(app, {"a": 1})
    asked = gather("facts", payload={"a": 1}, options={})
    await write(ports, opened.episode_id, opened)
    await write(ports, opened.episode_id, STARTED, did(1, asked, {"disk": {"used": 97}}))
    await ask_start(ports, opened.episode_id)
    async with running(app, ports):
        life = await lived(ports, opened.episode_id)

    assert facts.asked == []
    assert msgspec.json.decode(life.episode.converged.classification)["primary"] == "disk_full"


@pytest.mark.parametrize(
    ("answer", "error_class", "detail"),
    [
        (ToolFailed("no_such_host", "web-1"), "no_such_host", "web-1"),
        (ConnectionError("away"), "tool_unavailable", "away"),
        ([1], "observed_no_object", "'facts' returned a list"),
    ],
)
async def test_what_cannot_be_gathered_ends_the_episode(answer, error_class, detail):
    app = app_of(configured(), Facts(answer))
    end = (await play(app, opened_for(app))).end
    assert end.error_class == error_class
    assert detail in end.error_detail


async def test_a_key_that_lacks_a_word_is_no_key():
    strategy = configured(finding_config={"key_template": "host:{observed.host}"})
    app = app_of(strategy, FULL)
    end = (await play(app, opened_for(app))).end
    assert end.error_class == "invalid_finding"
    assert "nothing is at 'observed.host'" in end.error_detail


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ({"rules": []}, "rules"),
        ({"rules": [{"class": "x"}]}, "rules.0.when"),
        ({"rules": [{"when": {"a": 1}, "class": 5}]}, "rules.0.class"),
        ({"rules": [{"when": {"a": 1}, "class": "x", "severity": "bad"}]}, "rules.0.severity"),
        ({"rules": RULES * 51}, "rules"),
        ({"gatherer": "not a name"}, "gatherer"),
        ({"default_class": ""}, "default_class"),
        ({"rule": []}, "rule"),
        ({"options": []}, "options"),
        ({"options": {"a": float("nan")}}, ""),
        ({"finding_config": {"key_template": "{host}"}}, "finding_config.key_template"),
        ({"finding_config": {"key_template": "x:{class}"}}, "finding_config.key_template"),
        ({"finding_config": {"subject_id_key": "a..b"}}, "finding_config.subject_id_key"),
        ({"finding_config": {"evidence_field": "."}}, "finding_config.evidence_field"),
        ({"finding_config": {"clear_on_default": "no"}}, "finding_config.clear_on_default"),
        ({"finding_config": {"class_field": "class"}}, "finding_config.class_field"),
    ],
)
def test_a_configuration_that_cannot_work_says_where(config, path):
    with pytest.raises(BadDefinition) as refused:
        configured(**config)
    assert refused.value.path == path


def test_what_is_too_long_is_told_how_long_it_may_be():
    with pytest.raises(BadDefinition, match="write at most 128 characters, not 'xxx"):
        configured(default_class="x" * 300)
    with pytest.raises(BadDefinition, match=r"write at most 100, not 102$"):
        configured(rules=RULES * 51)


def test_a_class_may_be_in_the_key_of_what_is_never_cleared():
    config = {"key_template": "x:{class}", "clear_on_default": False}
    assert configured(finding_config=config)


def test_an_app_must_have_the_gatherer():
    actor = Actor("worker")
    actor.expect("thing", configured(), on=manual())
    with pytest.raises(DeclarationError, match=r"no gatherer is called 'facts'.*has nothing"):
        App(actors=[actor])
