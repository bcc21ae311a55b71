"""What templates propose: which outputs, of which findings, under which keys, and who is asked."""

from __future__ import annotations

import msgspec
import pytest

from engine.app.tools import gather
from engine.errors import BadDefinition, DeclarationError
from engine.templates.classify import observe_classify_converge
from engine.templates.proposing import OUTPUTS_MAX
from engine.templates.synthesize import observe_synthesize_converge
from streams.model.events import EndStatus
from streams.model.findings import ClearFinding, RaiseFinding
from streams.model.outputs import OutputIntent, OutputStatus
from streams.model.triggers import Mode
from streams.model.waits import OnExpiry
from tests.engine import output_stage
from tests.engine.output_stage import Pager, Scene
from tests.engine.stage import STARTED, ask_start, decide, did, lived, running, write
from tests.engine.templates.stage import Facts, app_of, opened_for, play

RULES = [
    {"when": {"disk.used": {"gte": 95}}, "class": "disk_full", "severity": "critical"},
    {"when": {"disk.used": {"gte": 80}}, "class": "disk_filling"},
]
FULL, FILLING, ROOMY = ({"disk": {"used": used}} for used in (97, 85, 3))
PAGE = {"adapter": "pager", "payload": {"text": "{subject_id}: {summary}"}}
ASKING = {**PAGE, "requires_approval": True, "dedupe_key_template": "disk:{subject_id}"}


def configured(*outputs, **config):
    return observe_classify_converge(
        {"gatherer": "facts", "rules": RULES, "outputs": list(outputs), **config}
    )


def paging(strategy, seen=FULL, *, pager=None, **declared):
    return app_of(strategy, Facts(seen), outputs={"pager": pager or Pager()}, **declared)


async def lived_with(strategy, seen=FULL, payload=None, **changed):
    app = paging(strategy, seen)
    life = await play(app, opened_for(app, payload, **changed))
    assert life.end.status is EndStatus.DONE, life.end
    return life


async def proposed(strategy, seen=FULL, payload=None) -> tuple[OutputIntent, ...]:
    return (await lived_with(strategy, seen, payload)).episode.converged.outputs


def said(intent: OutputIntent):
    return msgspec.json.decode(intent.payload)


async def test_what_is_found_is_delivered():
    pager = Pager()
    app = paging(configured(PAGE), pager=pager)
    life = await play(app, opened_for(app))

    (view,) = pager.views
    assert (view.adapter, view.payload) == ("pager", {"text": "web-1: web-1: disk_full"})
    assert [each.outcome for each in life.end.outputs] == ["delivered"]
    (found,) = life.episode.converged.findings
    assert isinstance(found, RaiseFinding)


async def test_a_payload_says_what_was_found_and_what_it_was_found_in():
    payload = {
        "key": "{finding_key}",
        "what": ["{class}", "{severity}", "{confidence}"],
        "disk": {"used": "{observed.disk.used}", "of": "{payload.host}"},
        "because": "{evidence}",
        "whose": "{actor_id}/{expectation_id}",
        "fixed": 5,
    }
    (intent,) = await proposed(configured({**PAGE, "payload": payload}), payload={"host": "db-7"})

    assert said(intent) == {
        "key": "worker:thing:web-1",
        "what": ["disk_full", "critical", 1.0],
        "disk": {"used": 97, "of": "db-7"},
        "because": {"disk.used": 97},
        "whose": "worker/thing",
        "fixed": 5,
    }


async def test_what_a_synthesizer_found_is_proposed_in_its_words():
    async def think(prompt, transient, ctx):
        return {"class": "odd", "summary": "errors rise", "evidence": {"since": "noon"}}

    text_of_step = {"text": "{summary} since {evidence.since}", "sure": "{confidence}"}
    strategy = observe_synthesize_converge(
        {
            "gatherer": "facts",
            "system_prompt": "Look.",
            "outputs": [
                {"adapter": "pager", "payload": text_of_step, "classes": ["odd"]},
                {"adapter": "pager", "payload": text_of_step, "classes": ["even"]},
            ],
        }
    )
    pager = Pager()
    app = paging(strategy, {}, pager=pager, synthesizer=think)
    await play(app, opened_for(app))

    assert [view.payload for view in pager.views] == [
        {"text": "errors rise since noon", "sure": 0.5}
    ]


async def test_nothing_is_proposed_when_the_finding_is_cleared():
    life = await lived_with(configured(PAGE), ROOMY)

    (cleared,) = life.episode.converged.findings
    assert isinstance(cleared, ClearFinding)
    assert life.episode.converged.outputs == ()


async def test_a_rule_that_says_the_default_class_proposes_nothing():
    strategy = configured(PAGE, default_class="disk_filling")
    assert await proposed(strategy, FILLING) == ()


