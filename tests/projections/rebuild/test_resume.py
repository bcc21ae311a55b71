"""A rebuild that died is continued, and only where that can be right."""

from __future__ import annotations

import asyncio

import pytest

from projections.errors import (
    OtherHistory,
    RebuildRunning,
)
from projections.postgres.rebuild import fresh
from streams.clock import SystemClock
from streams.memory import memory_ports
from tests.projections import lives
from tests.projections.lives import all_rows, append
from tests.projections.rebuild.rebuilding import (
    Killed,
    When,
    die,
    projected,
    rebuilt,
    schemas,
    spoil,
    verified,
)
from tests.projections.test_projector import fill


async def test_a_rebuild_that_died_goes_on_where_it_was(ports, pool, stack):
    await fill(ports)
    await projected(ports, pool)
    await spoil(pool, stack)
    with pytest.raises(Killed):
        await rebuilt(ports, pool, told=When("comparing", die))
    assert len(await schemas(pool)) == 1

    told = []
    report = await rebuilt(ports, pool, told=told)

    assert report.is_resumed
    assert report.events == 0
    assert (await verified(ports, pool)).difference is None


@pytest.mark.parametrize("stage", ["reading", "comparing", "swapping"])
async def test_a_rebuild_that_dies_at_any_stage_leaves_the_rows_to_the_next(
    ports, pool, stack, stage
):
    await fill(ports)
    await projected(ports, pool)
    await spoil(pool, stack)
    wrong = await all_rows(pool, stack=stack)
    with pytest.raises(Killed):
        await rebuilt(ports, pool, told=When(stage, die))
    assert await all_rows(pool, stack=stack) == wrong
    await rebuilt(ports, pool)
    assert (await verified(ports, pool)).difference is None
    assert await schemas(pool) == []


async def test_what_other_code_has_begun_is_begun_anew(ports, pool, monkeypatch):
    await fill(ports)
    await projected(ports, pool)
    with pytest.raises(Killed):
        await rebuilt(ports, pool, told=When("comparing", die))
    monkeypatch.setattr(fresh, "code_digest", lambda: "of another version")
    report = await rebuilt(ports, pool)
    assert not report.is_resumed
    assert report.events > 0


async def test_anew_means_from_the_beginning(ports, pool):
    await fill(ports)
    with pytest.raises(Killed):
        await rebuilt(ports, pool, told=When("comparing", die))
    report = await rebuilt(ports, pool, anew=True)
    assert not report.is_resumed
    assert report.events > 0


async def test_an_unfinished_rebuild_of_another_log_is_refused(ports, pool, stack):
    await fill(ports, count=1)
    with pytest.raises(Killed):
        await rebuilt(ports, pool, told=When("comparing", die))
    other = memory_ports(stack=stack, clock=SystemClock())
    subject = stack.episode(lives.episode_id(9))
    await append(other.log, subject, (lives.opened(9),), *lives.WHOLE_LIFE[1:])
    for _ in range(5):
        await append(other.log, subject, (lives.started(3),), (lives.finished(),))
    with pytest.raises(OtherHistory, match="begin anew with --anew"):
        await rebuilt(other, pool)
    await rebuilt(other, pool, anew=True)


async def test_of_two_rebuilds_of_one_stack_the_second_is_refused(ports, pool):
    await fill(ports)
    refused = []

    class Second(list):
        def append(self, progress):
            super().append(progress)
            if progress.stage == "reading" and not refused:
                refused.append(asyncio.ensure_future(rebuilt(ports, pool)))

    await rebuilt(ports, pool, told=Second())
    with pytest.raises(RebuildRunning):
        await refused[0]
