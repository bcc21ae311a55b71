"""Membership: reports that this node is up, and knows which other nodes are.

A node repeats its entry at every heartbeat. It is removed after the lifetime of a lease, by another
node or by the server, so a crashed node disappears when its episodes become free. Of two nodes with
one name the newer is listed, since the older may be about to stop; the older one returns when the
newer is gone. Both log it, because work that is distributed by name would go wrong.
"""

from __future__ import annotations

import asyncio
import math
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Final

import structlog

from engine.app.workflow_plan import Starter
from engine.cluster import nodes
from engine.cluster.differences import REMEDY, differences_from
from engine.cluster.mode_watch import ModeWatcher
from engine.cluster.nodes import NodeInfo
from engine.runtime.catalog import Catalog
from engine.runtime.tasks import wait_first
from engine.runtime.watch import follow_and_look
from streams.clock import Clock
from streams.errors import RevisionConflict, Unavailable
from streams.keys import NODES, node_key
from streams.ports.all import Ports
from streams.ports.bucket import Bucket, BucketEntry
from streams.ports.leases import GRACE_S

TTL_S_MIN: Final = 2
"""Shortest life of a node's entry, in seconds: a busy machine renews it in time."""

RENEWALS_PER_TTL: Final = 3
"""As for leases: two may fail in a row before the node is missed."""

SAY_TRIES_MAX: Final = 5
"""Most tries to write it while another node of the name does; after that, at the next renewal."""

LEAVE_S_MAX: Final = 1.0
"""Longest that a stopping node waits for its entry's deletion, in seconds; it expires anyway."""

TWO_OF_A_NAME: Final = (
    "stop one of them, or give it a name of its own with VIGIL_NODE;"
    " if one of them is being restarted, do nothing"
)

LOOK_S: Final = 30.0
"""Between two reads of all nodes, in seconds. A watch that was cut off for over an hour misses
deletions.
"""

log = structlog.get_logger("vigil.members")


