"""What a test sees of an app that it runs, and how time passes for it."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest

from tests.engine.stage import HAPPENED, Scripted
from tests.testing.apps import HOURLY, KEY, LOOKS, Proposing, app_with, finds
from vigil import (
    Actor,
    App,
    DeliveryFailed,
    Retries,
    Route,
    approval,
    cron,
    event,
    observe,
    overrides,
    wait,
)
from vigil.histories import load, replay
from vigil.testing import StillBusy, in_turn, run

DISK = {"disk.largest": {"path": "/var"}}
DAY_S = 86_400


async def test_an_event_leads_to_a_finding():
    async with run(app_with(finds())) as vigil:
        await vigil.publish(HAPPENED)
        await vigil.run_until_idle()
        assert vigil.finding(KEY).severity == "high"


async def test_an_episode_has_its_steps_with_their_results():
    async with run(app_with(finds(LOOKS)), tools=DISK) as vigil:
        await vigil.publish(HAPPENED, {"host": "web-1"})
        await vigil.run_until_idle()

        episode = vigil.episode(subject="web-1")
        assert (episode.status, episode.actor, episode.expectation) == ("done", "worker", "thing")
        assert episode.step("disk.largest").result == {"path": "/var"}
        assert episode.classification == {"seen": [{"path": "/var"}]}


async def test_an_episode_can_be_fired_by_hand():
    async with run(app_with(finds())) as vigil:
        id_ = await vigil.fire("worker", "thing", {"host": "web-2"})
        await vigil.run_until_idle()
        assert vigil.episode(id_).payload == {"host": "web-2"}


async def test_two_events_of_one_id_are_one():
    async with run(app_with(finds())) as vigil:
        for _ in range(2):
            await vigil.publish(HAPPENED, id="x")
        await vigil.run_until_idle()
        assert len(vigil.episodes()) == 1


async def test_messages_that_come_again_change_nothing():
    async with run(app_with(Proposing(LOOKS), subject_key="host"), tools=DISK) as vigil:
        await vigil.publish(HAPPENED, {"host": "web-1"})
        await vigil.run_until_idle()
        await vigil.deliver_again()
        await vigil.run_until_idle()
        assert (len(vigil.episodes()), len(vigil.calls()), len(vigil.deliveries("pager"))) == (
            1,
            1,
            1,
        )


async def test_the_next_node_takes_over_from_one_that_crashed():
    async with run(app_with(finds(LOOKS)), tools=DISK) as vigil:
        await vigil.publish(HAPPENED)
        await vigil.crash()
        await vigil.run_until_idle()
        assert vigil.episode().status == "done"


async def test_what_the_engine_publishes_wakes_other_actors():
    actor = Actor("second")
    actor.expect("looks", Scripted(), on=event("finding.raised"))
    app = App(actors=[*app_with(finds()).actors.values(), actor])

    async with run(app) as vigil:
        await vigil.publish(HAPPENED)
        await vigil.run_until_idle()
        assert vigil.episode(actor="second").status == "done"
        assert len(vigil.events("finding.raised")) == 1


async def test_a_day_of_ticks_takes_no_day():
    async with run(app_with(Scripted(), on=HOURLY, subject_key="")) as vigil:
        began = vigil.now
        await vigil.advance(days=1)

        assert len(vigil.episodes(status="done")) == 24
        assert DAY_S <= (vigil.now - began).total_seconds() < DAY_S + 1


async def test_a_day_of_ticks_a_wait_and_an_approval_that_expires_takes_a_fifth_of_a_second():
    nap = wait("nap:1", expires_s=1800, on_expiry="continue")
    app = app_with(Scripted(nap, approval({"x": 1}, expires_s=12 * 3600)), subject_key="")
    ticking = Actor("ticking")
    ticking.expect("tick", Scripted(), on=cron("0 */4 * * *"))
    app = App(actors=[*app.actors.values(), ticking])

    began_s = time.process_time()
    async with run(app) as vigil:
        await vigil.publish(HAPPENED)
        await vigil.advance(hours=24)
        assert len(vigil.episodes(expectation="tick")) == 6
        assert vigil.episode(actor="worker").classification["seen"] == [None, "denied"]
    assert time.process_time() - began_s < 0.2


async def test_a_day_in_which_nothing_happens_takes_milliseconds():
    async with run(app_with(finds())) as vigil:
        began_s = time.process_time()
        await vigil.advance(days=1)
        assert time.process_time() - began_s < 0.1


async def test_a_finding_expires_in_its_time():
    async with run(app_with(finds(ttl_s=600))) as vigil:
        await vigil.publish(HAPPENED)
        await vigil.advance(minutes=9)
        assert [each.finding_key for each in vigil.findings()] == [KEY]

        await vigil.advance(minutes=2)
        assert vigil.findings() == []
        assert vigil.finding(KEY, status="expired").class_ == "disk_full"


async def test_a_cooldown_is_over_in_its_time():
    async with run(app_with(Scripted(), cooldown_s=3600)) as vigil:
        for minutes in (0, 10, 60):
            await vigil.advance(minutes=minutes)
            await vigil.publish(HAPPENED, {"host": "web-1"})
            await vigil.run_until_idle()
        assert len(vigil.episodes()) == 2


async def test_a_debounce_waits_for_calm():
    async with run(app_with(Scripted(), debounce_s=300)) as vigil:
        for _ in range(3):
            await vigil.publish(HAPPENED, {"host": "web-1"})
            await vigil.advance(minutes=1)
        assert vigil.episodes() == []
        await vigil.advance(minutes=5)
        assert len(vigil.episodes()) == 1


async def test_an_output_that_failed_is_tried_again_in_its_time():
    app = app_with(Proposing())
    route = Route(app.outputs["pager"].adapter, retries=Retries(first_s=60, most_s=60))
    app = App(actors=list(app.actors.values()), outputs={"pager": route})

    async with run(app, outputs={"pager": in_turn(DeliveryFailed("busy"), "ref-2")}) as vigil:
        await vigil.publish(HAPPENED)
        await vigil.run_until_idle()
        assert (vigil.output("pager").status, vigil.deliveries("pager")) == ("proposed", [])

        await vigil.advance(minutes=2)
        assert (vigil.output("pager").status, vigil.output("pager").ref) == ("delivered", "ref-2")


async def test_turns_in_the_whole_cluster_are_taken():
    async with run(app_with(Scripted(), concurrency_key="host")) as vigil:
        for _ in range(3):
            await vigil.publish(HAPPENED, {"host": "web-1"})
        await vigil.advance(hours=1)
        assert len(vigil.episodes(status="done")) == 3


async def test_an_app_that_is_never_idle_is_told_with_its_story():
    async def never(args):
        await asyncio.sleep(DAY_S)

    app = app_with(Scripted(LOOKS))
    async with run(app, tools={"disk.*": never}) as vigil:
        await vigil.publish(HAPPENED)
        with pytest.raises(StillBusy, match=r"after 60 s there are still .* claims held"):
            await vigil.run_until_idle(most_s=60)


async def test_what_is_not_there_is_an_error_that_shows_what_is():
    async with run(app_with(finds(observe(1)))) as vigil:
        with pytest.raises(AssertionError, match="no episode; there is none at all"):
            vigil.episode()
        await vigil.publish(HAPPENED)
        await vigil.run_until_idle()

        with pytest.raises(AssertionError, match=r"no finding 'x' of status 'active'; .*\n.*disk:"):
            vigil.finding("x")
        with pytest.raises(AssertionError, match=r"(?s)of status 'failed'; .*1. observation → 1"):
            vigil.episode(status="failed")
        with pytest.raises(AssertionError, match=r"no step 'disk.x' of worker.thing"):
            vigil.episode().step("disk.x")
        with pytest.raises(AssertionError, match="no approval that waits; there is none at all"):
            await vigil.approve()


async def test_what_happened_can_be_looked_at_afterwards():
    async with run(app_with(finds())) as vigil:
        await vigil.publish(HAPPENED)
        await vigil.run_until_idle()

    assert vigil.finding(KEY).status == "active"
    assert "worker.thing" in vigil.story()


async def test_the_journal_of_an_episode_is_a_history():
    app = app_with(finds(LOOKS))
    async with run(app, tools=DISK) as vigil:
        await vigil.publish(HAPPENED)
        await vigil.run_until_idle()
        kept = await vigil.history(vigil.episode().id)

    assert (await replay(load(kept), app)).steps == 1


async def test_a_fire_by_hand_takes_what_the_command_takes():
    stubs = {"disk.*": 1}
    async with run(app_with(Scripted(*4 * [LOOKS])), tools=stubs) as vigil:
        later = vigil.now + timedelta(minutes=1)
        options = {"reason": "a try", "priority": 1, "metadata": {"ticket": 7}, "at": later}
        limits = {"budget": {"turns": 2}, "log_strategy": "none"}
        id_ = await vigil.fire("worker", "thing", **options, **limits)
        await vigil.run_until_idle()
        assert not vigil.episodes()
        await vigil.advance(minutes=1)
        opened = load(await vigil.history(id_))[0].commit.events[0]
        episode = vigil.episode()
        assert (episode.error_class, episode.turns) == ("budget_exceeded", 2)
        assert episode.budget.turns == 2
    assert (opened.trigger.reason, opened.priority, opened.metadata) == ("a try", 1, {"ticket": 7})
    assert opened.log_strategy == "none"


async def test_a_dry_run_takes_overrides_and_an_unknown_revision_opens_nothing():
    async with run(app_with(Scripted(LOOKS))) as vigil:
        instead = overrides(tools={"disk.largest": {"path": "/srv"}})
        await vigil.fire("worker", "thing", dry_run=True, overrides=instead)
        await vigil.fire("worker", "thing", revision=7)
        await vigil.run_until_idle()
        assert vigil.episode().classification == {"seen": [{"path": "/srv"}]}
