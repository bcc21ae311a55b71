"""What the world is told, and under which id."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from engine.episodes import events as episode_events
from engine.findings import events as finding_events
from streams.json import raw
from streams.model.events import (
    EndStatus,
    EpisodeConverged,
    EpisodeFinished,
    EpisodeOpened,
    FindingCleared,
    FindingClearedByHand,
    FindingEscalated,
    FindingExpired,
    FindingRaised,
    FindingUpdated,
)
from streams.model.findings import Cause, DueTimer, Finding, FindingStatus, Person, Severity
from streams.model.triggers import Budget, EventTrigger, Mode, WorkflowTrigger
from tests.spec import EPOCH

opened = EpisodeOpened(
    episode_id="e1",
    actor_id="monitor",
    expectation_id="limits",
    trigger=EventTrigger(event_id="x1", event_type="a.b", payload={}, hops=3),
    dedupe_key="d",
    budget=Budget(),
)
finding = Finding(
    finding_key="disk",
    raise_no=2,
    status=FindingStatus.ACTIVE,
    actor_id="monitor",
    expectation_id="limits",
    raised_by_episode_id="e0",
    raised_at=EPOCH,
    updated_at=EPOCH,
)
ids = {"episode_id": "e1", "actor_id": "monitor", "expectation_id": "limits"}
context = {**ids, "trigger": "event", "instance_id": "", "step": ""}


def test_a_start_is_told_once_per_attempt():
    told = episode_events.started(opened, attempt=2, node="n1", seq=9)
    assert (told.name, told.id) == ("episode.started", "e1.started.2")
    assert told.payload == {**context, "attempt": 2, "node": "n1", "journal_seq": 9}


def test_an_event_of_a_workflows_episode_names_instance_and_step():
    trigger = WorkflowTrigger(workflow_instance_id="w1", workflow_step_id="rate")
    told = episode_events.started(replace(opened, trigger=trigger), attempt=1, node="n1", seq=9)
    named = {name: told.payload[name] for name in ("trigger", "instance_id", "step")}
    assert named == {"trigger": "workflow", "instance_id": "w1", "step": "rate"}


def test_the_world_is_told_of_what_is_meant_and_of_nothing_else():
    assert episode_events.is_public(opened)
    assert not episode_events.is_public(replace(opened, mode=Mode.DRY_RUN))


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (EndStatus.DONE, "episode.completed"),
        (EndStatus.PARTIALLY_FAILED, "episode.completed"),
        (EndStatus.FAILED, "episode.failed"),
        (EndStatus.CANCELED, "episode.canceled"),
    ],
)
def test_every_end_has_its_name_and_one_id(status, name):
    told = episode_events.ended(opened, None, EpisodeFinished(status=status), seq=9)
    assert (told.name, told.id, told.payload["status"]) == (name, "e1.ended", status.value)


def test_an_end_says_what_was_decided():
    converged = EpisodeConverged(
        classification=raw({"primary": "full"}), confidence=0.5, summary="full"
    )
    told = episode_events.ended(opened, converged, EpisodeFinished(status=EndStatus.DONE), seq=9)
    assert told.payload == {
        **context,
        "status": "done",
        "error_class": "",
        "summary": "full",
        "confidence": 0.5,
        "classification": {"primary": "full"},
        "journal_seq": 9,
    }


def test_a_failure_says_its_class():
    end = EpisodeFinished(status=EndStatus.FAILED, error_class="crash", error_detail="a secret")
    told = episode_events.ended(opened, None, end, seq=9)
    assert told.payload["error_class"] == "crash"
    assert "a secret" not in str(told.payload)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (FindingRaised, "finding.raised"),
        (FindingUpdated, "finding.updated"),
        (FindingCleared, "finding.cleared"),
    ],
)
def test_a_change_of_a_finding_is_told_once_per_intent(kind, name):
    change = kind(finding=finding, cause=Cause(episode_id="e1", index=4))
    told = finding_events.finding_changed(opened, change, seq=9)
    assert (told.name, told.id) == (name, "e1.finding.4")
    assert told.payload["finding_key"] == "disk"
    assert told.payload["raise_no"] == 2


def test_what_enriching_a_finding_has_changed_is_an_update_of_its_own():
    cause = Cause(episode_id="e1", index=4)
    change = FindingUpdated(finding=finding, cause=cause, is_enrichment=True)
    told = finding_events.finding_changed(opened, change, seq=9)
    assert (told.name, told.id) == ("finding.updated", "e1.finding.4.enriched")


TIMER = DueTimer(timer_id="t1")
ADA = Person(by="ada", reason="false alarm")
WORSE = replace(finding, severity=Severity.CRITICAL)


@pytest.mark.parametrize(
    ("change", "what", "more"),
    [
        (FindingExpired(finding=finding, cause=TIMER), "expired", {}),
        (
            FindingClearedByHand(finding=finding, cause=ADA),
            "cleared",
            {"by": "ada", "reason": "false alarm"},
        ),
        (
            FindingEscalated(finding=WORSE, cause=TIMER, from_severity=Severity.LOW),
            "escalated",
            {"from": "low", "to": "critical"},
        ),
    ],
)
def test_what_no_episode_did_to_a_finding_is_told_once_for_each_raise(change, what, more):
    told = finding_events.finding_changed_since(change, seq=9)
    again = finding_events.finding_changed_since(change, seq=9)
    raised_anew = msgspec.structs.replace(change, finding=replace(change.finding, raise_no=3))
    assert told.name == f"finding.{what}"
    assert told.id == again.id != finding_events.finding_changed_since(raised_anew, seq=10).id
    assert told.payload.items() >= {**more, "finding_key": "disk", "episode_id": "e0"}.items()
    assert told.hops == 1, "time or a person has come between"


def test_each_severity_of_a_raise_is_told_of():
    ids = {
        finding_events.finding_changed_since(
            FindingEscalated(
                finding=replace(finding, severity=to), cause=TIMER, from_severity=Severity.LOW
            ),
            seq=9,
        ).id
        for to in (Severity.HIGH, Severity.CRITICAL)
    }
    assert len(ids) == 2


@pytest.mark.parametrize(("node", "scope"), [("", "cluster"), ("n1", "node")])
@pytest.mark.parametrize("change", ["opened", "closed"])
def test_a_change_of_a_circuit_breaker_is_told_once_per_episode_that_made_it(change, node, scope):
    told = episode_events.breaker_changed(
        opened, change, failures=("e0", "e1"), at=EPOCH, seq=9, node=node
    )
    assert (told.name, told.id) == (f"circuit_breaker.{change}", f"e1.breaker.{change}")
    more = {"failures": ["e0", "e1"], "scope": scope, "node": node, "at": EPOCH.isoformat()}
    assert told.payload == {**ids, **more, "journal_seq": 9}
    assert told.hops == 4


def test_a_public_event_is_one_hop_further_from_the_world():
    assert episode_events.started(opened, attempt=1, node="n1", seq=1).hops == 4
