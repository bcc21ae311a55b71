"""What opened an episode, and its budget. Pure.

A strategy gets the trigger as it is in the journal. Every kind has an `entity_id`, a `payload` and
`hops`.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from streams.json import NOTHING, JsonObject
from streams.model.money import NO_USD, Usd, kept_usd
from streams.model.struct import Struct

Overlap: TypeAlias = Literal["allow", "skip", "buffer_one", "cancel_other"]
"""What a cause does while an episode, or an instance, of its subject is open: the words of
Temporal's schedules."""


class CloudEvent(Struct, frozen=True, kw_only=True):
    """What a CloudEvent has in its headers; empty where it has nothing."""

    type: str = ""
    source: str = ""
    subject: str = ""
    time: str = ""


class EventTrigger(Struct, frozen=True, kw_only=True, tag_field="kind", tag="event"):
    """A domain event fired it."""

    event_id: str
    """The event's id."""
    event_type: str
    """The event's dotted name; of another stream, its subject."""
    payload: JsonObject
    """What it was fired with: a JSON object."""
    entity_id: str = ""
    """The payload's value under the expectation's `subject_key`; empty without one."""
    hops: int = 0
    """How many engine-made events lie between this one and the outside world."""
    cloud: CloudEvent | None = None
    """The attributes of a CloudEvent, `type`, `source`, `subject` and `time`; None: it is none."""
    stream: str = ""
    """The stream it came from; empty for the stack's own events."""
    coalesced: int = 0
    """How many earlier events this one stands for, where the expectation waits for calm."""


class ScheduleTrigger(Struct, frozen=True, kw_only=True, tag_field="kind", tag="schedule"):
    """Its time had come."""

    scheduled_at: datetime
    """The tick's own time, however late it is."""
    schedule: str
    """Which of the expectation's schedules, such as `every 900s`."""
    entity_id: str = ""
    hops: int = 0
    payload: JsonObject = msgspec.field(default_factory=dict)
    """The payload of the schedule; empty: it has none."""


class ManualTrigger(Struct, frozen=True, kw_only=True, tag_field="kind", tag="manual"):
    """A person or a program asked for it."""

    requested_by: str
    """Who asked for it."""
    reason: str = ""
    """Why, in their words."""
    payload: JsonObject = msgspec.field(default_factory=dict)
    entity_id: str = ""
    hops: int = 0


class WorkflowTrigger(Struct, frozen=True, kw_only=True, tag_field="kind", tag="workflow"):
    """A step of a workflow is due."""

    workflow_instance_id: str
    """The instance."""
    workflow_step_id: str
    """The step's name."""
    workflow_id: str = ""
    """The workflow's name."""
    workflow_step_no: int = 0
    """How many steps lie before it on the longest way to it."""
    item: int = 0
    """0-based; which one of those that the step fans out over."""
    attempt: int = 1
    """1-based; of the step's attempts at the item, or of those to undo it."""
    is_compensation: bool = False
    """Whether the item is to be undone."""
    input: JsonObject = msgspec.field(default_factory=dict)
    """The input of the step, which is its `payload`, too."""
    budget_usd: Decimal = NO_USD
    """What it may spend of the budget of its instance, in US dollars; 0: that has none."""
    requested_by: str = ""
    """Who asked for the instance; empty: nobody did, or nobody knows."""
    entity_id: str = ""
    hops: int = 0

    @property
    def payload(self) -> JsonObject:
        """The step's input."""
        return self.input


class EpisodeTrigger(Struct, frozen=True, kw_only=True, tag_field="kind", tag="episode"):
    """Another episode has started it and waits for its end: its parent."""

    parent_id: str
    """The parent."""
    parent_actor_id: str
    """The parent's actor."""
    call: str
    """The path of the call in the parent's function, such as `4.2.1`."""
    requested_by: str = ""
    """Who asked for the parent; empty: nobody did, or nobody knows."""
    payload: JsonObject = msgspec.field(default_factory=dict)
    entity_id: str = ""
    hops: int = 0


Trigger: TypeAlias = (
    EventTrigger | ScheduleTrigger | ManualTrigger | WorkflowTrigger | EpisodeTrigger
)


def requester(trigger: Trigger) -> str:
    """Return who asked for what a trigger has opened; empty: nobody did, or nobody knows."""
    match trigger:
        case ManualTrigger() | WorkflowTrigger() | EpisodeTrigger():
            return trigger.requested_by
        case _:
            return ""


