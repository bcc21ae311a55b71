"""Records the ends of children on the journal of their parent, while that is blocked."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial, reduce
from itertools import islice
from typing import Final

import structlog
from msgspec.structs import replace

from engine.children import rules as children
from engine.episodes import results
from engine.episodes.episode import Episode, Performed, evolve, fold
from engine.runtime.context import ActorContext
from engine.runtime.gather import gather_bounded
from engine.runtime.store import Loaded, Store, Turns, read_up_to
from engine.validation import KEPT_BYTES_MAX
from streams.json import NOTHING
from streams.model.commands import ChildEnded
from streams.model.events import EpisodeEvent, EpisodeFinished, StepAnnounced
from streams.ports.log import Recorded

IN_FLIGHT_MAX: Final = 32
"""Journals of children of one episode that are read at a time."""

PARENTS_KEPT_MAX: Final = 16
"""Parents per actor of which a node keeps the state, to read only what is new: those told last."""

PER_COMMIT_MAX: Final = 32
"""Most ends in one commit; their results have `KEPT_BYTES_MAX` together, unless it is one."""

log = structlog.get_logger("vigil.waits")


@dataclass(frozen=True)
class ChildrenCollector:
    """Collects the ends of children of one actor's episodes, on one node."""

    context: ActorContext
    turns: Turns = field(default_factory=lambda: Turns(kept_max=PARENTS_KEPT_MAX))

    async def collect(self, episode: Episode, records: Sequence[Recorded]) -> bool:
        """Record the ends of the children of a blocked `episode`; return whether there were any.

        `records` is its journal until now.
        """
        found = await gather_bounded(
            self._end_of, children.awaited(episode).values(), in_flight_max=IN_FLIGHT_MAX
        )
        ended = {step.path: step for step in found if step is not None}
        if not ended:
            return False
        subject = records[-1].subject
        known: Loaded[Episode] | None = Loaded(subject, episode, records)
        for some in _in_parts(ended):
            record = partial(self._record, some)
            await self._store.retry(subject, record, seed=min(some), known=known)
            known = None
        return True

    async def hear(self, told: ChildEnded) -> None:
        """Record the end of one child, if its parent waits for it; read no more than is new."""
        subject = self.context.ports.stack.episode(told.episode_id)
        child = await self._ended(told.child_id)

        async def record(parent: Loaded[Episode]) -> None:
            waits = children.awaited(parent.state).values()
            said = [each for each in waits if _is_of(each, told.child_id)]
            if child is not None:
                steps = [await self._step(each, child) for each in said]
                await self._record({step.path: step for step in steps}, parent)

        await self._store.retry(subject, record, seed=told.child_id)

    @cached_property
    def _store(self) -> Store[Episode, EpisodeEvent]:
        node = self.context
        return Store(node.ports.log, node.clock, fold, turns=self.turns, folds_on=True)

    async def _record(self, ended: Mapping[str, Performed], parent: Loaded[Episode]) -> None:
        events = children.ends(parent.state, ended)
        if not events:
            return
        after = reduce(evolve, events, parent.state)
        # Another node may record other ends at this version.
        which = hashlib.blake2b("\0".join(sorted(ended)).encode(), digest_size=8).hexdigest()
        id_ = f"children.{parent.subject}.{parent.state.steps_recorded}.{which}"
        now = self.context.clock.now()
        log.info("children have ended", children=len(events))
        await self._store.append(parent, events, id=id_, at=now, state=after)

    async def _end_of(self, announced: StepAnnounced) -> Performed | None:
        """Return the end of a child; None: it has not ended."""
        assert announced.child is not None, "it announces a child"
        child = await self._ended(announced.child.episode_id)
        return None if child is None else await self._step(announced, child)

    async def _ended(self, child_id: str) -> Episode | None:
        log_, subject = self.context.ports.log, self.context.ports.stack.episode(child_id)
        newest = await log_.last(subject)
        if newest is None or not any(isinstance(e, EpisodeFinished) for e in newest.commit.events):
            return None
        return fold(await read_up_to(log_, self.context.clock, newest))

    async def _step(self, announced: StepAnnounced, child: Episode) -> Performed:
        step = children.performed(announced, child)
        if len(memoryview(step.result)) <= KEPT_BYTES_MAX:  # guard: large-child-result-stored
            return step
        assert announced.child is not None, "it announces a child"
        about = self.context.ports.stack.episode(announced.child.episode_id)
        stored = await results.store(self.context.ports.objects, step.result, about=about)
        return replace(step, result=NOTHING, stored=stored)


def _is_of(announced: StepAnnounced, child_id: str) -> bool:
    return announced.child is not None and announced.child.episode_id == child_id


def _in_parts(ended: Mapping[str, Performed]) -> Iterable[Mapping[str, Performed]]:
    """Yield the ends in parts that fit in one commit each."""
    left = list(ended.items())
    while left:
        size_bytes, number = 0, 0
        for _, step in islice(left, PER_COMMIT_MAX):
            size_bytes += len(memoryview(step.result)) + len(memoryview(step.args))
            if number and size_bytes > KEPT_BYTES_MAX:
                break
            number += 1
        yield dict(left[:number])
        left = left[number:]
