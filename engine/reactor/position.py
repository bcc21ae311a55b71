"""Up to where what follows from a stream was carried out, and by which node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from engine.reactor.leader import is_alive, leader_of
from streams.errors import RevisionConflict
from streams.keys import published_key
from streams.ports.all import Ports
from streams.ports.log import START

NOTE_S: Final = 0.25
"""How long a new position may be unwritten: so much is published again after a crash."""


@dataclass
class Position:
    """Up to where everything was published; written now and then."""

    ports: Ports
    key: str
    seq: int
    revision: int
    written: int
    """Up to where it is written down: all of that is published for certain."""
    _written_s: float = 0.0

    @classmethod
    async def read(cls, ports: Ports, part: str) -> Position:
        """Return the position in the stream `part`; its start if nobody has written one."""
        entry = await ports.gates.get(published_key(part))
        seq = int(entry.value) if entry is not None and entry.value else START
        revision = entry.revision if entry is not None else 0
        return cls(ports, published_key(part), seq, revision, seq)

    @property
    def is_written(self) -> bool:
        """Whether there is nothing to write."""
        return self.seq == self.written

    def is_due(self, now_s: float, *, is_idle: bool) -> bool:
        """Return whether it is to be written now."""
        return not self.is_written and (is_idle or now_s - self._written_s >= NOTE_S)

    async def check(self) -> None:
        """Raise `RevisionConflict` if another node has written one since."""
        entry = await self.ports.gates.get(self.key)
        if (entry.revision if entry is not None else 0) != self.revision:
            raise RevisionConflict(self.key, expected=self.revision)

    async def write(self, now_s: float) -> None:
        """Write it down if it has moved; raises `RevisionConflict` as `check`."""
        seq = self.seq
        if self.is_written:
            return
        self.revision = await self.ports.gates.put(self.key, str(seq).encode(), after=self.revision)
        self.written, self._written_s = seq, now_s


class ReactorProgress(NamedTuple):
    """How far the reactor of a stream is."""

    seq: int
    node: str
    """Which live node leads; empty: none."""


async def published(ports: Ports, part: str) -> ReactorProgress:
    """Return how far the reactor of the stream `part` is, by what it has written."""
    position = await Position.read(ports, part)
    leader, _ = await leader_of(ports.gates, part)
    lives = leader is not None and await is_alive(ports.gates, leader)
    return ReactorProgress(position.seq, leader.node if leader is not None and lives else "")
