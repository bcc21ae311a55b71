"""Which process is the reactor of a stream: a key in the gates names it, for as long as it lives.

The key itself does not lapse, so nobody renews it: whether its process lives is what the entry of
its node says, which is renewed anyway, and lapses when the claims of its episodes do.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import msgspec

from engine.cluster.nodes import decoded
from streams.errors import RevisionConflict
from streams.keys import node_key, reactor_key
from streams.ports.bucket import Bucket


class Holder(msgspec.Struct, frozen=True):
    """A process that is a node."""

    node: str
    since: datetime
    """When it was started: nodes that are started again have the same name."""


async def holder_of(gates: Bucket, part: str) -> tuple[Holder | None, int]:
    """Return who has the turn at the stream `part`, dead or alive, and the key's revision."""
    stands = await gates.get(reactor_key(part))
    if stands is None or stands.value is None:
        return None, 0
    return msgspec.json.decode(stands.value, type=Holder), stands.revision


async def is_alive(gates: Bucket, holder: Holder) -> bool:
    """Return whether the entry of a node is that of this process; also if it cannot be read."""
    stands = await gates.get(node_key(holder.node))
    if stands is None or stands.value is None:
        return False
    info = decoded(stands.value)
    return info is None or info.since == holder.since


@dataclass
class ReactorTurn:
    """The turn at one stream, as one process has it."""

    gates: Bucket
    part: str
    holder: Holder
    _revision: int = 0

    async def take(self, *, after: int) -> bool:
        """Take the turn from whoever had it at revision `after`; return whether it was free."""
        data, key = msgspec.json.encode(self.holder), reactor_key(self.part)
        try:
            self._revision = await self.gates.put(key, data, after=after)
        except RevisionConflict:
            return False
        return True

    async def give_up(self) -> None:
        """Leave the turn to others; raises `RevisionConflict` if another one has it already."""
        await self.gates.delete(reactor_key(self.part), after=self._revision)
