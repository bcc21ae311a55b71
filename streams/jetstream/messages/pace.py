"""Measures which is faster now: messages one by one, or all of them as one atomic batch.

A batch costs the server about the same for any number of messages; a message alone costs a sync of
the disk. Both depend on the disk, the server's sync setting and the stream's replicas, which a
client cannot know. So both are timed. Where each message alone is synced, the fewest that a batch
may have pay, as long as the stream takes batches and is not slow; elsewhere the ratio of the times
says from how many on one pays. The way that is not in use cannot be timed: its estimate falls a
little with every round, until it is tried again, so a momentary delay is not remembered for ever.
"""

from __future__ import annotations

import math
import sys
from typing import Final

BATCH_S: Final = 0.004
"""What a batch takes, before any was timed. Source: one replica, 2 to 64 messages (ADR 0014)."""

ADVANTAGE: Final = 1.25
"""How many times faster a batch must be: it holds up everyone else's messages to the stream."""

WEIGHT: Final = 0.5
"""Of the newest time in the running average."""

FADING: Final = 0.995
"""What is left, after a round without it, of the time that one way is thought to take."""

SYNCED_S: Final = 0.0001
"""Between two answers to messages alone, when the server syncs each of them; else it is less."""

BUSY_BATCH_S: Final = 0.5
"""Up to what a batch may seem to take because the client or the machine was busy: 0.09 to 0.13 s
with 256 episodes in flight on two busy cores. One that seems to take longer is slow."""

REFUSED_MAX: Final = 3
"""Refused batches in a row after which only time decides: the stream may take none at all. A
conflict, which refuses a batch too, is rare."""

OUTLIER: Final = 2.0
"""How many times the average a new time counts for at most. One slow sync of the disk says
nothing about the next; a disk that has become ten times as slow is believed in six rounds."""


class Pace:
    """The times of both ways on one stream, as running averages."""

    def __init__(self, *, least: int, is_fixed: bool) -> None:
        """Begin with messages one by one; with `is_fixed`, `worth` stays at `least`."""
        self._least = least
        self._is_fixed = is_fixed
        self._single_s = 0.0
        self._batch_s = BATCH_S
        self._refused = 0
        self.worth = least
        """From how many messages on a batch is the faster way."""
        self._weigh()

    def note_singles(self, count: int, took_s: float) -> None:
        """Count `count` messages alone that were answered within `took_s`, one after another."""
        self._single_s = _average(self._single_s, took_s / count)
        self._batch_s *= FADING
        self._weigh()

    def note_batch(self, took_s: float) -> None:
        """Count a batch whose messages were all stored after `took_s`."""
        self._refused = 0  # guard: conflict-keeps-batches-on
        self._note_batch(took_s)

    def note_refused_batch(self, count: int, took_s: float) -> None:
        """Count a batch that was refused after `took_s`: its `count` messages go one by one."""
        self._refused += 1
        self._note_batch(took_s + count * self._single_s)

    def _note_batch(self, took_s: float) -> None:
        self._batch_s = _average(self._batch_s, took_s)
        self._single_s *= FADING  # guard: slower-way-tried-again
        self._weigh()

    def _weigh(self) -> None:
        if not self._is_fixed:
            self.worth = max(self._least, self._worth())

    def _worth(self) -> int:
        if self._single_s == 0.0:
            return sys.maxsize
        is_synced, is_slow = self._single_s >= SYNCED_S, self._batch_s >= BUSY_BATCH_S
        # guard: refused-batches-not-sent-singly
        if is_synced and not is_slow and self._refused < REFUSED_MAX:
            # A busy client hears of answers late, and takes a batch for slower than it is.
            return self._least  # guard: synced-busy-client-batches
        return math.ceil(ADVANTAGE * self._batch_s / self._single_s)


def _average(before_s: float, now_s: float) -> float:
    if before_s == 0.0:
        return now_s
    return before_s + WEIGHT * (min(now_s, OUTLIER * before_s) - before_s)
