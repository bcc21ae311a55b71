"""What an expectation would do with an event, by the rule that nodes report of it. Pure.

The rules are those by which the gates decide. What they would read is given: `RuleMemory`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import msgspec

from engine.app.checks import Breaker
from engine.app.conditions import Condition, all_of, conditions_of
from engine.app.triggers import EventSource, Source, entity_id
from engine.cluster.nodes import EventFilter, ExpectationInfo
from engine.episodes.overlap import places
from engine.episodes.overlap.hold import OVERLAP
from engine.episodes.overlap.places import Places
from engine.triggers import rules
from engine.triggers.refusals import DUPLICATE
from engine.triggers.rules import Debounced, Refuse, TriggerState
from streams.model.refusals import (
    WAITS,
    AgainstDebounce,
    AgainstEpisode,
    AgainstHolder,
    Comparison,
    Refusal,
    cut,
)
from streams.model.triggers import Overlap
from streams.ports.domain_events import DomainEvent

WouldOutcome: TypeAlias = Literal["fires", "refused", "waits", "unknown"]

SUPPOSED: Final = "would"
"""In the place of the node of a refusal."""


class WouldVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What one expectation would do with an event."""

    actor: str
    expectation: str
    outcome: WouldOutcome
    """`waits`: it is debounced, or nothing wakes the actor now; `unknown`: nobody says its rule."""
    refusal: Refusal | None = None
    """Of `refused`, and of what would wait for calm."""
    why: str
    """For people, in one line."""


class DeclaredRule(msgspec.Struct, frozen=True, kw_only=True):
    """What of an expectation its rule needs, as a node reports it."""

    name: str
    on: tuple[Source, ...]
    subject_key: str = ""
    cooldown_s: int = 0
    debounce_s: float = 0.0
    max_wait_s: float = 0.0
    breaker: Breaker | None = None
    overlap: Overlap = "allow"
    sample: float = 1.0
    has_own_dedupe: bool = False
    """Whether a function of the user tells which events are the same cause: nobody else can."""

    @property
    def is_gated(self) -> bool:
        """Return that it is: what is remembered is given, anyway."""
        return True

    def subject(self, event: DomainEvent) -> str:
        """Return what an event is about."""
        return entity_id(event.payload, self.subject_key)


_SAID: Final = (
    *("subject_key", "cooldown_s", "debounce_s", "max_wait_s", "breaker", "overlap", "sample"),
)


def rule_of(name: str, info: ExpectationInfo) -> DeclaredRule | None:
    """Return the rule that a node reports; None: the node is of a version that does not say it."""
    if info.events is None:
        return None
    said = {each: info.options[each] for each in _SAID if each in info.options}
    breaker = msgspec.convert(said.pop("breaker", None), Breaker | None)
    return DeclaredRule(
        name=name,
        on=tuple(map(_source, info.events)),
        breaker=breaker,
        has_own_dedupe=info.has_own_dedupe,
        **said,
    )


def _source(said: EventFilter) -> EventSource:
    wanted = {path: _condition(each) for path, each in said.filter.items()}
    return EventSource(names=said.names, filter=wanted)


def _condition(spelled: object) -> Condition:
    """Return a condition as `conditions.spelled` spells it: several of one operator, too."""
    if isinstance(spelled, Mapping) and spelled.keys() == {"all"}:
        return all_of(*(conditions_of(each) for each in spelled["all"]))
    return conditions_of(spelled)


@dataclass(frozen=True, kw_only=True)
class RuleMemory:
    """What the stack remembers that a rule depends on."""

    trigger_state: TriggerState
    dedupe_key: str
    is_workflow: bool = False
    """Whether an instance would be started, and no episode opened."""
    is_opened: bool = False
    """Whether the same cause has opened one."""
    places: Places | None = None
    """Of the subject; None: nobody holds it."""
    over: Collection[str] = ()
    """Those of `places` that have ended."""

    @property
    def id_(self) -> str:
        """The episode or instance that it would be."""
        return self.trigger_state.episode_id


def verdict(
    rule: DeclaredRule, event: DomainEvent, seen: RuleMemory, *, stack: str, actor: str
) -> WouldVerdict:
    """Return what an expectation would do with `event`."""

    def refused(
        reason: str, against: Comparison | None, outcome: WouldOutcome = "refused"
    ) -> WouldVerdict:
        refusal = Refusal(
            event_id=event.id,
            event=event.name,
            actor=actor,
            expectation=rule.name,
            subject=cut(rule.subject(event)),
            at=seen.trigger_state.now,
            node=SUPPOSED,
            reason=reason,
            against=against,
        )
        return WouldVerdict(
            actor=actor,
            expectation=rule.name,
            outcome=outcome,
            refusal=refusal,
            why=refusal.why,
        )

    state = seen.trigger_state
    match rules.rule(rule, event, stack=stack, actor=actor, trigger_state=state):
        case Refuse(reason=reason, against=against):
            return refused(reason, against)
        case Debounced():
            calm = AgainstDebounce(debounce_s=rule.debounce_s, max_wait_s=rule.max_wait_s)
            return refused(WAITS, calm, "waits")
        case _:
            pass
    if seen.is_opened:  # guard: equal-cause-would-not-fire
        name = "instance_id" if seen.is_workflow else "episode_id"
        same = AgainstEpisode(**{name: seen.id_}, dedupe_key=cut(seen.dedupe_key))
        return refused(DUPLICATE, same)
    taken = places.take(seen.places, seen.id_, rule.overlap, over=seen.over)
    if taken is None and rule.overlap != "allow":  # guard: held-subject-would-not-fire
        assert seen.places is not None, "nobody holds the subject"
        return refused(OVERLAP, AgainstHolder(episode_id=seen.places.holder))
    waits_for = "" if taken is None or rule.overlap == "allow" else taken.held_by
    return WouldVerdict(
        actor=actor,
        expectation=rule.name,
        outcome="fires",
        why=", ".join(_conditions(rule, seen, waits_for=waits_for)),
    )


def _conditions(rule: DeclaredRule, seen: RuleMemory, *, waits_for: str) -> list[str]:
    """Return what would happen, and what it depends on that nobody can look up."""
    said = ["it would start an instance" if seen.is_workflow else "it would open an episode"]
    if waits_for:
        said.append(f"which starts once episode {waits_for} has ended")
    if seen.is_workflow and rule.overlap != "allow":
        said.append("if none of its subject runs")
    if rule.breaker is not None and rule.breaker.scope == "node":
        said.append("if the breaker of the node that takes the event is closed")
    if rule.has_own_dedupe:
        said.append("if its own function finds no equal cause")
    return said
