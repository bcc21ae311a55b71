"""The ruling on one event and one expectation, rule by rule in one order. Pure.

    type → hops → filter → cooldown → calm → circuit breaker → sampling → (a lane's overflow)

A later rule is asked only if all before it let the event through, so the reason of a refusal is
always the first one that holds. Of several triggers that watch for the event the first that fits
fires; if none does, the reason is that of the first.

Cooldown, calm and breaker are a matter of what happened before, which the cluster remembers. So an
event that has come as far as them is first ruled on as `Look`, and then again with its `Standing`.
Overflow is ruled on last, by `engine.lanes.lane`, for actors whose episodes take turns.

What something that woke an actor comes to: its parts.

All of them must be in good hands before it is answered for: an `EpisodeOpened` is to be opened, an
`Unreadable` to be buried, and the others are still to be ruled on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from engine.app.actor import Expectation
from engine.app.conditions import Misfit, MisfitReason, misfit
from engine.app.triggers import EventSource, Schedule, trigger_of
from engine.episodes import breaker
from engine.episodes.breaker import CLOSED, BreakerState, Passage
from engine.findings.expire import DueFinding
from streams.json import JsonObject
from streams.model.events import EpisodeOpened
from streams.model.triggers import EventTrigger, ScheduleTrigger
from streams.ports.delivery import Unreadable
from streams.ports.domain_events import HOPS_MAX, DomainEvent

Reason: TypeAlias = (
    Literal["not_watched", "too_many_hops", "cooldown", "superseded", "breaker_open", "sampled_out"]
    | MisfitReason
)
"""A stable class of refusals, by which they are counted."""

REASONS: Final[tuple[str, ...]] = tuple(
    reason for group in get_args(Reason) for reason in get_args(group)
)
"""All of them."""

SHARE_BYTES: Final = 6
"""Size of the hash that a share is made of: few enough that a share is exact, and under 1."""


class TriggerState(msgspec.Struct, frozen=True, kw_only=True):
    """What the cluster remembers, as far as it matters to one event and one expectation."""

    episode_id: str
    """The episode that the event opens if it fires."""
    now: datetime
    cooled_by: str = ""
    """The episode since which the subject rests; empty: it does not."""
    breaker: BreakerState = CLOSED
    is_calm: bool = False
    """Whether the subject has been calm for as long as was asked for."""
    is_superseded: bool = False
    """Whether a newer event about the subject has fired by then."""
    coalesced: int = 0
    """How many earlier events this one stands for by then."""


class Fire(msgspec.Struct, frozen=True):
    """Open an episode."""

    trigger: EventTrigger | ScheduleTrigger
    breaker: BreakerState | None = None
    """The state that the circuit breaker must be in first; None: it may stay as it is."""


class LookUp(msgspec.Struct, frozen=True):
    """Look up the event's standing, and rule again."""


class Debounced(msgspec.Struct, frozen=True):
    """Rule again when the subject has calmed down."""


class Refuse(msgspec.Struct, frozen=True):
    """Do nothing, and say why: a gate that is silent cannot be debugged."""

    reason: Reason
    detail: str = ""


Ruling: TypeAlias = Fire | LookUp | Debounced | Refuse


def rule(
    expectation: Expectation,
    happened: DomainEvent,
    *,
    stack: str,
    actor: str,
    trigger_state: TriggerState | None = None,
) -> Ruling:
    """Return whether `happened` fires `expectation`, of `actor` in `stack`.

    Every node that knows the same rules the same on the same event, however often it comes.
    """
    if refusal := _unfit(expectation, happened):
        return refusal
    if expectation.is_gated and trigger_state is None:
        return LookUp()
    becomes, coalesced = None, 0
    if trigger_state is not None:
        passed = _past(expectation, trigger_state)
        if not isinstance(passed, Passage):
            return passed
        becomes, coalesced = passed.becomes, trigger_state.coalesced
    if share_of(happened.id, stack, actor, expectation.name) >= expectation.sample:
        return Refuse("sampled_out")
    fired = trigger_of(happened, subject_key=expectation.subject_key, coalesced=coalesced)
    return Fire(fired, becomes)


