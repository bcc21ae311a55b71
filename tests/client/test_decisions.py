"""Who decided what: one list of approvals and denials, of episodes, outputs and steps."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from msgspec.structs import replace

from projections.project import project as changes_of
from streams.clock import SystemClock
from streams.model.events import OutputRejected, Resolution
from tests.engine.workflows.flows import decided, done, flow, given
from tests.projections import lives
from tests.projections.lives import write, write_events

HOUR = timedelta(hours=1)


@pytest.fixture
def began():
    return SystemClock().now() - 5 * HOUR


@pytest.fixture
async def decisions(client, pool, began):
    """An episode's approval, an hour later an output's denial, then a step's approval."""
    stack, first = client.stack, lives.episode_id(1)
    episode = stack.episode(first)
    opened = (lives.opened(), lives.started(), lives.blocked())
    await write_events(pool, *opened, stack=stack, subject=episode, at=began)
    approved = lives.resolved(resolution=Resolution.APPROVED, by="ann, bob", reason="it is late")
    await write_events(pool, approved, stack=stack, subject=episode, at=began)

    output, later = stack.output("mail:1"), began + HOUR
    asking = lives.proposed(approval=lives.approval())
    await write_events(pool, asking, stack=stack, subject=output, at=later)
    denied = OutputRejected(by="eve", reason="wrong address")
    await write_events(pool, denied, stack=stack, subject=output, at=later)

    asks = flow(("a", {"requires_approval": True}))
    for each in given(asks).when(decided("a", "approve"), done("a")).flow.journal:
        commit = replace(each.commit, at=began + 2 * HOUR)
        record = replace(each, subject=stack.workflow(str(UUID(int=1))), commit=commit)
        await write(pool, changes_of([record], stack=stack), stack=stack)
    return first


async def said(client, **asked):
    found = await client.approvals.decided(**asked)
    return [(each.kind, each.decision, each.person) for each in found]


async def test_all_that_people_decided_is_one_list_the_latest_first(client, decisions):
    step, *others = await said(client)

    assert step[:2] == ("step", "approved")
    assert others == [("output", "denied", "eve"), ("episode", "approved", "ann, bob")]
    (latest,) = (await client.approvals.decided(actor="monitor", limit=1)).items
    assert (latest.reason, latest.is_changed) == ("wrong address", False)


async def test_one_of_several_who_approved_is_found(client, decisions):
    assert await said(client, by="bob") == [("episode", "approved", "ann, bob")]
    assert await said(client, by="bo") == []


async def test_what_an_episode_and_its_outputs_had_asked_for_is_told(client, decisions):
    theirs = await said(client, episode_ids=[UUID(decisions)])

    assert {each[0] for each in theirs} == {"episode", "output"}
    assert await said(client, episode_ids=[UUID(int=77)]) == []


async def test_at_a_time_there_is_what_was_decided_by_then(client, decisions, began):
    assert await said(client, at=began) == [("episode", "approved", "ann, bob")]


async def test_pages_are_the_list_from_either_end(client, decisions):
    whole = await said(client)
    for reverse in (False, True):
        read, after = [], None
        while True:
            page = await client.approvals.decided(limit=1, after=after, reverse=reverse)
            read += [(each.kind, each.decision, each.person) for each in page]
            if (after := page.next) is None:
                break
        assert read == (whole[::-1] if reverse else whole)
