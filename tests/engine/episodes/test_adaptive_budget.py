"""A budget that follows what the latest episodes of its expectation have used."""

from __future__ import annotations

from msgspec.structs import replace

from engine.app.actions import observe
from engine.app.actor import Actor
from engine.app.app import App
from engine.app.triggers import manual
from engine.app.workflow import Workflow
from engine.episodes.fire import fire
from engine.episodes.latest_ends import LatestEnds, Used, ends_in
from engine.episodes.open import with_budget
from engine.workflows.requests import start_workflow
from streams.json import exact
from streams.keys import ends_key
from streams.model.triggers import AdaptiveBudget, Budget
from tests.engine.lane_stage import begun, publish
from tests.engine.reactor import journals as given
from tests.engine.stage import (
    CLOCK,
    LOOK_S,
    Scripted,
    app_of,
    eventually,
    life,
    lived,
    opening,
    running,
    told,
)

WITHIN = AdaptiveBudget(turns=(2, 40))
KEY = ends_key("worker", "thing")


async def have_used(ports, *turns, key=KEY):
    used = tuple(Used(each, 0, 0) for each in turns)
    await ports.gates.put(key, bytes(exact(LatestEnds(used=used))))


async def test_an_episode_is_opened_with_what_earlier_ones_have_shown_to_suffice(ports):
    app = app_of(Scripted(observe(1)), budget=Budget(turns=9), adaptive_budget=WITHIN)
    await have_used(ports, *[16] * 5)
    async with running(app, ports):
        await begun(ports)
        await publish(ports, "x1")
        (opened, *_) = (await lived(ports, opening(app).episode_id)).events
    assert opened.budget == Budget(turns=20)
    assert opened.adaptive_budget == WITHIN


async def test_what_it_has_used_counts_for_the_next(ports):
    app = app_of(Scripted(observe(1)), budget=Budget(turns=9), adaptive_budget=WITHIN)
    async with running(app, ports):
        await begun(ports)
        await publish(ports, "x1")
        await lived(ports, opening(app).episode_id)

        async def used():
            entry = await ports.gates.get(KEY)
            return [each.turns for each in ends_in(entry.value if entry else None).used]

        while not (found := await used()):
            await CLOCK.sleep(LOOK_S)
    assert found == [2]


async def test_without_bounds_it_is_as_declared(ports):
    app = app_of(Scripted(), budget=Budget(turns=9))
    await have_used(ports, *[16] * 5)
    async with running(app, ports):
        await begun(ports)
        await publish(ports, "x1")
        (opened, *_) = (await lived(ports, opening(app).episode_id)).events
    assert opened.budget == Budget(turns=9)


async def test_what_a_person_allows_holds_and_is_no_measure_for_others(ports):
    app = app_of(Scripted(), budget=Budget(turns=9), adaptive_budget=WITHIN)
    await have_used(ports, *[16] * 5)
    async with running(app, ports):
        limited = await fire(ports, "worker", "thing", by="ann", budget={"turns": 3})
        free = await fire(ports, "worker", "thing", by="ann")
        of_limited = (await lived(ports, limited)).events[0]
        of_free = (await lived(ports, free)).events[0]
    assert (of_limited.budget.turns, of_limited.adaptive_budget) == (3, None)
    assert (of_free.budget.turns, of_free.adaptive_budget) == (20, WITHIN)


async def test_the_episode_of_a_step_has_such_a_budget_too(ports):
    worker = Actor("worker")
    worker.expect("thing", Scripted(), on=manual(), adaptive_budget=WITHIN)
    flow = Workflow("flow", on=manual())
    flow.step("only", "worker", "thing")
    app = App(actors=[worker], workflows=[flow])
    await have_used(ports, *[16] * 5)
    async with running(app, ports):
        await start_workflow(ports, "flow", by="ann")

        def started():
            return [
                payload["episode_id"]
                for name, payload in told(ports)
                if (name, payload.get("actor_id")) == ("episode.started", "worker")
            ]

        await eventually(started)
        (opened, *_) = (await life(ports, started()[0])).events
    assert opened.budget.turns == 20


async def test_an_opening_has_another_budget_only_with_bounds_and_after_enough_episodes(ports):
    opened = replace(given.OPENED, adaptive_budget=WITHIN, budget=Budget(turns=9))
    assert await with_budget(ports.gates, opened) == opened
    await have_used(ports, *[16] * 5, key=ends_key("monitor", "limits"))
    assert (await with_budget(ports.gates, opened)).budget == Budget(turns=20)
    plain = replace(opened, adaptive_budget=None)
    assert await with_budget(ports.gates, plain) == plain


async def test_it_is_as_declared_where_a_newer_version_has_written_what_was_used(ports):
    opened = replace(given.OPENED, adaptive_budget=WITHIN, budget=Budget(turns=9))
    await ports.gates.put(ends_key("monitor", "limits"), b'{"used": {"turns": [16]}}')
    assert await with_budget(ports.gates, opened) == opened
