"""What led to an episode is told step by step."""

from __future__ import annotations

from uuid import UUID

import pytest
from msgspec.structs import replace

from projections.project import project
from streams.model.events import Fork
from streams.model.triggers import EpisodeTrigger, EventTrigger, WorkflowTrigger
from tests.engine.workflows.flows import flow, given
from tests.projections import lives
from tests.projections.lives import write, write_events
from vigil.errors import NotFound


def event_of(number, *, hops=1):
    """A public event about the episode of a number; with no hops, somebody else's."""
    payload = {"episode_id": lives.episode_id(number)}
    return EventTrigger(event_id="f1", event_type="finding.raised", payload=payload, hops=hops)


def child_of(number):
    return EpisodeTrigger(parent_id=lives.episode_id(number), parent_actor_id="a", call="1")


async def put(pool, stack, number, **fields):
    opened = replace(lives.opened(number), **fields)
    subject = stack.episode(lives.episode_id(number))
    await write_events(pool, opened, stack=stack, subject=subject)


async def numbers(client, number, **said):
    chain = await client.episodes.causal_chain(lives.episode_id(number), **said)
    assert [each.depth for each in chain] == list(range(len(chain)))
    return [each.episode_id.int for each in chain]


async def test_an_episode_is_led_to_by_a_fork_a_parent_and_an_event_of_another(pool, client):
    await put(pool, client.stack, 1)
    await put(pool, client.stack, 2, trigger=event_of(1))
    await put(pool, client.stack, 3, trigger=child_of(2))
    fork = Fork(episode_id=lives.episode_id(3), step_no=1, by="ann")
    await put(pool, client.stack, 4, trigger=child_of(2), fork=fork)
    assert await numbers(client, 4) == [4, 3, 2, 1]
    assert await numbers(client, 4, depth=1) == [4, 3]
    assert await numbers(client, 1) == [1]
    chain = await client.episodes.causal_chain(UUID(int=2))
    assert [each.event for each in chain] == ["finding.raised", "resource.updated"]


@pytest.mark.parametrize("payload", [{"episode_id": "nonsense"}, {"episode_id": 7}, {}])
async def test_what_an_event_from_outside_says_of_episodes_leads_to_none(pool, client, payload):
    await put(pool, client.stack, 1)
    await put(pool, client.stack, 2, trigger=event_of(1, hops=0))
    await put(pool, client.stack, 3, trigger=replace(event_of(1), payload=payload))
    assert await numbers(client, 2) == [2]
    assert await numbers(client, 3) == [3]


async def test_an_item_of_a_workflow_is_led_to_by_what_started_the_instance(pool, client):
    instance_id = str(UUID(int=7))
    told = given(flow("a")).when().flow
    journal = [replace(each, subject=client.stack.workflow(instance_id)) for each in told.journal]
    begun = replace(journal[0].commit.events[0], trigger=event_of(1))
    commit = replace(journal[0].commit, events=(begun, *journal[0].commit.events[1:]))
    journal[0] = replace(journal[0], commit=commit)
    await write(pool, project(journal, stack=client.stack), stack=client.stack)
    await put(pool, client.stack, 1)
    item = WorkflowTrigger(workflow_instance_id=instance_id, workflow_step_id="a")
    await put(pool, client.stack, 2, trigger=item)
    assert await numbers(client, 2) == [2, 1]


async def test_an_episode_that_there_is_not_has_no_chain(pool, client):
    with pytest.raises(NotFound, match="no episode"):
        await client.episodes.causal_chain(UUID(int=1))
