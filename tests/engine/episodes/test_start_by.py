"""An episode that no node has begun in time is not begun at all."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from engine.app.actions import tool_call
from streams.model.commands import Recover
from streams.model.events import EndStatus, EpisodeFinished, EpisodeOpened, EpisodeStarted
from streams.model.triggers import Mode
from tests.engine.stage import (
    CLOCK,
    STARTED,
    Counter,
    Scripted,
    all_answered,
    app_of,
    ask_start,
    kept,
    life,
    lived,
    no_claim_made,
    opening,
    running,
    told,
    write,
)

PAST = CLOCK.now() - timedelta(hours=1)


@pytest.fixture
def tool():
    return Counter()


@pytest.fixture
def app(tool):
    return app_of(Scripted(tool_call("tool", "a")), tools={"tool": tool})


async def served(ports, app, *since, **said):
    """Open an episode that says so, let a node answer for it, and return its life."""
    opened = replace(opening(app), **said)
    await write(ports, opened.episode_id, opened)
    if since:
        await write(ports, opened.episode_id, *since)
        command = Recover(actor_id="worker", episode_id=opened.episode_id, reason="lapsed")
        await ports.commands.send(command, id="lapse")
    else:
        await ask_start(ports, opened.episode_id)
    async with running(app, ports):
        await lived(ports, opened.episode_id)
        await all_answered(ports.commands)
    return await life(ports, opened.episode_id)


async def test_an_episode_whose_time_to_begin_has_passed_is_canceled(ports, app, tool):
    life_ = await served(ports, app, start_by=PAST)
    assert [type(event) for event in life_.events] == [EpisodeOpened, EpisodeFinished]
    assert (life_.end.status, life_.end.error_class) == (EndStatus.CANCELED, "expired")
    assert tool.calls == []


async def test_the_world_is_told_that_it_was_canceled_and_not_that_it_was_begun(ports, app):
    await served(ports, app, start_by=PAST)
    ((name, payload),) = told(ports)
    assert (name, payload["error_class"]) == ("episode.canceled", "expired")


async def test_a_dry_run_expires_in_silence(ports, app):
    life_ = await served(ports, app, start_by=PAST, mode=Mode.DRY_RUN)
    assert life_.end.error_class == "expired"
    assert told(ports) == []


async def test_an_episode_that_expires_claims_nothing(ports, app):
    async with ports.leases.watch() as watch:
        await served(ports, app, start_by=PAST)
        assert await no_claim_made(watch)


async def test_an_episode_that_has_time_is_begun(ports, app, tool):
    await served(ports, app, start_by=CLOCK.now() + timedelta(hours=1))
    assert tool.calls == ["a"]


async def test_an_episode_that_was_begun_in_time_goes_on(ports, app, tool):
    life_ = await served(ports, app, STARTED, kept(), start_by=PAST)
    assert life_.of(EpisodeStarted)[-1].attempt == 2
    assert tool.calls == ["a"]
