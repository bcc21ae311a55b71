"""People who see to instances: they decide on steps, have paused ones go on, and cancel."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random
from typing import Final

from streams.model.events import (
    LogEvent,
    StepApprovalAsked,
    StepApprovalGiven,
    StepPaused,
    WorkflowStarted,
)
from streams.ports.all import Ports
from tests.simulation.people import YES_SHARE, surely, undecided
from vigil.ports import ApprovalTarget, cancel_workflow, decide_request, resume_workflow

CANCELED_SHARE: Final = 0.25
CANCEL_S_MAX: Final = 40.0
WAIT_S_MAX: Final = 8.0
NEVER_SHARE: Final = 0.2
"""Of approvals that expire, those that nobody answers."""

Asked = StepApprovalAsked | StepApprovalGiven

Asks = Asked | StepPaused | WorkflowStarted
"""What happens to instances that people see to."""


async def see_to(ports: Ports, instance_id: str, event: LogEvent, rng: Random) -> None:
    """Do something about what has happened to an instance."""
    match event:
        case WorkflowStarted():
            await asyncio.sleep(rng.uniform(0.0, CANCEL_S_MAX))
            await surely(partial(cancel_workflow, ports, instance_id, by="ada"))
        case StepApprovalAsked() | StepApprovalGiven():
            await _decide(ports, instance_id, event, rng)
        case StepPaused(step=step):
            await asyncio.sleep(rng.uniform(0.0, WAIT_S_MAX))
            how = rng.choice(["retry", "skip"])
            ask = partial(resume_workflow, ports, instance_id, step, how=how, by="ada")
            await asyncio.gather(*(surely(ask) for _ in range(rng.choice((1, 1, 2)))))


def is_wanted(event: LogEvent, rng: Random) -> bool:
    """Return whether somebody does something about `event`."""
    if isinstance(event, WorkflowStarted):
        return rng.random() < CANCELED_SHARE
    return isinstance(event, Asks)


async def _decide(ports: Ports, instance_id: str, asked: Asked, rng: Random) -> None:
    if asked.approval.expires_at is not None and rng.random() < NEVER_SHARE:
        return
    await asyncio.sleep(rng.uniform(0.0, WAIT_S_MAX))
    says = [partial(_say, ports, instance_id, asked, rng) for _ in range(rng.choice((1, 1, 2)))]
    await asyncio.gather(*(say() for say in says))


async def _say(ports: Ports, instance_id: str, asked: Asked, rng: Random) -> None:
    """Decide as the product offers it; of two at the same time each in their own way."""
    verdict = "approve" if rng.random() < YES_SHARE else "deny"
    by = rng.choice(undecided(asked.approval))
    target, mark = ApprovalTarget("step", instance_id, asked.step), asked.approval.plan_hash
    await surely(partial(decide_request, ports, target, verdict, plan_hash=mark, by=by))
