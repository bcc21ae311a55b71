"""Another number of partitions for a stack, from the command line, with progress on stderr."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Final

from streams.clock import SystemClock
from streams.repartition.repartition import drop_retired, repartition
from vigil.settings import Reading
from vigil.work import link_settings

TOLD_EVERY_S: Final = 1.0
"""Between two lines of progress, in seconds; the end of a stage is always told."""

_HOW_ON: Final = """\
The old streams are kept: `vigil repartition --drop-old` deletes them once all is well.
The journal's positions are others now: before a projector starts, drop the schema vigil with
CASCADE in Postgres, and the tables are made anew.
Nodes find the new number by themselves; one that is set to another number does not start."""


def move(reading: Reading, *, to: int) -> str:
    """Spread the stack over `to` partitions; return what the operator should know then.

    Raises:
        BadName: `to` is no number of partitions.
        Incompatible: somebody uses the stack, or it is on its way to another number.
        Unavailable: no answer from the server. Do it again: it goes on.
    """
    url, link = reading.settings.nats_url, link_settings(reading)
    told = _Telling()
    stack = asyncio.run(repartition(url, stack=reading.stack, to=to, tell=told, settings=link))
    said = f"stack {stack.name} is spread over {stack.partitions} partitions"
    return f"{said}\n{_HOW_ON}" if told.has_told else said


def drop_old(reading: Reading) -> Sequence[str]:
    """Delete the streams that the stack used before; return their names.

    Raises:
        Incompatible: the stack is on its way to another number of partitions.
        Unavailable: no answer from the server.
    """
    url, link = reading.settings.nats_url, link_settings(reading)
    return asyncio.run(drop_retired(url, stack=reading.stack, settings=link))


class _Telling:
    """Says how far it is, now and then."""

    def __init__(self) -> None:
        self.has_told = False
        self._clock = SystemClock()
        self._told_s = 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        now_s = self._clock.monotonic_s()
        if done < total and now_s - self._told_s < TOLD_EVERY_S:
            return
        self.has_told, self._told_s = True, now_s
        print(f"{stage}: {done:,} of {total:,}", file=sys.stderr, flush=True)
