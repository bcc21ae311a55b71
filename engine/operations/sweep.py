"""Sweeps: finds episodes and workflow instances that no node continues, and calls one.

Lost leases recover by themselves; a sweep finds what even that misses, such as commands that were
lost with an emptied queue. What it sends is safe to repeat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from engine.app.workflow_plan import starter_id
from engine.children.rules import awaited
from engine.episodes.attempt import cover_of
from engine.episodes.episode import ENDED, WAITING, Episode, Status, fold
from engine.episodes.open import ATTEND
from engine.episodes.recovery import SweepVerdict
from engine.errors import Rejected
from engine.runtime.gather import gather_bounded
from engine.runtime.leases import stands
from engine.runtime.store import Turns
from engine.waits.signals import References
from engine.waits.wait import block_in
from engine.workflows.effects import wake_at
from engine.workflows.instance import INSTANCE_ENDED, Instance, fold_instance
from engine.workflows.start import CONDUCT
from streams.clock import Clock
from streams.errors import UnreadableEvent
from streams.keys import episode_claim
from streams.model.commands import (
    Advance,
    Attend,
    Command,
    Recover,
    Start,
    StepDone,
    WorkflowCommand,
)
from streams.model.events import EpisodeFinished, WorkflowFinished
from streams.model.workflows import StepStatus, WorkflowStatus
from streams.ports.all import Ports
from streams.ports.log import Recorded

IN_FLIGHT_MAX: Final = 32
"""Episodes checked at a time."""


class SweptAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """A running attempt, as the instance knows it, and its state by its own journal."""

    told: StepDone
    """The command that reports its end to the instance."""
    is_open: bool
    has_ended: bool


def running(instance: Instance) -> Iterator[StepDone]:
    """Yield the commands that would report the ends of running attempts and compensations."""
    begun = instance.begun
    workflow, id_ = begun.spec.name, begun.instance_id
    for (step, number), item in instance.with_status(StepStatus.RUNNING):
        yield StepDone(
            workflow=workflow,
            instance_id=id_,
            step=step,
            item=number,
            attempt=item.attempt,
            episode_id=item.episode_id,
        )
    for (step, number), undoing in instance.undoings.items():
        if undoing.ended is None:
            yield StepDone(
                workflow=workflow,
                instance_id=id_,
                step=step,
                item=number,
                attempt=undoing.attempt,
                episode_id=undoing.episode_id,
                is_compensation=True,
            )


def judge_instance(
    instance: Instance,
    attempts: Sequence[SweptAttempt],
    *,
    is_armed: bool,
    silent_s: float,
    stale_after_s: float,
) -> SweepVerdict:
    """Return the verdict; `attempts` are those of `running`. `RECOVERED`: send a command to it."""
    if instance.started is None or instance.phase in INSTANCE_ENDED:
        return SweepVerdict.ENDED
    if silent_s < stale_after_s:
        return SweepVerdict.HELD
    if instance.is_held:  # Whether it may go on is not on its journal, and a call is harmless.
        return SweepVerdict.RECOVERED
    is_lost = any(each.has_ended or not each.is_open for each in attempts)
    # What is to be canceled may not have heard of it: nothing shows whether it has.
    may_not_know = instance.phase is WorkflowStatus.STOPPING
    is_due = wake_at(instance) is not None
    waits = attempts or is_due or instance.status is WorkflowStatus.BLOCKED
    if is_lost or may_not_know or not waits or (is_due and not is_armed):
        return SweepVerdict.RECOVERED
    return SweepVerdict.WAITING


def calls_for(instance: Instance, attempts: Sequence[SweptAttempt]) -> Sequence[WorkflowCommand]:
    """Return the commands that continue `instance`: first the ends that it may not know."""
    begun = instance.begun
    advance = Advance(workflow=begun.spec.name, instance_id=begun.instance_id)
    return [*(each.told for each in attempts if each.has_ended), advance]


def require_there(instance: Instance) -> None:
    """Raise `Rejected` unless the journal has `instance`."""
    if instance.started is None:
        raise Rejected("the journal does not hold its instance; discard it")


@dataclass(frozen=True)
class InstanceSweeper:
    """Sweeps workflow instances for one person."""

    ports: Ports
    clock: Clock
    stale_after_s: float
    is_dry: bool = False
    """Report only."""
    _room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(IN_FLIGHT_MAX))

    async def sweep(self, instance_ids: Iterable[str]) -> Sequence[SweepVerdict]:
        """Return the verdict on each instance, carried out unless `is_dry`."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._look_at(each)) for each in instance_ids]
        return [task.result() for task in tasks]

    async def _look_at(self, instance_id: str) -> SweepVerdict:
        try:
            async with self._room:
                records = await self.ports.log.read(self.ports.stack.workflow(instance_id))
        except UnreadableEvent:
            return SweepVerdict.UNREADABLE
        instance = fold_instance(records)
        if instance.started is None or instance.phase in INSTANCE_ENDED:
            return SweepVerdict.ENDED
        attempts = await asyncio.gather(*(self._attempt(each) for each in running(instance)))
        verdict = judge_instance(
            instance,
            attempts,
            is_armed=await self._is_armed(instance),
            silent_s=(self.clock.now() - records[-1].commit.at).total_seconds(),
            stale_after_s=self.stale_after_s,
        )
        if verdict is SweepVerdict.RECOVERED and not self.is_dry:
            await self._call(instance, attempts)
        return verdict

    async def _attempt(self, told: StepDone) -> SweptAttempt:
        stack = self.ports.stack
        async with self._room:
            try:
                newest = await self.ports.log.last(stack.episode(told.episode_id))
                newest = newest or await self.ports.log.last(stack.workflow(told.episode_id))
            except UnreadableEvent:  # Of a newer version: it goes on there.
                return SweptAttempt(told=told, is_open=True, has_ended=False)
        return SweptAttempt(told=told, is_open=newest is not None, has_ended=_has_ended(newest))

    async def _is_armed(self, instance: Instance) -> bool:
        begun = instance.begun
        timer = starter_id(begun.spec.name), CONDUCT, begun.instance_id
        async with self._room:
            return await self.ports.timers.pending(*timer) is not None

    async def _call(self, instance: Instance, attempts: Sequence[SweptAttempt]) -> None:
        for number, command in enumerate(calls_for(instance, attempts)):
            # The journal has not moved since; should another sweep see the same, one call is kept.
            id_ = f"sweep.{instance.begun.instance_id}.{instance.version}.{number}"
            async with self._room:
                await self.ports.commands.send(command, id=id_)


