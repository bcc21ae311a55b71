"""Takes over episodes whose node is gone, and decides how they go on.

When a lease lapses, it leaves a marker that every node sees, at once or when it starts.
Each sends `Recover` with a message id made from the marker, so the queue stores one command; any
node with room takes the episode over. A node ignores actors that it does not have; when one is
added, it looks at all markers again, since no other node may have seen them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Final

import structlog

from engine import telemetry
from engine.app import actor as app_actor
from engine.app.actor import Actor, Expectation, Policy
from engine.app.app import App, Orphan
from engine.episodes import recovery
from engine.episodes.episode import Episode
from engine.episodes.recovery import Takeover
from engine.errors import EpisodeFailed, NondeterministicReplay
from engine.runtime.context import ActorContext
from engine.runtime.gather import gather_bounded
from engine.runtime.leases import LeaseEvents
from engine.runtime.overdue import Overdue
from engine.runtime.watch import follow
from engine.usercode.call import call, in_text
from engine.waits.parked import TOO_LATE
from streams.clock import Clock
from streams.errors import Unavailable, UnreadableEvent
from streams.keys import episode_of_claim
from streams.model.commands import Recover
from streams.model.events import EpisodeFinished, EpisodeOpened
from streams.ports.all import Ports
from streams.ports.leases import ClaimChange

RETRY_S: Final = 1.0
"""Pause before a call for recovery is repeated while the log is unavailable, in seconds."""

CALLS_IN_FLIGHT_MAX: Final = 64
"""Calls for recovery that are sent at a time: of a node with a thousand claims, say."""

HOLDERS_MAX: Final = 10_000
"""Keys whose holders a node remembers. It does not hear of every end, such as while it is cut off,
so at this number it forgets them all."""

log = structlog.get_logger("vigil.takeover")


@dataclass(frozen=True)
class LapseWatcher:
    """Watches the claims, for one node."""

    ports: Ports
    actors: Collection[str]
    """The node's actors now, those with only open episodes included."""
    clock: Clock
    stopping: asyncio.Event
    overdue: Overdue
    """Told of every change, as `lease_events` is."""
    lease_events: LeaseEvents = field(default_factory=LeaseEvents)
    _holders: dict[str, str] = field(default_factory=dict)
    """Key → the node that holds it, if that was heard: the marker of a lapse names none."""
    _passed_over: set[str] = field(default_factory=set)
    """Actors that the node lacks and whose episodes have lapsed: at most as many as a stack has,
    with lapses of one day.
    """

    async def follow(self) -> None:
        """Watch until the node stops."""
        hear = partial(self._hear, self.clock.now())
        while not self.stopping.is_set():
            self._passed_over.clear()
            await follow(self.ports.leases.watch(), hear, until=self._must_stop)

    def _must_stop(self) -> bool:
        return self.stopping.is_set() or self._must_look_again()

    def _must_look_again(self) -> bool:
        # guard: lapses-reviewed-when-actor-comes
        return any(actor in self.actors for actor in self._passed_over)

    async def _hear(self, since: datetime, changes: Sequence[ClaimChange]) -> None:
        for change in changes:  # All of them before any call: a call may take its time.
            self.lease_events.handle(change)  # guard: free-lease-heard
            life_s = change.claim.life_s if change.claim is not None else None
            # guard: claims-told-to-overdue
            self.overdue.note(change.key, change.revision, life_s=life_s)
        heard = [(change, self._holder_of(change)) for change in changes]
        look = partial(self._look_at, since=since)
        await gather_bounded(look, heard, in_flight_max=CALLS_IN_FLIGHT_MAX)

    def _holder_of(self, change: ClaimChange) -> str:
        """Return who holds a key, or held it until now; empty: nobody has heard."""
        if change.claim is None:
            return self._holders.pop(change.key, "")
        if len(self._holders) >= HOLDERS_MAX:  # guard: holders-have-bound
            self._holders.clear()
        self._holders[change.key] = change.claim.owner_node
        return change.claim.owner_node

    async def _look_at(self, heard: tuple[ClaimChange, str], since: datetime) -> None:
        change, holder = heard
        episode = episode_of_claim(change.key)
        if change.state != "expired" or episode is None:  # guard: lapse-calls-recovery
            return None
        actor_id, episode_id = episode
        if actor_id not in self.actors:
            return self._passed_over.add(actor_id)
        telemetry.leases.add(1, {"outcome": "lapsed"})
        say = log.warning if await self._is_news(change, since, episode_id) else log.debug
        say("lease lapsed; calling for recovery", actor=actor_id, episode_id=episode_id)
        recover = Recover(
            actor_id=actor_id,
            episode_id=episode_id,
            reason="lapsed",
            lapse_revision=change.revision,
            holder=holder,  # guard: lapse-says-whose
        )
        while True:
            try:
                return await self.ports.commands.send(recover, id=f"lapse.{change.revision}")
            except Unavailable:
                await self.clock.sleep(RETRY_S)

    async def _is_news(self, change: ClaimChange, since: datetime, episode_id: str) -> bool:
        """Return whether people should know that a lease has lapsed.

        Every node that starts sees the markers of a day, and a server that starts writes them anew;
        most of those episodes have ended since.
        """
        if change.at < since:  # guard: old-lapse-no-warning
            return False
        try:
            newest = await self.ports.log.last(self.ports.stack.episode(episode_id))
        except (Unavailable, UnreadableEvent):
            return True
        # guard: ended-lapse-no-news
        return newest is None or not isinstance(newest.commit.events[-1], EpisodeFinished)


async def decide_takeover(
    context: ActorContext, opened: EpisodeOpened, episode: Episode
) -> Takeover:
    """Return what happens to `episode`, whose node crashed, now that this node has it."""
    expectation = context.actor.expectations[opened.expectation_id]
    try:
        policy = await call(_policy, context.app, expectation, opened, episode)
    except EpisodeFailed as failed:
        return Takeover(error_class=failed.error_class, detail=in_text(failed.detail))

    def repeatable(tool_name: str) -> bool:
        return _is_repeatable(context.app, context.actor, tool_name)

    return recovery.take_over(
        episode,
        policy,
        attempts_max=recovery.attempts_of(opened, declared=expectation.attempts_max),
        repeatable=repeatable,
        is_isolated=context.is_alone or context.isolation is not None,
    )


def parked_too_long(episode: Episode) -> Takeover:
    """Return the end of an episode for which no other code came in time."""
    block = episode.parked
    assert block is not None, "a wait for other code"
    assert block.parked is not None, "a wait for other code"
    detail = f"{block.parked.how}; {TOO_LATE}"
    return Takeover(error_class=NondeterministicReplay.error_class, detail=detail)


def _is_repeatable(app: App, actor: Actor, tool_name: str) -> bool:
    capability, _, action = tool_name.partition(".")
    tool = app.tool(actor, capability, action)
    return tool is not None and tool.idempotent


async def _policy(
    app: App, expectation: Expectation, opened: EpisodeOpened, episode: Episode
) -> Policy:
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
