"""What rules would have done with events that have happened. Pure.

The rules are those of the gates. What gates remember is built from the events themselves, from the
first one that is read on: a cooldown begins with what fires here, a debounce with what waits here,
and equal causes are those that were seen here. Nothing is known of how episodes went, so each is
taken to end at once and well: no circuit breaker opens, no subject is held, and no lane is full.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Final

import msgspec

from engine.app.actor import Actor, Expectation
from engine.app.dedupe import episode_id, key_of
from engine.app.triggers import EventSource, entity_id
from engine.app.workflow_plan import Starter
from engine.errors import EpisodeFailed
from engine.triggers import debounce, rules
from engine.triggers.debounce import Rearm
from engine.triggers.refusals import DUPLICATE, NOT_WATCHED
from engine.triggers.rules import Debounced, Fire, Refuse, TriggerState
from engine.usercode.call import call_now, in_text
from engine.workflows.instance import instance_id
from streams.model.refusals import (
    AgainstCooldown,
    AgainstDebounce,
    AgainstEpisode,
    Comparison,
    Refusal,
    cut,
)
from streams.ports.domain_events import DomainEvent

FIRE: Final = "fire"
"""The ruling on an event that would have opened an episode."""

COALESCED: Final = "coalesced"
"""The ruling on a debounced event in whose place a newer one has fired, or waits."""

DEDUPE_FAILED: Final = "dedupe_failed"
"""The ruling on an event that the expectation's own function gave no key."""

SUPPOSED: Final = "would"
"""In the place of the node of a refusal."""


class WouldRuling(msgspec.Struct, frozen=True, kw_only=True):
    """What one expectation would have done with one event."""

    event_id: str
    event: str
    seq: int
    actor: str
    expectation: str
    subject: str
    at: datetime
    """When it would have been so: of what waits for calm, later than the event."""
    ruling: str
    """`fire`, or the reason of a refusal."""
    episode_id: str = ""
    """The one that it would have opened; empty: none."""
    instance_id: str = ""
    """Of a workflow: the one that it would have started."""
    against: Comparison | None = None
    why: str = ""
    """What it was compared with, in words."""


@dataclass(order=True)
class _Calm:
    """A debounced event that is to fire."""

    due_at: datetime
    number: int
    subject: str = field(compare=False)


