"""Something an actor expects: what wakes it, how it finds out, and within what limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from engine.aging import Escalations
from engine.breaker import Breaker
from engine.dedupe import ByEvent, Dedupe
from engine.enrichment import Enrich
from engine.recovery import ATTEMPTS_MAX, Policy
from engine.schedule import Schedule
from engine.schema import StateSchema
from engine.strategy import Strategy
from engine.tools import Synthesizer
from engine.trigger import EventSource, Sources, schedules_of
from streams.feeds import Feed
from streams.triggers import Budget, Overrides

Durability = Literal["pipelined", "strict"]
"""`pipelined`: a recorded step is on its way to disk while the next one is decided, and is
there before any side effect. `strict`: it is on disk before the next one is decided."""

DEFAULT_BUDGET: Final = Budget()
DEFAULT_SCHEMA: Final = StateSchema()
DEFAULT_DEDUPE: Final[Dedupe] = ByEvent()

WAIT_S_MAX: Final = 31 * 86_400
"""Longest wait for calm, cooldown or time to begin in, in seconds: 31 days."""

KEY_EPISODES_MAX: Final = 1_000
"""Most episodes with one concurrency key that may run at a time."""

PRIORITY_MAX: Final = 1_000
"""Highest priority; the lowest is as far below 0."""


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """Something an actor expects to be true, and how it finds out. See `Actor.expect`."""

    name: str
    strategy: Strategy[Any]
    state_type: type
    on: Sources
    subject_key: str = ""
    cooldown_s: int = 0
    debounce_s: float = 0.0
    max_wait_s: float = 0.0
    breaker: Breaker | None = None
    sample: float = 1.0
    concurrency_key: str = ""
    concurrency: int = 1
    priority: int = 0
    start_within_s: float = 0.0
    dedupe: Dedupe = DEFAULT_DEDUPE
    dry_run: Overrides | None = None
    budget: Budget = DEFAULT_BUDGET
    durability: Durability = "pipelined"
    loop_detection: bool = True
    recovery: Policy = "resume"
    attempts_max: int = ATTEMPTS_MAX
    state_schema: StateSchema = DEFAULT_SCHEMA
    synthesizer: Synthesizer | None = None
    finding_ttl_s: float = 0.0
    escalation: Escalations = field(default_factory=dict)
    enrich: Enrich | None = None

    @property
    def is_gated(self) -> bool:
        """Whether more than the event itself decides if it fires: what the cluster remembers."""
        return bool(self.cooldown_s or self.debounce_s or self.breaker)

    @property
    def waits_its_turn(self) -> bool:
        """Whether its episodes have an order that holds in the whole cluster."""
        return bool(self.concurrency_key or self.priority)

    @property
    def event_names(self) -> frozenset[str]:
        """The domain events of the stack that may fire it."""
        sources = (source for source in self.on if isinstance(source, EventSource))
        return frozenset(name for source in sources for name in source.names)

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """The streams that are not the stack's whose events may fire it."""
        sources = (source for source in self.on if isinstance(source, EventSource))
        return tuple(source.feed for source in sources if source.feed is not None)

    @property
    def hears(self) -> bool:
        """Whether any event may fire it."""
        return any(isinstance(source, EventSource) for source in self.on)

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        """What fires it by time."""
        return schedules_of(self.on)


def unasked(expectation: Expectation) -> tuple[str, str] | None:
    """Return an option that nothing which fires `expectation` is ever asked, and what is; or None.

    Whatever is fired by hand is asked none of these.
    """
    if expectation.hears:
        return None
    of_events = {
        "cooldown_s": expectation.cooldown_s,
        "debounce_s": expectation.debounce_s,
        "dedupe": expectation.dedupe != DEFAULT_DEDUPE,
    }
    of_ticks = {"breaker": expectation.breaker, "sample": expectation.sample != 1}
    if option := next((name for name, is_set in of_events.items() if is_set), ""):
        return option, "events"
    if expectation.schedules:
        return None
    option = next((name for name, is_set in of_ticks.items() if is_set), "")
    return (option, "events and ticks") if option else None
