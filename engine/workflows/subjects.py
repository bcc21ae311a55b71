"""Which instance of a workflow holds a subject, and which one follows it.

A key in a bucket has the places of a subject: read it → read the journals that it names → decide →
change it at the revision that was read. Whether an instance still holds is on its journal, so
whoever finds the key looks there: its worker may have died before it changed the key. An instance
that has not begun keeps its place for an hour, which another key counts: its starter may never come
again. One that waits for its place has begun, and begins no step before the key names it as holder.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

import msgspec
from msgspec.structs import replace

from engine.episodes.overlap import places as rules
from engine.episodes.overlap.places import Places
from engine.workflows.instance import Instance, SubjectLock, lock_of
from streams.errors import RevisionConflict, Unavailable, UnreadableEvent
from streams.key_changes import Change, change_key
from streams.keys import start_key, workflow_lock_key
from streams.model.commands import Advance, CancelWorkflow
from streams.model.events import WorkflowFinished, WorkflowStarted
from streams.ports.all import Ports
from streams.ports.bucket import BucketEntry
from streams.tracing import traceparent

UNBEGUN_S: Final = 3_600
"""How long an instance that has not begun has its place, in seconds: far longer than its starter
needs to begin it, or to come again after a crash."""

OVERLAP: Final = "overlap"
"""Who cancels an instance whose place another one takes, for people."""


class Standing(Enum):
    """Whether an instance may begin steps, as the key of its subject says."""

    FREE = auto()
    WAITS = auto()
    """For the end of another one, which has the node called that sees to that end."""
    LOOKS = auto()
    """As `WAITS`, but the other one may never begin: a timer has a node look again."""
    DISPLACED = auto()
    """Another one has taken its place."""


class SubjectBusy(msgspec.Struct, frozen=True):
    """The cause begins nothing: this instance holds its subject."""

    instance_id: str


@dataclass(frozen=True)
class Subjects:
    """The subjects of all workflows, in a stack's gates."""

    ports: Ports

    async def take(
        self, event: WorkflowStarted, lock: SubjectLock
    ) -> WorkflowStarted | SubjectBusy:
        """Take a place for an instance; return its first event, `held_by` another one if it waits.

        One that has begun before takes none: it may be over, and must not have its place twice.
        """
        own = event.instance_id
        # First, so that nobody finds the instance in the key without it.
        await self.ports.gates.put(start_key(own), b"", ttl_s=UNBEGUN_S)

        async def decide(entry: BucketEntry | None) -> Change[WorkflowStarted | SubjectBusy]:
            known, same = _places_in(entry), entry.value if entry is not None else None
            # guard: begun-instance-locks-once
            if not _names(known, own) and await self._has_begun(own):
                return event, same
            taken = rules.take(known, own, lock.overlap, over=await self._over(known))
            if taken is None:
                assert known is not None, "nothing holds the subject"
                return SubjectBusy(known.holder), same
            for other in taken.cancels:
                await self._cancel(lock, other, by=own, is_holder=other == taken.held_by)
            return replace(event, held_by=taken.held_by), msgspec.json.encode(taken.places)

        return await change_key(self.ports.gates, _key(lock), decide)

    async def see_to_end(self, lock: SubjectLock) -> None:
        """Free the subject of an instance that has ended, or call the one that follows."""
        places = await self._look(lock)
        # Also if another node has changed the key, and may have died before it called.
        if places is not None and places.follows:  # guard: follower-called-again
            advance = Advance(workflow=lock.workflow, instance_id=places.holder)
            id_ = f"follows.{places.holder}"
            await self.ports.commands.send(advance, id=id_, trace=traceparent())

    async def standing(self, instance: Instance) -> Standing:
        """Return whether an instance may begin steps."""
        lock, own = lock_of(instance.begun), instance.begun.instance_id
        if lock is None or not instance.is_held:  # guard: held-instance-asks-first
            return Standing.FREE
        places = await self._look(lock)
        if places is None:
            return await self._standing_without_key(instance, lock)
        if places.holder == own:
            return Standing.FREE
        if places.next != own:  # guard: displaced-instance-begins-nothing
            return Standing.DISPLACED
        has_begun = await self._has_begun(places.holder)
        return Standing.WAITS if has_begun else Standing.LOOKS

    async def _standing_without_key(self, instance: Instance, lock: SubjectLock) -> Standing:
        """Take a subject that nobody holds for an instance that waits: its key was lost."""
        begun = instance.begun
        if not await self._needs_no_place(begun.held_by):  # guard: lost-key-does-not-free
            return Standing.LOOKS
        own = msgspec.json.encode(Places(holder=begun.instance_id))
        try:
            await self.ports.gates.put(_key(lock), own, after=0)
        except RevisionConflict:
            return Standing.LOOKS
        return Standing.FREE

    async def _look(self, lock: SubjectLock) -> Places | None:
        """Return who has the places of a subject, without those who have ended."""

        async def decide(entry: BucketEntry | None) -> Change[Places | None]:
            known = _places_in(entry)
            left = rules.without_ended(known, await self._over(known))
            return left, msgspec.json.encode(left) if left is not None else None

        return await change_key(self.ports.gates, _key(lock), decide)

    async def _over(self, places: Places | None) -> set[str]:
        named = () if places is None else filter(None, (places.holder, places.next))
        return {each for each in named if await self._needs_no_place(each)}

    async def _needs_no_place(self, instance_id: str) -> bool:
        """Return whether an instance has ended, or never begins."""
        try:
            newest = await self.ports.log.last(self.ports.stack.workflow(instance_id))
        except UnreadableEvent:  # Of a newer version: it knows better.
            return False
        if newest is None:
            # guard: unbegun-instance-frees-subject
            return await self.ports.gates.get(start_key(instance_id)) is None
        # guard: ended-lock-taken
        return any(isinstance(event, WorkflowFinished) for event in newest.commit.events)

    async def _has_begun(self, instance_id: str) -> bool:
        try:
            return await self.ports.log.last(self.ports.stack.workflow(instance_id)) is not None
        except UnreadableEvent:  # Of a newer version, but there.
            return True

    async def _cancel(self, lock: SubjectLock, other: str, *, by: str, is_holder: bool) -> None:
        # One that was to follow and has not begun finds that it is displaced.
        # guard: unbegun-follower-not-canceled
        if not is_holder and not await self._has_begun(other):
            return
        why = f"instance {by} takes its place"
        cancel = CancelWorkflow(workflow=lock.workflow, instance_id=other, by=OVERLAP, reason=why)
        await self.ports.commands.send(cancel, id=f"cancel.{other}.{by}", trace=traceparent())


def displaced(instance: Instance) -> CancelWorkflow:
    """Return the command that ends an instance whose place another one has taken."""
    return CancelWorkflow(
        workflow=instance.begun.spec.name,
        instance_id=instance.begun.instance_id,
        by=OVERLAP,
        reason="another instance has taken its place",
    )


def _names(places: Places | None, instance_id: str) -> bool:
    return places is not None and instance_id in (places.holder, places.next)


def _key(lock: SubjectLock) -> str:
    return workflow_lock_key(lock.workflow, lock.subject)


def _places_in(entry: BucketEntry | None) -> Places | None:
    if entry is None or not entry.value:
        return None
    try:
        return msgspec.json.decode(entry.value, type=Places)
    except msgspec.DecodeError as error:
        why = f"another version has written it: {error}"
        raise Unavailable(entry.key, detail=why) from error
