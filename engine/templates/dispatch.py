"""The template `dispatch`: gather a list of entities, and publish one domain event for each.

Event ids come from the episode and the entity, so publishing one twice after a crash triggers
nothing twice. Events are published in parts; after each part a checkpoint stores what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

import msgspec
from msgspec.structs import replace
from pydantic import Field, field_validator

from engine.app.actions import Action, Checkpoint, checkpoint, converge
from engine.app.context import Context, EpisodeView
from engine.app.strategy import Abort, ConvergeResult, Needs, Retry, StepTaken, Strategy
from engine.app.tools import GATHER, Announcement, Failure, event_id, publish
from engine.app.triggers import ENTITY_CHARS_MAX
from engine.templates.gather import GatherConfig, gather_step
from engine.validation import Listed, parsed, problem_of_path, shown
from streams.errors import BadName
from streams.json import ABSENT, JsonObject, value_at
from streams.model.triggers import Mode, Trigger
from streams.tokens import event_name

ENTITIES_MAX: Final = 1_000
"""Most entities of one episode. In parts of `PART_MAX` they take 11 turns; an episode has 12 by
default.
"""

PART_MAX: Final = 200
"""Most events that are published in one step."""

PART_BYTES_MAX: Final = 128 * 1024
"""Most bytes of their payloads, so that the step's arguments stay below `KEPT_BYTES_MAX`."""

TRIES_MAX: Final = 3
"""How often one part is tried while the log is unavailable."""

FIELDS_MAX: Final = 100
"""Most fields of an entity that an event may contain."""

INVALID_ENTITIES: Final = "invalid_entities"
"""Error class of an episode whose gatherer returned too many entities, or no list of them."""


class DispatchConfig(GatherConfig):
    """What to gather, and the events to publish."""

    event_type: str
    """Name of the events."""
    entity_id_field: str = "id"
    """Path into an entity to its id. An entity that is a text is its own id."""
    entity_payload_fields: Listed[str] = Field(default=(), max_length=FIELDS_MAX)
    """Paths to the fields of the event's payload; none: the whole entity."""

    @field_validator("event_type")
    @classmethod
    def _is_event_name(cls, name: str) -> str:
        try:
            return event_name(name)
        except BadName as error:
            raise ValueError(str(error)) from error

    @field_validator("entity_id_field", "entity_payload_fields")
    @classmethod
    def _are_paths(cls, paths: str | tuple[str, ...]) -> str | tuple[str, ...]:
        for path in (paths,) if isinstance(paths, str) else paths:
            if problem := problem_of_path(path):
                raise ValueError(problem)
        return paths


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The events that are left to publish: the strategy's state."""

    episode_id: str
    payload: JsonObject | None
    """The trigger's; None once the entities are known."""
    left: tuple[Announcement, ...] = ()
    published: int = 0
    repeated: int = 0
    """Entities with an id that came before; only the first counts."""
    failures: int = 0
    """Failed attempts at the present part."""
    is_kept: bool = True
    """Whether a checkpoint has what was published."""


