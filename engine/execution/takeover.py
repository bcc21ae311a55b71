"""Calls for the recovery of episodes whose node is gone.

When a lease lapses, the server leaves a marker that every node sees, at once or when it
comes back. Each sends `Recover` with a message id made from the marker, so the queue keeps
one; whichever node has room takes the episode over.

It calls for nothing of an actor that the node does not have. Such an actor may come later, and then
all markers are looked at again: it may be that no other node was there to see them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from engine import telemetry
from engine.app import actor as app_actor
from engine.app.actor import Actor, Expectation, Policy
from engine.app.app import App, Orphan
from engine.episodes import recovery
from engine.episodes.episode import Episode
from engine.episodes.recovery import Takeover
from engine.errors import EpisodeFailed
from engine.runtime.context import ActorContext
from engine.runtime.leases import LeaseEvents
from engine.runtime.usercode import call
from engine.runtime.watch import follow
from streams.clock import Clock
from streams.errors import Unavailable
from streams.keys import episode_of_claim
from streams.model.commands import Recover
from streams.model.events import EpisodeOpened
from streams.ports.all import Ports
from streams.ports.leases import ClaimChange

RETRY_S: Final = 1.0
"""Pause before a call for recovery that found the log away is made again."""

log = structlog.get_logger("vigil.rescuer")


@dataclass(frozen=True)
class LapseWatcher:
    """Watches the claims for one node."""

    ports: Ports
    actors: Collection[str]
    """The node's, at any moment; with those of which only goes on what is open."""
    clock: Clock
    stopping: asyncio.Event
    lease_events: LeaseEvents = field(default_factory=LeaseEvents)
    """Told of every change that it sees."""
    _passed_over: set[str] = field(default_factory=set)
    """Actors that the node does not have, and whose episodes have lapsed: as many as a stack has at
    most, with lapses of one day."""

    async def follow(self) -> None:
        """Watch until the node stops."""
        while not self.stopping.is_set():
            self._passed_over.clear()
            await follow(self.ports.leases.watch(), self._hear, until=self._must_stop)

    def _must_stop(self) -> bool:
        return self.stopping.is_set() or self._must_look_again()

    def _must_look_again(self) -> bool:
        return any(actor in self.actors for actor in self._passed_over)

    async def _hear(self, changes: Sequence[ClaimChange]) -> None:
        for change in changes:
            await self._look_at(change)

    async def _look_at(self, change: ClaimChange) -> None:
        self.lease_events.note(change)
        episode = episode_of_claim(change.key)
        if change.state != "expired" or episode is None:
            return None
        actor_id, episode_id = episode
        if actor_id not in self.actors:
            return self._passed_over.add(actor_id)
        telemetry.leases.add(1, {"outcome": "lapsed"})
        log.warning("lease lapsed; calling for recovery", actor=actor_id, episode_id=episode_id)
        recover = Recover(actor_id=actor_id, episode_id=episode_id, reason="lapsed")
        while True:
            try:
                return await self.ports.commands.send(recover, id=f"lapse.{change.revision}")
            except Unavailable:
                await self.clock.sleep(RETRY_S)


async def decide_takeover(
    context: ActorContext, opened: EpisodeOpened, episode: Episode
) -> Takeover:
    """Return what becomes of `episode`, whose node crashed running it, now that we have it."""
    expectation = context.actor.expectations[opened.expectation_id]
    try:
        policy = await call(_policy, context.app, expectation, opened, episode)
    except EpisodeFailed as failed:
        return Takeover(error_class=failed.error_class, detail=failed.detail)

    def repeatable(tool_name: str) -> bool:
        return _is_repeatable(context.app, context.actor, tool_name)

    return recovery.take_over(
        episode, policy, attempts_max=expectation.attempts_max, repeatable=repeatable
    )


def _is_repeatable(app: App, actor: Actor, tool_name: str) -> bool:
    tool = app.tool(actor, tool_name.partition(".")[0])
    return tool is not None and tool.idempotent


async def _policy(
    app: App, expectation: Expectation, opened: EpisodeOpened, episode: Episode
) -> Policy:
    """Return what is to become of the episode if its node crashed."""
    resolve, policy = app.resolve_policy, expectation.recovery
    if resolve is None:
        return policy
    chosen = resolve(_orphan(opened, episode)) or policy
    if chosen not in app_actor.POLICIES:
        known = ", ".join(app_actor.POLICIES)
        raise EpisodeFailed("invalid_policy", f"resolve_policy gave {chosen!r}, not {known}")
    return chosen


def _orphan(opened: EpisodeOpened, episode: Episode) -> Orphan:
    return Orphan(
        episode_id=opened.episode_id,
        actor_id=opened.actor_id,
        expectation_id=opened.expectation_id,
        node=episode.node,
        crashes=episode.crashes + 1,
        steps_recorded=episode.steps_recorded,
    )
