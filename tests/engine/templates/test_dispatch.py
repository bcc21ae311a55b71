"""dispatch: one domain event for each entity that was gathered, however often a node dies."""

from __future__ import annotations

import msgspec
import pytest

from engine.app.actions import checkpoint
from engine.app.context import Context
from engine.app.strategy import Abort, Retry, StepTaken
from engine.app.tools import Failure, ToolFailed, event_id, gather, publish
from engine.errors import BadDefinition
from engine.templates.dispatch import (
    ENTITIES_MAX,
    PART_BYTES_MAX,
    PART_MAX,
    Plan,
    announced,
    dispatch,
    part_of,
)
from streams.model.events import CheckpointSaved, EndStatus, StepKind, StepRecorded
from streams.model.triggers import Budget, Mode
from tests.engine.stage import STARTED, ask_start, did, lived, running, write
from tests.engine.stage import announced as announced_step
from tests.engine.templates.stage import Facts, app_of, opened_for, play, published

HOSTS = [{"id": "web-1", "team": {"name": "shop"}, "cpu": 4}, {"id": "db-7", "cpu": 8}]
NAME = "host.seen"
CTX = Context(
    episode_id="e",
    actor_id="worker",
    expectation_id="thing",
    budget=Budget(),
    turn=2,
    tokens_used=0,
)


def configured(**config):
    return dispatch({"gatherer": "facts", "event_type": NAME, **config})


def many(count):
    return [{"id": f"h{number}"} for number in range(count)]


async def test_each_entity_has_an_event_of_its_own(ports):
    app = app_of(configured(), Facts(HOSTS))
    opened = opened_for(app)
    life = await play(app, opened, ports=ports)

    events = published(ports, NAME)
    assert sorted(event.payload["id"] for event in events) == ["db-7", "web-1"]
    assert {event.id for event in events} == {
        event_id(opened.episode_id, "web-1"),
        event_id(opened.episode_id, "db-7"),
    }
    converged = life.episode.converged
    assert converged.summary == "2 host.seen published"
    assert msgspec.json.decode(converged.classification)["published"] == 2


async def test_an_event_is_one_hop_further_from_the_outside_world(ports):
    app = app_of(configured(), Facts(HOSTS))
    await play(app, opened_for(app), ports=ports)
    assert {event.hops for event in published(ports, NAME)} == {4}


async def test_the_event_says_what_was_picked_out(ports):
    strategy = configured(entity_payload_fields=["team.name"])
    app = app_of(strategy, Facts(HOSTS))
    await play(app, opened_for(app), ports=ports)

    payloads = {event.payload["id"]: event.payload for event in published(ports, NAME)}
    assert payloads == {
        "web-1": {"id": "web-1", "team.name": "shop"},
        "db-7": {"id": "db-7"},
    }


async def test_an_entity_that_is_a_text_is_its_own_id(ports):
    app = app_of(configured(entity_id_field="host"), Facts(["web-1", 7]))
    await play(app, opened_for(app), ports=ports)
    payloads = [event.payload for event in published(ports, NAME)]
    assert sorted(payloads, key=str) == [{"host": "web-1"}, {"host": 7}]


async def test_an_entity_that_comes_twice_has_one_event(ports):
    app = app_of(configured(), Facts([{"id": 1, "n": 1}, {"id": 2}, {"id": 1, "n": 2}]))
    life = await play(app, opened_for(app), ports=ports)

    assert [event.payload.get("n") for event in published(ports, NAME)] == [1, None]
    assert msgspec.json.decode(life.episode.converged.classification)["repeated"] == 1


async def test_many_are_published_part_by_part_and_what_is_left_is_kept(ports):
    count = 2 * PART_MAX + 1
    app = app_of(configured(), Facts(many(count)))
    life = await play(app, opened_for(app), ports=ports)

    kinds = [step.kind for step in life.of(StepRecorded)]
    assert kinds == ["tool_call", "tool_call", "checkpoint", "tool_call", "checkpoint", "tool_call"]
    kept = [msgspec.json.decode(each.state) for each in life.of(CheckpointSaved)]
    assert [len(each["left"]) for each in kept] == [0, count - PART_MAX, 1]
    assert len(published(ports, NAME)) == count


async def test_as_many_as_there_may_be_fit_in_the_usual_budget():
    app = app_of(configured(), Facts(many(ENTITIES_MAX)))
    life = await play(app, opened_for(app))
    assert (life.end.status, life.end.turns_used) == (EndStatus.DONE, 11)


