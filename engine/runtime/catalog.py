"""The actors and workflows that a node has now. What is read stays true until the next `await`."""

from __future__ import annotations

import asyncio
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

import msgspec

from engine.app.actor import Actor
from engine.app.workflow import Workflow


@dataclass(frozen=True, kw_only=True)
class CatalogContents:
    """All that a node is to have."""

    actors: Mapping[str, Actor]
    """By id, with the starters of workflows."""
    workflows: Mapping[str, Workflow]
    closed: Mapping[str, Actor] = field(default_factory=dict)
    """By id: actors that are disabled or cannot run here, and starters of such workflows. Only open
    episodes and instances go on."""
    fallbacks: frozenset[str] = frozenset()
    """Those of `closed` that rest while any node can run what they are for."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """Kind and id of a definition → why it is not here."""
    problems_at: Mapping[str, int] = field(default_factory=dict)
    """Kind and id → the revision that the problem is about, where that is known."""


class Hindrance(msgspec.Struct, frozen=True):
    """Why a node cannot have an episode."""

    reason: str
    """A stable class: `no_such_episode`, `no_such_expectation`, `no_such_revision`, `newer_state`,
    `unreadable_journal` or `wrong_queue`."""
    detail: str


class Revisions(Protocol):
    """Resolves revisions of definitions, with the app of one node."""

    async def actor(self, actor_id: str, revision: int) -> Actor:
        """Return the actor that was defined as `revision`; `CannotRun` if this node cannot."""

    async def workflow(self, name: str, revision: int) -> Workflow:
        """Return the workflow that was defined as `revision`; `CannotRun` as for `actor`."""


class Catalog:
    """What one node has at any moment."""

    def __init__(self, contents: CatalogContents) -> None:
        self._actors: dict[str, Actor] = {}
        self._workflows: dict[str, Workflow] = {}
        self._ready: dict[str, Actor] = {}
        self._closed: dict[str, Actor] = {}
        self.actors: Mapping[str, Actor] = MappingProxyType(self._actors)
        """By id, always current; with the starters of workflows."""
        self.workflows: Mapping[str, Workflow] = MappingProxyType(self._workflows)
        """By name, always current."""
        self.ready: Mapping[str, Actor] = MappingProxyType(self._ready)
        """Those of the actors whose queues are open. One that is replaced stays until its successor
        is ready: what is published meanwhile is seen by either."""
        self.closed: Mapping[str, Actor] = MappingProxyType(self._closed)
        """By id: actors and starters of which only open episodes and instances go on."""
        self.fallbacks: frozenset[str] = frozenset()
        """Those of `closed` that rest while any node can run what they are for."""
        self.called: frozenset[str] = frozenset()
        """Those of `fallbacks` that serve now, because no such node is up."""
        self.served: Mapping[str, Actor] = ChainMap(self._actors, self._closed)
        """`actors` and `closed`, always current."""
        self.problems: Mapping[str, str] = {}
        """Kind and id of a definition → why it is not here."""
        self.problems_at: Mapping[str, int] = {}
        """Kind and id → the revision that the problem is about, where that is known."""
        self.changed = asyncio.Event()
        """Set with the next change, and then replaced by another event."""
        self.become(contents)

    def become(self, contents: CatalogContents) -> None:
        """Replace everything by `contents`."""
        self._actors.clear()
        self._actors.update(contents.actors)
        self._workflows.clear()
        self._workflows.update(contents.workflows)
        for gone in self._ready.keys() - contents.actors.keys():
            del self._ready[gone]
        self._closed.clear()
        self._closed.update(contents.closed)
        self.fallbacks = contents.fallbacks
        self.called &= contents.fallbacks
        self.problems, self.problems_at = contents.problems, contents.problems_at
        self._notify()

    def note_ready(self, actor: Actor) -> None:
        """Note that the queues of an actor are open."""
        self._ready[actor.id] = actor
        self._notify()

    def call(self, fallbacks: frozenset[str]) -> None:
        """Let these fallbacks serve from now on, and no others."""
        self.called = fallbacks
        self._notify()

    def rests(self, actor_id: str) -> bool:
        """Return whether an actor is a fallback that leaves all open episodes to other nodes."""
        return actor_id in self.fallbacks and actor_id not in self.called

    def _notify(self) -> None:
        before, self.changed = self.changed, asyncio.Event()
        before.set()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition`, which is about the catalog, is true."""
        while not condition():
            await self.changed.wait()


class CannotRun(Exception):
    """Raised where a node cannot run an episode or an instance; another one may."""

    def __init__(self, hindrance: Hindrance) -> None:
        super().__init__(hindrance.detail)
        self.hindrance = hindrance
