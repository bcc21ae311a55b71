"""Up to where what follows from a stream was carried out, and by which node."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from engine.reactor.leader import is_alive, leader_of
from streams.errors import RevisionConflict
from streams.keys import published_key, started_event
from streams.layout import Stream
from streams.model.followed import Followed, decode_followed, encode_followed
from streams.ports.all import Ports
from streams.ports.log import START

NOTE_S: Final = 0.25
"""How long a new position may be unwritten: so much is published again after a crash."""


@dataclass
class Position:
    """Up to where everything was published; written now and then."""

    ports: Ports
    part: str
    """Of which stream."""
    key: str
    seq: int
    covered_from: int
    """See `Followed`."""
    revision: int
    written: Followed
    """What is written down: all of that is published for certain."""
    _written_s: float = 0.0

    @classmethod
    async def read(cls, ports: Ports, part: str) -> Position:
        """Return the position in the stream `part`; its start if nobody has written one."""
        entry = await ports.gates.get(published_key(part))
        followed = decode_followed(entry.value if entry is not None else None)
        revision = entry.revision if entry is not None else 0
        return cls(ports, part, published_key(part), *followed, revision, followed)

    @property
    def is_written(self) -> bool:
        """Whether there is nothing to write."""
        return self._now == self.written

    def is_due(self, now_s: float, *, is_idle: bool) -> bool:
        """Return whether it is to be written now."""
        return not self.is_written and (is_idle or now_s - self._written_s >= NOTE_S)

    async def check(self) -> None:
        """Raise `RevisionConflict` if another node has written one since."""
        entry = await self.ports.gates.get(self.key)
        if (entry.revision if entry is not None else 0) != self.revision:
            raise RevisionConflict(self.key, expected=self.revision)

    @property
    def is_missing(self) -> bool:
        """Whether nobody has ever written one, or it is lost."""
        return self.revision == 0

    async def write(self, now_s: float) -> None:
        """Write it down if it has moved; raises `RevisionConflict` as `check`."""
        if not self.is_written:
            await self._put()
            self._written_s = now_s

    async def write_first(self) -> None:
        """Write it down if there is none: before anything is published, so that a loss is seen."""
        if self.is_missing:
            await self._put()
        # Public events age, and this does not.
        with suppress(RevisionConflict):  # It is noted.
            await self.ports.registry.put(self.key, b"", after=0)  # guard: position-noted-for-good

    @property
    def _now(self) -> Followed:
        return Followed(self.seq, self.covered_from)

    async def _put(self) -> None:
        now = self._now
        value = encode_followed(now)
        self.revision = await self.ports.gates.put(self.key, value, after=self.revision)
        self.written = now


class ReactorProgress(NamedTuple):
    """How far the reactor of a stream is."""

    seq: int
    node: str
    """Which live node leads; empty: none."""
    covered_from: int = 0
    """See `Followed`."""


async def is_lost(ports: Ports, part: str) -> bool:
    """Return whether the stream `part` had a position, and none is there."""
    noted = await ports.registry.get(published_key(part))
    events = await ports.states.of(Stream.EVENTS)
    up_to = events.last_seq if events is not None else START
    begun = await ports.domain_events.stored(started_event(part), after=START, up_to=up_to)
    # In this order: another node may write the first one in this moment, and then begin.
    had_one = noted is not None or bool(begun)
    return had_one and await ports.gates.get(published_key(part)) is None


async def published(ports: Ports, part: str) -> ReactorProgress:
    """Return how far the reactor of the stream `part` is, by what it has written."""
    position = await Position.read(ports, part)
    leader, _ = await leader_of(ports.gates, part)
    lives = leader is not None and await is_alive(ports.gates, leader)
    node = leader.node if leader is not None and lives else ""
    return ReactorProgress(position.seq, node, position.covered_from)
