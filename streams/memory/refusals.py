"""Refusals in memory. The stack's one clock plays the server's."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from streams.clock import Clock
from streams.model.refusals import Refusal
from streams.ports.refusals import KEPT_MAX, KEPT_S, PAGE_MAX, RecordedRefusal
from streams.subjects import Stack

AGE: Final = timedelta(seconds=KEPT_S)


class _Kept(NamedTuple):
    record: RecordedRefusal
    stored_at: datetime


class MemoryRefusals:
    """See `streams.ports.refusals.Refusals`."""

    def __init__(self, clock: Clock, *, stack: Stack) -> None:
        self._clock, self._stack = clock, stack
        self._seq = 0
        self._of: defaultdict[str, deque[_Kept]] = defaultdict(lambda: deque(maxlen=KEPT_MAX))
        """By subject, the oldest first."""

    async def store(self, refusals: Sequence[Refusal]) -> None:
        """See `Refusals.store`."""
        stored_at = self._clock.now()
        for each in refusals:
            self._seq += 1
            subject = self._stack.refusal(each.actor, each.expectation)
            self._of[subject].append(_Kept(RecordedRefusal(self._seq, each), stored_at))

    async def newest(self, actor: str, expectation: str) -> Sequence[Refusal]:
        """See `Refusals.newest`."""
        subject, at = self._stack.refusal(actor, expectation), self._clock.now()
        return [each.refusal for each in reversed(self._kept(subject, at))]

    async def newest_seq(self) -> int:
        """See `Refusals.newest_seq`."""
        return self._seq

    async def after(self, seq: int, *, actor: str = "") -> Sequence[RecordedRefusal]:
        """See `Refusals.after`."""
        begins = self._stack.refusals_of(actor).rstrip("*>")
        found = self.kept(at=self._clock.now(), begins=begins)
        return [each for each in found if each.seq > seq][:PAGE_MAX]

    def kept(self, *, at: datetime, begins: str = "") -> Sequence[RecordedRefusal]:
        """Return all that are kept `at` some time, oldest first; `begins`: their subjects."""
        subjects = [each for each in self._of if each.startswith(begins)]
        found = [each for subject in subjects for each in self._kept(subject, at)]
        return sorted(found, key=lambda each: each.seq)

    def _kept(self, subject: str, at: datetime) -> list[RecordedRefusal]:
        return [each.record for each in self._of.get(subject, ()) if at - each.stored_at < AGE]
