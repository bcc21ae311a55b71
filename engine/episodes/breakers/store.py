"""The circuit breakers of one actor on one node: read → decide → store → publish.

A cluster-wide breaker is a key in a bucket, changed at its revision; a node's own is in memory, and
closed at a restart. An episode's end costs one read, and a write if its breaker changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec
import structlog

from engine import telemetry
from engine.app.actor import Actor, Expectation
from engine.app.checks import Breaker
from engine.episodes import events as episode_events
from engine.episodes.attempt import Attempt, RunningEpisodes
from engine.episodes.breakers import breaker
from engine.episodes.breakers.breaker import CLOSED, BreakerState, Change, Outcome
from engine.episodes.episode import CancelEpisode
from engine.runtime.catalog import Catalog
from engine.runtime.publish import EventPublisher
from engine.runtime.watch import follow
from engine.validation import backoff_s, jittered_s
from streams.clock import Clock
from streams.errors import RevisionConflict, Unavailable, UnknownOutcome
from streams.keys import BREAKERS, breaker_key
from streams.model.events import EpisodeFinished, EpisodeOpened
from streams.ports.all import Ports
from streams.ports.bucket import Bucket, BucketEntry

NOTE_TRIES_MAX: Final = 50
"""Most tries to note one end in a breaker that other nodes change at the same time."""

CONFLICT_S: Final = 0.01
"""First pause after such a conflict, in seconds; doubles each time."""

CONFLICT_MAX_S: Final = 0.5
"""Longest such pause, in seconds."""

NO_REVISION: Final = 0
"""Of a breaker that was never stored."""

Ending: TypeAlias = tuple[EpisodeOpened, Outcome]

log = structlog.get_logger("vigil.breakers")


class SeenBreaker(msgspec.Struct, frozen=True):
    """A breaker's state, and the revision that a change of it must name."""

    state: BreakerState
    revision: int


UNSEEN: Final = SeenBreaker(CLOSED, NO_REVISION)


