"""What is kept of an event that does not fire: the reason, and what it was compared with."""

from __future__ import annotations

import pytest

from engine.app.conditions import gt
from engine.episodes.fire import fire
from streams.model.refusals import (
    AgainstBreaker,
    AgainstCooldown,
    AgainstDebounce,
    AgainstEpisode,
    AgainstFilter,
    AgainstHolder,
    AgainstLane,
    AgainstSample,
)
from vigil import Actor, App, Breaker, ConvergeResult, by_value, event, every, manual
from vigil.testing import run

HAPPENED = "thing.happened"


async def passes(ctx, trigger):
    return ConvergeResult(summary="done")


async def fails(ctx, trigger):
    raise ValueError("no")


async def asks(ctx, trigger):
    await ctx.approval({"restart": "it"})
    return ConvergeResult(summary="approved")


def app_of(strategy=passes, *, on=None, actor=None, **options) -> App:
    worker = Actor("worker", **(actor or {}))
    on = on or [event(HAPPENED), manual()]
    worker.expect("thing", strategy, on=on, subject_key="host", **options)
    return App(actors=[worker])


async def happens(vigil, number, **payload):
    await vigil.publish(HAPPENED, {"host": "web-1", **payload}, id=f"x{number}")
    await vigil.run_until_idle()


async def test_what_a_filter_refuses_is_kept_with_the_condition_and_the_value():
    async with run(app_of(on=event(HAPPENED, filter={"used": gt(90)}))) as vigil:
        await happens(vigil, 1, used=5)
        refused = vigil.refusal()

    assert (refused.event_id, refused.event, refused.subject) == ("x1", HAPPENED, "web-1")
    assert (refused.actor, refused.expectation) == ("worker", "thing")
    assert refused.reason == "filter"
    assert refused.against == AgainstFilter(path="used", wanted={"gt": 90}, found=5)


async def test_a_cooldown_is_kept_with_its_end_and_the_episode_that_began_it():
    async with run(app_of(cooldown_s=60)) as vigil:
        began = vigil.now
        await happens(vigil, 1)
        await happens(vigil, 2)
        refused = vigil.refusal()
        episode = vigil.episode()

    assert (refused.event_id, refused.reason) == ("x2", "cooldown")
    assert isinstance(refused.against, AgainstCooldown)
    assert refused.against.episode_id == episode.id
    assert 59 <= (refused.against.until - began).total_seconds() <= 61


async def test_what_waits_for_calm_is_kept_and_what_came_too_late():
    async with run(app_of(debounce_s=30)) as vigil:
        await happens(vigil, 1)
        refused = vigil.refusal()

    assert (refused.event_id, refused.reason) == ("x1", "waits_for_calm")
    assert refused.against == AgainstDebounce(debounce_s=30.0)


async def test_an_open_breaker_is_kept_with_what_opened_it():
    async with run(app_of(fails, breaker=Breaker(threshold=1))) as vigil:
        await happens(vigil, 1)
        await happens(vigil, 2)
        refused = vigil.refusal()
        failed = vigil.episode(status="failed")

    assert (refused.event_id, refused.reason) == ("x2", "breaker_open")
    assert isinstance(refused.against, AgainstBreaker)
    assert (refused.against.status, refused.against.failures) == ("open", (failed.id,))
    assert refused.against.until is not None


async def test_a_sample_is_kept_with_the_place_of_the_event():
    async with run(app_of(sample=1e-9)) as vigil:
        await happens(vigil, 1)
        refused = vigil.refusal()

    assert refused.reason == "sampled_out"
    assert isinstance(refused.against, AgainstSample)
    assert refused.against.sample == 1e-9 < refused.against.share


async def test_a_held_subject_is_kept_with_its_holder():
    async with run(app_of(asks, overlap="skip")) as vigil:
        await happens(vigil, 1)
        await happens(vigil, 2)
        refused = vigil.refusal()
        holder = vigil.episode()

    assert (refused.event_id, refused.reason) == ("x2", "overlap")
    assert refused.against == AgainstHolder(episode_id=holder.id)


async def test_a_duplicate_is_kept_with_the_episode_that_there_is():
    async with run(app_of(dedupe=by_value("host"))) as vigil:
        await happens(vigil, 1)
        await happens(vigil, 2)
        refused = vigil.refusal()
        episode = vigil.episode()

    assert (refused.event_id, refused.reason) == ("x2", "duplicate")
    assert refused.against == AgainstEpisode(episode_id=episode.id, dedupe_key='value:host="web-1"')


async def test_an_event_that_comes_again_is_no_duplicate_of_itself():
    async with run(app_of()) as vigil:
        await happens(vigil, 1)
        await vigil.deliver_again()
        await vigil.run_until_idle()
        assert vigil.refusals() == []


async def test_a_full_lane_is_kept_with_what_waits_in_it():
    lane = {"max_concurrent_cluster": 1, "overflow": "drop"}

    async def works(ctx, trigger):
        await ctx.sleep(60)
        return ConvergeResult(summary="done")

    async with run(app_of(works, actor=lane)) as vigil:
        for number in range(4):
            await vigil.publish(HAPPENED, {"host": "web-1"}, id=f"x{number}")
        await vigil.advance(seconds=5)
        refused = vigil.refusals()

    assert {each.reason for each in refused} == {"overflow"}
    assert refused[-1].against == AgainstLane(admitted=1, waiting=0, overflow="drop")


async def test_a_tick_that_is_refused_is_kept_under_its_own_key():
    breaker = Breaker(threshold=1, half_open_after_s=600)
    async with run(app_of(fails, on=every(60), breaker=breaker)) as vigil:
        await vigil.advance(seconds=125)
        refused = vigil.refusals()

    assert {each.event for each in refused} == {"tick"}
    assert refused[0].event_id.startswith("schedule:")
    assert refused[0].reason == "breaker_open"


async def test_what_a_person_fires_is_on_the_journal_and_not_kept_here():
    async with run(app_of(asks, overlap="skip")) as vigil:
        await happens(vigil, 1)
        await fire(vigil.ports, "worker", "thing", {"host": "web-1"}, by="ann", key="f1")
        await vigil.run_until_idle()
        assert vigil.refusals() == []
        assert len(vigil.episodes(status="canceled")) == 1


async def test_an_event_of_another_expectation_is_not_kept():
    worker = Actor("worker")
    worker.expect("thing", passes, on=event(HAPPENED))
    worker.expect("other", passes, on=event("other.happened"))
    async with run(App(actors=[worker])) as vigil:
        await happens(vigil, 1)
        assert vigil.refusals() == []


async def test_a_node_that_stops_in_order_stores_what_it_has():
    async with run(app_of(on=event(HAPPENED, filter={"used": 1}))) as vigil:
        await happens(vigil, 1, used=5)
    assert len(await vigil.ports.refusals.newest("worker", "thing")) == 1


@pytest.mark.parametrize(("size", "is_whole"), [(200, True), (201, False)])
async def test_a_long_value_is_cut(size, is_whole):
    async with run(app_of(on=event(HAPPENED, filter={"text": "x"}))) as vigil:
        await happens(vigil, 1, text="y" * size)
        refused = vigil.refusal()

    assert (refused.against.found == "y" * size) == is_whole
    assert len(refused.against.found) == 200
