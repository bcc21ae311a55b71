"""Has parked episodes go on, on a node whose code has not tried them.

Each of them has a key in the gates, which every node watches: one that starts hears of all that
there are, and one that runs of each that is added. Nothing is asked for again and again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from engine.app.actor import Actor
from engine.episodes.episode import Episode, Status, fold
from engine.episodes.recovery import why_cannot_run
from engine.runtime.catalog import CannotRun
from engine.runtime.context import ActorContext
from engine.runtime.gather import gather_bounded
from engine.runtime.store import Changed, Store
from engine.runtime.watch import follow
from engine.waits import parked
from engine.waits.wait import Blocked
from streams.clock import Clock
from streams.errors import RevisionConflict, UnreadableEvent
from streams.keys import PARKED, parked_episode, parked_key
from streams.model.events import EpisodeEvent, EpisodeOpened
from streams.ports.all import Ports
from streams.ports.bucket import TTL_S_MIN, BucketEntry

AT_ONCE_MAX: Final = 8
"""Most parked episodes that a node looks at, at a time: each is a read and up to two writes."""

log = structlog.get_logger("vigil.waits")


async def list_parked(ports: Ports, clock: Clock, opened: EpisodeOpened, block: Blocked) -> None:
    """Let every node know that an episode is parked."""
    until = block.terms.expires_at
    left_s = (until - clock.now()).total_seconds() if until is not None else 0.0
    ttl_s = max(TTL_S_MIN, math.ceil(left_s) + parked.KEPT_S)
    await ports.gates.put(parked_key(opened.actor_id, opened.episode_id), b"", ttl_s=ttl_s)


async def forget_parked(ports: Ports, opened: EpisodeOpened) -> None:
    """Remove the key of an episode that is not parked any more."""
    await ports.gates.delete(parked_key(opened.actor_id, opened.episode_id))


@dataclass
class ParkedWatcher:
    """Hears of the parked episodes, for one node."""

    ports: Ports
    context_of: Callable[[str], ActorContext | None]
    """Returns what the node has an actor as; None: it lacks it."""
    _looked_with: dict[str, Actor | None] = field(default_factory=dict)
    """Actor → as what the node looked at its parked episodes; None: it could run none. At most as
    many as a stack has."""

    async def follow(self) -> None:
        """Watch for ever."""
        while True:
            self._looked_with.clear()
            watch = self.ports.gates.watch(under=PARKED)
            await follow(watch, self._hear, until=self._must_look_again)

    def _must_look_again(self) -> bool:
        return any(self._able(id_) is not actor for id_, actor in self._looked_with.items())

    def _able(self, actor_id: str) -> Actor | None:
        context = self.context_of(actor_id)
        return context.actor if context is not None and context.permits.runs.is_given else None

    async def _hear(self, entries: Sequence[BucketEntry]) -> None:
        stand = [each for each in entries if each.value is not None]
        await gather_bounded(self._look_at, stand, in_flight_max=AT_ONCE_MAX)

    async def _look_at(self, entry: BucketEntry) -> None:
        actor_id, episode_id = parked_episode(entry.key)
        context = self.context_of(actor_id)
        self._looked_with[actor_id] = self._able(actor_id)
        if context is None or self._looked_with[actor_id] is None:
            return
        store: Store[Episode, EpisodeEvent] = Store(context.ports.log, context.clock, fold)
        try:
            loaded = await store.load(self.ports.stack.episode(episode_id))
            episode = loaded.state
            if episode.status is Status.BLOCKED and episode.parked is not None:
                code = await _code_for(context, episode)
                if not parked.retried(episode, code):
                    return
                changed: Changed[Episode, EpisodeEvent] = await store.change(
                    loaded.subject,
                    lambda now, _: parked.retried(now, code),
                    id=f"unpark.{episode_id}.{episode.parks}.{code}",
                    known=loaded,
                )
                if changed.events:
                    log.info(
                        "other code is here: it goes on", actor=actor_id, episode_id=episode_id
                    )
        except (CannotRun, UnreadableEvent):
            return
        try:
            # One that was parked again meanwhile has its key still.
            await self.ports.gates.delete(entry.key, after=entry.revision)
        except RevisionConflict:
            return


async def _code_for(context: ActorContext, episode: Episode) -> str:
    """Return the digest of what this node would run it with; `CannotRun`: nothing."""
    assert episode.opened is not None, "what was parked was opened"
    as_opened = await context.as_opened(episode.opened)
    hindrance = why_cannot_run(as_opened.actor, episode)
    if hindrance is not None:
        raise CannotRun(hindrance)
    return as_opened.codes[episode.opened.expectation_id]
