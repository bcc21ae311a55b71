"""The port to the streams of a stack as such: which there are, how each is, and what it stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol

import msgspec

from streams.model.losses import StreamState


class RawMessage(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A message exactly as a stream has it."""

    seq: int
    subject: str
    headers: Mapping[str, str]
    data: bytes
    at: datetime
    """When it was stored, by the server's clock."""


class RawReader(Protocol):
    """A position in what a stream stores."""

    async def receive(self, *, most: int, wait_s: float) -> Sequence[RawMessage]:
        """Return the next messages in order: up to `most`, none after `wait_s` of silence.

        Raises:
            Unavailable: the stream was made anew meanwhile, or ends before our position.
        """


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

    def read(self, part: str, *, after: int) -> AbstractAsyncContextManager[RawReader]:
        """Return a reader of what one stores, from just past sequence `after`."""

    async def purge(self, part: str, *, below: int) -> int:
        """Remove the messages before sequence `below`, and return how many those were.

        Repeating it is safe. Whoever removes what a stream must keep notes its floor first: see
        `KnownPast`.

        Raises:
            UnknownOutcome: no answer in the time of one request. They MAY be gone.
        """
