"""Lists as they were at a time: what a client may ask for, and how it is read in pages."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import pytest

from streams.clock import SystemClock
from streams.model.events import ActorPaused, ActorResumed
from tests.projections import lives
from tests.projections.lives import write_events
from vigil.errors import Mistake, NotFound

HOUR = timedelta(hours=1)

CALLS = {
    "episodes": lambda client, at: client.episodes.list(at=at),
    "episode counts": lambda client, at: client.episodes.count(at=at),
    "findings": lambda client, at: client.findings.list(at=at),
    "finding counts": lambda client, at: client.findings.count(at=at),
    "active findings": lambda client, at: client.findings.count_active(at=at),
    "inbox": lambda client, at: client.inbox(at=at),
    "inbox counts": lambda client, at: client.count_inbox(at=at),
    "outputs": lambda client, at: client.outputs.list(at=at),
    "output counts": lambda client, at: client.outputs.count(at=at),
    "an output": lambda client, at: client.outputs.get("mail:1", at=at),
    "instances": lambda client, at: client.workflows.list(at=at),
    "instance counts": lambda client, at: client.workflows.count(at=at),
    "an instance": lambda client, at: client.workflows.get(UUID(int=1), at=at),
    "the journal of an instance": lambda client, at: client.workflows.read(UUID(int=1), at=at),
    "a finding": lambda client, at: client.findings.get("disk", at=at),
    "an episode": lambda client, at: client.episodes.describe(UUID(int=1), at=at),
    "a timeline": lambda client, at: client.episodes.timeline(UUID(int=1), at=at),
    "orders": lambda client, at: client.orders.list(at=at),
    "order counts": lambda client, at: client.orders.count(at=at),
}


@pytest.fixture
def began():
    """Three hours ago: all happens an hour apart from then on."""
    return SystemClock().now() - 3 * HOUR


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_what_is_yet_to_come_is_a_mistake(client, call):
    with pytest.raises(Mistake, match="yet to come"):
        await call(client, SystemClock().now() + HOUR)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_a_time_without_a_zone_is_a_mistake(client, call):
    with pytest.raises(Mistake, match="time zone"):
        await call(client, datetime(2026, 1, 1))  # noqa: DTZ001 - the mistake


async def test_an_episode_is_as_it_was(client, pool, began):
    stack, id_ = client.stack, lives.episode_id(1)
    happened = ((lives.opened(),), (lives.started(),), (lives.finished(),))
    for hours, events in enumerate(happened):
        at = began + hours * HOUR
        await write_events(pool, *events, stack=stack, subject=stack.episode(id_), at=at)

    async def then(hours):
        return [each.status for each in await client.episodes.list(at=began + hours * HOUR)]

    assert [await then(hours) for hours in (-1, 0, 1, 2)] == [[], ["queued"], ["running"], ["done"]]
    assert await client.episodes.count(at=began + HOUR) == {"running": 1}


async def test_an_episode_by_itself_is_as_it_was(client, pool, began):
    stack, id_ = client.stack, lives.episode_id(1)
    happened = (
        (lives.opened(), lives.started()),
        (lives.recorded(1), lives.blocked(2, ref="payment:42")),
        (lives.resolved(2), lives.converged(), lives.finished()),
    )
    for hours, events in enumerate(happened):
        at = began + hours * HOUR
        await write_events(pool, *events, stack=stack, subject=stack.episode(id_), at=at)

    running, blocked, done = [
        await client.episodes.describe(id_, at=began + hours * HOUR) for hours in range(3)
    ]
    assert [each["status"] for each in (running, blocked, done)] == ["running", "blocked", "done"]
    assert (running["summary"], running["waits_for"]) == (None, None)
    assert [each["takeovers"] for each in (running, blocked, done)] == [None, None, 0]
    assert (blocked["waits_for"]["ref"], blocked["waits_for"]["resolution"]) == ("payment:42", None)
    assert done["summary"] is not None
    kinds = [each.kind for each in await client.episodes.timeline(id_, at=began)]
    assert kinds == ["episode_opened", "episode_started"]
    with pytest.raises(NotFound):
        await client.episodes.describe(id_, at=began - HOUR)


async def test_what_one_that_ran_had_used_is_unknown(client, pool, began):
    events = (lives.opened(), lives.started(), lives.recorded(1, tokens=40))
    stack = client.stack
    subject = stack.episode(lives.episode_id(1))
    await write_events(pool, *events, stack=stack, subject=subject, at=began)

    (episode,) = await client.episodes.list(at=began + HOUR)

    assert (episode.turns_used, episode.tokens_used, episode.cost_usd) == (None, None, None)
    assert (episode.wall_used_ms, episode.model, episode.position) == (None, None, None)


async def test_pages_of_the_past_are_the_list_from_either_end(client, pool, began):
    stack = client.stack
    for number in range(1, 6):
        subject = stack.episode(lives.episode_id(number))
        at = began + number // 2 * timedelta(minutes=1)
        await write_events(pool, lives.opened(number), stack=stack, subject=subject, at=at)
    now = SystemClock().now()
    whole = [each.episode_id for each in await client.episodes.list(at=now)]

    for reverse in (False, True):
        read, after = [], None
        while True:
            page = await client.episodes.list(at=now, after=after, limit=2, reverse=reverse)
            read += [each.episode_id for each in page]
            if (after := page.next) is None:
                break
        assert read == (whole[::-1] if reverse else whole)


async def test_a_place_in_the_list_of_now_is_none_in_that_of_the_past(client, pool, began):
    stack = client.stack
    subject = stack.episode(lives.episode_id(1))
    await write_events(pool, lives.opened(), stack=stack, subject=subject, at=began)
    page = await client.episodes.list(limit=1)

    with pytest.raises(Mistake, match="next"):
        await client.episodes.list(at=began, after=page.next)


async def test_orders_are_those_given_by_then(client, pool, began):
    stack = client.stack
    subject = stack.order("pause.dba")
    paused = ActorPaused(actor_id="dba", by="ann")
    await write_events(pool, paused, stack=stack, subject=subject, at=began)
    resumed = ActorResumed(actor_id="dba", by="ann")
    await write_events(
        pool, resumed, stack=stack, subject=stack.order("pause.dba2"), at=began + HOUR
    )

    assert [each.change for each in await client.orders.list(at=began)] == ["actor_paused"]
    assert await client.orders.count(at=began) == {"actor_paused": 1}
