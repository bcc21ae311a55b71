"""What an event would do if it happened now: for each expectation that watches it. It only reads.

    what nodes declare ──▶ what is remembered ──▶ the rules of the gates

What is remembered may be something else by the time that the event happens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from engine.app.dedupe import episode_id, key_of
from engine.cluster.members import live_nodes
from engine.episodes.breakers.breaker import CLOSED, BreakerState
from engine.episodes.overlap.hold import hold_in
from engine.episodes.overlap.places import Places
from engine.operations.events.why_event import declared, dedupe_of, watches, workflows
from engine.operations.events.would_rule import (
    DeclaredRule,
    RuleMemory,
    WouldVerdict,
    rule_of,
    verdict,
)
from engine.triggers.evaluate import NO_COOLDOWN, cooldown_in
from engine.triggers.rules import TriggerState
from engine.workflows.instance import instance_id
from streams.clock import Clock
from streams.keys import breaker_key, cooldown_key, overlap_key
from streams.model.events import EpisodeFinished
from streams.ports.all import Ports
from streams.ports.domain_events import DomainEvent

UNSAID: Final = "its node is of a version that does not say its filter"


async def would_event(ports: Ports, event: DomainEvent, *, clock: Clock) -> Sequence[WouldVerdict]:
    """Return what each expectation of live nodes that watches `event` would do with it.

    By actor and expectation. Nothing is published, and nothing is changed.
    """
    nodes = await live_nodes(ports.gates)
    starters = workflows(nodes)
    found = []
    for (actor, name), info in sorted(declared(nodes).items()):
        if not watches(info, event.name):
            continue
        rule = rule_of(name, info)
        if rule is None:
            unsaid = WouldVerdict(actor=actor, expectation=name, outcome="unknown", why=UNSAID)
            found.append(unsaid)
            continue
        look = _Look(ports, clock, actor, rule)
        key = key_of(dedupe_of(info), event)
        seen = await look.remembered(event, key, workflow=starters.get(actor, ""))
        found.append(verdict(rule, event, seen, stack=ports.stack.name, actor=actor))
    return found


@dataclass(frozen=True)
class _Look:
    """Reads what the rule of one expectation depends on."""

    ports: Ports
    clock: Clock
    actor: str
    rule: DeclaredRule

    async def remembered(self, event: DomainEvent, key: str, *, workflow: str) -> RuleMemory:
        stack, actor, name = self.ports.stack, self.actor, self.rule.name
        if workflow:
            id_ = instance_id(stack=stack.name, workflow=workflow, dedupe_key=key)
            subject = stack.workflow(id_)
        else:
            id_ = episode_id(stack=stack.name, actor=actor, expectation=name, dedupe_key=key)
            subject = stack.episode(id_)
        about = self.rule.subject(event)
        state = await self._state(id_, about)
        places = await self._places(about) if self.rule.overlap != "allow" else None
        named = [each for each in (places.holder, places.next) if each] if places else []
        return RuleMemory(
            trigger_state=state,
            dedupe_key=key,
            is_workflow=bool(workflow),
            is_opened=subject in await self.ports.log.newest([subject]),
            places=places,
            over={each for each in named if await self._has_ended(each)},
        )

    async def _state(self, id_: str, about: str) -> TriggerState:
        entry = await self.ports.gates.get(cooldown_key(self.actor, self.rule.name, about))
        cooled = NO_COOLDOWN if entry is None else cooldown_in(entry.value)
        return TriggerState(
            episode_id=id_,
            now=self.clock.now(),
            cooled_by=cooled.episode_id,
            cooled_until=cooled.until,
            breaker=await self._breaker(),
        )

    async def _breaker(self) -> BreakerState:
        """Return the breaker that the cluster shares; one of a node's own nobody else can read."""
        if self.rule.breaker is None or self.rule.breaker.scope == "node":
            return CLOSED
        entry = await self.ports.gates.get(breaker_key(self.actor, self.rule.name))
        if entry is None or entry.value is None:
            return CLOSED
        try:
            return msgspec.json.decode(entry.value, type=BreakerState)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return CLOSED  # As a gate takes one of a newer version.

    async def _places(self, about: str) -> Places | None:
        """Return who holds a subject of an episode; of instances nobody says."""
        entry = await self.ports.gates.get(overlap_key(self.actor, self.rule.name, about))
        hold = hold_in(entry.value) if entry is not None else None
        return None if hold is None else hold.places

    async def _has_ended(self, id_: str) -> bool:
        newest = await self.ports.log.last(self.ports.stack.episode(id_))
        events = () if newest is None else newest.commit.events
        return any(isinstance(each, EpisodeFinished) for each in events)