class Budget(Struct, frozen=True, kw_only=True):
    """What one episode may use. A limit of 0 is no limit."""

    turns: int = 12
    """Steps of the strategy, or calls of a function; the conclusion needs none."""
    tokens: int = 25_000
    """Model tokens, as synthesizers report them."""
    wall_s: float = 120.0
    """Seconds of running, over all attempts; of branches at the same time, they count once. Waiting
    for people, signals or the log is not running."""
    usd: Decimal = NO_USD
    """US dollars for requests to models, those of its children included. No request is made that
    could cost more than what is left."""

    if TYPE_CHECKING:  # A sum may be written as text or as a number, and is always a decimal.

        def __init__(
            self,
            *,
            turns: int = 12,
            tokens: int = 25_000,
            wall_s: float = 120.0,
            usd: Usd = NO_USD,
        ) -> None: ...

    else:

        def __post_init__(self) -> None:
            kept_usd(self, "usd")


class Grant(Struct, frozen=True, kw_only=True):
    """What people have granted an episode beyond its budget."""

    turns: int = 0
    tokens: int = 0
    usd: Decimal = NO_USD

    def __add__(self, other: Grant) -> Grant:
        """Return both together."""
        return Grant(
            turns=self.turns + other.turns,
            tokens=self.tokens + other.tokens,
            usd=self.usd + other.usd,
        )

    def beyond(self, budget: Budget) -> Budget:
        """Return `budget` with what was granted; what has no limit gets none."""
        return Budget(
            turns=budget.turns and budget.turns + self.turns,
            tokens=budget.tokens and budget.tokens + self.tokens,
            wall_s=budget.wall_s,
            usd=budget.usd and budget.usd + self.usd,
        )


NOTHING_GRANTED: Final = Grant()


class AdaptiveBudget(Struct, frozen=True, kw_only=True):
    """Bounds within which a budget follows what the latest episodes of its expectation used.

    A limit without bounds stays as declared in the budget.
    """

    turns: tuple[int, int] | None = None
    """Smallest and largest limit of turns, such as `(4, 40)`."""
    tokens: tuple[int, int] | None = None
    """Smallest and largest limit of tokens."""
    wall_s: tuple[float, float] | None = None
    """Smallest and largest limit in seconds."""
    usd: tuple[Decimal, Decimal] | None = None
    """Smallest and largest limit in US dollars."""
    percentile: float = 0.95
    """Which percentile of their use the limit follows, as a share: over 0 and up to 1."""
    headroom: float = 1.25
    """Factor by which that percentile is multiplied: 1 to 100."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            turns: tuple[int, int] | None = None,
            tokens: tuple[int, int] | None = None,
            wall_s: tuple[float, float] | None = None,
            usd: tuple[Usd, Usd] | None = None,
            percentile: float = 0.95,
            headroom: float = 1.25,
        ) -> None: ...

    else:

        def __post_init__(self) -> None:
            kept_usd(self, "usd")


class Mode(StrEnum):
    """Whether an episode is a dry run."""

    LIVE = "live"
    DRY_RUN = "dry_run"
    """All is run and journaled. Findings are kept apart or not at all, and nothing is delivered."""


class LogStrategy(StrEnum):
    """What people may see of an episode's steps; see `engine/episodes/redaction.py`."""

    NONE = "none"
    SUMMARY_ONLY = "summary_only"
    TIMELINE = "timeline"
    FULL_DEBUG = "full_debug"


class PublicEvents(StrEnum):
    """Which public events an episode publishes."""

    ALL = "all"
    WITHOUT_STARTS = "without_starts"
    """All but `expectation.triggered` and `episode.started`."""


class OverrideFailure(Struct, frozen=True, kw_only=True):
    """How a call fails in a dry run."""

    error_class: str
    detail: str = ""


class Overrides(Struct, frozen=True, kw_only=True):
    """What a dry run puts in the place of the outside."""

    tools: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict)
    """`capability.action` → the result, as JSON, that stands for calling it."""
    failures: dict[str, OverrideFailure] = msgspec.field(default_factory=dict)
    """`capability.action`, or `synthesis` → how it fails; none of these has a result, too."""
    synthesis: msgspec.Raw = NOTHING
    """The value, as JSON, that stands for every synthesis; `null`: none does."""
    persist_findings: str = ""
    """What keys and actor of its findings begin with; empty: none are kept."""