class Breakers:
    """The circuit breakers of one actor's expectations, as one node sees them."""

    def __init__(
        self,
        actor: Actor,
        ports: Ports,
        clock: Clock,
        *,
        node: str,
        running: RunningEpisodes,
        own: dict[str, SeenBreaker] | None = None,
    ) -> None:
        """Begin with `own`, the node's breakers of an earlier version of the actor, or closed."""
        self._actor, self._clock, self._node, self._running = actor, clock, node, running
        self._gates, self._publisher = ports.gates, EventPublisher(ports.domain_events)
        self.own: dict[str, SeenBreaker] = {} if own is None else own
        """The node's own breakers, by expectation."""
        self._turns = {name: asyncio.Lock() for name in actor.expectations}
        self._warned: set[str] = set()

    @property
    def cancel_in_flight(self) -> bool:
        """Whether another node's failures may cancel what runs here."""
        every = [each.breaker for each in self._actor.expectations.values()]
        return any(each and each.cancel_in_flight and each.scope == "cluster" for each in every)

    async def read(self, expectation: Expectation) -> SeenBreaker:
        """Return the state of an expectation's breaker: closed if none is readable."""
        if expectation.breaker is None:
            return UNSEEN
        if expectation.breaker.scope == "node":
            return self.own.get(expectation.name, UNSEEN)
        entry = await self._gates.get(self._key(expectation))
        return UNSEEN if entry is None else SeenBreaker(self._state_in(entry), entry.revision)

    async def keep(self, expectation: Expectation, state: BreakerState, *, after: int) -> bool:
        """Store `state`, which has a probe; False if the breaker is not at `after` any more."""
        is_kept = await self._put(expectation, state, after=after)
        if is_kept and state.probe:
            await self._half_opened(expectation, state)
        return is_kept

    async def record_end(
        self, opened: EpisodeOpened, finished: EpisodeFinished, *, seq: int
    ) -> None:
        """Note how an episode has ended, at `seq`, and publish a change of its breaker.

        Call it when the end is durable, and before the claim is given up: doing it again changes
        nothing, and completes what a crash cut off. `seq` is `START` if it was never opened.
        """
        expectation = self._actor.expectations.get(opened.expectation_id)
        if expectation is None or expectation.breaker is None:
            return
        outcome = breaker.outcome_of(opened, finished)
        if outcome is None:
            return
        state = await self._noted(expectation, expectation.breaker, (opened, outcome))
        change = breaker.change_by(opened.episode_id, state)
        if change is not None:
            self._cancel_running(expectation, state)
            at = state.opened_at or self._clock.now()
            node = self._node_of(expectation)
            public_events = episode_events.breaker_changed(
                opened, change, failures=state.failures, at=at, seq=seq, node=node
            )
            await self._publisher.publish([public_events])

    async def check(self, attempt: Attempt) -> None:
        """Cancel `attempt` if its breaker requires it; register it first, or a change is missed."""
        expectation = self._actor.expectations.get(attempt.opened.expectation_id)
        if expectation is None or not _may_cancel(expectation):
            return
        seen = await self.read(expectation)
        _cancel(attempt, expectation, seen.state)

    async def turns_away(self, opened: EpisodeOpened) -> bool:
        """Return whether an episode that has not begun is for others: this node's breaker is open.

        The node that opened it did not know that. When the breaker's time is over, one is let
        through as its probe.
        """
        expectation = self._actor.expectations.get(opened.expectation_id)
        rules = expectation.breaker if expectation else None
        if expectation is None or rules is None or rules.scope != "node":
            return False
        if breaker.stands_outside(opened):
            return False
        seen, now = self.own.get(expectation.name, UNSEEN), self._clock.now()
        passage = breaker.pass_through(seen.state, rules, episode_id=opened.episode_id, now=now)
        if passage.becomes is not None:
            self._put_own(expectation.name, passage.becomes, after=seen.revision)
            await self._half_opened(expectation, passage.becomes)
        return not passage.allowed

    async def _half_opened(self, expectation: Expectation, state: BreakerState) -> None:
        """Report that a probe is let through. A node that dies here leaves it unpublished."""
        self._report("half_opened", expectation, state)
        event = episode_events.breaker_half_opened(
            state.probe,
            actor_id=self._actor.id,
            expectation_id=expectation.name,
            failures=state.failures,
            node=self._node_of(expectation),
        )
        await self._publisher.publish([event])

    def _node_of(self, expectation: Expectation) -> str:
        """Return the node whose breaker it is; empty: the cluster's."""
        is_own = expectation.breaker is not None and expectation.breaker.scope == "node"
        return self._node if is_own else ""

    async def look_again(self, expectation_id: str) -> None:
        """Cancel running episodes of an expectation if its breaker, as it is now, requires it."""
        expectation = self._actor.expectations.get(expectation_id)
        if expectation is None or not _may_cancel(expectation):
            return
        if self._running.of(self._actor.id, expectation_id):
            seen = await self.read(expectation)
            self._cancel_running(expectation, seen.state)

    async def _noted(
        self, expectation: Expectation, rules: Breaker, ending: Ending
    ) -> BreakerState:
        seen = await self.read(expectation)
        if self._after(seen.state, rules, ending) is seen.state:
            return seen.state
        async with self._turns[expectation.name]:
            for tries in range(1, NOTE_TRIES_MAX + 1):
                state = await self._try_note(expectation, rules, ending)
                if state is not None:
                    return state
                pause_s = backoff_s(tries, first_s=CONFLICT_S, most_s=CONFLICT_MAX_S)
                seed = f"{ending[0].episode_id}.{tries}"
                await self._clock.sleep(jittered_s(pause_s, seed=seed))
        key = self._key(expectation)
        raise Unavailable(key, detail=f"other nodes changed it {NOTE_TRIES_MAX} times meanwhile")

    async def _try_note(
        self, expectation: Expectation, rules: Breaker, ending: Ending
    ) -> BreakerState | None:
        """Return the breaker's state with `ending` in it; None: another writer was faster."""
        seen = await self.read(expectation)
        state = self._after(seen.state, rules, ending)
        if state is seen.state:
            return state
        try:
            if not await self._put(expectation, state, after=seen.revision):
                return None
        # guard: breaker-lost-answer-looked-for
        except UnknownOutcome:  # The next read shows whether it was stored.
            return None
        change = breaker.transition(seen.state, state)
        if change is not None:
            self._report(change, expectation, state)
        return state

    def _after(self, state: BreakerState, rules: Breaker, ending: Ending) -> BreakerState:
        opened, outcome = ending
        return breaker.record(
            state, rules, episode_id=opened.episode_id, outcome=outcome, now=self._clock.now()
        )

    async def _put(self, expectation: Expectation, state: BreakerState, *, after: int) -> bool:
        assert expectation.breaker is not None, "a state of a breaker that is not there"
        if expectation.breaker.scope == "node":
            return self._put_own(expectation.name, state, after=after)
        try:
            # guard: breaker-changed-as-read
            await self._gates.put(self._key(expectation), msgspec.json.encode(state), after=after)
        except RevisionConflict:
            return False
        return True

    def _put_own(self, name: str, state: BreakerState, *, after: int) -> bool:
        if self.own.get(name, UNSEEN).revision != after:
            return False
        self.own[name] = SeenBreaker(state, after + 1)
        return True

    def _state_in(self, entry: BucketEntry) -> BreakerState:
        try:
            return msgspec.json.decode(entry.value or b"", type=BreakerState)
        except msgspec.DecodeError as error:  # guard: unreadable-breaker-closed
            if entry.key not in self._warned:
                self._warned.add(entry.key)
                log.warning(
                    "circuit breaker unreadable; it counts as closed", key=entry.key, why=str(error)
                )
            return CLOSED

    def _cancel_running(self, expectation: Expectation, state: BreakerState) -> None:
        for attempt in self._running.of(self._actor.id, expectation.name):
            _cancel(attempt, expectation, state)

    def _report(self, change: Change, expectation: Expectation, state: BreakerState) -> None:
        labels = {"actor": self._actor.id, "expectation": expectation.name}
        telemetry.breaker_changes.add(1, {**labels, "change": change})
        say = log.warning if change == "opened" else log.info
        say(
            "circuit breaker changed",
            **labels,
            change=change,
            failures=state.failures,
            probe=state.probe,
        )

    def _key(self, expectation: Expectation) -> str:
        return breaker_key(self._actor.id, expectation.name)