def _has_ended(newest: Recorded | None) -> bool:
    events = newest.commit.events if newest is not None else ()
    return any(isinstance(event, EpisodeFinished | WorkflowFinished) for event in events)


def judge_episode(episode: Episode, *, silent_s: float, stale_after_s: float) -> SweepVerdict:
    """Return the verdict on `episode` by its journal; the caller checks claims and timers."""
    if episode.status in ENDED or episode.status is Status.UNOPENED:
        return SweepVerdict.ENDED
    if silent_s < stale_after_s:
        return SweepVerdict.HELD
    return SweepVerdict.WAITING if episode.status in WAITING else SweepVerdict.RECOVERED


def call_for(episode: Episode) -> Command:
    """Return the command that makes a node continue `episode`, which must have been opened."""
    opened = episode.opened
    assert opened is not None, "a call for an episode that was never opened"
    if episode.status in WAITING:
        return Attend(actor_id=opened.actor_id, episode_id=opened.episode_id)
    if episode.attempts:
        return Recover(actor_id=opened.actor_id, episode_id=opened.episode_id, reason="swept")
    return Start(actor_id=opened.actor_id, episode_id=opened.episode_id)


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An episode to check."""

    actor_id: str
    episode_id: str


@dataclass(frozen=True)
class EpisodeSweeper:
    """Sweeps episodes for one person."""

    ports: Ports
    clock: Clock
    name: str
    """The owner of the claims that it takes for a moment to see whether an episode is free."""
    stale_after_s: float
    is_dry: bool = False
    """Report only."""
    turns: Turns = field(default_factory=Turns)

    async def sweep(self, candidates: Iterable[Candidate]) -> Sequence[SweepVerdict]:
        """Return the verdict on each of `candidates`, carried out unless `is_dry`."""
        return await gather_bounded(self._look_at, candidates, in_flight_max=IN_FLIGHT_MAX)

    async def _look_at(self, candidate: Candidate) -> SweepVerdict:
        try:
            records = await self.ports.log.read(self.ports.stack.episode(candidate.episode_id))
        except UnreadableEvent:
            return SweepVerdict.UNREADABLE
        episode = fold(records)
        verdict = judge_episode(
            episode, silent_s=self._silent_s(records), stale_after_s=self.stale_after_s
        )
        # guard: sweep-finds-unattended
        if verdict is SweepVerdict.WAITING and not (
            await self._is_forgotten(records, candidate) or await self._has_ended_child(episode)
        ):
            return verdict
        if verdict not in (SweepVerdict.WAITING, SweepVerdict.RECOVERED):
            return verdict
        # guard: sweep-calls-nobody-twice
        if await self.ports.commands.is_waiting(candidate.actor_id, candidate.episode_id):
            return SweepVerdict.CALLED
        if await self._is_held(candidate, episode):  # guard: sweep-leaves-held
            return SweepVerdict.HELD
        if not self.is_dry:
            # The journal has not moved since; should another sweep see the same, one call is kept.
            call_id = f"sweep.{candidate.episode_id}.{records[-1].seq}"
            await self.ports.commands.send(call_for(episode), id=call_id)
        return SweepVerdict.RECOVERED

    async def _is_forgotten(self, records: Sequence[Recorded], candidate: Candidate) -> bool:
        ports, actor, id_ = self.ports, candidate.actor_id, candidate.episode_id
        block = block_in(records[-1])
        if block is not None:
            references = References(ports, self.clock, self.turns)
            for ref in block.refs:  # guard: sweep-calls-unwritten-ahead
                is_own = ref == block.reference
                is_known = references.is_seen_to if is_own else references.is_ahead
                if not await is_known(ref, id_, block.step_no):  # guard: sweep-finds-unlisted-wait
                    return True
        if block is not None and block.pending.next_wake(after=self.clock.now()) is None:
            return False
        return await ports.timers.pending(actor, ATTEND, id_) is None

    async def _has_ended_child(self, episode: Episode) -> bool:
        """Return whether an episode waits for a child that has ended: nobody has told it."""
        for announced in awaited(episode).values():
            assert announced.child is not None, "it announces a child"
            newest = await self.ports.log.last(self.ports.stack.episode(announced.child.episode_id))
            if _has_ended(newest):  # guard: sweep-finds-ended-child
                return True
        return False

    def _silent_s(self, records: Sequence[Recorded]) -> float:
        if not records:
            return 0.0
        return (self.clock.now() - records[-1].commit.at).total_seconds()

    async def _is_held(self, candidate: Candidate, episode: Episode) -> bool:
        cover = cover_of(episode)
        if cover is not None and await stands(self.ports.leases, cover[0], since=cover[1]):
            return True
        key = episode_claim(candidate.actor_id, candidate.episode_id)
        # Should we end in between, it lapses, and that calls for recovery by itself.
        lease = await self.ports.leases.acquire(key, holder=self.name)
        if lease is None:
            return True
        await self.ports.leases.complete(lease)
        return False
