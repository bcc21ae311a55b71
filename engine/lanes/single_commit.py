"""Runs a new episode whose turn it is at once, where its lane is scheduled, if it is one commit.

Such an episode opens, runs and ends with its first commit. Nothing happens outside before that, so
it needs no place: the lane never has it, and no other node is called to it. Whether it is one shows
only when it runs. If it wants to write anything before its end, nothing of it is written, and it
takes the way of all others: opened, placed, started on any node. Its code has run in vain, as that
of an episode may before its first commit; so an expectation is left alone for a while if that
happens again and again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import structlog
from msgspec.structs import replace

from engine import telemetry
from engine.execution.parts import ActorParts
from engine.execution.run import has_breaker
from engine.lanes.lane import RequestedEpisode
from engine.runtime.gather import gather_bounded
from engine.triggers.admit import is_own, run_here
from engine.triggers.evaluate import TriggerEvaluator
from streams.errors import Unavailable
from streams.model.events import EpisodeOpened
from streams.tracing import context_of

IN_FLIGHT_MAX: Final = 64
"""Episodes of one actor that are tried at a time."""

TRIES_S: Final = 0.05
"""How long code may take to come to its end, for all tries of one decision, in seconds: the lane
decides nothing else meanwhile. What takes longer gains nothing by one commit less.
"""

VAIN_MAX: Final = 4
"""How often in a row the episodes of an expectation are tried in vain."""

TRIED_EVERY: Final = 1_024
"""After that, one of so many is tried."""


log = structlog.get_logger("vigil.lanes")


@dataclass(frozen=True)
class TriedCause:
    """What a tried episode is begun for. Its event is acknowledged with all that came with it."""

    opened: EpisodeOpened
    evaluator: TriggerEvaluator

    async def ack(self) -> None:
        """Count the fire."""
        self.evaluator.note_fire(self.opened)


@dataclass
class SingleCommitRunner:
    """Tries new episodes of one actor, in one term of its scheduler."""

    parts: ActorParts
    evaluator: TriggerEvaluator
    check_lease: Callable[[], None]
    """Raises `Unavailable` if the lane may be another node's by now."""
    _vain: Counter[str] = field(default_factory=Counter)
    """Expectation → its episodes since the newest one that was one commit, tried or not."""

    def deadline_s(self) -> float:
        """Return until when what is decided on now may be tried, on the monotonic clock."""
        return self.parts.context.clock.monotonic_s() + TRIES_S

    def may_try(self, asked: RequestedEpisode) -> bool:
        """Return whether to try an episode that has no place yet; one that is not is counted."""
        opened, context = asked.opened, self.parts.context
        if asked.is_open or asked.wanted.resumes:
            return False
        is_late = opened.start_by is not None and context.clock.now() > opened.start_by
        if is_late:  # guard: late-episode-not-tried
            return False
        # The only commit of a node that has died may arrive when its event has been dropped.
        if context.actor.overflow != "queue":  # guard: dropped-never-arrives-done
            return False
        # A redelivered event may have crashed a node: its episode is opened first, so that crashes
        # are counted.
        if asked.is_repeat or not is_own(opened):  # guard: repeated-event-not-tried
            return False
        # Who has the event again would not inform the breaker of an end that it finds.
        if has_breaker(context, opened):  # guard: breaker-end-not-tried
            return False
        vain = self._vain[opened.expectation_id]
        is_worth_it = vain < VAIN_MAX or vain % TRIED_EVERY == 0
        if not is_worth_it:
            self._vain[opened.expectation_id] += 1
        return is_worth_it

    async def run(self, asked: Iterable[RequestedEpisode], *, until_s: float) -> list[bool]:
        """Run episodes; return for each whether it has ended. Of the others nothing is written."""
        self.check_lease()  # guard: no-try-without-lane-lease
        work = partial(self._run, until_s=until_s)
        return await gather_bounded(work, asked, in_flight_max=IN_FLIGHT_MAX)

    async def _run(self, asked: RequestedEpisode, *, until_s: float) -> bool:
        left_s = until_s - self.parts.context.clock.monotonic_s()
        if left_s <= 0:  # guard: tries-end-with-their-time
            return False
        ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        has_ended = False
        with suppress(TimeoutError):  # Code that is cut off may take a while to stop.
            limit = self.parts.context.clock.timeout(left_s)  # guard: stopping-code-holds-no-lane
            async with limit as wait:
                self.parts.context.tasks.start(self._try(asked, ended, wait, within_s=left_s))
                has_ended = await ended
        if has_ended:
            del self._vain[asked.opened.expectation_id]
        else:
            self._vain[asked.opened.expectation_id] += 1
        return has_ended

    async def _try(
        self,
        asked: RequestedEpisode,
        ended: asyncio.Future[bool],
        wait: asyncio.Timeout,
        *,
        within_s: float,
    ) -> None:
        opened = replace(asked.opened, in_lane=True)
        cause, context = TriedCause(opened, self.evaluator), self.parts.context
        has_ended = False
        try:
            with telemetry.span("gate", context_of(asked.trace)):
                async with context.clock.timeout(within_s) as limit:
                    has_ended = await run_here(
                        self.parts, opened, cause, on_only_commit=partial(_lift, limit, wait)
                    )
        except (TimeoutError, Unavailable) as error:
            # It may be written all the same: who opens it then finds out.
            log.debug("not run at once", episode_id=opened.episode_id, why=repr(error))
        finally:
            if not ended.done():
                ended.set_result(has_ended)


def _lift(*limits: asyncio.Timeout) -> None:
    """Have a commit that is about to be sent take as long as it takes."""
    if not any(limit.expired() for limit in limits):
        for limit in limits:
            limit.reschedule(None)
