"""The port to deltas: what models answer, while they answer, for whoever listens at that moment.

Deltas are stored nowhere, and nothing waits for them: those that nobody hears are gone, and so are
those that come while the server is away or while who listens is too slow. Each is numbered, so what
is missing shows (`streams/model/deltas.py`); the journal has the whole answer once it is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

from streams.model.deltas import Delta

WAITING_MAX: Final = 1_000
"""Most deltas that wait for one who listens; beyond that, the oldest are dropped."""


class DeltaListener(Protocol):
    """Hears the deltas of one episode."""

    async def receive(self, *, most: int, wait_s: float) -> Sequence[Delta]:
        """Return up to `most` deltas as soon as there are any, or none after `wait_s`.

        What cannot be read, as a newer version has written it, is left out.
        """


class Deltas(Protocol):
    """The deltas of one stack."""

    def publish(self, episode_id: str, delta: Delta) -> None:
        """Tell `delta` to whoever listens to the episode; it is lost if that cannot be done now."""

    def listen(self, episode_id: str) -> AbstractAsyncContextManager[DeltaListener]:
        """Return what hears each delta of the episode that is published from now on.

        Raises:
            Unavailable: the server is away.
        """
