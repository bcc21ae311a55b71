"""Which node publishes what follows from a stream: a key in the gates names this leader.

The key itself does not lapse, so nobody renews it. The entry of its node shows whether the leader
lives: it is renewed anyway, and lapses when the claims of the node's episodes do.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import msgspec

from engine.cluster.nodes import decoded
from streams.errors import RevisionConflict
from streams.keys import node_key, reactor_key
from streams.ports.bucket import Bucket


class Leader(msgspec.Struct, frozen=True):
    """A process of a node."""

    node: str
    since: datetime
    """When it was started: nodes that are started again have the same name."""


async def leader_of(gates: Bucket, part: str) -> tuple[Leader | None, int]:
    """Return the leader of the stream `part`, dead or alive, and the key's revision."""
    entry = await gates.get(reactor_key(part))
    if entry is None or entry.value is None:
        return None, 0
    return msgspec.json.decode(entry.value, type=Leader), entry.revision


async def is_alive(gates: Bucket, leader: Leader) -> bool:
    """Return whether the entry of a node is that of this process; also if it cannot be read."""
    entry = await gates.get(node_key(leader.node))
    if entry is None or entry.value is None:
        return False
    info = decoded(entry.value)
    return info is None or info.since == leader.since  # guard: restarted-node-is-another


@dataclass
class Leadership:
    """Being the leader of one stream, as one process knows it."""

    gates: Bucket
    part: str
    leader: Leader
    _revision: int = 0

    async def take(self, *, after: int) -> bool:
        """Succeed the leader of revision `after`; return False if another node did so first."""
        data, key = msgspec.json.encode(self.leader), reactor_key(self.part)
        try:
            self._revision = await self.gates.put(key, data, after=after)  # guard: one-of-two-leads
        except RevisionConflict:
            return False
        return True

    async def give_up(self) -> None:
        """Let another node lead; raises `RevisionConflict` if one does already."""
        await self.gates.delete(reactor_key(self.part), after=self._revision)
