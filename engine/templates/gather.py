"""The gathering part that the templates with findings share: its configuration and state."""

from __future__ import annotations

from typing import Protocol

import msgspec
from msgspec.structs import replace
from pydantic import Field, field_validator

from engine.app.actions import ToolCall
from engine.app.strategy import Abort
from engine.app.tools import Failure, check_name, gather
from engine.validation import Strict
from streams.json import JsonObject, text_at
from streams.model.triggers import Trigger

NOT_AN_OBJECT = "observed_no_object"
"""Error class of an episode whose gatherer returned something other than an object."""


class GatherConfig(Strict):
    """Which gatherer provides the facts."""

    gatherer: str
    """A name in `App.gatherers`."""
    options: dict[str, object] = Field(default_factory=dict)
    """Its options, in addition to the payload."""

    @field_validator("gatherer")
    @classmethod
    def _is_name(cls, gatherer: str) -> str:
        check_name(gatherer, of="a gatherer")
        return gatherer


class EpisodeNames(Protocol):
    """What an episode is of; `EpisodeView` is one, and the `ctx` of a function."""

    @property
    def episode_id(self) -> str:
        """Return its id."""

    @property
    def actor_id(self) -> str:
        """Return its actor's id."""

    @property
    def expectation_id(self) -> str:
        """Return the name of its expectation."""


class TemplateState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a template's strategy."""

    names: dict[str, str]
    """Actor, expectation and subject; see `engine.templates.wording`."""
    payload: JsonObject
    observed: JsonObject | None = None
    """None until the gatherer has answered."""
    answer: JsonObject | None = None
    """The synthesizer's answer, if there is one."""
    failures: int = 0
    """Unusable answers in a row."""

    @property
    def words(self) -> JsonObject:
        """The values of placeholders."""
        return {**self.names, "payload": self.payload, "observed": self.observed}


def begin(episode: EpisodeNames, trigger: Trigger, *, subject_id_key: str) -> TemplateState:
    """Return the first state; `subject_id_key` is a path, empty: the trigger's own subject."""
    subject_id = text_at(trigger.payload, subject_id_key) if subject_id_key else trigger.entity_id
    names = {
        "subject_id": subject_id,
        "actor_id": episode.actor_id,
        "expectation_id": episode.expectation_id,
        "episode_id": episode.episode_id,
    }
    return TemplateState(names=names, payload=trigger.payload)


def gather_step(config: GatherConfig, payload: JsonObject) -> ToolCall:
    """Return the step that gathers."""
    return gather(config.gatherer, payload=payload, options=config.options)


def keep(seen: TemplateState, gathered: object, *, gatherer: str) -> TemplateState | Abort:
    """Return the state with the gathered facts."""
    if isinstance(gathered, Failure):
        return Abort(gathered.error_class, gathered.detail)
    if not isinstance(gathered, dict):
        problem = f"gatherer {gatherer!r} returned a {type(gathered).__name__}, not a dict"
        return Abort(NOT_AN_OBJECT, problem)
    return replace(seen, observed=gathered)