@dataclass
class Heartbeat:
    """Keeps one node's entry in the gates."""

    gates: Bucket
    clock: Clock
    mode_watcher: ModeWatcher
    catalog: Catalog
    node: str
    lease_s: float
    version: str
    since: datetime
    is_listed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the entry has been written. Another process in its place was then started later."""
    _rival: str = ""
    """The process that it last warned of, and that may have its place; empty: none has."""

    @property
    def ttl_s(self) -> int:
        """How long an entry lasts, in seconds: the lease's life in the server's unit."""
        return _ttl_s(self.lease_s)

    def info(self) -> NodeInfo:
        """Return the node's entry as it is now; an actor is listed once it receives events."""
        problems = nodes.problems_told(self.catalog.problems)
        # Who finishes instances is not told by name: every node that runs anything may.
        closed = {
            id_: actor
            for id_, actor in self.catalog.closed.items()
            if not isinstance(actor, Starter)
        }
        return NodeInfo(
            name=self.node,
            host=platform.node(),
            pid=os.getpid(),
            version=self.version,
            since=self.since,
            mode=self.mode_watcher.mode,
            setting=self.mode_watcher.setting,
            lease_s=self.lease_s,
            actors={
                id_: nodes.actor_info(actor, self.mode_watcher.may(id_))
                for id_, actor in self.catalog.ready.items()
            },
            closed={
                id_: actor.max_concurrent_episodes
                for id_, actor in closed.items()
                if self.mode_watcher.may(id_).runs
                and not self.catalog.rests(id_)  # guard: leaver-has-no-room
            },
            fallbacks=tuple(sorted(id_ for id_ in self.catalog.called if id_ in closed)),
            problems=problems,
            problems_at={
                id_: at for id_, at in self.catalog.problems_at.items() if id_ in problems
            },
        )

    async def beat(self) -> None:
        """Write the entry for ever: at every heartbeat, and at once when something changes."""
        await self.mode_watcher.has_looked.wait()
        while True:
            self.mode_watcher.changed.clear()
            recast = self.catalog.changed
            await self._say()
            await self._wait_change(recast)

    async def leave(self) -> None:
        """Delete this node's entry, if that can be done soon; never another process's."""
        try:
            async with self.clock.timeout(LEAVE_S_MAX):
                stands = await self.gates.get(node_key(self.node))
                # guard: others-presence-left
                if stands is not None and not self._is_others(stands):
                    await self.gates.delete(stands.key, after=stands.revision)
        except (TimeoutError, RevisionConflict, Unavailable) as error:
            log.debug("the node is missed only when its time is over", why=repr(error))

    async def _say(self) -> None:
        """Write the entry, unless a node of the same name that was started later does."""
        for _ in range(SAY_TRIES_MAX):
            stands = await self.gates.get(node_key(self.node))
            if stands is not None and self._is_others(stands):
                self._warn_of(_process_in(stands))
                if self.is_listed.is_set():  # guard: earlier-namesake-gives-way
                    return
            if await self._try_say(after=stands.revision if stands else 0):
                self._note_said()
                return

    async def _try_say(self, *, after: int) -> bool:
        data, key = nodes.encoded(self.info()), node_key(self.node)
        try:
            await self.gates.put(key, data, after=after, ttl_s=self.ttl_s + GRACE_S)
        except RevisionConflict:
            return False
        return True

    def _is_others(self, stands: BucketEntry) -> bool:
        return _process_in(stands) != _process(platform.node(), os.getpid(), self.since)

    def _warn_of(self, rival: str) -> None:
        if rival == self._rival:
            return
        self._rival = rival
        gives_way = "another node of this name was started, so this one is not seen any more"
        arrives = (
            "another node of this name is up, or has crashed just now; this one takes its place"
        )
        message = gives_way if self.is_listed.is_set() else arrives
        log.warning(message, node=self.node, other=rival, do=TWO_OF_A_NAME)

    def _note_said(self) -> None:
        if self._rival and self.is_listed.is_set():
            log.info("this node is seen again: the other one of its name is gone", node=self.node)
        self.is_listed.set()
        self._rival = ""

    async def _wait_change(self, recast: asyncio.Event) -> None:
        """Wait until the entry has changed, or is to be renewed."""
        try:
            async with self.clock.timeout(self.ttl_s / RENEWALS_PER_TTL):
                await wait_first(self.mode_watcher.changed.wait(), recast.wait())
        except TimeoutError:
            return


@dataclass
class Membership:
    """The live nodes, as far as this one knows."""

    gates: Bucket
    clock: Clock
    has_looked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the nodes have been read."""
    _nodes: dict[str, NodeInfo] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Locked by `_look`, so that no change is noted before what was read earlier."""

    @property
    def nodes(self) -> Sequence[NodeInfo]:
        """The live nodes, by name."""
        return [self._nodes[key] for key in sorted(self._nodes)]

    def capacity(self, actor: str) -> int:
        """Return how many episodes of `actor` may run at a time on all the nodes that run it."""
        return nodes.capacity(self._nodes.values(), actor)

    async def wait_change(self) -> None:
        """Wait until a node comes, goes or changes its entry."""
        await self._changed.wait()

    async def follow(self) -> None:
        """Follow who comes and goes, for ever. After `Unavailable`, what was known stays."""
        watches = [self.gates.watch(under=NODES)]
        await follow_and_look(
            watches, self._hear, self._look, look_every_s=LOOK_S, clock=self.clock
        )

    async def _hear(self, changes: Sequence[BucketEntry]) -> None:
        async with self._turn:
            self._set({**self._nodes, **_said(changes)})

    async def _look(self) -> None:
        async with self._turn:
            self._set(_said((await self.gates.entries(under=NODES)).values()))
        self.has_looked.set()

    def _set(self, said: Mapping[str, NodeInfo | None]) -> None:
        """Note the live nodes, and wake those who wait if they have changed."""
        living = {key: info for key, info in said.items() if info is not None}
        if living != self._nodes:
            self._nodes = living
            before, self._changed = self._changed, asyncio.Event()
            before.set()