async def test_after_a_crash_it_goes_on_where_it_stopped(ports):
    facts = Facts(many(PART_MAX + 3))
    strategy = configured()
    app = app_of(strategy, facts)
    opened = opened_for(app)
    events = [announced(each, strategy.config, opened.episode_id) for each in facts.answer]
    first, rest = publish(NAME, events[:PART_MAX]), publish(NAME, events[PART_MAX:])
    await write(ports, opened.episode_id, opened)
    await write(
        ports,
        opened.episode_id,
        STARTED,
        did(1, gather("facts", payload={}, options={}), facts.answer),
        did(2, first, {"published": PART_MAX}),
        did_checkpoint(3, f"{PART_MAX} of {PART_MAX + 3} published"),
        announced_step(4, rest, episode_id=opened.episode_id),
    )
    # The node that died had told of one of the rest.
    await ports.domain_events.publish(NAME, events[-1].payload, id=events[-1].id, hops=4)
    await ask_start(ports, opened.episode_id)
    async with running(app, ports):
        life = await lived(ports, opened.episode_id)

    assert life.end.status is EndStatus.DONE, life.end
    assert facts.asked == []
    assert sorted(event.id for event in published(ports, NAME)) == sorted(
        event.id for event in events[PART_MAX:]
    )


def did_checkpoint(step_no, phase):
    step = did(step_no, checkpoint(phase), None)
    return msgspec.structs.replace(step, kind=StepKind.CHECKPOINT)


async def test_a_dry_run_publishes_nothing(ports):
    app = app_of(configured(), Facts(HOSTS))
    life = await play(app, opened_for(app, mode=Mode.DRY_RUN), ports=ports)

    assert life.end.status is EndStatus.DONE
    assert published(ports, NAME) == []
    assert life.episode.converged.summary == "0 host.seen published; 2 would be in earnest"


async def test_the_journal_says_how_many_and_the_stream_says_what(ports):
    app = app_of(configured(), Facts(HOSTS))
    life = await play(app, opened_for(app), ports=ports)
    step = life.of(StepRecorded)[1]
    assert step.tool_name == "vigil.publish"
    assert msgspec.json.decode(step.args) == {"name": NAME, "events": 2}


@pytest.mark.parametrize(
    ("answer", "error_class", "detail"),
    [
        ({"id": 1}, "invalid_entities", "is no list of entities"),
        (many(ENTITIES_MAX + 1), "invalid_entities", "1,001 entities, most: 1,000"),
        ([{"name": "x"}], "invalid_entities", "'id' of {'name': 'x'} is no id"),
        ([{"id": True}], "invalid_entities", "is no id"),
        ([{"id": ""}], "invalid_entities", "is no id"),
        ([None], "invalid_entities", "is no id"),
        ([{"id": 1, "x": "y" * PART_BYTES_MAX}], "invalid_entities", "entity 1 is over 131,072"),
        (ToolFailed("away"), "away", ""),
    ],
)
async def test_what_is_no_list_of_entities_ends_the_episode(ports, answer, error_class, detail):
    app = app_of(configured(), Facts(answer))
    end = (await play(app, opened_for(app), ports=ports)).end
    assert end.error_class == error_class
    assert detail in end.error_detail
    assert published(ports, NAME) == []


def test_a_part_is_as_large_as_a_step_can_keep():
    small = [announced({"id": n}, configured().config, "e") for n in range(PART_MAX + 1)]
    large = [announced({"id": n, "x": "y" * 50_000}, configured().config, "e") for n in range(3)]
    assert len(part_of(small)) == PART_MAX
    assert len(part_of(large)) == 2
    assert len(part_of(large[:1])) == 1


def test_a_part_is_tried_three_times_while_the_log_is_away():
    strategy = configured()
    event = announced({"id": 1}, strategy.config, "e")
    state = Plan(episode_id="e", payload=None, left=(event,))
    step = StepTaken(
        step_no=2, kind=StepKind.TOOL_CALL, tool="vigil.publish", action=publish(NAME, [event])
    )
    away = Failure("tool_unavailable", "no server")
    for failures in (1, 2):
        again = strategy.handle_result(state, step, away)
        assert isinstance(again, Retry)
        state = again.state
        assert state.failures == failures
        assert strategy.next_step(state, CTX).args["attempt"] == failures + 1
    assert strategy.handle_result(state, step, away) == Abort("tool_unavailable", "no server")
    invalid = Failure("invalid_event", "too large")
    assert strategy.handle_result(state, step, invalid) == Abort("invalid_event", "too large")


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ({"event_type": "not a name"}, "event_type"),
        ({"event_type": None}, "event_type"),
        ({"entity_id_field": "a..b"}, "entity_id_field"),
        ({"entity_payload_fields": ["a", "."]}, "entity_payload_fields"),
        ({"entity_payload_fields": "a"}, "entity_payload_fields"),
        ({"finding_config": {}}, "finding_config"),
    ],
)
def test_a_configuration_that_cannot_work_says_where(config, path):
    with pytest.raises(BadDefinition) as refused:
        configured(**config)
    assert refused.value.path == path