@dataclass
class ExpectationReplay:
    """One expectation, and what it remembers of the events that it was given."""

    actor: Actor
    expectation: Expectation
    stack: str
    _cooled: dict[str, AgainstCooldown] = field(default_factory=dict)
    """By subject."""
    _pending: dict[str, Rearm] = field(default_factory=dict)
    """By subject: what waits for calm."""
    _calms: list[_Calm] = field(default_factory=list)
    """A heap; of a subject, the one whose time is that of what waits counts."""
    _keys: set[str] = field(default_factory=set)
    _numbers: Iterator[int] = field(default_factory=count)

    @property
    def is_watching(self) -> bool:
        """Whether it is fired by events of the stack at all."""
        sources = (each for each in self.expectation.on if isinstance(each, EventSource))
        return any(each.foreign is None for each in sources)

    def take(self, event: DomainEvent) -> Iterator[WouldRuling]:
        """Yield what becomes of what waited until then, and of `event`."""
        yield from self.due(event.at)
        ruled = self._ruled(event, event.at, is_calm=False)
        match ruled:
            case Refuse(reason=reason) if reason == NOT_WATCHED:
                return
            case Refuse(reason=reason, against=against):
                yield self._told(event, event.at, reason, against=against)
            case Debounced():
                yield from self._held(event)
            case Fire():
                yield self._fired(event, event.at)
            case _:
                raise AssertionError("all that it remembers is given")

    def due(self, until: datetime) -> Iterator[WouldRuling]:
        """Yield what fires, or is refused, as its subject has been calm by `until`."""
        while self._calms and self._calms[0].due_at <= until:
            calm = heapq.heappop(self._calms)
            held = self._pending.get(calm.subject)
            if held is None or held.due_at != calm.due_at:
                continue  # A newer event has moved it.
            del self._pending[calm.subject]
            event = held.debounced.event
            ruled = self._ruled(event, calm.due_at, is_calm=True)
            if isinstance(ruled, Refuse):
                yield self._told(event, calm.due_at, ruled.reason, against=ruled.against)
            else:
                yield self._fired(event, calm.due_at)

    def waiting(self) -> Iterator[WouldRuling]:
        """Yield what still waits for calm."""
        for held in self._pending.values():
            event = held.debounced.event
            yield self._told(event, event.at, "waits_for_calm", against=self._calm_wanted())

    def _held(self, event: DomainEvent) -> Iterator[WouldRuling]:
        """Yield what becomes of the event that waited until now, or of this one."""
        subject = self._subject(event)
        before = self._pending.get(subject)
        after = debounce.hold(self.expectation, event, before, now=event.at)
        if after is None:
            return
        self._pending[subject] = after
        if after.debounced.event is not event:
            yield self._told(event, event.at, "superseded", against=self._calm_wanted())
            return
        heapq.heappush(self._calms, _Calm(after.due_at, next(self._numbers), subject))
        if before is not None:
            older = before.debounced.event
            yield self._told(older, event.at, COALESCED, against=self._calm_wanted())

    def _ruled(self, event: DomainEvent, at: datetime, *, is_calm: bool) -> rules.Ruling:
        cooled = self._cooled.get(self._subject(event))
        is_cooled = cooled is not None and cooled.until is not None and cooled.until > at
        state = TriggerState(
            episode_id="",
            now=at,
            cooled_by=cooled.episode_id if cooled is not None and is_cooled else "",
            cooled_until=cooled.until if cooled is not None and is_cooled else None,
            is_calm=is_calm,
        )
        return rules.rule(
            self.expectation, event, stack=self.stack, actor=self.actor.id, trigger_state=state
        )

    def _fired(self, event: DomainEvent, at: datetime) -> WouldRuling:
        try:
            key = call_now(key_of, self.expectation.dedupe, event)
        except EpisodeFailed as failed:
            return self._told(event, at, DEDUPE_FAILED, why=in_text(failed.detail))
        names = self._names(key)
        (id_,) = names.values()
        if key in self._keys:  # guard: equal-cause-would-fire-once
            against = AgainstEpisode(**names, dedupe_key=cut(key))
            return self._told(event, at, DUPLICATE, against=against)
        self._keys.add(key)
        if self.expectation.cooldown_s:  # guard: would-fire-begins-cooldown
            until = at + timedelta(seconds=self.expectation.cooldown_s)
            self._cooled[self._subject(event)] = AgainstCooldown(episode_id=id_, until=until)
        return msgspec.structs.replace(self._told(event, at, FIRE), **names)

    def _names(self, key: str) -> dict[str, str]:
        """Return the id of what a cause opens."""
        if isinstance(self.actor, Starter):
            workflow = self.actor.workflow
            id_ = instance_id(stack=self.stack, workflow=workflow, dedupe_key=key)
            return {"instance_id": id_}
        actor, expectation = self.actor.id, self.expectation.name
        id_ = episode_id(stack=self.stack, actor=actor, expectation=expectation, dedupe_key=key)
        return {"episode_id": id_}

    def _told(
        self,
        event: DomainEvent,
        at: datetime,
        ruling: str,
        *,
        against: Comparison | None = None,
        why: str = "",
    ) -> WouldRuling:
        subject = cut(self._subject(event))
        refusal = Refusal(
            event_id=event.id,
            event=event.name,
            actor=self.actor.id,
            expectation=self.expectation.name,
            subject=subject,
            at=at,
            node=SUPPOSED,
            reason=ruling,
            against=against,
        )
        return WouldRuling(
            event_id=event.id,
            event=event.name,
            seq=event.seq,
            actor=self.actor.id,
            expectation=self.expectation.name,
            subject=subject,
            at=at,
            ruling=ruling,
            against=against,
            why=why if ruling in {FIRE, DEDUPE_FAILED} else refusal.words,
        )

    def _calm_wanted(self) -> AgainstDebounce:
        return AgainstDebounce(
            debounce_s=self.expectation.debounce_s, max_wait_s=self.expectation.max_wait_s
        )

    def _subject(self, event: DomainEvent) -> str:
        return entity_id(event.payload, self.expectation.subject_key)


class Replay:
    """The expectations of some actors, which are given events in the order of their stream."""

    def __init__(self, actors: Iterable[Actor], *, stack: str, kept_max: int) -> None:
        """Begin with no event; `kept_max`: most rulings of each kind that are kept whole."""
        replays = [
            ExpectationReplay(actor, expectation, stack)
            for actor in actors
            for expectation in actor.expectations.values()
        ]
        self._replays = [each for each in replays if each.is_watching]
        self._kept_max = kept_max
        self.counts: Counter[tuple[str, str, str]] = Counter()
        """Actor, expectation and ruling → how many events."""
        self.kept: list[WouldRuling] = []
        """Of each actor, expectation and ruling, the first ones."""

    @property
    def watching(self) -> Sequence[tuple[str, str]]:
        """Actor and expectation of all that events fire."""
        return [(each.actor.id, each.expectation.name) for each in self._replays]

    def take(self, event: DomainEvent) -> None:
        """Rule on an event."""
        for each in self._replays:
            self._note(each.take(event))

    def end(self, at: datetime) -> None:
        """Let the time pass until `at`; what waits for calm then waits."""
        for each in self._replays:
            self._note(each.due(at))
            self._note(each.waiting())

    def _note(self, ruled: Iterable[WouldRuling]) -> None:
        for each in ruled:
            kind = each.actor, each.expectation, each.ruling
            self.counts[kind] += 1
            if self.counts[kind] <= self._kept_max:
                self.kept.append(each)