class Dispatch(Strategy[Plan]):
    """The strategy that the template makes of a configuration."""

    State = Plan

    def __init__(self, config: DispatchConfig) -> None:
        self.config = config
        self.gatherer = config.gatherer
        self.needs = Needs(gatherer=config.gatherer)

    def init(self, episode: EpisodeView, trigger: Trigger) -> Plan:
        """Store the episode's subject and trigger."""
        return Plan(episode_id=episode.episode_id, payload=trigger.payload)

    def next_step(self, state: Plan, ctx: Context) -> Action:
        """Gather once, then publish part by part. A dry run publishes nothing."""
        if state.payload is not None:
            return gather_step(self.config, state.payload)
        if not state.left or ctx.mode is Mode.DRY_RUN:  # guard: dry-run-dispatches-nothing
            return converge()
        if not state.is_kept:
            return checkpoint(f"{state.published} of {state.published + len(state.left)} published")
        events = part_of(state.left)
        return publish(self.config.event_type, events, attempt=state.failures + 1)

    def handle_result(self, state: Plan, step: StepTaken, result: Any) -> Plan | Retry | Abort:  # noqa: ANN401 - JSON
        """Plan the events; remove those that were published."""
        if isinstance(step.action, Checkpoint):
            return replace(state, is_kept=True)
        if isinstance(result, Failure):
            return _failed(state, result)
        if step.tool == f"{GATHER}.{self.gatherer}":
            return self._planned(state, result)
        count = len(part_of(state.left))
        return replace(
            state,
            left=state.left[count:],
            published=state.published + count,
            failures=0,
            is_kept=False,
        )

    def converge(self, state: Plan, ctx: Context) -> ConvergeResult:
        """Report how many events were published."""
        del ctx
        counts = {"published": state.published, "repeated": state.repeated}
        unpublished = f"; {len(state.left)} would be in earnest" if state.left else ""
        return ConvergeResult(
            classification={"primary": "dispatched", **counts, "left": len(state.left)},
            confidence=1.0,
            summary=f"{state.published} {self.config.event_type} published{unpublished}",
        )

    def _planned(self, state: Plan, gathered: object) -> Plan | Abort:
        if not isinstance(gathered, list):
            return Abort(INVALID_ENTITIES, f"{shown(gathered)} is no list of entities")
        if len(gathered) > ENTITIES_MAX:
            return Abort(INVALID_ENTITIES, f"{len(gathered):,} entities, most: {ENTITIES_MAX:,}")
        try:
            events = [announced(each, self.config, state.episode_id) for each in gathered]
        except ValueError as error:
            return Abort(INVALID_ENTITIES, str(error))
        left: dict[str, Announcement] = {}
        for event in events:
            left.setdefault(event.id, event)
        repeated = len(events) - len(left)
        return replace(state, payload=None, left=tuple(left.values()), repeated=repeated)


def _failed(state: Plan, failure: Failure) -> Retry | Abort:
    failures = state.failures + 1
    if failure.error_class == "tool_unavailable" and failures < TRIES_MAX:
        return Retry(replace(state, failures=failures))
    return Abort(failure.error_class, failure.detail)


def part_of(left: Sequence[Announcement]) -> Sequence[Announcement]:
    """Return the events in `left` that are published next: at least one."""
    sizes_bytes = accumulate(len(msgspec.json.encode(event)) for event in left[:PART_MAX])
    count = sum(size <= PART_BYTES_MAX for size in sizes_bytes)
    return left[: max(count, 1)]


def announced(entity: object, config: DispatchConfig, episode_id: str) -> Announcement:
    """Return the event for an entity; `ValueError` if it has no id, or is too large."""
    whole = entity if isinstance(entity, dict) else {config.entity_id_field: entity}
    found = value_at(whole, config.entity_id_field)
    is_id = isinstance(found, str | int) and not isinstance(found, bool)
    if not is_id or not 1 <= len(str(found)) <= ENTITY_CHARS_MAX:
        place = f"{config.entity_id_field!r} of {shown(entity)}"
        raise ValueError(f"{place} is no id: a number, or a text of 1 to {ENTITY_CHARS_MAX}")
    picked = (config.entity_id_field, *config.entity_payload_fields)
    values = {path: value_at(whole, path) for path in picked}
    said = {path: value for path, value in values.items() if value is not ABSENT}
    event = Announcement(
        event_id(episode_id, str(found)), said if config.entity_payload_fields else whole
    )
    if len(msgspec.json.encode(event)) > PART_BYTES_MAX:
        raise ValueError(f"entity {found!r} is over {PART_BYTES_MAX:,} bytes; pick fields out")
    return event


def dispatch(config: JsonObject) -> Dispatch:
    """Return the strategy for the fields of `DispatchConfig`; `BadDefinition` names a wrong one."""
    return Dispatch(parsed(DispatchConfig, config))
