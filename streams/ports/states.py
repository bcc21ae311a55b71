"""The port to the streams of a stack as such: which there are, and how each is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from streams.model.losses import StreamState


class StreamStates(Protocol):
    """How the streams and buckets of one stack are."""

    @property
    def parts(self) -> Sequence[str]:
        """Their names within the stack: those that keep all they ever had come first."""

    async def of(self, part: str) -> StreamState | None:
        """Return how one is, as its leader says; None: there is no such stream.

        A leader that does not hear from most copies may have been succeeded: `Unavailable`.
        """

    def newest(self, part: str) -> int:
        """Return the newest message of one that was acknowledged or delivered here, or 0."""

    async def wait_doubt(self, *, within_s: float) -> bool:
        """Wait until somebody has missed a stream, for at most `within_s`; return whether."""
