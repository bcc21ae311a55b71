"""Loads what is defined as data, as it is applied and disabled: follow → make → cast → have.

The registry says what holds. A definition that this node's app cannot run is told as a problem, and
whatever of it ran here before takes no more work: others may run what is new, and it would have two
meanings at a time. While the registry is away, everything stays as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
import structlog

from engine.app import App
from engine.definitions.casting import Casting, Made, cast, name_of
from engine.runtime.editions import Editions
from engine.runtime.lineup import Lineup
from engine.runtime.waits import wait_first
from streams.bucket import BucketWatch, Entry
from streams.clock import Clock
from streams.definitions import Edition, decode_edition
from streams.keys import DEFINITIONS
from streams.log import START
from streams.ports import Ports

DEFINITIONS_MAX: Final = 1_000
"""Most definitions that a node runs at a time, as many as an app may have workflows. What comes
when there are as many is told as a problem."""

CHANGES_MAX: Final = 500
"""Changes of the registry looked at in one go."""

WAIT_S: Final = 5.0
"""Longest silent wait for changes; only how often an idle loader looks up."""

LOOK_S: Final = 600.0
"""Between two looks at all that is defined, in seconds. A node that was cut off for over an hour is
not told what was deleted meanwhile; but who wants one gone disables it, and deletes nothing."""

NEWER: Final = "a newer version of Vigil has applied it, and this one cannot read it; update it"

TOO_MANY: Final = (
    f"this node has {DEFINITIONS_MAX:,} definitions already; disable some, apply it anew"
)

log = structlog.get_logger("vigil.loader")


class Known(msgspec.Struct, frozen=True):
    """What the registry said last at one key."""

    revision: int
    """Of the entry."""
    seq: int = START
    """Of the commit that it is a copy of."""
    made: Made | None = None
    """None: it is gone."""


class Loader:
    """Has the lineup of one node follow what is defined."""

    def __init__(
        self, app: App, ports: Ports, editions: Editions, lineup: Lineup, clock: Clock
    ) -> None:
        """Know of nothing yet.

        Args:
            app: whose code goes before what is defined, and which has what definitions name.
            ports: of the stack.
            editions: makes and keeps what is defined.
            lineup: of the node.
            clock: the node's.
        """
        self.has_looked = asyncio.Event()
        """Set once the node has what was defined when it began."""
        self._app, self._clock = app, clock
        self._registry, self._stack = ports.registry, ports.stack.name
        self._editions, self._lineup = editions, lineup
        self._known: dict[str, Known] = {}
        self._told: Mapping[str, str] = {}
        """The problems that were logged, by definition."""
        self._is_behind = False
        """Whether the lineup lacks something that is known."""
        self._turn = asyncio.Lock()
        """Held while what is new is made, so that it is noted in the order in which it came."""

    async def serve(self) -> None:
        """Follow for ever what is defined.

        Raises:
            Unavailable: the registry is away. What was loaded stays so.
        """
        async with self._registry.watch(under=DEFINITIONS) as watch:
            await self._look()
            self.has_looked.set()
            await wait_first(self._follow(watch), self._look_now_and_then())

    async def _follow(self, watch: BucketWatch) -> None:
        while True:
            await self._hear(await watch.receive(most=CHANGES_MAX, wait_s=WAIT_S))

    async def _look_now_and_then(self) -> None:
        while True:
            await self._clock.sleep(LOOK_S)
            await self._look()

    async def _look(self) -> None:
        """Ask for all that is defined, and whether what seems to be gone really is."""
        found = await self._registry.entries(under=DEFINITIONS)
        missing = [key for key, each in self._known.items() if each.made and key not in found]
        asked = [(key, await self._registry.get(key)) for key in missing]
        gone = (self._gone(key) for key, entry in asked if entry is None)
        there = (entry for _, entry in asked if entry is not None)
        await self._hear([*found.values(), *there, *gone])

    def _gone(self, key: str) -> Entry:
        return Entry(key=key, value=None, revision=self._known[key].revision)

    async def _hear(self, entries: Iterable[Entry]) -> None:
        """Take note of what is new, and have what comes of it all."""
        async with self._turn:
            for entry in entries:
                self._is_behind |= await self._note(entry)
            if self._is_behind:
                casting = cast(self._app, self._made(), stack=self._stack)
                self._tell(casting)
                self._lineup.have(casting)
                self._is_behind = False

    def _made(self) -> Sequence[Made]:
        return [each.made for each in self._known.values() if each.made is not None]

    async def _note(self, entry: Entry) -> bool:
        """Take note of what stands at a key, and return whether that is news."""
        known = self._known.get(entry.key)
        if entry.value is None:
            return self._note_gone(entry, known)
        if known is not None and entry.revision <= known.revision:
            return False
        edition, after = decode_edition(entry.value), known.seq if known else START
        if edition is None:
            made = Made(name=_name_in(entry.key), problem=NEWER)
            self._known[entry.key] = Known(entry.revision, after, made)
            return True
        if edition.seq <= after:
            return False
        await self._load(entry, edition)
        return True

    def _note_gone(self, entry: Entry, known: Known | None) -> bool:
        if known is None or known.made is None or entry.revision < known.revision:
            return False
        self._known[entry.key] = Known(entry.revision)
        return True

    async def _load(self, entry: Entry, edition: Edition) -> None:
        self._known.pop(entry.key, None)  # It need not have room beside its successor.
        made = await self._make(edition)
        self._known[entry.key] = Known(entry.revision, edition.seq, made)
        said = {"definition": made.name, "revision": edition.revision}
        log.info("definition read" if edition.holds else "definition disabled", **said)

    async def _make(self, edition: Edition) -> Made:
        others = sum(each.actor is not None for each in self._made())
        if edition.holds and others >= DEFINITIONS_MAX:
            return Made(name=name_of(edition), problem=TOO_MANY)
        return await self._editions.make(edition)

    def _tell(self, casting: Casting) -> None:
        """Say once of each definition why it cannot run here."""
        for name, problem in casting.problems.items():
            if self._told.get(name) != problem:
                log.warning("this node cannot run a definition", definition=name, why=problem)
        self._told = casting.problems


def _name_in(key: str) -> str:
    """Return kind and id of the definition at `key`, such as `agent.disk_watch`."""
    return key.removeprefix(f"{DEFINITIONS}.")
