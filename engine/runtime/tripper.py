"""Watches the cluster's circuit breakers, and has what runs here looked at when one has changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from engine.runtime.breakers import Breakers
from engine.runtime.cast import Cast
from streams.bucket import Bucket, Entry
from streams.keys import BREAKERS

CHANGES_MAX: Final = 500
"""Changes of the gates looked at in one go."""

WAIT_S: Final = 5.0
"""Longest silent wait for changes; only how often an idle tripper looks up."""


@dataclass(frozen=True)
class Tripper:
    """Watches for one node."""

    gates: Bucket
    cast: Cast
    breakers: Mapping[str, Breakers]
    """By actor, of all that are in the cast."""

    async def serve(self) -> None:
        """Watch for ever, also while the node stops, as soon as a breaker may cancel what runs.

        Raises:
            Unavailable: the gates are away. Watching anew begins with all breakers.
        """
        await self.cast.wait_until(self._is_needed)
        async with self.gates.watch(under=BREAKERS) as watch:
            while True:
                for entry in await watch.receive(most=CHANGES_MAX, wait_s=WAIT_S):
                    await self._look_at(entry)

    def _is_needed(self) -> bool:
        return any(each.cancel_in_flight for each in self.breakers.values())

    async def _look_at(self, entry: Entry) -> None:
        first, _, rest = entry.key.partition(".")
        actor_id, _, expectation_id = rest.partition(".")
        if first == BREAKERS and actor_id in self.breakers:
            await self.breakers[actor_id].look_again(expectation_id)
