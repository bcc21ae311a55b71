"""The people and programs that answer what is asked: once each, and signals one at a time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from streams.model.events import (
    EpisodeBlocked,
    EpisodeFinished,
    EpisodeOpened,
    LogEvent,
    OutputProposed,
    StepApprovalAsked,
    WorkflowFinished,
)
from streams.model.triggers import EventTrigger
from streams.model.waits import Approval
from streams.ports.all import Ports
from tests.attack import ledger
from tests.attack.app import APPROVER
from vigil.ports import ApprovalTarget, decide_request

SIGNALED: Final = "wait.resolved"
BATCH_MAX: Final = 500
WAIT_S: Final = 1.0


@dataclass
class People:
    """Follow the journal of a stack, answer what it asks, and notice when the order has ended."""

    ports: Ports
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether the episode or instance under attack has, or waits for what nobody here answers."""
    _opened: set[str] = field(default_factory=set)
    """The episode that the event of the order has opened."""

    def begin(self) -> None:
        """Look out for the end of another order."""
        self.ended.clear()
        self._opened.clear()

    async def answer(self) -> None:
        """Do it, for ever."""
        async with self.ports.log.follow() as follower:
            while True:
                for record in await follower.receive(most=BATCH_MAX, wait_s=WAIT_S):
                    id_ = record.subject.rpartition(".")[2]
                    for event in record.commit.events:
                        await self._hear(id_, event)

    async def _hear(self, id_: str, event: LogEvent) -> None:
        match event:
            case EpisodeOpened(trigger=EventTrigger()):
                self._opened.add(id_)
            case EpisodeFinished() if id_ in self._opened:
                self.ended.set()
            case WorkflowFinished():
                self.ended.set()
            case EpisodeBlocked():
                await self._answer(id_, event)
            case OutputProposed(approval=asked, output_key=key) if asked is not None:
                await self._approve(ApprovalTarget("output", key), asked)
            case StepApprovalAsked(step=step, approval=asked):
                await self._approve(ApprovalTarget("step", id_, step), asked)
            case _:
                pass

    async def _answer(self, id_: str, blocked: EpisodeBlocked) -> None:
        asked, wait = blocked.approval, blocked.wait
        if asked is not None:
            await self._approve(ApprovalTarget("episode", id_), asked)
        elif wait is not None and wait.ref:
            said = {"ref": wait.ref, "result": ledger.nonce(), "by": "a program"}
            await self.ports.domain_events.publish(SIGNALED, said, id=f"{wait.ref}-resolved")
        elif wait is None:
            self.ended.set()

    async def _approve(self, target: ApprovalTarget, asked: Approval) -> None:
        plan_hash = asked.plan_hash
        await decide_request(self.ports, target, "approve", plan_hash=plan_hash, by=APPROVER)
