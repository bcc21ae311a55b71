"""A command that a replica makes look superfluous is not answered for: it comes again."""

from __future__ import annotations

import dataclasses

import pytest

from engine.app.actions import approval, wait
from engine.app.outputs import propose_output
from engine.waits.requests import resolve
from streams.model.events import EndStatus, EpisodeBlocked, EpisodeDeferred
from tests.engine.output_stage import Pager, Proposing, busy
from tests.engine.output_stage import app_of as output_app
from tests.engine.stage import Scripted, app_of, decide, lived, open_episode, running
from tests.engine.waits.test_wait import blocked


class Lagging:
    """A log whose replica lacks an episode's newest commit, of one kind, when it is first read."""

    def __init__(self, log, kind):
        self._log, self._kind, self.has_lagged = log, kind, False

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def read(self, subject, **how):
        records = await self._log.read(subject, **how)
        newest = records[-1].commit.events[-1] if records else None
        if self.has_lagged or not isinstance(newest, self._kind):
            return records
        self.has_lagged = True
        return records[:-1]


async def nothing(ports, id_):
    """Nobody has to do anything."""


async def approved(ports, id_):
    await blocked(ports, id_)
    await decide(ports, id_)


async def resolved(ports, id_):
    await blocked(ports, id_)
    await resolve(ports, "payment:42", by="ada")


@pytest.mark.parametrize(
    ("action", "answered"),
    [
        (approval({"x": 1}, expires_s=0.3, on_expiry="approve"), nothing),
        (approval({"x": 1}), approved),
        (wait("payment:42"), resolved),
    ],
    ids=["an expiry", "a decision", "word"],
)
async def test_an_answer_is_not_lost_to_a_replica_that_lags(ports, action, answered):
    app, lagging = app_of(Scripted(action)), Lagging(ports.log, EpisodeBlocked)
    async with running(app, dataclasses.replace(ports, log=lagging)):
        id_ = await open_episode(ports, app)
        await answered(ports, id_)
        done = await lived(ports, id_)
    assert lagging.has_lagged
    assert done.end.status is EndStatus.DONE


async def test_a_retry_is_not_lost_to_a_replica_that_lags(ports):
    outputs = [propose_output("pager", {"text": "disk full"})]
    app = output_app(Proposing(outputs=outputs), {"pager": Pager(busy())})
    lagging = Lagging(ports.log, EpisodeDeferred)
    async with running(app, dataclasses.replace(ports, log=lagging)):
        done = await lived(ports, await open_episode(ports, app))
    assert lagging.has_lagged
    assert done.end.status is EndStatus.DONE
