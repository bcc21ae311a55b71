"""Applies modes and pauses to a running node: what it may wake, and whether it runs episodes.

The entries are in a bucket, so they also apply to a node that comes back. A node, and a new actor
on it, does nothing before its entries are read: if people switched it off, it stays off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

import structlog

from engine.cluster import modes
from engine.cluster.modes import NO_ORDERS, Orders, Switch
from engine.runtime.gather import gather_bounded
from engine.runtime.permits import Permit, Permits
from engine.runtime.tasks import wait_first
from engine.runtime.watch import follow_and_look
from streams.clock import Clock
from streams.keys import MODES, PAUSES, mode_key, pause_key
from streams.model.modes import NodeMode
from streams.ports.bucket import Bucket, BucketEntry

LOOK_S: Final = 60.0
"""Between two reads of known entries, in seconds. A watch that was cut off for over an hour misses
deletions.
"""

LOOKS_IN_FLIGHT_MAX: Final = 64

log = structlog.get_logger("vigil.modes")


class ModeWatcher:
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
        """Give no permit yet.

        `setting` is the node's mode unless the registry has one; with `never_wakes` its gates stay
        shut in any mode.
        """
        self.permits: dict[str, Permits] = {}
        self.runs = Permit()
        """Whether the node may run the episodes of any of its actors."""
        self.has_looked = asyncio.Event()
        """Set while the registry's entries for all actors are in force."""
        self.changed = asyncio.Event()
        """Set when a permit or the mode changes; for one reader, who clears it."""
        self.setting = setting
        self._registry, self._clock, self._node = registry, clock, node
        self._never_wakes = never_wakes
        self._newest: dict[str, BucketEntry] = {}
        self._orders: Orders = NO_ORDERS
        self._unasked: dict[str, Permits] = {}
        """Those of actors whose entries are not read yet."""
        self._has_newcomers = asyncio.Event()
        self._knows_mode = asyncio.Event()
        self._is_over = False
        for actor in actors:
            self.learn(actor)

    @property
    def mode(self) -> NodeMode:
        """The node's mode, for actors without an entry of their own."""
        return modes.mode_of(self._orders, node=self._node, setting=self.setting)

    def may(self, actor: str) -> Switch:
        """Return what the node may do for one of its actors now."""
        now = self.permits[actor]
        return Switch(wakes=now.wakes.is_given, runs=now.runs.is_given)

    def learn(self, actor: str) -> Permits:
        """Add an actor and return its permits: none are given until the registry has been asked."""
        if actor in self.permits:
            return self.permits[actor]
        permits = self.permits[actor] = self._unasked[actor] = Permits()
        self.has_looked.clear()
        self._has_newcomers.set()
        if self._is_over:
            permits.end()
        return permits

    def forget(self, actor: str) -> None:
        """Withdraw the permits of an actor that the node no longer has."""
        self.permits.pop(actor).end()
        self._unasked.pop(actor, None)
        self._newest.pop(pause_key(actor), None)
        self._see_whether_all_asked()

    def end(self) -> None:
        """Withdraw everything for ever: the node stops."""
        self._is_over = True
        for each in self.permits.values():
            each.end()
        self.runs.end()
        self.changed.set()

    async def follow(self) -> None:
        """Apply the registry's entries for ever. After `Unavailable`, what was in force stays."""
        # Only these: the registry also has an entry for what each episode waits for.
        watches = [self._registry.watch(under=MODES), self._registry.watch(under=PAUSES)]
        following = follow_and_look(
            watches, self._hear, self._look_at_all, look_every_s=LOOK_S, clock=self._clock
        )
        await wait_first(following, self._look_at_newcomers())

    async def _look_at_all(self) -> None:
        """Read again every entry that exists, and those never read: the mode and new actors."""
        standing = {key for key, entry in self._newest.items() if entry.value is not None}
        unknown = set() if self._knows_mode.is_set() else {mode_key(self._node)}
        await self._look(standing | unknown | {*map(pause_key, self._unasked)})

    async def _look_at_newcomers(self) -> None:
        # Until the mode is known nothing may be given, whatever is known of an actor.
        await self._knows_mode.wait()
        while True:
            await self._has_newcomers.wait()
            self._has_newcomers.clear()
            await self._look([*map(pause_key, self._unasked)])

    async def _look(self, keys: Iterable[str]) -> None:
        """Read the entries at `keys` and apply them; their actors count as asked."""
        unasked = dict(self._unasked)

        async def ask(key: str) -> BucketEntry:
            return await self._registry.get(key) or self._gone(key)

        found = await gather_bounded(ask, keys, in_flight_max=LOOKS_IN_FLIGHT_MAX)
        asked = {entry.key for entry in found}
        self._note_asked({id_: each for id_, each in unasked.items() if pause_key(id_) in asked})
        await self._hear(found)
        self._see_whether_all_asked()

    def _note_asked(self, asked: Mapping[str, Permits]) -> None:
        """Note the actors that were asked about, unless they have gone and come back since."""
        for actor, permits in asked.items():
            if self._unasked.get(actor) is permits:
                del self._unasked[actor]

    def _see_whether_all_asked(self) -> None:
        if mode_key(self._node) in self._newest:
            self._knows_mode.set()
        if self._knows_mode.is_set() and not self._unasked:
            self.has_looked.set()

    def _gone(self, key: str) -> BucketEntry:
        known = self._newest.get(key)
        return BucketEntry(key=key, value=None, revision=known.revision if known else 0)

    async def _hear(self, entries: Iterable[BucketEntry]) -> None:
        """Note the entries that are new, and switch accordingly."""
        for entry in entries:
            known = self._newest.get(entry.key)
            if self._concerns(entry.key) and (known is None or _is_news(entry, known)):
                self._newest[entry.key] = entry
                if problem := modes.orders_of([entry]).problems.get(entry.key):
                    log.warning("what the registry says is ignored", key=entry.key, why=problem)
        self._apply(modes.orders_of(self._newest.values()))

    def _concerns(self, key: str) -> bool:
        kind, _, actor = key.partition(".")
        return key == mode_key(self._node) or (kind == PAUSES and actor in self.permits)

    def _apply(self, orders: Orders) -> None:
        mode_before, self._orders = self.mode, orders
        switched: dict[Switch, list[str]] = {}
        # guard: coming-actor-asked-first
        known = ((id_, each) for id_, each in self.permits.items() if id_ not in self._unasked)
        for actor, each in known:
            may = modes.switch(orders, node=self._node, setting=self.setting, actor=actor)
            # guard: guest-wakes-nobody
            changes_waking = each.wakes.turn(on=may.wakes and not self._never_wakes)
            changes_running = each.runs.turn(on=may.runs)
            each.tends.turn(on=may.runs and actor in orders.pauses)  # guard: woken-goes-on-paused
            if changes_waking or changes_running:
                switched.setdefault(self.may(actor), []).append(actor)
        # guard: disabled-node-brings-nothing
        self.runs.turn(on=any(each.runs.is_given for each in self.permits.values()))
        for may, actors in switched.items():
            log.info(
                "mode in force",
                mode=self.mode,
                opens_episodes=may.wakes,
                runs_episodes=may.runs,
                actors=actors,
            )
        if switched or self.mode is not mode_before:
            self.changed.set()


def _is_news(entry: BucketEntry, known: BucketEntry) -> bool:
    """Return whether `entry` is newer; a deletion that was never watched has no revision."""
    was_deleted = entry.revision == known.revision and entry.value is None
    # guard: untold-mode-deletion-ends
    return entry.revision > known.revision or (was_deleted and known.value is not None)
