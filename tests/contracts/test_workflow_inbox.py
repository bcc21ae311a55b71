"""What every `Inbox` promises of commands to instances of workflows."""

from __future__ import annotations

import pytest

from streams.model.commands import Advance, StepDone
from streams.ports.delivery import Unreadable
from streams.subjects import Stack
from tests.contracts.samples import SILENCE_S, deliveries_of, opened, start


def advance(instance_id, workflow="review"):
    return Advance(workflow=workflow, instance_id=instance_id)


@pytest.fixture(params=[1, 3])
def stack(request, stack):
    return Stack(stack.name, partitions=request.param)


@pytest.fixture
def inbox(ports):
    return ports.commands


async def test_a_command_to_an_instance_arrives_as_it_was_sent(inbox):
    done = StepDone(
        workflow="review", instance_id="i1", step="rate", item=2, attempt=3, episode_id="e1"
    )
    async with opened(inbox.open_workflow("review")) as source:
        await inbox.send(done, id="d1", trace="00-aa-bb-01")
        (delivery,) = await deliveries_of(source, 1)
    assert (delivery.content, delivery.trace) == (done, "00-aa-bb-01")


async def test_commands_wait_for_a_workflow_that_was_never_opened(inbox):
    names = [f"i{n}" for n in range(12)]
    for each in names:
        await inbox.send(advance(each), id=each)
    async with opened(inbox.open_workflow("review")) as source:
        found = [each.content.instance_id for each in await deliveries_of(source, 12)]
    assert sorted(found) == sorted(names)


async def test_workflows_get_their_own_commands_alone_and_actors_none(inbox):
    await inbox.send(advance("i1"), id="1")
    await inbox.send(advance("i2", workflow="review-2"), id="2")
    await inbox.send(start("e1", actor="review"), id="3")
    async with opened(inbox.open_workflow("review")) as source:
        (delivery,) = await deliveries_of(source, 1)
        assert delivery.content == advance("i1")
        assert list(await source.receive(room=10, wait_s=SILENCE_S)) == []
    async with opened(inbox.open("review")) as source:
        (delivery,) = await deliveries_of(source, 1)
        assert delivery.content.episode_id == "e1"


async def test_all_readers_of_a_workflow_share_its_queue(inbox):
    async with (
        opened(inbox.open_workflow("review")) as one,
        opened(inbox.open_workflow("review")) as other,
    ):
        await inbox.send(advance("i1"), id="1")
        (delivery,) = await deliveries_of(one, 1)
        await delivery.ack()
        assert list(await other.receive(room=10, wait_s=SILENCE_S)) == []


async def test_what_is_no_command_to_an_instance_is_handed_out_as_unreadable(
    inbox, publish_raw, stack
):
    subject = stack.workflow_inbox("review", "i1")
    await publish_raw(subject, b'{"type":"start@1","actor_id":"a","episode_id":"e"}', {})
    async with opened(inbox.open_workflow("review")) as source:
        (delivery,) = await deliveries_of(source, 1)
    assert isinstance(delivery.content, Unreadable)
    assert (delivery.content.reason, delivery.content.subject) == ("unreadable", subject)
