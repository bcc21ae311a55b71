"""Carries out the effects of an instance's newest commit; safe to repeat: ids come from causes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final, TypeVar

from msgspec.structs import replace

from engine.app.workflow_plan import spec_of, starter_id
from engine.episodes.cancel import ask_to_cancel
from engine.episodes.episode import fold
from engine.episodes.open import open_episode, with_budget
from engine.errors import BadRequest
from engine.runtime.catalog import Catalog
from engine.runtime.gather import gather_bounded
from engine.workflows.begin import begin_instance, call_off_instance
from engine.workflows.decide import decided_at
from engine.workflows.effects import (
    Effects,
    KeepResult,
    LookUpResult,
    follow_up,
    may_wake,
    recalled,
    wake_at,
)
from engine.workflows.instance import (
    INSTANCE_ENDED,
    AttemptEnded,
    Instance,
    ResultLookedUp,
    fold_instance,
)
from engine.workflows.start import CONDUCT, SubStart, conduct_timer, sub_started
from engine.workflows.steps import end_of_episode, end_of_instance, waiting
from engine.workflows.store import StoredInstance
from engine.workflows.subjects import UNBEGUN_PLACE_S, Standing, Subjects
from streams.clock import SKEW_S, Clock
from streams.errors import BadName, TooLarge, UnreadableEvent, Unwritable
from streams.keys import result_key
from streams.model.commands import CancelWorkflow, StepDone
from streams.model.events import EpisodeOpened
from streams.model.triggers import WorkflowTrigger
from streams.model.workflows import StepOutcome
from streams.ports.all import Ports
from streams.tokens import name
from streams.tracing import traceparent

IN_FLIGHT_MAX: Final = 32
"""Effects of one instance in flight at a time."""

UNOPENABLE: Final = "cannot_open"
"""Error class of an attempt whose episode or instance the journal cannot store."""

_T = TypeVar("_T")


async def recall(ports: Ports, wanted: LookUpResult, clock: Clock) -> ResultLookedUp:
    """Return whether an earlier result can be reused for an item, and which."""
    stack = ports.stack.name
    entry = await ports.gates.get(result_key(wanted.work.key(stack)))
    value = entry.value if entry is not None else None
    try:
        # What stands there may be anyone's: an id is a name, and of anything else there is none.
        episode_id = name(value.decode(), of="episode") if value else ""
        records = await ports.log.read(ports.stack.episode(episode_id)) if episode_id else ()
    except (UnicodeDecodeError, BadName, UnreadableEvent):
        records = ()
    return recalled(wanted, records, stack=stack, at=clock.now())


async def keep(ports: Ports, done: KeepResult) -> None:
    """Store which episode has done a piece of work."""
    key = result_key(done.work.key(ports.stack.name))
    await ports.gates.put(key, done.episode_id.encode(), ttl_s=done.ttl_s)


async def end_of(ports: Ports, told: StepDone, instance: Instance) -> AttemptEnded | None:
    """Return how an attempt has ended; None: this node cannot see that it has."""
    spec = instance.specs.get(told.step)
    if spec is not None and spec.task is None and not told.is_compensation:
        return await end_of_sub(ports, told.episode_id)
    try:
        return end_of_episode(fold(await ports.log.read(ports.stack.episode(told.episode_id))))
    except UnreadableEvent:
        return None


async def end_of_sub(ports: Ports, instance_id: str) -> AttemptEnded | None:
    """Return how a nested instance has ended; None as for `end_of`."""
    try:
        sub = fold_instance(await ports.log.read(ports.stack.workflow(instance_id)))
    except UnreadableEvent:
        return None
    return end_of_instance(sub) if sub.started is not None else None


@dataclass(frozen=True)
class Effector:
    """Acts for instances of all workflows of one node."""

    catalog: Catalog
    ports: Ports
    clock: Clock
    node: str

    async def follow(self, stored: StoredInstance) -> list[AttemptEnded | ResultLookedUp]:
        """Carry out the newest commit; return the commands that follow for the instance."""
        # Those are attempts that could not be opened, and items with reused results.
        if stored.is_followed:
            return []
        effects = follow_up(stored.instance)
        found = await _all(
            partial(recall, self.ports, each, self.clock) for each in effects.recalls
        )
        await _all(partial(keep, self.ports, each) for each in effects.keeps)
        unopened = await self._open(effects)
        await self._cancel(effects)
        await self.arm(stored)
        if effects.parent is not None:
            done = effects.parent
            await self.ports.commands.send(done, id=f"done.{done.episode_id}", trace=traceparent())
        if effects.releases is not None:
            await Subjects(self.ports).see_to_end(effects.releases)
        stored.is_followed = True
        return [*found, *unopened]

    async def arm(self, stored: StoredInstance) -> None:
        """Arm the timer for the next time that something about an instance is due."""
        instance = stored.instance
        looks = stored.standing is Standing.LOOKS
        if instance.started is None or not (looks or may_wake(instance.begun.spec)):
            return
        # Of what waits, somebody has a message: a timer that is due would only add to those.
        now = decided_at(instance, self.clock.now())
        waits = set(waiting(instance, stored.closed, at=now))
        # guard: workflow-wait-no-instant-timer
        at, is_known = wake_at(instance, but=waits), not stored.is_timer_unknown
        if looks:  # guard: held-behind-unbegun-looks
            again = now + timedelta(seconds=UNBEGUN_PLACE_S + SKEW_S)
            at = again if at is None else min(at, again)
        workflow, id_ = instance.begun.spec.name, instance.begun.instance_id
        has_ended = instance.phase in INSTANCE_ENDED
        if at is not None and not (is_known and at == stored.wakes_at):
            timer = conduct_timer(workflow, id_)
            await self.ports.timers.arm(timer, at=at, trace=traceparent())
        elif has_ended and not (is_known and stored.wakes_at is None):
            await self.ports.timers.cancel(starter_id(workflow), CONDUCT, id_)
        # Of a timer that nothing needs now, nobody knows later whether it has fired.
        # guard: unneeded-timer-unknown
        is_left = at is None and not has_ended and stored.wakes_at is not None
        stored.wakes_at = None if has_ended else at or stored.wakes_at
        stored.is_timer_unknown = is_left

    async def _open(self, effects: Effects) -> list[AttemptEnded]:
        episodes = [partial(self._open_episode, each) for each in effects.opens]
        instances = [partial(self._begin, each) for each in effects.starts]
        ends = await _all([*episodes, *instances])
        return [end for end in ends if end is not None]

    async def _open_episode(self, opened: EpisodeOpened) -> AttemptEnded | None:
        # guard: step-episode-adaptive-budget
        opened = await with_budget(self.ports.gates, replace(opened, opened_by=self.node))
        now = self.clock.now()
        try:
            await open_episode(self.ports, opened, at=now, trace=traceparent())
        except (TooLarge, Unwritable) as error:
            return _unopened(opened.trigger, opened.episode_id, error)
        return None

    async def _begin(self, sub: SubStart) -> AttemptEnded | None:
        """Start a nested instance, or call it off if its workflow is gone since the decision."""
        workflow, now = self.catalog.workflows.get(sub.workflow), self.clock.now()
        try:
            if workflow is None:  # guard: impossible-start-called-off
                await call_off_instance(self.ports, sub, at=now)
                return await end_of_sub(self.ports, sub.instance_id)
            spec = spec_of(workflow, self.catalog.actors, self.catalog.workflows)
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
        await self.ports.commands.send(command, id=id_, trace=traceparent())


def _unopened(trigger: object, id_: str, error: Exception) -> AttemptEnded:
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


async def _all(calls: Iterable[Callable[[], Awaitable[_T]]]) -> list[_T]:
    return await gather_bounded(lambda call: call(), calls, in_flight_max=IN_FLIGHT_MAX)
