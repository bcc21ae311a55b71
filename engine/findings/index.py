"""`FindingIndex`: the findings of a stack that are active, for reads by anything but the key.

A program reads the state streams once, up to their heads, when it is first asked; after that, what
is new whenever it is asked. So an answer has every change that was stored before the question. It
keeps each active finding, without its evidence, in memory.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from heapq import nsmallest
from itertools import chain
from typing import Final

import msgspec
from msgspec.structs import replace

from engine.episodes import dry_run
from streams.errors import Unavailable
from streams.json import NOTHING
from streams.layout import Stream
from streams.model.events import FindingEvent
from streams.model.findings import Finding, FindingStatus
from streams.ports.log import START, EventLog, Recorded
from streams.subjects import Stack

SUMMARY_CHARS_MAX: Final = 500
"""How much of a summary is kept."""

ACTIVE_MAX: Final = 100
"""Most findings of one answer: it must fit in a step."""

PAIR: Final = ("host", "web-1")

BATCH_MAX: Final = 1_000

LOOKED_AT_ONCE: Final = 1_000
"""Findings that are looked at before other tasks of the loop may run: about 1 ms."""

WAIT_S: Final = 5.0
"""Longest wait for commits that a stream is known to have."""


class FindingFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which active findings somebody asks for; None is any."""

    kind: str | None = None
    subject_id: str | None = None
    actor: str | None = None
    class_: str | None = None

    def covers(self, finding: Finding) -> bool:
        """Return whether `finding` is one of them."""
        return (
            (self.subject_id is None or finding.subject_id == self.subject_id)
            and (self.kind is None or finding.subject_kind == self.kind)
            and (self.actor is None or finding.actor_id == self.actor)
            and (self.class_ is None or finding.class_ == self.class_)
        )


def filter_of(
    *, subject: tuple[str, str | None] | None, actor: str | None, class_: str | None, limit: int
) -> FindingFilter:
    """Return what `Findings.active` was asked for; `ValueError`: a value is impossible."""
    match subject:
        case None:
            kind, subject_id = None, None
        case (str(kind), str() | None as subject_id):
            pass
        case _:
            raise ValueError(f"subject {subject!r}: must be a pair of kind and id, such as {PAIR}")
    for name, value in (("actor", actor), ("class_", class_)):
        if value is not None and not isinstance(value, str):
            raise ValueError(f"{name} {value!r}: must be text")
    if limit not in range(1, ACTIVE_MAX + 1):
        raise ValueError(f"limit {limit!r}: must be a number from 1 to {ACTIVE_MAX}")
    return FindingFilter(kind=kind, subject_id=subject_id, actor=actor, class_=class_)


def worst_first(finding: Finding) -> tuple[int, float, str]:
    """Return the place of `finding` in lists: the most severe first, of these the newest."""
    # guard: most-severe-first
    return -finding.severity.rank, -finding.raised_at.timestamp(), finding.finding_key


class FindingIndex:
    """The active findings of one stack, as one program has read them."""

    def __init__(self, log: EventLog, stack: Stack) -> None:
        self.log, self.stack = log, stack
        self._live: dict[str, Finding] = {}
        self._apart: dict[str, Finding] = {}
        """What dry runs have stored, ended or not: an ended one hides the live one of its key."""
        self._read_to: defaultdict[int, int] = defaultdict(lambda: START)
        self._turns: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def active(self, wanted: FindingFilter, *, prefix: str, limit: int) -> list[Finding]:
        """Return up to `limit` that are active now, without evidence, the worst first.

        Findings of dry runs with `prefix` replace the live ones of their keys; empty: none do.
        """
        partitions = self.stack.partitions_of(Stream.STATE)
        await asyncio.gather(*map(self._catch_up, partitions))
        own = dry_run.own_of(self._apart.values(), prefix)
        worst = [
            each
            for each in own.values()
            # guard: dry-ended-for-it
            if each.status is FindingStatus.ACTIVE and wanted.covers(each)
        ]
        live = [*self._live.values()]
        for start in range(0, len(live), LOOKED_AT_ONCE):
            some = filter(wanted.covers, live[start : start + LOOKED_AT_ONCE])
            # guard: own-dry-findings-win
            others = (each for each in some if each.finding_key not in own)
            # guard: worst-of-all-parts
            worst = nsmallest(limit, chain(worst, others), key=worst_first)
            await asyncio.sleep(0)  # guard: index-yields-to-tasks
        return nsmallest(limit, worst, key=worst_first)

    async def _catch_up(self, partition: int) -> None:
        head = await self.log.head(Stream.STATE, partition=partition)
        async with self._turns[partition]:
            after = self._read_to[partition]  # guard: index-reads-new-only
            if after >= head:  # guard: index-current-at-question
                return
            async with self.log.follow(Stream.STATE, after=after, partition=partition) as follower:
                while self._read_to[partition] < head:
                    records = await follower.receive(most=BATCH_MAX, wait_s=WAIT_S)
                    if not records:  # guard: index-wait-bounded
                        name = self.stack.stream(Stream.STATE, partition)
                        raise Unavailable(name, detail=f"nothing came within {WAIT_S:g} s")
                    for each in records:
                        self._keep(each)
                    self._read_to[partition] = records[-1].seq

    def _keep(self, record: Recorded) -> None:
        for event in record.commit.events:
            if not isinstance(event, FindingEvent):
                continue
            kept = replace(
                event.finding,
                summary=event.finding.summary[:SUMMARY_CHARS_MAX],
                evidence_json=NOTHING,  # guard: index-leaves-evidence
            )
            if not dry_run.is_meant(kept):
                self._apart[kept.finding_key] = kept
            elif kept.status is FindingStatus.ACTIVE:
                self._live[kept.finding_key] = kept
            else:
                self._live.pop(kept.finding_key, None)  # guard: ended-not-active
