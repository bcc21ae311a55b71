"""Actors and workflows at older revisions of their definitions, for episodes opened with those.

The body of a revision is on the definition's journal and never changes, so what was made of it is
cached; what could not be made is tried again when it is needed.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Final, TypeAlias

import msgspec

from engine.app.actor import Actor
from engine.app.app import App
from engine.app.workflow import Workflow
from engine.definitions import make as making
from engine.definitions.make import MadeDefinition, name_of, unmade
from engine.definitions.store import body_of
from engine.episodes.recovery import NO_SUCH_REVISION
from engine.errors import EpisodeFailed
from engine.runtime.catalog import CannotRun, Hindrance
from engine.usercode.call import call
from streams.errors import BadName, UnreadableEvent
from streams.json import NOTHING
from streams.model.definitions import RegisteredDefinition
from streams.model.events import DefinitionKind
from streams.ports.all import Ports
from streams.ports.log import START

REVISIONS_MAX: Final = 256
"""Cached revisions of all definitions, in addition to the current ones."""

Key: TypeAlias = tuple[DefinitionKind, str, int]
"""Kind, id and revision."""


class RevisionResolver:
    """The revisions of definitions, made with the app of one node."""

    def __init__(self, ports: Ports, app: App) -> None:
        self._ports, self._app = ports, app
        self._made: OrderedDict[Key, MadeDefinition] = OrderedDict()

    async def make(self, registered: RegisteredDefinition) -> MadeDefinition:
        """Return the result for a revision, which may be a problem."""
        if not registered.holds and registered.kind is DefinitionKind.AGENT:
            return await self._close(registered)
        key = (registered.kind, registered.id, registered.revision)
        made = self._made.pop(key, None) if registered.holds else None
        if made is None:
            made = await self._make(registered)
        # What has failed is tried again: its template may have needed what was unavailable then.
        if registered.holds and not made.problem:  # guard: failed-revision-remade
            self._keep(key, made)
        return made

    async def actor(self, actor_id: str, revision: int) -> Actor:
        """Return the actor at `revision`; raises `CannotRun` if this node cannot make it."""
        made = await self._find((DefinitionKind.AGENT, actor_id, revision))
        if made.actor is None:
            raise CannotRun(Hindrance(NO_SUCH_REVISION, made.problem))
        return made.actor

    async def workflow(self, name: str, revision: int) -> Workflow:
        """Return the workflow at `revision`; raises `CannotRun` if this node cannot make it."""
        made = await self._find((DefinitionKind.WORKFLOW, name, revision))
        if made.workflow is None:
            raise CannotRun(Hindrance(NO_SUCH_REVISION, made.problem))
        return made.workflow

    async def _find(self, key: Key) -> MadeDefinition:
        if key in self._made:
            self._made.move_to_end(key)
            return self._made[key]
        kind, id_, revision = key
        try:
            body = await body_of(self._ports, kind, id_, revision)
        except (BadName, UnreadableEvent) as error:
            detail = f"the journal of its definition cannot be read here: {error}"
            raise CannotRun(Hindrance(NO_SUCH_REVISION, detail)) from error
        if body is None:
            detail = f"the journal holds no revision {revision} of {kind.value} {id_}"
            raise CannotRun(Hindrance(NO_SUCH_REVISION, detail))
        return await self.make(
            RegisteredDefinition(kind=kind, id=id_, revision=revision, seq=START, body=body)
        )

    async def _close(self, registered: RegisteredDefinition) -> MadeDefinition:
        """Return the closed actor of a disabled agent, with its last limits."""
        try:
            body = await body_of(self._ports, registered.kind, registered.id, registered.revision)
        except (BadName, UnreadableEvent):
            body = None
        made = unmade(name_of(registered), revision=registered.revision, body=body or NOTHING)
        if body is None:
            return replace(made, lack=f"the journal holds no revision {registered.revision}")
        held = await self._make(msgspec.structs.replace(registered, body=body))
        return replace(made, lack=held.problem)  # guard: disabled-left-to-able

    async def _make(self, registered: RegisteredDefinition) -> MadeDefinition:
        try:
            return await call(making.make, registered, self._app)
        except EpisodeFailed as failed:
            last = failed.detail.strip().rpartition("\n")[-1]
            problem = f"what it is made by has failed: {last}"
            name, revision = name_of(registered), registered.revision
            return unmade(name, problem=problem, revision=revision, body=registered.body)

    def _keep(self, key: Key, made: MadeDefinition) -> None:
        self._made[key] = made
        if len(self._made) > REVISIONS_MAX:
            self._made.popitem(last=False)
