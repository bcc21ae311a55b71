"""Runs suspects: episodes that the next crash would end. Each runs in a process of its own.

When a process dies, everything that it ran is interrupted, and nobody can tell which episode has
killed it. So a crash in company makes an episode a suspect at most, and only a crash alone ends it:

    crash, crash ──▶ suspect ──▶ runs alone ──▶ a step is recorded: no suspect any more
                                           ──▶ crash: attempts_exhausted

A node without such processes, such as one in another program, runs suspects as it runs all others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import structlog

from engine.episodes.attempt import AttemptState
from engine.episodes.episode import ENDED, Episode, fold
from engine.episodes.recovery import why_cannot_run
from engine.execution.parts import ActorParts
from engine.execution.run import new_attempt, run_episode
from engine.runtime.catalog import CannotRun
from engine.runtime.context import ActorContext
from engine.runtime.isolation import Isolation, RunAlone
from streams.errors import Unavailable
from streams.model.commands import Command
from streams.model.events import EpisodeOpened
from streams.ports.delivery import Delivery, Unreadable

Incoming: TypeAlias = Delivery[Command | Unreadable]

TIDY_S: Final = 10.0
"""How long a process may take to end once it has its episode no more, in seconds."""

log = structlog.get_logger("vigil.execution")


@dataclass(frozen=True)
class ToldToParent:
    """The cause of an attempt whose command another process has, which waits for `fenced`."""

    fenced: asyncio.Event

    async def ack(self) -> None:
        """Have the other process acknowledge the command."""
        self.fenced.set()


async def run_suspect(parts: ActorParts, episode_id: str, fenced: asyncio.Event) -> bool:
    """Run one episode, on the node that runs nothing else; return whether the node got it.

    `fenced` is set once that is durable. What the node cannot run, it leaves to others.
    """
    records = await parts.context.ports.log.read(parts.context.ports.stack.episode(episode_id))
    episode = fold(records)
    if episode.opened is None or episode.status in ENDED:
        return False
    try:
        context = await parts.context.as_opened(episode.opened)
    except CannotRun:
        return False
    if why_cannot_run(context.actor, episode) is not None:
        return False
    opened = episode.opened

    async def run() -> bool:
        attempt = new_attempt(
            context,
            opened,
            episode,
            ToldToParent(fenced),
            claims_first=True,
            is_called_over=True,
        )
        state = await run_episode(replace(parts, context=context), attempt, episode, records)
        return state is not AttemptState.NOT_BEGUN

    # A task of its own: a claim that is lost cancels it.
    return await asyncio.create_task(run())


@dataclass
class SuspectRunner:
    """Has one suspect run alone, on behalf of the node that has the command."""

    context: ActorContext
    isolation: Isolation
    delivery: Incoming
    _is_accepted: bool = field(default=False, init=False)

    async def run(self, episode: Episode) -> bool:
        """Return whether the command is acknowledged: as soon as the process has the episode."""
        opened = episode.opened
        assert opened is not None, "a suspect that was never opened"
        alone = await self.isolation.start(opened.actor_id, opened.episode_id)
        if alone is None:
            return False
        log.warning("runs alone: the next crash would end it", runs_on=alone.node)
        try:
            await self._until_it_ends(alone, opened)
        finally:
            alone.kill()
        if alone.crash:
            log.warning("crashed alone", crash=alone.crash, ran_on=alone.node)
        return self._is_accepted

    async def _until_it_ends(self, alone: RunAlone, opened: EpisodeOpened) -> None:
        helping: list[Coroutine[Any, Any, None]] = [
            self._stop_with_node(alone),
            self._kill_when_over(alone, opened.episode_id),
        ]
        tasks = [asyncio.create_task(each) for each in helping]
        accepting = asyncio.create_task(self._accept(alone))
        try:
            await alone.ended.wait()
            if alone.is_fenced.is_set():
                await accepting
        finally:
            for task in (*tasks, accepting):
                task.cancel()
            await asyncio.gather(*tasks, accepting, return_exceptions=True)

    async def _accept(self, alone: RunAlone) -> None:
        await alone.is_fenced.wait()
        await self.delivery.ack()
        self._is_accepted = True

    async def _stop_with_node(self, alone: RunAlone) -> None:
        await self.context.may_go_on.withdrawn.wait()
        alone.stop()  # guard: suspect-handed-over

    async def _kill_when_over(self, alone: RunAlone, episode_id: str) -> None:
        """End a process that does not end by itself, once it has its episode no more.

        One that blocks its event loop does not notice that others go on.
        """
        await alone.is_fenced.wait()
        while not await self._has_ended(alone, episode_id):
            await self.context.clock.sleep(self.context.ports.leases.ttl_s)
        await self.context.clock.sleep(TIDY_S)
        log.warning("killed: it has its episode no more, and does not end", runs_on=alone.node)
        alone.kill()

    async def _has_ended(self, alone: RunAlone, episode_id: str) -> bool:
        ports = self.context.ports
        try:
            episode = fold(await ports.log.read(ports.stack.episode(episode_id)))
        except Unavailable:
            return False
        # guard: process-without-episode-killed
        return episode.status in ENDED or episode.node != alone.node
