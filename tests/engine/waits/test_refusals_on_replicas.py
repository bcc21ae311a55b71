"""A person is refused only on what the leader knows: a replica may be long behind, or cut off."""

from __future__ import annotations

import dataclasses

import pytest

from engine.app.actions import approval
from engine.errors import Refused
from engine.operations.decide_request import ApprovalTarget, decide_request
from engine.outputs.requests import cancel_output
from engine.workflows.requests import read_instance
from streams.clock import SystemClock
from streams.ports.log import START, Commit
from tests.engine.reactor.journals import PROPOSED
from tests.engine.stage import Scripted, app_of, open_episode, running
from tests.engine.waits.test_wait import blocked
from tests.streams.workflow_samples import WORKFLOW_EVENTS

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
        plan_hash = (await blocked(ports, id_)).approval.plan_hash

        target = ApprovalTarget("episode", id_)
        await decide_request(behind(ports), target, "approve", plan_hash=plan_hash, by="ada")


async def test_an_output_is_not_refused_because_a_replica_is_behind(ports):
    proposed = Commit(id="c1", at=SystemClock().now(), events=(PROPOSED,))
    await ports.log.append(ports.stack.output("o1"), proposed, after=START)

    await cancel_output(behind(ports), "o1", by="ada")


async def test_an_instance_is_there_though_a_replica_is_behind(ports):
    started = WORKFLOW_EVENTS["workflow.started@1"][0]
    begun = Commit(id="c1", at=SystemClock().now(), events=(started,))
    await ports.log.append(ports.stack.workflow("i1"), begun, after=START)

    assert (await read_instance(behind(ports), "i1")).started is not None


async def test_an_instance_that_nobody_has_started_is_refused(ports):
    with pytest.raises(Refused, match="there is no such instance"):
        await read_instance(ports, NOBODYS)