def _may_cancel(expectation: Expectation) -> bool:
    return expectation.breaker is not None and expectation.breaker.cancel_in_flight


def _cancel(attempt: Attempt, expectation: Expectation, state: BreakerState) -> None:
    rules = expectation.breaker
    if rules is not None and breaker.cancels(state, rules, attempt.opened):
        detail = f"the circuit breaker of {expectation.name} is {state.status}"
        attempt.cancel(CancelEpisode(error_class=breaker.TRIPPED, error_detail=detail))


@dataclass(frozen=True)
class BreakerWatcher:
    """Cancels running episodes when a breaker opens elsewhere, for one node."""

    gates: Bucket
    catalog: Catalog
    breakers: Mapping[str, Breakers]
    """By actor, of all in the catalog."""

    async def follow(self) -> None:
        """Watch for ever, also while the node stops, as soon as a breaker may cancel what runs."""
        await self.catalog.wait_until(self._is_needed)
        await follow(self.gates.watch(under=BREAKERS), self._hear)

    async def _hear(self, entries: Sequence[BucketEntry]) -> None:
        for entry in entries:
            await self._look_at(entry)

    def _is_needed(self) -> bool:
        return any(each.cancel_in_flight for each in self.breakers.values())

    async def _look_at(self, entry: BucketEntry) -> None:
        first, _, rest = entry.key.partition(".")
        actor_id, _, expectation_id = rest.partition(".")
        # guard: nodes-watch-cancelling-breakers
        if first == BREAKERS and actor_id in self.breakers:
            await self.breakers[actor_id].look_again(expectation_id)