def rule_tick(
    expectation: Expectation,
    ticked: ScheduleTrigger,
    *,
    stack: str,
    actor: str,
    trigger_state: TriggerState,
) -> Fire | Refuse:
    """Return whether the tick of a schedule fires `expectation`: circuit breaker → sampling.

    A schedule says itself how often; so neither cooldown nor calm has a say.
    """
    passage = _passage(expectation, trigger_state)
    if not passage.allowed:
        return Refuse("breaker_open")
    cause = ticked.scheduled_at.isoformat()
    if share_of(cause, stack, actor, expectation.name) >= expectation.sample:
        return Refuse("sampled_out")
    return Fire(ticked, passage.becomes)


def _unfit(expectation: Expectation, happened: DomainEvent) -> Refuse | None:
    """Return why the event is none of those that the expectation waits for, or None."""
    events = [source for source in expectation.on if isinstance(source, EventSource)]
    watching = [source for source in events if source.watches(happened)]
    if not watching:
        return Refuse("not_watched")
    if happened.hops > HOPS_MAX:
        return Refuse("too_many_hops", f"{happened.hops} of at most {HOPS_MAX}")
    unfit = _misfit_of_all(watching, happened.payload)
    return None if unfit is None else Refuse(unfit.reason, unfit.path)


def _misfit_of_all(watching: Sequence[EventSource], payload: JsonObject) -> Misfit | None:
    """Return why none of the sources fits: the first one's reason; None if one does."""
    first: Misfit | None = None
    for source in watching:
        unfit = misfit(source.filter, payload)
        if unfit is None:
            return None
        first = first or unfit
    return first


def _past(expectation: Expectation, trigger_state: TriggerState) -> Passage | Debounced | Refuse:
    """Return what of the past keeps an event from firing now, or how the breaker lets it pass.

    The cause that began a cooldown, or that is the breaker's probe, is let through again: it may
    have come again because its node died before the episode was open.
    """
    if expectation.cooldown_s and trigger_state.cooled_by not in {"", trigger_state.episode_id}:
        return Refuse("cooldown", f"since episode {trigger_state.cooled_by}")
    if expectation.debounce_s and not trigger_state.is_calm:
        return Debounced()
    if expectation.debounce_s and trigger_state.is_superseded:
        return Refuse("superseded")
    passage = _passage(expectation, trigger_state)
    return passage if passage.allowed else Refuse("breaker_open")


def _passage(expectation: Expectation, trigger_state: TriggerState) -> Passage:
    if expectation.breaker is None:
        return Passage(allowed=True)
    return breaker.pass_through(
        trigger_state.breaker,
        expectation.breaker,
        episode_id=trigger_state.episode_id,
        now=trigger_state.now,
    )


def share_of(cause: str, stack: str, actor: str, expectation: str) -> float:
    """Return where from 0 to 1 a cause lies for an expectation: below its `sample`, it fires.

    A larger share therefore holds all that a smaller one did.
    """
    parts = msgspec.json.encode([stack, actor, expectation, cause])
    digest = hashlib.blake2b(parts, digest_size=SHARE_BYTES).digest()
    return int.from_bytes(digest) / 256**SHARE_BYTES


@dataclass(frozen=True, kw_only=True)
class Gated:
    """An event that fits, and that is still to be ruled on by what the cluster remembers."""

    expectation: Expectation
    event: DomainEvent
    is_calm: bool = False
    """Whether its subject has calmed down since."""
    coalesced: int = 0
    """How many earlier events it stands for then."""
    is_repeat: bool = False
    """Whether it was delivered before: then it may have been ruled on, and newer ones, too."""
    has_arrived: bool = False
    """Whether what was opened for it then, if anything, cannot be on its way any more."""


@dataclass(frozen=True, kw_only=True)
class Ticked:
    """A tick that is to be ruled on."""

    expectation: Expectation
    schedule: Schedule
    trigger: ScheduleTrigger
    is_repeat: bool = False
    is_missed: bool = False
    """Whether it opens nothing any more. What it has opened before is completed all the same."""


Part: TypeAlias = EpisodeOpened | Unreadable | Gated | Ticked | DueFinding