@pytest.mark.parametrize(
    ("seen", "choice", "is_due"),
    [
        (FULL, {}, True),
        (FILLING, {}, True),
        (FULL, {"classes": ["disk_full"]}, True),
        (FILLING, {"classes": ["disk_full"]}, False),
        (FULL, {"severities": ["high", "critical"]}, True),
        (FILLING, {"severities": ["high", "critical"]}, False),
        (FULL, {"classes": ["disk_full"], "severities": ["low"]}, False),
        (ROOMY, {"severities": ["low"]}, False),
    ],
)
async def test_classes_and_severities_choose_the_findings(seen, choice, is_due):
    assert len(await proposed(configured({**PAGE, **choice}), seen)) == is_due


@pytest.mark.parametrize(("choice", "is_due"), [({}, False), ({"classes": ["healthy"]}, True)])
async def test_of_a_default_class_that_is_a_finding_it_is_proposed_where_it_is_named(
    choice, is_due
):
    strategy = configured({**PAGE, **choice}, finding_config={"clear_on_default": False})
    assert len(await proposed(strategy, ROOMY)) == is_due


async def test_outputs_of_one_finding_are_told_apart():
    pager = Pager()
    app = paging(configured(PAGE, PAGE), pager=pager)
    await play(app, opened_for(app))
    assert len(pager.keys) == 2


async def test_one_cause_is_told_of_once_whatever_episode_is_opened_for_it(ports):
    pager = Pager()
    app = paging(configured(PAGE), pager=pager)
    again = "11111111-1111-8111-8111-111111111111"
    await play(app, opened_for(app), ports=ports)
    second = await play(app, opened_for(app, episode_id=again), ports=ports)

    assert len(pager.views) == 1
    assert [each.outcome for each in second.end.outputs] == ["duplicate"]


async def test_another_cause_is_told_of_again(ports):
    pager = Pager()
    app = paging(configured(PAGE), pager=pager)
    again = "11111111-1111-8111-8111-111111111111"
    await play(app, opened_for(app), ports=ports)
    await play(app, opened_for(app, episode_id=again, dedupe_key="event:x2"), ports=ports)
    assert len(pager.keys) == 2


async def test_a_key_of_its_own_is_what_is_delivered_once():
    output = {**PAGE, "dedupe_key_template": "page:{finding_key}:{payload.day}"}
    (intent,) = await proposed(configured(output), payload={"day": "mon"})
    assert (intent.dedupe_key, intent.key) == ("page:worker:thing:web-1:mon", "")


async def test_a_key_that_lacks_a_word_is_no_key():
    app = paging(configured({**PAGE, "dedupe_key_template": "page:{payload.day}"}))
    end = (await play(app, opened_for(app))).end
    assert end.error_class == "invalid_output"
    assert "nothing is at 'payload.day'" in end.error_detail


async def test_after_a_crash_the_same_outputs_are_proposed(ports):
    strategy = configured({**PAGE, "payload": "{observed.disk.used}"})
    whole = await proposed(strategy)
    app = paging(strategy, ROOMY)
    opened = opened_for(app)
    await write(ports, opened.episode_id, opened)
    asked = gather("facts", payload={}, options={})
    await write(ports, opened.episode_id, STARTED, did(1, asked, FULL))
    await ask_start(ports, opened.episode_id)
    async with running(app, ports):
        life = await lived(ports, opened.episode_id)

    assert life.episode.converged.outputs == whole
    assert said(whole[0]) == 97


async def test_a_dry_run_delivers_nothing_and_asks_nobody():
    pager = Pager()
    app = paging(configured(PAGE, ASKING), pager=pager)
    life = await play(app, opened_for(app, mode=Mode.DRY_RUN))

    assert [each.outcome for each in life.end.outputs] == ["dry_run", "dry_run"]
    assert pager.views == []


async def ask_and_approve(scene: Scene):
    episode_id = await scene.open()
    output = await scene.reached("disk:", OutputStatus.AWAITING_APPROVAL)
    await decide(scene.ports, "disk:", kind="output", by="ann")
    return output.proposed.approval, await scene.ended(episode_id)


def test_people_are_asked_by_an_output_that_needs_approval():
    terms = {"approvers": ["ann"], "expires_s": 60, "on_expiry": "fail", "remind_every_s": 5}
    pager = Pager()
    app = paging(configured({**ASKING, **terms, "dedupe_key_template": "disk:"}), pager=pager)
    (approval, life), _ = output_stage.play(ask_and_approve, app)

    assert (approval.summary, approval.approvers) == ("disk_full", ("ann",))
    assert (approval.on_expiry, approval.remind_every_s) == (OnExpiry.FAIL, 5.0)
    assert approval.expires_at is not None
    assert [each.outcome for each in life.end.outputs] == ["delivered"]
    assert len(pager.views) == 1


