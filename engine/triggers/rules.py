"""The rules for one event and one expectation, in one order. Pure.

    type → hops → filter → cooldown → calm → circuit breaker → sampling → overlap → (a lane's
    overflow)

A refusal has the reason of the first rule that refuses. Of several event triggers the first that
fits fires; if none does, the reason is that of the first. An event that gets as far as cooldown
gives `LookUp` first, and is evaluated again with its `TriggerState`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, Protocol, TypeAlias, get_args

import msgspec

from engine.app.actor import Expectation
from engine.app.checks import Breaker
from engine.app.conditions import Misfit, MisfitReason, misfit, spelled
from engine.app.triggers import EventSource, Schedule, Source, trigger_of
from engine.episodes.breakers import breaker
from engine.episodes.breakers.breaker import CLOSED, BreakerState, Passage
from engine.findings.expire import DueFinding
from engine.workflows.start import InstanceStart
from streams.json import ABSENT, JsonObject
from streams.model.events import EpisodeOpened
from streams.model.refusals import (
    AgainstBreaker,
    AgainstCooldown,
    AgainstFilter,
    AgainstHops,
    AgainstSample,
    Comparison,
    shown,
)
from streams.model.triggers import EventTrigger, ScheduleTrigger
from streams.ports.delivery import Unreadable
from streams.ports.domain_events import HOPS_MAX, DomainEvent

Reason: TypeAlias = (
    Literal["not_watched", "too_many_hops", "cooldown", "superseded", "breaker_open", "sampled_out"]
    | MisfitReason
)
"""A stable class of refusals, as counted."""

REASONS: Final[tuple[str, ...]] = tuple(
    reason for group in get_args(Reason) for reason in get_args(group)
)
"""All of them."""

SHARE_BYTES: Final = 6
"""Size of the hash of a share: few enough bytes that the share is exact, and under 1."""


class Ruled(Protocol):
    """What of an expectation its rule needs."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def on(self) -> Sequence[Source]:
        """What fires it."""

    @property
    def subject_key(self) -> str:
        """Path to what an event is about."""

    @property
    def cooldown_s(self) -> int:
        """As of an expectation."""

    @property
    def debounce_s(self) -> float:
        """As of an expectation."""

    @property
    def breaker(self) -> Breaker | None:
        """As of an expectation."""

    @property
    def sample(self) -> float:
        """As of an expectation."""

    @property
    def is_gated(self) -> bool:
        """Whether firing depends on what the cluster stores."""


class TriggerState(msgspec.Struct, frozen=True, kw_only=True):
    """The stored state that one event and one expectation depend on."""

    episode_id: str
    """The episode, or instance, that the event opens if it fires."""
    now: datetime
    cooled_by: str = ""
    """The episode that began the subject's cooldown; empty: there is none."""
    cooled_until: datetime | None = None
    """When the cooldown ends; None: there is none, or nobody has noted it."""
    breaker: BreakerState = CLOSED
    is_calm: bool = False
    """Whether the debounce is over."""
    is_superseded: bool = False
    """Whether a newer event about the subject has fired since."""
    coalesced: int = 0
    """How many earlier events the debounce replaced."""


class Fire(msgspec.Struct, frozen=True):
    """Open an episode."""

    trigger: EventTrigger | ScheduleTrigger
    breaker: BreakerState | None = None
    """The state to store for the circuit breaker first; None: unchanged."""


class LookUp(msgspec.Struct, frozen=True):
    """Read the `TriggerState`, and evaluate again."""


class Debounced(msgspec.Struct, frozen=True):
    """Evaluate again when the debounce is over."""


class Refuse(msgspec.Struct, frozen=True):
    """Open nothing; the reason is counted."""

    reason: Reason
    against: Comparison | None = None
    """What the event was compared with; None: the reason says it all."""


Ruling: TypeAlias = Fire | LookUp | Debounced | Refuse


def rule(
    expectation: Ruled,
    happened: DomainEvent,
    *,
    stack: str,
    actor: str,
    trigger_state: TriggerState | None = None,
) -> Ruling:
    """Return whether `happened` fires `expectation`: the same on every node with the same state."""
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
    share = share_of(happened.id, stack, actor, expectation.name)
    if share >= expectation.sample:  # guard: only-a-sample-fires
        return _sampled_out(expectation, share)
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
    """Return whether a tick fires `expectation`: circuit breaker → sampling."""
    # A schedule sets its own rate, so cooldown and debounce do not apply.
    passage = _passage(expectation, trigger_state)
    if not passage.allowed:  # guard: open-breaker-holds-ticks
        return _breaker_open(expectation, trigger_state.breaker)
    share = share_of(ticked.scheduled_at.isoformat(), stack, actor, expectation.name)
    if share >= expectation.sample:
        return _sampled_out(expectation, share)
    return Fire(ticked, passage.becomes)


