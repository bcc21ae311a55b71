"""What rules would have done with events that have happened, from the events alone."""

from __future__ import annotations

from datetime import timedelta

from engine.app.conditions import gt
from engine.operations.events.would_fire import Replay
from streams.ports.domain_events import DomainEvent
from tests.spec import EPOCH
from vigil import Actor, Breaker, ConvergeResult, by_value, event, every, manual
from vigil.testing import run

HAPPENED = "thing.happened"


async def passes(ctx, trigger):
    return ConvergeResult(summary="done")


def actor_of(*, on=None, **options) -> Actor:
    worker = Actor("worker")
    worker.expect("thing", passes, on=on or event(HAPPENED), subject_key="host", **options)
    return worker


def happened(seconds, *, host="a", name=HAPPENED, **payload):
    return DomainEvent(
        id=f"x{seconds}",
        name=name,
        payload={"host": host, **payload},
        seq=seconds + 1,
        at=EPOCH + timedelta(seconds=seconds),
    )


def replayed(actor, *events, until_s=1_000, kept_max=100):
    replay = Replay([actor], stack="vigil", kept_max=kept_max)
    for each in events:
        replay.take(each)
    replay.end(EPOCH + timedelta(seconds=until_s))
    return replay


def told(replay):
    """Return each event with its ruling, in the order in which they were made."""
    return [(each.event_id, each.ruling) for each in replay.kept]


def test_a_filter_lets_some_fire_and_refuses_others():
    actor = actor_of(on=event(HAPPENED, filter={"used": gt(90)}))
    replay = replayed(actor, happened(0, used=95), happened(1, used=5))

    assert told(replay) == [("x0", "fire"), ("x1", "filter")]
    assert replay.kept[1].why == "filter used > 90: the event has 5"
    assert replay.counts == {("worker", "thing", "fire"): 1, ("worker", "thing", "filter"): 1}


def test_events_of_other_names_are_not_counted():
    assert replayed(actor_of(), happened(0, name="other")).counts == {}


def test_a_cooldown_begins_with_what_fires_and_is_over_in_time():
    actor = actor_of(cooldown_s=10)
    events = [happened(0), happened(9), happened(9, host="b"), happened(10)]

    replay = replayed(actor, *events)

    assert told(replay) == [("x0", "fire"), ("x9", "cooldown"), ("x9", "fire"), ("x10", "fire")]
    assert replay.kept[1].against.episode_id == replay.kept[0].episode_id


def test_of_events_about_one_subject_the_newest_fires_once_it_is_calm():
    actor = actor_of(debounce_s=10)
    replay = replayed(actor, happened(0), happened(5), happened(6, host="b"), happened(30))

    assert told(replay) == [("x0", "coalesced"), ("x5", "fire"), ("x6", "fire"), ("x30", "fire")]
    fired = replay.kept[1]
    assert fired.at == EPOCH + timedelta(seconds=15)


def test_what_waits_no_longer_than_it_may_fires_though_events_go_on():
    actor = actor_of(debounce_s=10, max_wait_s=15)
    replay = replayed(actor, *(happened(second) for second in (0, 8, 14, 20)))

    assert told(replay)[:3] == [("x0", "coalesced"), ("x8", "coalesced"), ("x14", "fire")]


def test_what_still_waits_for_calm_at_the_end_is_told_so():
    replay = replayed(actor_of(debounce_s=10), happened(0), until_s=5)
    assert told(replay) == [("x0", "waits_for_calm")]


def test_equal_causes_fire_once():
    replay = replayed(actor_of(dedupe=by_value("host")), happened(0), happened(1))
    assert told(replay) == [("x0", "fire"), ("x1", "duplicate")]


def test_a_function_that_gives_no_key_is_told():
    replay = replayed(actor_of(dedupe=lambda event: event.payload["order"]), happened(0))

    assert told(replay) == [("x0", "dedupe_failed")]
    assert replay.kept[0].why == "KeyError: 'order'"


def test_breakers_and_holders_refuse_nothing_as_each_episode_is_taken_to_end_well():
    actor = actor_of(breaker=Breaker(threshold=1), overlap="skip")
    assert told(replayed(actor, happened(0), happened(1))) == [("x0", "fire"), ("x1", "fire")]


def test_what_no_event_fires_is_not_replayed():
    assert replayed(actor_of(on=[manual(), every(60)])).watching == []


def test_all_are_counted_and_the_first_of_each_kind_are_kept():
    replay = replayed(actor_of(), *(happened(second) for second in range(9)), kept_max=2)

    assert told(replay) == [("x0", "fire"), ("x1", "fire")]
    assert replay.counts["worker", "thing", "fire"] == 9


async def test_a_replay_rules_as_the_gates_did():
    """The same episodes, by their ids, and the same refusals, from the stack's own events."""
    from vigil import App  # noqa: PLC0415 - the rest needs no app

    on = event(HAPPENED, filter={"used": gt(3)})
    actor = actor_of(on=on, cooldown_s=60, sample=0.7)
    async with run(App(actors=[actor])) as vigil:
        for number in range(60):
            payload = {"host": f"h{number % 3}", "used": number % 10}
            await vigil.publish(HAPPENED, payload, id=f"x{number}")
            await vigil.advance(seconds=7)
        replay = Replay([actor], stack="vigil", kept_max=1_000)
        for each in await vigil.ports.domain_events.page(after=0):
            replay.take(each)
        opened = {each.id for each in vigil.episodes()}
        refused = {(each.event_id, each.reason) for each in vigil.refusals()}

    fired = {each.episode_id for each in replay.kept if each.ruling == "fire"}
    others = {(each.event_id, each.ruling) for each in replay.kept if each.ruling != "fire"}
    assert fired == opened
    assert others == refused
    assert {reason for _, reason in refused} == {"filter", "cooldown", "sampled_out"}


async def test_of_a_workflow_the_instance_is_named_that_an_event_starts():
    from vigil import App, Workflow, workflow  # noqa: PLC0415 - the rest needs no app

    made = Workflow("w", on=event(HAPPENED))
    made.step("acts", "worker", "acts")
    worker = Actor("worker")
    worker.expect("acts", passes, on=workflow())
    app = App(actors=[worker], workflows=[made])
    async with run(app) as vigil:
        await vigil.publish(HAPPENED, {"host": "a"}, id="x0")
        await vigil.run_until_idle()
        replay = Replay([app.actors["workflow-w"]], stack="vigil", kept_max=1_000)
        for each in await vigil.ports.domain_events.page(after=0):
            replay.take(each)
        started = vigil.workflow().id

    (fired,) = replay.kept
    assert (fired.ruling, fired.instance_id, fired.episode_id) == ("fire", started, "")
