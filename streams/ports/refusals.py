"""The port to refusals: why events did not fire expectations, for a day.

Refusals are for people, and nothing depends on them. They are stored in batches, by nodes that go
on without waiting; what a node has not stored when it crashes is lost, and so is a batch that the
server does not answer. Each expectation has its newest `KEPT_MAX`, none older than `KEPT_S`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from streams.model.refusals import Refusal

KEPT_S: Final = 24 * 3600
"""How long a refusal is kept, in seconds."""

KEPT_MAX: Final = 200
"""Most refusals of one expectation that are kept: its newest."""

PAGE_MAX: Final = 1_000
"""Most refusals that one answer has."""


class RecordedRefusal(msgspec.Struct, frozen=True):
    """A refusal, and where it is stored."""

    seq: int
    """Stream sequence, from 1."""
    refusal: Refusal


class Refusals(Protocol):
    """The refusals of one stack."""

    async def store(self, refusals: Sequence[Refusal]) -> None:
        """Store `refusals` in this order, many at a time.

        Raises:
            UnknownOutcome: no answer. A part of them may be stored, and storing them again may
                store those twice.
            Unavailable: the server refused. A part of them may be stored.
        """

    async def newest(self, actor: str, expectation: str) -> Sequence[Refusal]:
        """Return the refusals of one expectation that are kept, the newest first.

        Raises `BadName` if neither can be a name.
        """

    async def newest_seq(self) -> int:
        """Return the sequence of the newest refusal that was ever stored, or 0.

        It goes back only if the stream was lost and made anew.
        """

    async def after(self, seq: int, *, actor: str = "") -> Sequence[RecordedRefusal]:
        """Return the oldest refusals past sequence `seq`, up to `PAGE_MAX`; none: it has no more.

        All, or those of one `actor`. What cannot be read, as a newer version has written it, is
        left out.
        """
