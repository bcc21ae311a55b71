"""A fire by hand is a timer of the actor's, at once or for later."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from engine.app.tools import overrides
from engine.episodes import fire as firing
from engine.episodes.fire import FireRequest, fire, fired_episode_id, parse_fire
from engine.errors import BadRequest
from streams.model.triggers import Mode
from tests.engine.stage import CLOCK, WAIT_S


async def due(ports, *, most=10):
    """The timers that the actor is told of."""
    source = await ports.timers.open("worker")
    return [one.content for one in await source.receive(room=most, wait_s=WAIT_S)]


async def test_a_fire_is_said_at_once(ports):
    episode_id = await fire(
        ports, "worker", "thing", {"a": 1}, by="ann", reason="to see", key="k1", priority=5
    )
    (said,) = await due(ports)
    assert said.purpose == firing.PURPOSE
    assert parse_fire(said.payload) == FireRequest(
        expectation="thing",
        requested_by="ann",
        key="k1",
        reason="to see",
        payload={"a": 1},
        priority=5,
    )
    assert episode_id == fired_episode_id(
        stack="vigil", actor="worker", expectation="thing", key="k1"
    )


async def test_a_dry_run_says_so_and_brings_its_overrides(ports):
    given = overrides(synthesis="x")
    await fire(ports, "worker", "thing", by="ann", dry_run=True, overrides=given)
    (said,) = await due(ports)
    asked = parse_fire(said.payload)
    assert (asked.mode, asked.overrides) == (Mode.DRY_RUN, given)


async def test_the_same_key_is_asked_for_once(ports):
    first = await fire(ports, "worker", "thing", by="ann", key="k1")
    assert await fire(ports, "worker", "thing", by="bob", key="k1") == first
    assert len(await due(ports)) == 1


async def test_the_real_thing_may_follow_its_dry_run_under_one_key(ports):
    dry = await fire(ports, "worker", "thing", by="ann", key="k1", dry_run=True)
    assert await fire(ports, "worker", "thing", by="ann", key="k1") != dry
    assert len(await due(ports)) == 2


async def test_without_a_key_every_fire_is_one_of_its_own(ports):
    first = await fire(ports, "worker", "thing", by="ann")
    assert await fire(ports, "worker", "thing", by="ann") != first
    assert len(await due(ports)) == 2


async def test_a_later_fire_is_pending_until_its_time(ports):
    at = CLOCK.now() + timedelta(hours=1)
    await fire(ports, "worker", "thing", by="ann", key="k1", at=at)
    pending = await ports.timers.pending("worker", firing.PURPOSE, "thing.manual:k1")
    assert pending is not None
    assert (pending.due_at, parse_fire(pending.payload).key) == (at, "k1")


async def test_a_time_in_the_past_is_now(ports):
    await fire(ports, "worker", "thing", by="ann", at=CLOCK.now() - timedelta(hours=1))
    assert len(await due(ports)) == 1


@pytest.mark.parametrize(
    "at",
    [
        datetime(2030, 1, 1),  # noqa: DTZ001 - that is wrong
        datetime(2300, 1, 1, tzinfo=UTC),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
        "2030-01-01T00:00:00Z",
        2030,
    ],
)
async def test_a_time_that_cannot_be_is_refused(ports, at):
    with pytest.raises(BadRequest, match=r"^at: "):
        await fire(ports, "worker", "thing", by="ann", at=at)


@pytest.mark.parametrize("dry_run", ["no", 0, None])
async def test_what_is_meant_and_what_is_not_is_said_by_true_or_false(ports, dry_run):
    with pytest.raises(BadRequest, match=r"^dry_run: .* is not True or False"):
        await fire(ports, "worker", "thing", by="ann", dry_run=dry_run)


async def test_a_request_that_cannot_work_is_refused_and_not_sent(ports):
    with pytest.raises(BadRequest, match=r"^overrides: only a dry run"):
        await fire(ports, "worker", "thing", by="ann", overrides=overrides())
    await fire(ports, "worker", "thing", by="ann", key="k2")
    assert [parse_fire(said.payload).key for said in await due(ports)] == ["k2"]