def _unfit(expectation: Ruled, happened: DomainEvent) -> Refuse | None:
    events = [source for source in expectation.on if isinstance(source, EventSource)]
    watching = [source for source in events if source.watches(happened)]
    if not watching:
        return Refuse("not_watched")
    if happened.hops > HOPS_MAX:  # guard: hops-cap
        return Refuse("too_many_hops", AgainstHops(hops=happened.hops, hops_max=HOPS_MAX))
    if not all(source.filter for source in watching):
        return None
    unfit = _misfit_of_all(watching, happened.payload)
    return None if unfit is None else Refuse(unfit.reason, _against_filter(unfit))


def _against_filter(unfit: Misfit) -> AgainstFilter:
    is_missing = unfit.found is ABSENT
    return AgainstFilter(
        path=unfit.path,
        wanted=shown(spelled(unfit.condition)),
        found=None if is_missing else shown(unfit.found),
        is_missing=is_missing,
    )


def _sampled_out(expectation: Ruled, share: float) -> Refuse:
    return Refuse("sampled_out", AgainstSample(share=share, sample=expectation.sample))


def _breaker_open(expectation: Ruled, state: BreakerState) -> Refuse:
    assert expectation.breaker is not None, "it has refused"
    against = AgainstBreaker(
        status=state.status,
        failures=state.failures,
        until=breaker.tried_at(state, expectation.breaker),
    )
    return Refuse("breaker_open", against)


def _misfit_of_all(watching: Sequence[EventSource], payload: JsonObject) -> Misfit | None:
    first: Misfit | None = None
    for source in watching:
        unfit = misfit(source.filter, payload)
        if unfit is None:
            return None
        first = first or unfit
    return first


def _past(expectation: Ruled, trigger_state: TriggerState) -> Passage | Debounced | Refuse:
    """Return what keeps an event from firing now, or how the breaker lets it pass."""
    # The cause that began a cooldown, or is the breaker's probe, passes again: its node may have
    # died before the episode was open.
    # guard: cooldown-holds-back
    if expectation.cooldown_s and trigger_state.cooled_by not in {"", trigger_state.episode_id}:
        by, until = trigger_state.cooled_by, trigger_state.cooled_until
        return Refuse("cooldown", AgainstCooldown(episode_id=by, until=until))
    if expectation.debounce_s and not trigger_state.is_calm:  # guard: calm-awaited
        return Debounced()
    if expectation.debounce_s and trigger_state.is_superseded:  # guard: held-too-late
        return Refuse("superseded")
    passage = _passage(expectation, trigger_state)
    # guard: open-breaker-holds-events
    return passage if passage.allowed else _breaker_open(expectation, trigger_state.breaker)


def _passage(expectation: Ruled, trigger_state: TriggerState) -> Passage:
    if expectation.breaker is None:
        return Passage(allowed=True)
    return breaker.pass_through(
        trigger_state.breaker,
        expectation.breaker,
        episode_id=trigger_state.episode_id,
        now=trigger_state.now,
    )


def share_of(cause: str, stack: str, actor: str, expectation: str) -> float:
    """Return the place of a cause in 0 to 1: one that fires at a sample fires at larger ones."""
    parts = msgspec.json.encode([stack, actor, expectation, cause])
    digest = hashlib.blake2b(parts, digest_size=SHARE_BYTES).digest()
    return int.from_bytes(digest) / 256**SHARE_BYTES


@dataclass(frozen=True, kw_only=True)
class Gated:
    """An event that fits, and needs its `TriggerState`."""

    expectation: Expectation
    event: DomainEvent
    is_calm: bool = False
    """Whether its debounce is over."""
    coalesced: int = 0
    """How many earlier events it replaced."""
    is_repeat: bool = False
    """Whether it was delivered before: then it, and newer ones, may have been evaluated."""


@dataclass(frozen=True, kw_only=True)
class Ticked:
    """A tick to evaluate."""

    expectation: Expectation
    schedule: Schedule
    trigger: ScheduleTrigger
    is_repeat: bool = False
    is_missed: bool = False
    """Whether it may open nothing new. An episode that it opened before is completed."""


@dataclass(frozen=True, kw_only=True)
class RefusedAgain:
    """An event that does not fire, but may have fired before, by the filter of another version."""

    expectation: Expectation
    event: DomainEvent
    is_watched: bool
    """Whether this version is fired by events of that name at all."""


Opening: TypeAlias = EpisodeOpened | InstanceStart
"""What a cause opens: an episode of its actor, or an instance of its workflow."""

Part: TypeAlias = Opening | Unreadable | Gated | Ticked | RefusedAgain | DueFinding


def id_of(opening: Opening) -> str:
    """Return the id of what a cause opens, which comes from the cause."""
    return opening.instance_id if isinstance(opening, InstanceStart) else opening.episode_id
