"""Does what the newest commit of an instance asks for outside: opens, cancels, tells, arms.

All of it may be done again: ids come from causes. What was asked for before has been done by
whoever wrote the newest commit, before they wrote it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from msgspec.structs import replace

from engine import placing
from engine.errors import BadRequest
from engine.runtime.cast import Cast
from engine.runtime.herald import Herald
from engine.runtime.instance_book import Page
from engine.runtime.instances import begin_instance, call_off_instance
from engine.runtime.opener import open_episode, record_opening
from engine.runtime.recalling import keep, recall
from engine.runtime.requester import ask_to_cancel
from engine.runtime.subject_locks import free_subject, keep_subject
from engine.runtime.witness import end_of_sub
from engine.workflows.binding import spec_of
from engine.workflows.commands import AttemptEnded, Recalled
from engine.workflows.decision import decided_at
from engine.workflows.effects import Effects, follow_up, may_wake, wake_at
from engine.workflows.start import SubStart, sub_started
from engine.workflows.starter import CONDUCT, conduct_timer, starter_id
from engine.workflows.status import ENDED
from engine.workflows.steps import waiting
from streams.clock import Clock
from streams.commands import CancelWorkflow
from streams.errors import TooLarge, Unwritable
from streams.events import EpisodeOpened
from streams.ports import Ports
from streams.tracing import traceparent
from streams.triggers import WorkflowTrigger
from streams.workflows import StepOutcome

IN_FLIGHT_MAX: Final = 32
"""Things done at a time for one instance."""

UNOPENABLE: Final = "cannot_open"
"""Error class of an attempt whose episode or instance the journal cannot keep."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class Effector:
    """Acts for instances of all workflows of one node."""

    cast: Cast
    ports: Ports
    clock: Clock
    node: str

    async def follow(self, page: Page) -> list[AttemptEnded | Recalled]:
        """Do what the newest commit asks for; return what is to be put to the instance then.

        That is which attempts cannot even be opened, and which items are done by earlier results.

        Raises:
            Unavailable: some of it may not be done. Do it again.
        """
        if page.is_followed:
            return []
        effects, id_ = follow_up(page.instance), page.instance.begun.instance_id
        if effects.locks is not None:
            await keep_subject(self.ports, effects.locks.workflow, effects.locks.subject, id_)
        found = await _all(
            partial(recall, self.ports, each, self.clock) for each in effects.recalls
        )
        await _all(partial(keep, self.ports, each) for each in effects.keeps)
        unopened = await self._open(effects)
        await self._cancel(effects)
        await self.arm(page)
        await Herald(self.ports.world).tell(effects.tells)
        if effects.parent is not None:
            done = effects.parent
            await self.ports.inbox.send(done, id=f"done.{done.episode_id}", trace=traceparent())
        if effects.releases is not None:
            await free_subject(self.ports, effects.releases.workflow, effects.releases.subject, id_)
        page.is_followed = True
        return [*found, *unopened]

    async def arm(self, page: Page) -> None:
        """See to it that somebody looks at an instance when something about it is due.

        Raises:
            Unavailable: it may not be armed. Do it again.
        """
        instance = page.instance
        if instance.started is None or not may_wake(instance.begun.spec):
            return
        # Of what waits, somebody has a message: a timer that is due would only add to those.
        now = decided_at(instance, self.clock.now())
        waits = set(waiting(instance, page.closed, at=now))
        at, is_known = wake_at(instance, but=waits), not page.is_timer_unknown
        workflow, id_ = instance.begun.spec.name, instance.begun.instance_id
        if at is not None and not (is_known and at == page.wakes_at):
            timer = conduct_timer(workflow, id_)
            await self.ports.timers.arm(timer, at=at, trace=traceparent())
        elif instance.phase in ENDED and not (is_known and page.wakes_at is None):
            await self.ports.timers.cancel(starter_id(workflow), CONDUCT, id_)
        page.wakes_at, page.is_timer_unknown = at or page.wakes_at, False

    async def _open(self, effects: Effects) -> list[AttemptEnded]:
        episodes = [partial(self._open_episode, each) for each in effects.opens]
        instances = [partial(self._begin, each) for each in effects.starts]
        ends = await _all([*episodes, *instances])
        return [end for end in ends if end is not None]

    async def _open_episode(self, opened: EpisodeOpened) -> AttemptEnded | None:
        opened = replace(opened, opened_by=self.node)
        now = self.clock.now()
        try:
            if not self._is_laned(opened.actor_id):
                await open_episode(self.ports, opened, at=now)
                return None
            await record_opening(self.ports, opened, at=now, trace=traceparent())
        except (TooLarge, Unwritable) as error:
            return _unopened(opened.trigger, opened.episode_id, error)
        place = placing.place(opened.actor_id, opened.episode_id)
        id_ = f"place.{opened.episode_id}"
        await self.ports.timers.send(place, id=id_, trace=traceparent())
        return None

    def _is_laned(self, actor_id: str) -> bool:
        """Return whether an actor's episodes take turns, as far as this node knows it.

        If they do and it does not know, whoever gets the start asks for a place.
        """
        actor = self.cast.actors.get(actor_id)
        return actor is not None and actor.is_laned

    async def _begin(self, sub: SubStart) -> AttemptEnded | None:
        """Begin an instance, or call it off if its workflow went after it was decided on."""
        workflow, now = self.cast.workflows.get(sub.workflow), self.clock.now()
        try:
            if workflow is None:
                await call_off_instance(self.ports, sub, at=now)
                return await end_of_sub(self.ports, sub.instance_id)
            spec = spec_of(workflow, self.cast.actors)
            await begin_instance(self.ports, sub_started(spec, sub), at=now)
        except (BadRequest, TooLarge, Unwritable) as error:
            return _unopened(sub.trigger, sub.instance_id, error)
        return None

    async def _cancel(self, effects: Effects) -> None:
        cancels = [
            partial(ask_to_cancel, self.ports, each, id=f"cancel.{each.episode_id}.workflow")
            for each in effects.cancels
        ]
        await _all([*cancels, *(partial(self._cancel_sub, each) for each in effects.sub_cancels)])

    async def _cancel_sub(self, command: CancelWorkflow) -> None:
        id_ = f"cancel.{command.instance_id}.workflow"
        await self.ports.inbox.send(command, id=id_, trace=traceparent())


def _unopened(trigger: object, id_: str, error: Exception) -> AttemptEnded:
    """Return the failure of an attempt for which nothing could be opened."""
    assert isinstance(trigger, WorkflowTrigger), "an attempt of a step"
    return AttemptEnded(
        step=trigger.workflow_step_id,
        item=trigger.item,
        attempt=trigger.attempt,
        episode_id=id_,
        outcome=StepOutcome.FAILED,
        error_class=UNOPENABLE,
        error_detail=str(error),
        is_compensation=trigger.is_compensation,
    )


async def _all(work: Iterable[Callable[[], Awaitable[_T]]]) -> list[_T]:
    """Return what each of `work` returns, done so many at a time as may be."""
    room = asyncio.Semaphore(IN_FLIGHT_MAX)

    async def one(each: Callable[[], Awaitable[_T]]) -> _T:
        async with room:
            return await each()

    return await asyncio.gather(*map(one, work))
