"""What an event would do: by the rules of the gates, and without publishing anything."""

from __future__ import annotations

import pytest

from engine.app.conditions import all_of, gt, in_, lt, missing, ne
from engine.operations.events.would_event import would_event
from streams.ports.domain_events import DomainEvent
from vigil import (
    Actor,
    App,
    Breaker,
    CallFailed,
    ConvergeResult,
    Workflow,
    by_value,
    event,
    manual,
    workflow,
)
from vigil.testing import run

HAPPENS = "thing.happens"


async def passes(ctx, trigger):
    return ConvergeResult(summary="done")


async def waits(ctx, trigger):
    await ctx.wait("for-ever", expires_s=86_400)


async def fails(ctx, trigger):
    raise CallFailed("broken", "it is broken")


def app_of(strategy=passes, **options) -> App:
    worker = Actor("worker")
    worker.expect("thing", strategy, **{"on": event(HAPPENS), "subject_key": "host", **options})
    return App(actors=[worker])


async def happens(vigil, id_="x1", **payload):
    await vigil.publish(HAPPENS, {"host": "web-1", **payload}, id=id_)
    await vigil.run_until_idle()


async def would(vigil, id_="new", name=HAPPENS, **payload):
    await vigil._clock.sleep(2)  # Until the node has said what it has.
    payload = {"host": "web-1", **payload}
    asked = DomainEvent(id=id_, name=name, payload=payload, seq=0, at=vigil._clock.now())
    return await would_event(vigil.ports, asked, clock=vigil._clock)


async def outcome(vigil, **payload):
    (verdict,) = await would(vigil, **payload)
    return verdict.outcome, verdict.refusal.reason if verdict.refusal else None


async def test_an_event_that_fits_would_fire_and_opens_nothing():
    async with run(app_of()) as vigil:
        (verdict,) = await would(vigil)
        await vigil.run_until_idle()

        assert (verdict.outcome, verdict.why) == ("fires", "it would open an episode")
        assert not vigil.episodes()


@pytest.mark.parametrize(
    ("wanted", "fits", "not_"),
    [
        (gt(90), 91, 90),
        (5, 5, 6),
        (in_("a", "b"), "b", "c"),
        (ne("a"), "b", "a"),
        (missing(), None, 1),
        (all_of(gt(1), gt(3), lt(9)), 4, 2),
        ({"a": 1}, {"a": 1}, {"a": 2}),
    ],
)
async def test_the_filter_of_a_rule_in_code_is_known_to_others(wanted, fits, not_):
    async with run(app_of(on=event(HAPPENS, filter={"used": wanted}))) as vigil:
        used = {} if fits is None else {"used": fits}
        assert await outcome(vigil, **used) == ("fires", None)
        assert await outcome(vigil, used=not_) == ("refused", "filter")


async def test_an_event_that_nobody_watches_would_do_nothing():
    async with run(app_of()) as vigil:
        assert await would(vigil, name="other.happens") == []


async def test_a_cooldown_holds_it_back_and_names_the_episode():
    async with run(app_of(cooldown_s=600)) as vigil:
        await happens(vigil)
        (verdict,) = await would(vigil)

        assert verdict.refusal.reason == "cooldown"
        assert verdict.refusal.against.episode_id == vigil.episode().id


async def test_an_equal_cause_has_fired_already():
    async with run(app_of(dedupe=by_value("host"))) as vigil:
        await happens(vigil)

        assert await outcome(vigil) == ("refused", "duplicate")
        assert await outcome(vigil, host="web-2") == ("fires", None)


async def test_an_id_that_was_published_before_has_fired_already():
    async with run(app_of()) as vigil:
        await happens(vigil, "x1")

        assert (await would(vigil, "x1"))[0].refusal.reason == "duplicate"


async def test_a_debounced_event_would_wait_for_calm():
    async with run(app_of(debounce_s=60)) as vigil:
        assert await outcome(vigil) == ("waits", "waits_for_calm")


async def test_an_open_breaker_would_refuse_it():
    async with run(app_of(fails, breaker=Breaker(threshold=1))) as vigil:
        await happens(vigil)

        assert await outcome(vigil) == ("refused", "breaker_open")


async def test_what_holds_the_subject_would_refuse_it_or_go_first():
    async with run(app_of(waits, overlap="skip")) as vigil:
        await happens(vigil)
        assert await outcome(vigil) == ("refused", "overlap")
        assert await outcome(vigil, host="web-2") == ("fires", None)
    async with run(app_of(waits, overlap="buffer_one")) as vigil:
        await happens(vigil)
        (verdict,) = await would(vigil)
        assert f"starts once episode {vigil.episode().id} has ended" in verdict.why


async def test_a_sample_decides_by_the_id():
    async with run(app_of(sample=0.5)) as vigil:
        found = [(await would(vigil, f"id-{each}"))[0].outcome for each in range(20)]

    assert set(found) == {"fires", "refused"}


async def test_what_nobody_can_look_up_is_said():
    own = {"dedupe": lambda happened: happened.id, "breaker": Breaker(scope="node")}
    async with run(app_of(**own)) as vigil:
        (verdict,) = await would(vigil)

    assert "if the breaker of the node" in verdict.why
    assert "if its own function finds no equal cause" in verdict.why


async def test_a_workflow_would_start_an_instance():
    worker = Actor("worker")
    worker.expect("acts", passes, on=workflow())
    made = Workflow("w", on=event(HAPPENS), subject_key="host")
    made.step("a", "worker", "acts")
    async with run(App(actors=[worker], workflows=[made])) as vigil:
        (verdict,) = await would(vigil)

    assert (verdict.outcome, verdict.actor) == ("fires", "workflow-w")
    assert verdict.why.startswith("it would start an instance")


async def test_what_is_fired_by_hand_only_is_not_among_them():
    async with run(app_of(on=manual())) as vigil:
        assert await would(vigil) == []
