"""What an episode does that is not meant."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.app.findings import clear_finding, raise_finding
from engine.app.tools import SYNTHESIS, Failure, Tool, ToolFailed, overrides
from engine.episodes import dry_run
from engine.errors import InvalidFinding
from streams.json import raw
from streams.model.events import EpisodeConverged, EpisodeOpened
from streams.model.findings import Finding, FindingOutcome, FindingStatus
from streams.model.outputs import OutputIntent
from streams.model.triggers import Budget, ManualTrigger, Mode, OverrideFailure, Overrides
from tests.spec import EPOCH

MEANT = EpisodeOpened(
    episode_id="e1",
    actor_id="monitor",
    expectation_id="limits",
    trigger=ManualTrigger(requested_by="ann"),
    dedupe_key="manual:k",
    budget=Budget(),
)


def dry(given: Overrides | None = None) -> EpisodeOpened:
    return replace(MEANT, mode=Mode.DRY_RUN, overrides=given)


class Sends(Tool):
    side_effect = True


def test_of_two_overrides_the_one_given_with_the_fire_holds():
    fire = overrides(tools={"a.b": "fire"}, synthesis="fire", persist_findings="fire")
    declared = overrides(tools={"a.b": "declared"}, synthesis="declared", persist_findings=True)
    assert dry_run.merged(fire, declared) == fire


def test_each_override_is_looked_for_by_itself():
    declared = overrides(tools={"a.b": 1, "c.d": 2}, synthesis="declared", persist_findings=True)
    merged = dry_run.merged(overrides(tools={"c.d": 3}), declared)
    assert merged == replace(declared, tools={"a.b": raw(1), "c.d": raw(3)})


def test_without_overrides_the_outside_stands_for_itself():
    assert dry_run.merged(None, None) == Overrides()
    assert dry_run.stand_in(dry(), "a.b") is None
    assert dry_run.stand_in(dry(), SYNTHESIS) is None


def test_an_override_stands_for_the_call_it_names_and_no_other():
    opened = dry(overrides(tools={"a.b": None}, synthesis=0))
    assert dry_run.stand_in(opened, "a.b") == raw(None)
    assert dry_run.stand_in(opened, "a.c") is None
    assert dry_run.stand_in(opened, SYNTHESIS) == raw(0)


DOWN = Failure("tool_unavailable", "the server is down")


def test_an_override_may_be_a_failure():
    opened = dry(overrides(tools={"a.b": DOWN}, synthesis=ToolFailed("model_busy")))
    down = OverrideFailure(error_class="tool_unavailable", detail="the server is down")
    assert dry_run.stand_in(opened, "a.b") == down
    assert dry_run.stand_in(opened, SYNTHESIS) == OverrideFailure(error_class="model_busy")


@pytest.mark.parametrize(
    ("fire", "declared"),
    [
        (
            overrides(tools={"a.b": 1}, synthesis="ok"),
            overrides(tools={"a.b": DOWN}, synthesis=DOWN),
        ),
        (
            overrides(tools={"a.b": DOWN}, synthesis=DOWN),
            overrides(tools={"a.b": 1}, synthesis="ok"),
        ),
    ],
)
def test_a_result_of_the_fire_takes_the_place_of_a_declared_failure_and_the_reverse(fire, declared):
    assert dry_run.merged(fire, declared) == fire


def test_an_episode_that_is_meant_has_no_overrides():
    opened = replace(
        MEANT, overrides=overrides(tools={"a.b": 1}, synthesis=1, persist_findings="x")
    )
    assert dry_run.stand_in(opened, "a.b") is None
    assert dry_run.stand_in(opened, SYNTHESIS) is None
    assert dry_run.found_by(opened) == "monitor"


@pytest.mark.parametrize(
    ("opened", "tool", "may"),
    [(MEANT, Sends(), True), (dry(), Sends(), False), (dry(), Tool(), True)],
)
def test_a_dry_run_calls_no_tool_with_a_side_effect(opened, tool, may):
    assert dry_run.may_call(opened, tool) is may


@pytest.mark.parametrize(
    ("opened", "keeps"),
    [(MEANT, True), (dry(), False), (dry(overrides(persist_findings=True)), True)],
)
def test_a_dry_run_keeps_findings_only_if_it_is_told_to(opened, keeps):
    assert dry_run.keeps_findings(opened) is keeps


def test_a_finding_that_is_not_kept_says_so():
    intent = raise_finding("disk", class_="full")
    assert dry_run.left_out(intent) == FindingOutcome(finding_key="disk", outcome="dry_run")


CONVERGED = EpisodeConverged(
    findings=(
        raise_finding("disk", class_="full", caused_by="logs"),
        raise_finding("logs", class_="large", caused_by="deploy"),
        clear_finding("memory"),
    )
)


def test_findings_that_are_kept_have_keys_and_an_actor_of_their_own():
    opened = dry(overrides(persist_findings="what_if"))
    apart = dry_run.set_apart(CONVERGED, opened)
    keys = [intent.finding_key for intent in apart.findings]
    assert keys == ["what_if:disk", "what_if:logs", "what_if:memory"]
    assert dry_run.found_by(opened) == "what_if:monitor"


@pytest.mark.parametrize(("actor_id", "is_meant"), [("monitor", True), ("a:b:monitor", False)])
def test_a_finding_knows_whose_it_is_and_whether_it_is_meant(actor_id, is_meant):
    finding = Finding(
        finding_key="disk",
        raise_no=1,
        status=FindingStatus.ACTIVE,
        actor_id=actor_id,
        expectation_id="limits",
        raised_by_episode_id="e1",
        raised_at=EPOCH,
        updated_at=EPOCH,
    )
    assert dry_run.owner_of(finding) == "monitor"
    assert dry_run.is_meant(finding) is is_meant


def test_a_finding_is_explained_by_one_of_its_own_dry_run_or_by_one_that_is_meant():
    disk, logs, _ = dry_run.set_apart(CONVERGED, dry(overrides(persist_findings=True))).findings
    assert disk.caused_by_key == "dry_run:logs"
    assert logs.caused_by_key == "deploy"


@pytest.mark.parametrize(
    ("opened", "prefix"),
    [
        (MEANT, ""),
        (replace(MEANT, overrides=overrides(persist_findings="what_if")), ""),
        (dry(), ""),
        (dry(overrides(persist_findings="what_if")), "what_if"),
    ],
)
def test_only_a_dry_run_that_keeps_its_findings_has_keys_of_its_own(opened, prefix):
    assert dry_run.prefix_of(opened) == prefix


def test_a_finding_that_a_dry_run_keeps_is_shown_to_its_like_as_if_it_was_meant():
    meant = Finding(
        finding_key="disk",
        raise_no=1,
        status=FindingStatus.ACTIVE,
        actor_id="monitor",
        expectation_id="limits",
        raised_by_episode_id="e1",
        raised_at=EPOCH,
        updated_at=EPOCH,
        caused_by_key="logs",
    )
    apart = {"finding_key": "a:disk", "actor_id": "a:monitor", "caused_by_key": "a:logs"}
    assert dry_run.as_meant(replace(meant, **apart), "a") == meant
    by_what_is_meant = replace(meant, **{**apart, "caused_by_key": "logs"})
    assert dry_run.as_meant(by_what_is_meant, "a") == meant


def test_what_a_live_run_decides_stays_as_it_is():
    assert dry_run.set_apart(CONVERGED, MEANT) is CONVERGED


def test_a_dry_run_says_that_its_findings_and_outputs_are_left_out():
    decided = replace(CONVERGED, outputs=(OutputIntent(adapter="mail", payload=raw({})),))
    left_out = replace(decided, raises_nothing=True, sends_nothing=True)
    assert dry_run.set_apart(decided, dry()) == left_out
    keeping = dry_run.set_apart(decided, dry(overrides(persist_findings=True)))
    assert (keeping.raises_nothing, keeping.sends_nothing) == (False, True)


def test_a_key_that_is_too_long_with_its_prefix_is_refused():
    long = EpisodeConverged(findings=(raise_finding("k" * 1020, class_="full"),))
    with pytest.raises(InvalidFinding):
        dry_run.set_apart(long, dry(overrides(persist_findings=True)))
