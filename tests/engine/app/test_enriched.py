"""What may be added to a finding that was raised."""

from __future__ import annotations

from datetime import timedelta

import pytest

from engine.app.findings import clear_finding, enriched, raise_finding, update_finding
from engine.errors import InvalidFinding, Unencodable
from engine.findings.apply import enrich
from streams.json import NOTHING, raw
from tests.spec import EPOCH, given_finding

NOW = EPOCH + timedelta(seconds=9)

raised = raise_finding("disk", class_="full", summary="full", evidence={"used": 1}, ttl_s=60)
found = enriched(evidence={"owner": "web"}, summary="full: web's logs", confidence=0.7)


def test_what_was_found_takes_the_place_of_what_there_was():
    life = given_finding(raised)
    event = enrich(life.finding, life.event, found, at=NOW)
    assert event.is_enrichment
    assert event.cause == life.event.cause
    assert event.finding.evidence_json == raw({"owner": "web"})
    assert (event.finding.summary, event.finding.confidence) == ("full: web's logs", 0.7)
    assert event.finding.updated_at == NOW


def test_its_end_stays_where_it_was():
    life = given_finding(raised)
    event = enrich(life.finding, life.event, found, at=NOW)
    assert event.finding.expires_at == life.finding.expires_at


def test_what_was_not_found_is_kept():
    life = given_finding(raised)
    event = enrich(life.finding, life.event, enriched(confidence=0.1), at=NOW)
    assert (event.finding.summary, event.finding.evidence_json) == ("full", raw({"used": 1}))


def test_what_changes_nothing_is_no_event():
    life = given_finding(raised)
    assert enrich(life.finding, life.event, enriched(summary="full"), at=NOW) is None


def test_it_is_added_to_what_others_have_said_since():
    life = given_finding(raised)
    since = given_finding(update_finding("disk", severity="low"), finding=life.finding).finding
    assert enrich(since, life.event, found, at=NOW).finding.severity == "low"


@pytest.mark.parametrize("later", [(clear_finding("disk"),), (clear_finding("disk"), raised)])
def test_what_has_ended_or_was_raised_anew_is_another_finding(later):
    life = given_finding(raised)
    since = given_finding(*later, finding=life.finding).finding
    assert enrich(since, life.event, found, at=NOW) is None


def test_impossible_values_are_refused():
    with pytest.raises(InvalidFinding, match="confidence 2"):
        enriched(confidence=2)
    with pytest.raises(Unencodable):
        enriched(evidence=object())


def test_nothing_found_is_nothing_said():
    nothing = enriched()
    assert (nothing.evidence, nothing.summary, nothing.confidence) == (NOTHING, None, None)
