"""Gives and withdraws, live, what a node may do: wake each of its actors, and run its episodes.

What people said stands in the registry, so it holds for a node that comes back as well. Until the
node has looked there once it does nothing: whoever took it out of service wants it to stay out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

import structlog

from engine import modes
from engine.modes import NO_ORDERS, NodeMode, Orders, Switch
from engine.runtime.permit import Permit, Permits
from engine.runtime.waits import wait_first
from streams.bucket import Bucket, BucketWatch, Entry
from streams.clock import Clock
from streams.keys import MODES, PAUSES, mode_key, pause_key

CHANGES_MAX: Final = 500
"""Changes of the registry looked at in one go."""

WAIT_S: Final = 5.0
"""Longest silent wait for changes; only how often an idle switchboard looks up."""

LOOK_S: Final = 60.0
"""Between two looks at what is said, in seconds. A node that was cut off for over an hour is not
told what has been deleted meanwhile, so now and then it asks."""

LOOKS_IN_FLIGHT_MAX: Final = 64

log = structlog.get_logger("vigil.switchboard")


class Switchboard:
    """The permits of one node, by actor."""

    def __init__(
        self,
        registry: Bucket,
        actors: Iterable[str],
        clock: Clock,
        *,
        node: str,
        setting: NodeMode,
        never_wakes: bool = False,
    ) -> None:
        """Give nothing yet.

        Args:
            registry: of the stack.
            actors: the node's.
            clock: the node's.
            node: its name.
            setting: its mode, unless the registry says another one.
            never_wakes: whether its gates stay shut, whatever anybody says.
        """
        self.permits: Mapping[str, Permits] = {actor: Permits() for actor in actors}
        self.runs = Permit()
        """Whether the node may run the episodes of any of its actors."""
        self.has_looked = asyncio.Event()
        """Set once what the registry says is in force."""
        self.changed = asyncio.Event()
        """Set when a permit or the mode changes; for one reader, who clears it."""
        self.setting = setting
        self._registry, self._clock, self._node = registry, clock, node
        self._never_wakes = never_wakes
        self._keys = (mode_key(node), *map(pause_key, self.permits))
        self._newest: dict[str, Entry] = {}
        self._orders: Orders = NO_ORDERS

    @property
    def mode(self) -> NodeMode:
        """The node's mode, for actors of which nothing else is said."""
        return modes.mode_of(self._orders, node=self._node, setting=self.setting)

    def may(self, actor: str) -> Switch:
        """Return what the node may do for one of its actors now."""
        now = self.permits[actor]
        return Switch(wakes=now.wakes.is_given, runs=now.runs.is_given)

    def end(self) -> None:
        """Withdraw everything for ever: the node stops."""
        for each in self.permits.values():
            each.wakes.end()
            each.runs.end()
        self.runs.end()
        self.changed.set()

    async def serve(self) -> None:
        """Do for ever what the registry says.

        Raises:
            Unavailable: the registry is away. What was in force stays so.
        """
        async with (
            # Only these: the registry also says what every episode waits for.
            self._registry.watch(under=MODES) as of_modes,
            self._registry.watch(under=PAUSES) as of_pauses,
        ):
            await self._look(self._keys)
            self.has_looked.set()
            await wait_first(
                self._follow(of_modes), self._follow(of_pauses), self._look_now_and_then()
            )

    async def _follow(self, watch: BucketWatch) -> None:
        while True:
            self._hear(await watch.receive(most=CHANGES_MAX, wait_s=WAIT_S))

    async def _look_now_and_then(self) -> None:
        while True:
            await self._clock.sleep(LOOK_S)
            await self._look(self._standing())

    async def _look(self, keys: Iterable[str]) -> None:
        """Ask what stands at `keys`, and do that."""
        room = asyncio.Semaphore(LOOKS_IN_FLIGHT_MAX)

        async def ask(key: str) -> Entry:
            async with room:
                return await self._registry.get(key) or self._gone(key)

        self._hear(await asyncio.gather(*map(ask, keys)))

    def _standing(self) -> list[str]:
        return [key for key, entry in self._newest.items() if entry.value is not None]

    def _gone(self, key: str) -> Entry:
        known = self._newest.get(key)
        return Entry(key=key, value=None, revision=known.revision if known else 0)

    def _hear(self, entries: Iterable[Entry]) -> None:
        """Take note of what is new, and switch accordingly."""
        for entry in entries:
            known = self._newest.get(entry.key)
            if entry.key in self._keys and (known is None or _is_news(entry, known)):
                self._newest[entry.key] = entry
                if problem := modes.orders_of([entry]).problems.get(entry.key):
                    log.warning("what the registry says is ignored", key=entry.key, why=problem)
        self._apply(modes.orders_of(self._newest.values()))

    def _apply(self, orders: Orders) -> None:
        mode_before, self._orders = self.mode, orders
        switched: dict[Switch, list[str]] = {}
        for actor, each in self.permits.items():
            may = modes.switch(orders, node=self._node, setting=self.setting, actor=actor)
            changes_waking = each.wakes.turn(on=may.wakes and not self._never_wakes)
            changes_running = each.runs.turn(on=may.runs)
            if changes_waking or changes_running:
                switched.setdefault(self.may(actor), []).append(actor)
        self.runs.turn(on=any(each.runs.is_given for each in self.permits.values()))
        for may, actors in switched.items():
            log.info("switched", mode=self.mode, wakes=may.wakes, runs=may.runs, actors=actors)
        if switched or self.mode is not mode_before:
            self.changed.set()


def _is_news(entry: Entry, known: Entry) -> bool:
    """Return whether `entry` is newer; a deletion that was never heard of has no revision."""
    was_deleted = entry.revision == known.revision and entry.value is None
    return entry.revision > known.revision or (was_deleted and known.value is not None)
