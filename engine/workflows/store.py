"""Reads and writes workflow instances, for one node; caches the recently used ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from engine.runtime.store import append_events
from engine.workflows.events import count_events
from engine.workflows.instance import INSTANCE_ENDED, UNSTARTED, Instance, after, fold_instance
from engine.workflows.subjects import Standing
from streams.model.events import WorkflowEvent
from streams.ports.all import Ports

PAGES_MAX: Final = 512
"""Instances in the cache."""

RESULTS_BYTES_MAX: Final = 128 * 1024
"""Largest results of a cached instance, as JSON: with all of them, 64 MiB at most."""


@dataclass
class StoredInstance:
    """An instance as this node knows it, and the effects that are done."""

    instance: Instance = UNSTARTED
    is_newest: bool = False
    """Whether nothing newer can have been missed: we have written the newest commit, or asked."""
    is_followed: bool = False
    """Whether all effects of the newest commit are done."""
    wakes_at: datetime | None = None
    """The time of its timer, as far as this node has armed it."""
    is_timer_unknown: bool = False
    """Whether its timer may differ: another node may have armed it since, or it has fired."""
    closed: frozenset[str] = frozenset()
    """Workflows that its steps run and that could not start here when last checked."""
    standing: Standing = Standing.FREE
    """Whether it may begin steps, when last checked."""


@dataclass
class InstanceStore:
    """The instances of all workflows of one node."""

    ports: Ports
    writer_ids: Iterator[str]
    """Unique ids for commits."""
    _pages: OrderedDict[str, StoredInstance] = field(default_factory=OrderedDict)

    async def read(self, instance_id: str) -> StoredInstance:
        """Return an instance with all that was written since it was last read here."""
        stored = self._pages.pop(instance_id, None) or StoredInstance()
        await self.catch_up(stored, instance_id)
        return stored

    async def catch_up(self, stored: StoredInstance, instance_id: str) -> None:
        """Read what was written to an instance since."""
        subject = self.ports.stack.workflow(instance_id)
        records = await self.ports.log.read(subject, after=stored.instance.version)
        if records:
            stored.instance = fold_instance(records, stored.instance)
            # guard: instance-newest-commit-first
            stored.is_followed, stored.is_timer_unknown = False, True
        stored.is_newest = False

    async def is_newest(self, stored: StoredInstance, instance_id: str) -> bool:
        """Return whether nothing newer was written to an instance: a replica may lag."""
        if not stored.is_newest:
            newest = await self.ports.log.last(self.ports.stack.workflow(instance_id))
            stored.is_newest = newest is None or newest.seq == stored.instance.version
        return stored.is_newest

    async def write(
        self, stored: StoredInstance, events: Sequence[WorkflowEvent], *, at: datetime
    ) -> None:
        """Append a commit to an instance that has begun; on `VersionConflict` read it again."""
        instance = stored.instance
        subject = self.ports.stack.workflow(instance.begun.instance_id)
        id_ = f"conduct.{next(self.writer_ids)}"
        log, known = self.ports.log, instance.version
        # guard: rivals-block-not-counted
        version = await append_events(log, subject, events, id=id_, at=at, after=known)
        count_events(instance.begun.spec.name, events, mode=instance.begun.mode)
        stored.instance = after(instance, events, at=at, version=version)
        stored.is_newest, stored.is_followed = True, False

    def keep(self, stored: StoredInstance) -> None:
        """Cache an instance, unless it is over or large."""
        instance = stored.instance
        if instance.started is None or instance.phase in INSTANCE_ENDED:
            return
        if instance.results_bytes > RESULTS_BYTES_MAX:
            return
        self._pages[instance.begun.instance_id] = stored
        if len(self._pages) > PAGES_MAX:
            self._pages.popitem(last=False)
