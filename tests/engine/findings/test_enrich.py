"""How what an episode raises is enriched, through whole episodes."""

from __future__ import annotations

import asyncio

import pytest

from engine.app.findings import clear_finding, enriched, raise_finding, update_finding
from engine.errors import StrategyError
from engine.findings import apply
from engine.findings.apply import FindingApplier
from engine.runtime.store import Turns
from streams.json import raw
from streams.model.events import FindingCleared, FindingRaised, FindingUpdated
from tests.engine.stage import CLOCK, Scripted, app_of, opening, play, told

disk = raise_finding("disk", class_="full", summary="full")


async def events_of(ports):
    records = await ports.log.read(ports.stack.finding("disk"))
    return [event for record in records for event in record.commit.events]


async def applied(ports, enrich, *intents, id_="x1", attempt=1):
    app = app_of(Scripted(), enrich=enrich)
    applier = FindingApplier(ports, app.actors, CLOCK, Turns())
    return await applier.apply(intents, opened=opening(app, id_=id_), attempt=attempt)


def owner(finding, episode):
    return enriched(evidence={"owner": "web", "by": episode.actor_id}, confidence=0.5)


async def owner_later(finding, episode):
    await asyncio.sleep(0)
    return owner(finding, episode)


@pytest.mark.parametrize("enrich", [owner, owner_later], ids=["plain", "async"])
async def test_what_is_raised_is_enriched_and_the_world_hears_of_both(ports, enrich):
    life = await play(Scripted(findings=[disk]), ports=ports, enrich=enrich)

    first, added = await events_of(ports)
    assert (type(first), type(added)) == (FindingRaised, FindingUpdated)
    assert added.is_enrichment
    assert added.cause == first.cause
    assert added.finding.evidence_json == raw({"owner": "web", "by": "worker"})
    assert [one.outcome for one in life.end.findings] == ["raised"]
    findings = [(name, said) for name, said in told(ports) if name.startswith("finding.")]
    assert [name for name, _ in findings] == ["finding.raised", "finding.updated"]
    assert [said["confidence"] for _, said in findings] == [1.0, 0.5]


async def test_what_is_raised_again_is_enriched_again(ports):
    asked = []
    note = lambda finding, _: asked.append(finding.raise_no)  # noqa: E731 - one word
    await applied(ports, note, disk)
    await applied(ports, note, disk, id_="x2")
    assert asked == [1, 1]


async def test_what_is_only_updated_or_cleared_is_not(ports):
    await applied(ports, None, disk)
    await applied(ports, owner, update_finding("disk"), clear_finding("disk"), id_="x2")
    kinds = [type(event) for event in await events_of(ports)]
    assert kinds == [FindingRaised, FindingUpdated, FindingCleared]


async def test_a_takeover_does_not_ask_again_what_is_on_the_log(ports):
    asked = []

    def once(finding, episode):
        asked.append(finding)
        return owner(finding, episode)

    (first,) = await applied(ports, once, disk)
    (again,) = await applied(ports, once, disk, attempt=2)

    assert again == first
    assert first.event.finding.confidence == 0.5
    assert len(asked) == 1
    assert len(await events_of(ports)) == 2


async def test_a_takeover_asks_for_what_a_dead_node_had_not_added(ports):
    await applied(ports, None, disk)
    (again,) = await applied(ports, owner, disk, attempt=2)
    assert again.outcome.outcome == "raised"
    assert again.event.finding.confidence == 0.5


async def never(finding, episode):
    await asyncio.Event().wait()


def broken(finding, episode):
    raise StrategyError("no such host")


@pytest.mark.parametrize(
    "enrich",
    [broken, lambda *_: None, lambda *_: "much", never],
    ids=["it fails", "it says nothing", "it says no enrichment", "it never ends"],
)
async def test_without_anything_usable_the_finding_stays_as_it_was_raised(
    ports, monkeypatch, enrich
):
    monkeypatch.setattr(apply, "ENRICH_S_MAX", 0.01)
    (one,) = await applied(ports, enrich, disk)
    assert one.outcome.outcome == "raised"
    assert [type(event) for event in await events_of(ports)] == [FindingRaised]


async def test_what_was_cleared_meanwhile_stays_cleared(ports):
    async def late(finding, episode):
        await applied(ports, None, clear_finding("disk"), id_="x2")
        return owner(finding, episode)

    await applied(ports, late, disk)
    assert [type(event) for event in await events_of(ports)] == [FindingRaised, FindingCleared]
