"""What became of one event, for each expectation: told from refusals, journals and live nodes."""

from __future__ import annotations

from datetime import timedelta

from engine.app.conditions import gt
from engine.operations.events.why_event import why_event
from streams.ports.refusals import KEPT_MAX
from vigil import Actor, App, ConvergeResult, Workflow, by_value, event, workflow
from vigil.testing import run

HAPPENED = "thing.happened"


async def passes(ctx, trigger):
    return ConvergeResult(summary="done")


def app_of(**expectations) -> App:
    worker = Actor("worker")
    for name, options in expectations.items():
        worker.expect(name, passes, **{"on": event(HAPPENED), "subject_key": "host", **options})
    return App(actors=[worker])


async def happens(vigil, id_, **payload):
    await vigil.publish(HAPPENED, {"host": "web-1", **payload}, id=id_)
    await vigil.run_until_idle()


async def why(vigil, id_):
    await vigil._clock.sleep(2)  # Until the node has stored what it knows.
    return await why_event(vigil.ports, id_, clock=vigil._clock)


async def test_each_expectation_that_watches_the_event_is_told():
    app = app_of(
        fires={},
        refuses={"on": event(HAPPENED, filter={"used": gt(90)})},
        other={"on": event("other.happened")},
    )
    async with run(app) as vigil:
        await happens(vigil, "x1", used=5)
        found = await why(vigil, "x1")
        episode = vigil.episode()

    assert (found.name, found.why_none) == (HAPPENED, "")
    assert [(each.expectation, each.outcome, each.why) for each in found.verdicts] == [
        ("fires", "opened", f"it opened episode {episode.id}"),
        ("refuses", "refused", "filter used > 90: the event has 5"),
    ]
    assert found.verdicts[0].episode_id == episode.id
    assert found.verdicts[1].refusal.reason == "filter"


async def test_an_event_that_waits_for_calm_may_still_fire():
    async with run(app_of(thing={"debounce_s": 60})) as vigil:
        await happens(vigil, "x1")
        (verdict,) = (await why(vigil, "x1")).verdicts

    assert verdict.outcome == "waits"


async def test_a_duplicate_names_the_episode_of_its_cause():
    async with run(app_of(thing={"dedupe": by_value("host")})) as vigil:
        await happens(vigil, "x1")
        await happens(vigil, "x2")
        (first,) = (await why(vigil, "x1")).verdicts
        (second,) = (await why(vigil, "x2")).verdicts
        episode = vigil.episode()

    assert (first.outcome, first.episode_id) == ("opened", episode.id)
    assert (second.outcome, second.episode_id) == ("refused", episode.id)


async def test_of_a_workflow_it_names_the_instance_that_started_or_why_none_did():
    worker = Actor("worker")
    worker.expect("acts", passes, on=workflow())
    made = Workflow("w", on=event(HAPPENED), subject_key="host", overlap="skip")
    made.step("acts", "worker", "acts", requires_approval=True)
    async with run(App(actors=[worker], workflows=[made])) as vigil:
        await happens(vigil, "x1")
        await happens(vigil, "x2")
        (first,) = (await why(vigil, "x1")).verdicts
        (second,) = (await why(vigil, "x2")).verdicts

    assert (first.actor, first.outcome) == ("workflow-w", "opened")
    assert first.why == f"it started instance {first.instance_id}"
    assert (second.outcome, second.why) == (
        "refused",
        f"instance {first.instance_id} was not over",
    )


async def test_an_event_that_nobody_watches_is_told_so():
    async with run(app_of(thing={})) as vigil:
        await vigil.publish("strange.happened", {}, id="x1")
        await vigil.run_until_idle()
        found = await why(vigil, "x1")

    assert (found.name, found.verdicts) == ("strange.happened", [])
    assert found.why_none == "no expectation of a node that is up watches 'strange.happened'"


async def test_of_an_event_that_there_never_was_nothing_is_known():
    async with run(app_of(thing={})) as vigil:
        found = await why(vigil, "x1")

    assert (found.name, found.verdicts) == ("", [])
    assert "no event 'x1' in the last 24 hours" in found.why_none


async def test_of_an_old_event_the_episode_is_still_known():
    async with run(app_of(thing={})) as vigil:
        await happens(vigil, "x1")
        vigil._clock.leap(timedelta(hours=25).total_seconds())
        found = await why(vigil, "x1")

    assert [each.outcome for each in found.verdicts] == ["opened"]
    assert (found.name, found.at) == (HAPPENED, None)


async def test_a_refusal_that_made_room_for_later_ones_is_told_so():
    async with run(app_of(thing={"on": event(HAPPENED, filter={"used": 1})})) as vigil:
        for number in range(KEPT_MAX + 1):
            await vigil.publish(HAPPENED, {"used": 0}, id=f"x{number}")
        await vigil.run_until_idle()
        (first,) = (await why(vigil, "x0")).verdicts
        (last,) = (await why(vigil, f"x{KEPT_MAX}")).verdicts

    assert (first.outcome, last.outcome) == ("unknown", "refused")
    assert first.why == "its refusal may be gone: 200 later ones are kept"


async def test_what_no_node_has_seen_yet_is_unknown():
    async with run(app_of(thing={})) as vigil:
        await vigil.publish(HAPPENED, {}, id="x1")
        found = await why_event(vigil.ports, "x1", clock=vigil._clock)
        await vigil.run_until_idle()

    (verdict,) = found.verdicts
    assert verdict.outcome == "unknown"
    assert "it still waits" in verdict.why