@dataclass
class DeclarationWatch:
    """Warns of actors that another node declares differently than this one."""

    node: str
    _entries: dict[str, bytes] = field(default_factory=dict)
    _nodes: dict[str, NodeInfo] = field(default_factory=dict)
    _found: dict[str, frozenset[tuple[str, Sequence[str]]]] = field(default_factory=dict)
    """Where each other node differs from this one."""

    def hear(self, entries: Sequence[BucketEntry]) -> None:
        """Note what nodes say, or that they are gone; warn once of each difference."""
        told, fresh = set[tuple[str, Sequence[str]]]().union(*self._found.values()), set[str]()
        for each in entries:
            if each.value != self._entries.get(each.key):  # Most renew what was said before.
                fresh.add(each.key)
                self._note(each)
        key = node_key(self.node)
        own = self._nodes.get(key)
        if not fresh or own is None:
            return
        # While all nodes are deployed, each says something new several times.
        among = self._nodes if key in fresh else fresh  # guard: only-fresh-entries-compared
        others = sorted(each for each in among if each != key and each in self._nodes)
        found = differences_from(own, [self._nodes[each] for each in others])
        for difference in chain(*found):
            if difference.key not in told:  # guard: difference-told-once
                told.add(difference.key)
                log.warning(difference.says, do=REMEDY)
        for other, differing in zip(others, found, strict=True):
            self._found[other] = frozenset(each.key for each in differing)

    def _note(self, entry: BucketEntry) -> None:
        info = None if entry.value is None else nodes.decoded(entry.value)
        if entry.value is None or info is None:
            self._entries.pop(entry.key, None)
            self._nodes.pop(entry.key, None)
            self._found.pop(entry.key, None)
        else:
            self._entries[entry.key], self._nodes[entry.key] = entry.value, info


async def succeed(ports: Ports, node: str, *, is_dead: Callable[[NodeInfo], bool]) -> Sequence[str]:
    """End the presence and the claims of the process that had this name, if it has died.

    Return the keys whose claims lapse now. Only for who knows that nobody else has this name:
    `is_dead` is asked about the process that stands in the entry. Without an entry nothing is done:
    claims lapse when it does.
    """
    key = node_key(node)
    stands = await ports.gates.get(key)
    info = nodes.decoded(stands.value or b"") if stands is not None else None
    if stands is None or info is None or not is_dead(info):  # guard: living-holder-not-succeeded
        return ()
    cut = await ports.leases.cut_short(holder=node)
    with suppress(RevisionConflict):
        await ports.gates.delete(key, after=stands.revision)
    return cut


def presence_s(entry: BucketEntry) -> float | None:
    """Return how long a node's entry lasts, in seconds; None: it is gone, or cannot be read."""
    info = nodes.decoded(entry.value) if entry.value is not None else None
    return None if info is None else _ttl_s(info.lease_s)


async def end_presence(gates: Bucket, key: str, revision: int) -> None:
    """Delete a node's entry that stands at `revision`; leave it if it was renewed."""
    with suppress(RevisionConflict):
        await gates.delete(key, after=revision)  # guard: renewed-presence-stays


async def live_nodes(gates: Bucket, *, from_leader: bool = False) -> Sequence[NodeInfo]:
    """Return the live nodes, by name.

    Any replica may answer, and may lack those that have just come; the leader costs more.
    """
    found = _said((await gates.entries(under=NODES, from_leader=from_leader)).values())
    return [info for _, info in sorted(found.items()) if info is not None]


def _ttl_s(lease_s: float) -> int:
    return max(TTL_S_MIN, math.ceil(lease_s))


def _process_in(stands: BucketEntry) -> str:
    said = nodes.decoded(stands.value or b"")
    if said is None:
        return "a process of another version"
    return _process(said.host, said.pid, said.since)


def _process(host: str, pid: int, since: datetime) -> str:
    return f"process {pid} on {host}, since {since.isoformat()}"


def _said(entries: Iterable[BucketEntry]) -> dict[str, NodeInfo | None]:
    """Return each node's entry; None where it is gone, or cannot be read."""
    return {
        entry.key: None if entry.value is None else nodes.decoded(entry.value)
        for entry in entries
        if entry.key.startswith(f"{NODES}.")
    }
