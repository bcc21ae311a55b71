"""Which instance of a workflow holds a subject, and which one follows it.

A key in a bucket has the places of a subject: read it → read the journals that it names → decide →
change it as it was read. Whether an instance still holds is on its journal, so whoever finds the
key looks there: its worker may have died before it changed the key. A starter takes a place before
it begins its instance, which keeps the place for three minutes meanwhile. An instance begins its
first step only while the key names it as the holder: so one that is begun late, by a starter that
was frozen, finds that another one has its place, and ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

import msgspec
from msgspec.structs import replace

from engine.episodes.overlap import places as rules
from engine.episodes.overlap.places import Places, PlaceTaken
from engine.workflows.instance import OVERLAP, HeldSubject, Instance, held_subject
from streams.errors import Unavailable, UnreadableEvent
from streams.key_changes import Change, change_key
from streams.keys import start_key, workflow_subject_key
from streams.model.commands import Advance, CancelWorkflow
from streams.model.events import WorkflowFinished, WorkflowStarted
from streams.ports.all import Ports
from streams.ports.bucket import BucketEntry
from streams.tracing import traceparent

UNBEGUN_PLACE_S: Final = 180
"""How long an instance that has not begun has its place, in seconds: far longer than its starter
needs to begin it, or to come again after a crash."""


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
        self, event: WorkflowStarted, held: HeldSubject
    ) -> WorkflowStarted | SubjectBusy:
        """Take a place for an instance; return its first event, `held_by` another one if it waits.

        One that has begun before, or was displaced, takes none: it must not have its place twice.
        """
        own = event.instance_id
        # First, so that nobody finds the instance in the key without it.
        await self.ports.gates.put(start_key(own), b"", ttl_s=UNBEGUN_PLACE_S)

        async def decide(entry: BucketEntry | None) -> Change[PlaceTaken | SubjectBusy | None]:
            known, same = _places_in(entry), entry.value if entry is not None else None
            over = await self._over(known)
            # guard: ended-cause-takes-no-place
            if own in over or await self._has_lost(own, known):
                return None, same
            taken = rules.take(known, own, held.overlap, over=over)
            if taken is None:
                left = rules.without_ended(known, over)
                assert left is not None, "nothing holds the subject"
                return SubjectBusy(left.holder), same
            if taken.cancels:
                await self._cancel(held, taken.held_by, by=own)
            return taken, msgspec.json.encode(taken.places)

        taken = await change_key(self.ports.gates, _key(held), decide)
        if isinstance(taken, SubjectBusy):
            return taken
        if taken is None:
            return event
        # Also when it comes again: its node may have died before it told them.
        for other in taken.places.displaced:
            await self._call(held, other, id_=f"displaced.{other}")
        return replace(event, held_by=taken.held_by)

    async def give_back(self, held: HeldSubject, instance_id: str) -> None:
        """Free the place of an instance that cannot begin."""
        await self.ports.gates.delete(start_key(instance_id))
        await self.see_to_end(held)

    async def see_to_end(self, held: HeldSubject) -> None:
        """Free the subject of an instance that has ended, or call the one that follows."""

        async def decide(entry: BucketEntry | None) -> Change[Places | None]:
            known = _places_in(entry)
            left = rules.without_ended(known, await self._over(known))
            return left, _encoded(left)

        places = await change_key(self.ports.gates, _key(held), decide)
        # Also if another node has changed the key, and may have died before it called.
        if places is not None and places.follows:  # guard: follower-called-again
            await self._call(held, places.holder, id_=f"follows.{places.holder}")

    async def standing(self, instance: Instance) -> Standing:
        """Return whether an instance may begin steps."""
        if not instance.is_untouched:  # guard: begun-instance-asks-once
            return Standing.FREE
        begun = instance.begun
        held, own = held_subject(begun), begun.instance_id
        if held is None:
            return Standing.FREE

        async def decide(entry: BucketEntry | None) -> Change[Places | None]:
            known = _places_in(entry)
            left = rules.without_ended(known, await self._over(known))
            if left is None and await self._may_take(begun):
                left = Places(holder=own)  # All others have ended, or the key was lost.
            return left, _encoded(left)

        places = await change_key(self.ports.gates, _key(held), decide)
        if places is None:
            return Standing.LOOKS
        if places.holder == own:
            return Standing.FREE
        if places.next != own:  # guard: displaced-instance-begins-nothing
            return Standing.DISPLACED
        has_begun = await self._has_begun(places.holder)
        return Standing.WAITS if has_begun else Standing.LOOKS

    async def _may_take(self, begun: WorkflowStarted) -> bool:
        """Return whether an instance may take a subject whose key is gone."""
        # guard: lost-key-does-not-free
        return not begun.held_by or await self._needs_no_place(begun.held_by)

    async def _has_lost(self, instance_id: str, known: Places | None) -> bool:
        """Return whether an instance has a place no more: it has begun, or was displaced."""
        if known is not None and instance_id in (known.holder, known.next):
            return False
        # guard: displaced-cause-stays-away
        if known is not None and instance_id in known.displaced:
            return True
        return await self._has_begun(instance_id)  # guard: begun-instance-locks-once

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

    async def _cancel(self, held: HeldSubject, other: str, *, by: str) -> None:
        why = f"instance {by} takes its place"
        cancel = CancelWorkflow(workflow=held.workflow, instance_id=other, by=OVERLAP, reason=why)
        await self.ports.commands.send(cancel, id=f"cancel.{other}.{by}", trace=traceparent())

    async def _call(self, held: HeldSubject, instance_id: str, *, id_: str) -> None:
        advance = Advance(workflow=held.workflow, instance_id=instance_id)
        await self.ports.commands.send(advance, id=id_, trace=traceparent())


def displaced(instance: Instance) -> CancelWorkflow:
    """Return the command that ends an instance whose place another one has taken."""
    return CancelWorkflow(
        workflow=instance.begun.spec.name,
        instance_id=instance.begun.instance_id,
        by=OVERLAP,
        reason="another instance has taken its place",
    )


def _key(held: HeldSubject) -> str:
    return workflow_subject_key(held.workflow, held.subject)


def _places_in(entry: BucketEntry | None) -> Places | None:
    if entry is None or not entry.value:
        return None
    try:
        return msgspec.json.decode(entry.value, type=Places)
    except msgspec.DecodeError as error:
        why = f"another version has written it: {error}"
        raise Unavailable(entry.key, detail=why) from error


def _encoded(places: Places | None) -> bytes | None:
    return msgspec.json.encode(places) if places is not None else None