def test_people_may_be_asked_in_other_words():
    asking = {**ASKING, "dedupe_key_template": "disk:", "summary_template": "page of {class}?"}
    (approval, _), _ = output_stage.play(ask_and_approve, paging(configured(asking)))
    assert approval.summary == "page of disk_full?"


async def test_a_long_summary_is_cut_before_people_are_asked():
    summary = {"summary_template": "{observed.long}"}
    app = paging(configured(ASKING, finding_config=summary), {**FULL, "long": "x" * 9_000})
    life = await play(app, opened_for(app, mode=Mode.DRY_RUN))
    (intent,) = life.episode.converged.outputs
    assert len(intent.summary) == 4_000


@pytest.mark.parametrize(
    ("outputs", "path", "problem"),
    [
        ({}, "outputs", "write a list"),
        ([PAGE] * (OUTPUTS_MAX + 1), "outputs", "write at most 10, not 11"),
        ([{"payload": 1}], "outputs.0.adapter", "write it"),
        ([{"adapter": "pager"}], "outputs.0.payload", "write it"),
        ([{**PAGE, "adapter": "a b"}], "outputs.0.adapter", "'a b' is not a name"),
        ([{**PAGE, "payload": {"a": ["{host}"]}}], "outputs.0.payload.a.0", "{host} is no"),
        ([{**PAGE, "payload": "x" * 300_000}], "outputs.0.payload", "the limit is 262,144"),
        ([PAGE, {**PAGE, "clases": []}], "outputs.1.clases", "did you mean classes?"),
        ([{**PAGE, "severities": []}], "outputs.0.severities", "leave it out for all"),
        ([{**PAGE, "classes": []}], "outputs.0.classes", "for all but the default class"),
        ([{**PAGE, "dedupe_key_template": ""}], "outputs.0.dedupe_key_template", "or write a key"),
        ([{**PAGE, "dedupe_key_template": "{host}"}], "outputs.0.dedupe_key_template", "{host}"),
        ([{**PAGE, "severities": ["bad"]}], "outputs.0.severities.0", "'critical', not 'bad'"),
        ([{**PAGE, "classes": ["ful"]}], "outputs.0.classes", "disk_full, disk_filling, healthy"),
        ([{**PAGE, "classes": ["healthy"]}], "outputs.0.classes", "clears the finding"),
        (
            [{**PAGE, "dedupe_key_template": "x"}, {**PAGE, "dedupe_key_template": "x"}],
            "outputs.1.dedupe_key_template",
            "outputs.0 has the same",
        ),
        ([{**ASKING, "approvers": [""]}], "outputs.0.approvers", "'' is no name of 1 to 200"),
        ([{**ASKING, "approvers": []}], "outputs.0.approvers", "an empty list names nobody; leave"),
        ([{**ASKING, "approvers": ["a"] * 65}], "outputs.0.approvers", "the limit is 64"),
        ([{**ASKING, "expires_s": 0}], "outputs.0.expires_s", "write more, or leave it out"),
        ([{**ASKING, "expires_s": 1e9}], "outputs.0.expires_s", "is not from 0 to"),
        ([{**ASKING, "expires_s": "1h"}], "outputs.0.expires_s", "write a number, not '1h'"),
        ([{**ASKING, "remind_every_s": 0.5}], "outputs.0.remind_every_s", "is not from 1 to"),
        ([{**ASKING, "on_expiry": "continue"}], "outputs.0.on_expiry", "'deny', 'approve' or"),
        ([{**ASKING, "summary_template": "{x}"}], "outputs.0.summary_template", "{x} is no"),
    ],
)
def test_an_output_that_cannot_work_says_where(outputs, path, problem):
    with pytest.raises(BadDefinition) as refused:
        configured(outputs=outputs)
    assert refused.value.path == path
    assert problem in refused.value.problem


@pytest.mark.parametrize(
    ("term", "value"),
    [
        ("approvers", ["ann"]),
        ("expires_s", 60),
        ("on_expiry", "approve"),
        ("remind_every_s", 60),
        ("summary_template", "{class}?"),
    ],
)
def test_terms_of_an_approval_that_nobody_is_asked_for_are_refused(term, value):
    with pytest.raises(BadDefinition, match="nobody is asked") as refused:
        configured({**PAGE, term: value})
    assert refused.value.path == f"outputs.0.{term}"
    assert configured({**ASKING, term: value})


def test_an_app_must_have_the_adapters():
    with pytest.raises(DeclarationError, match=r"no output is called 'pagr'.*has pager") as refused:
        paging(configured(PAGE, {**PAGE, "adapter": "pagr"}))
    assert refused.value.field == "strategy.config.outputs.1.adapter"
