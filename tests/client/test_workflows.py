"""What a client does with instances of workflows."""

from __future__ import annotations

from uuid import UUID

import pytest

from streams.clock import SystemClock
from streams.model.events import WorkflowCancelAsked
from streams.ports.log import START, Commit
from tests.engine.workflows.flows import flow, given
from vigil.errors import NotFound, Trouble

ID = UUID(int=7)


async def begun(ports, workflow):
    """Have an instance begin."""
    subject, after = ports.stack.workflow(str(ID)), START
    for number, each in enumerate(given(workflow).when().flow.journal):
        commit = Commit(id=f"c{number}", at=SystemClock().now(), events=each.commit.events)
        after = await ports.log.append(subject, commit, after=after)


@pytest.mark.parametrize(
    "call",
    [
        lambda calls: calls.read(ID),
        lambda calls: calls.retry(ID, "a"),
        lambda calls: calls.skip(ID, "a"),
        lambda calls: calls.cancel(ID),
    ],
    ids=["read", "retry", "skip", "cancel"],
)
async def test_an_instance_that_there_is_not_is_not_found(client, call):
    with pytest.raises(NotFound, match=f"instance {ID}: there is no such instance"):
        await call(client.workflows)


async def test_a_step_that_there_is_not_is_not_found_and_one_that_goes_on_is_trouble(ports, client):
    await begun(ports, flow("a", "b"))
    assert (await client.workflows.read(ID)).begun.spec.name == "w"
    with pytest.raises(NotFound, match="it has no step 'c'; its steps: a, b"):
        await client.workflows.retry(ID, "c")
    with pytest.raises(Trouble, match="step 'a' is not paused") as raised:
        await client.workflows.skip(ID, "a")
    assert not isinstance(raised.value, NotFound)


async def test_an_instance_is_read_as_its_journal_was_at_a_time(ports, client):
    early = SystemClock().now()
    await begun(ports, flow("a", "b"))
    late = SystemClock().now()
    subject = ports.stack.workflow(str(ID))
    *_, newest = await ports.log.read(subject)
    asked = WorkflowCancelAsked(by="ann")
    canceled = Commit(id="later", at=SystemClock().now(), events=(asked,))
    await ports.log.append(subject, canceled, after=newest.seq)

    assert (await client.workflows.read(ID, at=late)).status == "running"
    assert (await client.workflows.read(ID)).status == "stopping"
    with pytest.raises(NotFound, match="no such instance"):
        await client.workflows.read(ID, at=early)
