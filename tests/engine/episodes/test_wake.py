"""A node is called to an episode that waits, by the first of all the times that it is needed."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest
from msgspec.structs import replace

from engine.app.actions import wait
from engine.app.outputs import propose_output
from engine.episodes import open as wake
from engine.episodes.open import ATTEND, attend_timer, call_by
from engine.waits.handle import WaitRegistry
from engine.waits.requests import resolve
from streams.errors import Unavailable
from streams.model.events import EpisodeDeferred
from tests.engine.crew import crew_of
from tests.engine.output_stage import Pager, Proposing, busy
from tests.engine.output_stage import app_of as output_app
from tests.engine.stage import (
    CLOCK,
    Scripted,
    all_answered,
    app_of,
    lived,
    open_episode,
    opening,
    running,
)
from tests.engine.waits.test_wait import blocked

SOON = CLOCK.now() + timedelta(hours=1)
LATER = SOON + timedelta(hours=1)
LAST = LATER + timedelta(hours=1)
OPENED = opening(app_of(Scripted()))


class Raced:
    """Timers that others arm right before the caller does."""

    def __init__(self, timers, *others):
        self._timers, self._others = timers, list(others)

    def __getattr__(self, name):
        return getattr(self._timers, name)

    async def arm(self, timer, **how):
        if self._others:
            await self._timers.arm(timer, at=self._others.pop(0))
        return await self._timers.arm(timer, **how)


async def armed_for(ports, episode_id=OPENED.episode_id):
    """Return when a node is called; None: it is not."""
    pending = await ports.timers.pending("worker", ATTEND, episode_id)
    return pending.due_at if pending else None


@pytest.mark.parametrize("times", [[SOON, LATER], [LATER, SOON], [SOON, SOON]])
async def test_it_is_called_by_the_soonest(ports, times):
    for at in times:
        await call_by(ports, OPENED, at)
    assert await armed_for(ports) == SOON


@pytest.mark.parametrize(("mine", "others"), [(LATER, [SOON]), (SOON, [LATER]), (SOON, [LAST])])
async def test_of_two_who_call_at_once_the_sooner_stands(ports, mine, others):
    raced = dataclasses.replace(ports, timers=Raced(ports.timers, *others))
    await call_by(raced, OPENED, mine)
    assert await armed_for(ports) == SOON


async def test_who_is_overtaken_again_and_again_gives_up_and_says_so(ports, monkeypatch):
    monkeypatch.setattr(wake, "TRIES_MAX", 2)
    raced = dataclasses.replace(ports, timers=Raced(ports.timers, LAST, LATER))
    with pytest.raises(Unavailable, match="moved 2 times"):
        await call_by(raced, OPENED, SOON)


async def test_what_no_one_here_can_read_gives_way(ports):
    timer = attend_timer(OPENED.actor_id, OPENED.episode_id)
    subject = ports.stack.timer(timer.actor, timer.purpose, timer.key)
    await ports.timers.arm(timer, at=SOON)
    armed = ports.timers._armed[subject]
    ports.timers._armed[subject] = replace(armed, data=b"of a newer version")
    await call_by(ports, OPENED, LATER)
    assert await armed_for(ports) == LATER


async def test_a_slow_node_that_sees_to_an_old_block_leaves_the_retry_of_an_output(ports):
    asked = wait("payment:42", expires_s=86_400.0 * 365)
    outputs = [propose_output("pager", {"text": "disk full"})]
    app = output_app(Proposing(asked, outputs=outputs), {"pager": Pager(busy(retry_after_s=600))})
    log = ports.log

    class Stale:
        """Shows the old block once, as to a node that was slow since."""

        past = None

        def __getattr__(self, name):
            return getattr(log, name)

        async def last(self, subject):
            found, self.past = self.past, None
            return found or await log.last(subject)

    stale = Stale()
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await blocked(ports, id_)
        stale.past = await log.last(ports.stack.episode(id_))
        await resolve(ports, "payment:42", by="x")
        await lived(ports, id_, lambda so_far: so_far.of(EpisodeDeferred))
        await all_answered(ports.commands)
    retry_at = await armed_for(ports, id_)
    slow = WaitRegistry(crew_of(app, dataclasses.replace(ports, log=stale)))
    await slow.watch(opening(app), after=CLOCK.now())
    assert await armed_for(ports, id_) == retry_at
