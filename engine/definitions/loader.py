"""Loads definitions into a running node as they are applied and disabled.

A definition that this node's app cannot run is reported as a problem; what ran of it before starts
nothing more, since other nodes may run the new revision, but what is open continues. It is tried
again from time to time, and when it is applied again. While the bucket of definitions is
unavailable, everything stays as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec
import structlog

from engine.app.app import App
from engine.definitions.make import MadeDefinition, catalog_of, name_of, unmade
from engine.definitions.resolver import RevisionResolver
from engine.runtime.catalog import CatalogContents
from engine.runtime.watch import follow_and_look
from streams.clock import Clock
from streams.keys import DEFINITIONS
from streams.model.definitions import RegisteredDefinition, decode_registered
from streams.ports.all import Ports
from streams.ports.bucket import BucketEntry

DEFINITIONS_MAX: Final = 1_000
"""Most definitions that a node runs at a time, as many as an app may have workflows. Further ones
are reported as problems. Disabled ones do not count.
"""

DISABLED_MAX: Final = 1_000
"""Most disabled definitions whose open episodes a node continues: each has its queues. Those that
were disabled last count; the others are reported as problems.
"""

LOOK_S: Final = 600.0
"""Between two reads of all definitions, in seconds, and between two tries of what cannot be made. A
watch that was cut off for over an hour misses deletions; but people disable definitions, and delete
none.
"""

NEWER: Final = "a newer version of Vigil has applied it, and this one cannot read it; update it"

TOO_MANY: Final = f"this node has {DEFINITIONS_MAX:,} definitions already; disable some"

TOO_MANY_DISABLED: Final = (
    f"{DISABLED_MAX:,} others were disabled after it, and nobody sees to what is open of it now;"
    " apply it again if anything is"
)

log = structlog.get_logger("vigil.definitions")


class KnownDefinition(msgspec.Struct, frozen=True):
    """The newest entry of the registry at one key."""

    revision: int
    """Of the entry."""
    registered: RegisteredDefinition | None = None
    """None: it is gone, or was never readable here."""
    made: MadeDefinition | None = None
    """None: it is gone."""
    has_room: bool = True
    """Whether there was room for it."""

    def takes_room(self, *, holds: bool) -> bool:
        """Return whether something of it runs here, with `registered.holds` as asked."""
        made = self.made
        is_served = made is not None and (made.actor is not None or made.fallback is not None)
        # guard: disabled-take-no-room
        return is_served and self.registered is not None and self.registered.holds is holds

    def lacks_room(self, *, holds: bool) -> bool:
        """Return whether there was no room for it, with `registered.holds` as asked."""
        return not self.has_room and self.registered is not None and self.registered.holds is holds

    @property
    def has_failed(self) -> bool:
        """Whether it could not be made, perhaps only for a moment."""
        return self.made is not None and bool(self.made.problem)

    def is_older_than(self, entry: BucketEntry, registered: RegisteredDefinition) -> bool:
        """Return whether an entry is newer, or is the same and has failed here.

        The definition's revision decides, and not the sequence: another layout of the journal
        begins those anew.
        """
        # guard: newer-by-apply-time
        if self.registered is None or registered.is_newer_than(self.registered):
            return entry.revision > self.revision
        is_same = not self.registered.is_newer_than(registered)
        # guard: unmade-tried-again
        return is_same and self.has_failed and entry.revision >= self.revision


class DefinitionLoader:
    """Loads definitions for one node."""

    def __init__(
        self,
        app: App,
        ports: Ports,
        revisions: RevisionResolver,
        clock: Clock,
        on_change: Callable[[CatalogContents], None],
    ) -> None:
        """Begin empty; `on_change` is called whenever what the node is to have has changed."""
        self.has_looked = asyncio.Event()
        """Set once the node has loaded what was defined when it began."""
        self._app, self._clock = app, clock
        self._registry, self._stack = ports.registry, ports.stack.name
        self._revisions, self._on_change = revisions, on_change
        self._known: dict[str, KnownDefinition] = {}
        self._told: Mapping[str, str] = {}
        """The problems that were logged, by definition."""
        self._is_behind = False
        """Whether `on_change` is still to be called."""
        self._turn = asyncio.Lock()
        """Locked while a definition is made, so that entries are noted in their order."""

    async def follow(self) -> None:
        """Follow the definitions for ever. After `Unavailable`, what was loaded stays."""
        watches = [self._registry.watch(under=DEFINITIONS)]
        await follow_and_look(
            watches, self._hear, self._look, look_every_s=LOOK_S, clock=self._clock
        )

    async def _look(self) -> None:
        """Read all definitions, and ask whether the missing ones are really gone."""
        # As it was before the read: what comes meanwhile is newer than the answers.
        known = {key: each.revision for key, each in self._known.items() if each.made}
        found = await self._registry.entries(under=DEFINITIONS)
        missing = known.keys() - found.keys()
        # guard: returning-not-taken-for-gone
        asked = [await self._registry.get(key) or _gone(key, known[key]) for key in missing]
        await self._hear([*found.values(), *asked])  # guard: untold-deletion-found
        self.has_looked.set()

    async def _hear(self, entries: Iterable[BucketEntry]) -> None:
        """Note the entries that are new, and report the result."""
        async with self._turn:
            for entry in entries:
                self._is_behind |= await self._take(entry)
            self._is_behind |= self._give_room_up()  # guard: disabled-limit
            self._is_behind |= await self._use_room()  # guard: no-room-run-later
            if self._is_behind:
                contents = catalog_of(self._app, self._made(), stack=self._stack)
                self._notify(contents)
                self._on_change(contents)
                self._is_behind = False

    def _made(self) -> Sequence[MadeDefinition]:
        return [each.made for each in self._known.values() if each.made is not None]

    async def _take(self, entry: BucketEntry) -> bool:
        """Note an entry; return whether it is new."""
        known = self._known.get(entry.key)
        if entry.value is None:
            return self._note_gone(entry, known)
        registered = decode_registered(entry.value)
        if registered is None:
            return self._note_newer(entry, known)
        # guard: older-definition-ignored
        if known is not None and not known.is_older_than(entry, registered):
            return False
        return await self._load(entry.key, entry.revision, registered)

    def _note_gone(self, entry: BucketEntry, known: KnownDefinition | None) -> bool:
        if known is None or known.made is None or entry.revision < known.revision:
            return False
        self._known[entry.key] = KnownDefinition(entry.revision)
        return True

    def _note_newer(self, entry: BucketEntry, known: KnownDefinition | None) -> bool:
        if known is not None and entry.revision <= known.revision:
            return False
        registered = known.registered if known else None
        made = unmade(_name_in(entry.key), problem=NEWER)
        self._known[entry.key] = KnownDefinition(entry.revision, registered, made)
        return True

    async def _load(self, key: str, revision: int, registered: RegisteredDefinition) -> bool:
        """Make the definition at a key; return whether the result is new."""
        before, has_room = self._known.get(key), self._has_room(key, registered, revision)
        made = await self._revisions.make(registered) if has_room else _too_many(registered)
        if before is not None and before.has_failed and made == before.made:
            self._known[key] = msgspec.structs.replace(before, revision=revision)
            return False
        self._known[key] = KnownDefinition(revision, registered, made, has_room=has_room)
        said = {"definition": made.name, "revision": registered.revision}
        log.info("definition read" if registered.holds else "definition disabled", **said)
        return True

    async def _use_room(self) -> bool:
        """Load definitions for which there was no room before; return whether any was."""
        has_any = False
        for holds in (True, False):
            without = [key for key, each in self._known.items() if each.lacks_room(holds=holds)]
            # If the one that came last finds none, no other does.
            for key in sorted(without, key=lambda each: -self._known[each].revision):
                each = self._known[key]
                if each.registered is None or not self._has_room(
                    key, each.registered, each.revision
                ):
                    break
                has_any |= await self._load(key, each.revision, each.registered)
        return has_any

    def _give_room_up(self) -> bool:
        """Drop those that were disabled first, if there are too many; return whether any was."""
        served = [key for key, each in self._known.items() if each.takes_room(holds=False)]
        served.sort(key=lambda each: self._known[each].revision)
        gone = served[: max(0, len(served) - DISABLED_MAX)]
        for key in gone:
            each = self._known[key]
            made = None if each.registered is None else _too_many(each.registered)
            self._known[key] = msgspec.structs.replace(each, made=made, has_room=False)
        return bool(gone)

    def _has_room(self, key: str, registered: RegisteredDefinition, revision: int) -> bool:
        """Return whether there is room for the definition at `key` beside others that are alike.

        Its predecessor at `key` does not count; nor, for a disabled one, those disabled earlier.
        """
        alike = [
            each
            for at, each in self._known.items()
            if at != key and each.takes_room(holds=registered.holds)
        ]
        if registered.holds:
            return len(alike) < DEFINITIONS_MAX
        # guard: disabled-last-served
        return sum(1 for each in alike if each.revision > revision) < DISABLED_MAX

    def _notify(self, contents: CatalogContents) -> None:
        """Log once for each definition why it cannot run here."""
        for name, problem in contents.problems.items():
            if self._told.get(name) != problem:
                log.warning("this node cannot run a definition", definition=name, why=problem)
        self._told = contents.problems


def _gone(key: str, revision: int) -> BucketEntry:
    return BucketEntry(key=key, value=None, revision=revision)


def _too_many(registered: RegisteredDefinition) -> MadeDefinition:
    problem = TOO_MANY if registered.holds else TOO_MANY_DISABLED
    return MadeDefinition(name=name_of(registered), revision=registered.revision, problem=problem)


def _name_in(key: str) -> str:
    return key.removeprefix(f"{DEFINITIONS}.")
