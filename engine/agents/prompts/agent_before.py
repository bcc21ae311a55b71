"""`AgentBefore`: an agent as it was when its run began, for a run that a change must not reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec
from pydantic_ai.models import Model, ModelRequestContext
from pydantic_ai.models.wrapper import WrapperModel

from engine.agents.digests import instructions_of, without_messages
from engine.agents.prompts.agent_version import ASPECTS, AgentVersion
from engine.agents.prompts.restore import (
    as_it_was,
    marks_of,
    model_again,
    problem_of_change,
)
from engine.agents.unit import Parts
from streams.model.events import KeptJson

FIRST: Final = "m1.1"
"""Where the first request of a run is recorded."""

LOST: Final = (
    "what it was is lost: the object store keeps that for VIGIL_RESULTS_DAYS after the last request"
)

UNKEPT: Final = "what it was could not be kept: the object store was away"


@dataclass(frozen=True)
class _Recorded:
    """What the record of a request says of its agent."""

    version: str
    kept: KeptJson
    """Where all of the agent is."""


@dataclass
class AgentBefore:
    """What the agent of one run was at its requests that are recorded."""

    parts: Parts
    is_wanted: bool
    """Whether a change is not to reach the run."""
    problem: str = ""
    """Why the agent of today cannot ask as it did; empty: it can, or it need not."""
    is_unrecorded: bool = False
    """Whether no request of the run is recorded, though one may have been announced."""
    _was: _Recorded | None = None
    """At the newest request that is recorded; None: that is not known."""
    _changed: set[str] = field(default_factory=set)
    """What has been found to be different."""
    model: Model | None = None
    """The one that is asked, once the run has begun."""
    _old: Model | None = None
    """That of the run's first request, where today's is another one."""
    _seen: dict[str, AgentVersion] = field(default_factory=dict)

    async def models(self, now: Model) -> Mapping[str, Model]:
        """Return the model that was asked, by its name, where it is another one than `now`."""
        while isinstance(now, WrapperModel):
            now = now.wrapped
        self.model = now
        if not self.is_wanted:
            return {}
        # guard: announced-anew-by-new-agent
        self.is_unrecorded = self.parts.recorded_at(FIRST) is None
        recorded = self._recorded_at(FIRST)
        was = None if recorded is None else await self._version(recorded.kept)
        if was is None or was.model == f"{now.system}:{now.model_name}":
            return {}
        self._old = model_again(was, now)
        return {} if self._old is None else {was.model: self._old}

    async def asks(self, asked: ModelRequestContext, place: str) -> ModelRequestContext:
        """Return what the agent asks at `place`: as it was, in whatever has changed."""
        if not self.is_wanted:
            return asked
        parameters = asked.model_request_parameters
        today = without_messages(
            asked.model_id or asked.model.model_id,
            instructions_of(asked.messages),
            asked.model_settings,
            parameters,
        )
        recorded = self._recorded_at(place)
        self._was = was = recorded or self._was
        is_other = recorded is not None and today.version != recorded.version
        # An agent that has not changed needs nothing that is kept of it.
        if was is None or not (is_other or self._changed):
            return asked
        version = await self._version(was.kept)
        if version is None:  # guard: lost-version-parks
            self.problem = UNKEPT if was.kept.was_away else LOST
            return asked
        if recorded is not None:
            now = marks_of(today)
            self._changed |= {each for each in ASPECTS if now[each] != version.marks.get(each)}
        self.problem = problem_of_change(version, self._changed, parameters)
        if "model" in self._changed and self._old is None:
            self.problem = f"{version.model} cannot be asked as before"
        if self.problem:
            return asked
        if "model" in self._changed:
            self.model = self._old
        return as_it_was(asked, version, self._changed, model=self._old)

    def _recorded_at(self, place: str) -> _Recorded | None:
        step = self.parts.recorded_at(place)
        if step is None or step.prompt is None or step.prompt.agent is None:
            return None
        return _Recorded(step.agent.rpartition(":")[2], step.prompt.agent)

    async def _version(self, kept: KeptJson) -> AgentVersion | None:
        """Return the agent that was kept; None: it is not there."""
        if kept.was_away:
            return None
        name = "" if kept.stored is None else kept.stored.digest
        found = self._seen.get(name) if name else None
        if found is None:
            json = kept.json if kept.stored is None else await self.parts.find(kept.stored)
            if json is None:
                return None
            found = self._seen[name] = msgspec.json.decode(json, type=AgentVersion)
        return found
