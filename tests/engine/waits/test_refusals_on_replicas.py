"""A person is refused only on what the leader knows: a replica may be long behind, or cut off."""

from __future__ import annotations

import dataclasses

import pytest

from engine.app.actions import approval
from engine.errors import Refused
from engine.waits.requests import approve
from engine.workflows.requests import read_instance
from tests.engine.stage import Scripted, app_of, open_episode, running
from tests.engine.waits.test_wait import blocked

NOBODYS = "00000000-0000-0000-0000-000000000000"


class Behind:
    """A log whose replica lacks what it is first asked for `times` times."""

    def __init__(self, log, times=1):
        self._log, self._times = log, times

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def read(self, subject, **how):
        records = await self._log.read(subject, **how)
        self._times -= 1
        return records if self._times < 0 else records[:-1]


def behind(ports):
    return dataclasses.replace(ports, log=Behind(ports.log))


async def test_an_approval_is_not_refused_because_a_replica_is_behind(ports):
    app = app_of(Scripted(approval({"x": 1})))
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        block = await blocked(ports, id_)

        await approve(behind(ports), id_, plan_hash=block.approval.plan_hash, by="ada")


async def test_an_episode_that_nobody_has_opened_is_refused(ports):
    with pytest.raises(Refused, match="there is no such episode"):
        await approve(ports, NOBODYS, plan_hash="0" * 64, by="ada")


async def test_an_instance_that_nobody_has_started_is_refused(ports):
    with pytest.raises(Refused, match="there is no such instance"):
        await read_instance(ports, NOBODYS)
