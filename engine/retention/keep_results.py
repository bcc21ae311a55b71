"""Keeps large results of what is open, of what people hold, and for as long as actors say.

    read what has come to the journal ──▶ note what stays ──▶ renew it, some times a day

The object store lets everything go by age; what is to stay is renewed. What follows from the
journal is noted, so that only what is new is read. The notes are objects themselves, one for each
day until which something stays, because those of other days do not change. Without them, all that
the journal has is read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from engine.retention.results import (
    KeptResults,
    OpenResults,
    ReadUpTo,
    asked_of,
    digests_of,
    is_asked,
    is_level,
    is_over,
    note,
    opened_with,
    opening_of,
)
from engine.retention.rules import is_due
from engine.retention.step import RetentionRun, StepReport
from engine.runtime.gather import gather_bounded
from engine.runtime.store import read_up_to
from streams.errors import DamagedObject, LeaseLost, StreamError
from streams.json import UNDECODABLE, raw
from streams.keys import KEPT_RESULTS
from streams.layout import Stream
from streams.ports.all import Ports
from streams.ports.log import START, Recorded
from streams.ports.objects import digest_of

T = TypeVar("T")

EVERY_S: Final = 6 * 3_600.0
"""Between two renewals, in seconds: a store keeps everything for a day at least, and what was
renewed for half of that."""

PAGE_MAX: Final = 200
"""Commits that are read in one request: they are decoded in some 3 ms."""

IN_FLIGHT_MAX: Final = 8
"""Objects that are renewed at a time."""


class ResultsNote(msgspec.Struct, frozen=True, kw_only=True):
    """What the gates have of what stays: up to where the journal was read, and objects."""

    asked: str = ""
    """See `KeptResults`."""
    read: Mapping[str, ReadUpTo] = {}
    open: str = ""
    """Digest of the object with what open episodes refer to; empty: there is none."""
    held: str = ""
    """The same of what people hold."""
    days: Mapping[str, str] = {}
    """The same of what stays until the end of a day, by day."""
    renewed_at: datetime | None = None
    counts: Mapping[str, int] = {}
    """Why → how many results were renewed then."""

    @property
    def objects(self) -> Iterable[str]:
        """The digests of the notes themselves."""
        return [each for each in (self.open, self.held, *self.days.values()) if each]


class KeepResults:
    """Large results, and what models were asked."""

    name = "large results"

    async def run(self, run: RetentionRun) -> StepReport:
        """See `RetentionStep.run`. Nothing goes: the object store sees to that."""
        noted, revision = await _noted(run.ports)
        if not is_asked(run.state) and not noted.days:  # guard: results-kept-if-asked
            return StepReport(step=self.name, says="go by their age; nobody keeps them for longer")
        keeping = _Keeping(run, noted, revision)
        try:
            await keeping.read()
            problem = ""
        except LeaseLost:
            raise
        except StreamError as error:  # guard: unread-results-still-renewed
            problem = str(error)
        noted = keeping.noted
        is_fresh = noted.renewed_at is not None and not is_due(
            noted.renewed_at, now=run.now, every_s=EVERY_S
        )
        if is_fresh and not keeping.is_anew and not run.is_dry:
            says = f"renewed at {noted.renewed_at:%F %H:%M}"
            return StepReport(step=self.name, held=noted.counts, says=says, problem=problem)
        renewing = await keeping.renew()
        says = f"{renewing.lost:,} are gone, or damaged" if renewing.lost else ""
        problems = [each for each in (problem, renewing.problem) if each]
        return StepReport(
            step=self.name, held=renewing.counts, says=says, problem="; ".join(problems)
        )


async def note_results(run: RetentionRun) -> None:
    """Note what is to stay of all that the journal has: whoever purges it does so first.

    Raises:
        StreamError: not all of it is noted.
    """
    noted, revision = await _noted(run.ports)
    if is_asked(run.state):
        await _Keeping(run, noted, revision).read()


@dataclass
class _Renewing:
    counts: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    problem: str = ""

    def count(self, why: str, many: int) -> None:
        if many:
            self.counts[why] = self.counts.get(why, 0) + many


@dataclass
class _Keeping:
    """The notes, as one run reads and writes them."""

    run: RetentionRun
    noted: ResultsNote
    revision: int
    is_anew: bool = False
    """Whether something else was asked, so that all was read again."""
    _kept: KeptResults | None = None
    _has_lost: bool = False
    """Whether notes of a day are lost: then all is read again by the next run."""

    async def read(self) -> None:
        """Note what stays of what has come to the journal since it was read last."""
        run, stack = self.run, self.run.ports.stack
        partitions = {stack.part(Stream.JOURNAL, n): n for n in stack.partitions_of(Stream.JOURNAL)}
        states = {part: await run.ports.states.of(part) for part in partitions}
        there = {part: state for part, state in states.items() if state is not None}
        kept = await self._known({part: state.created for part, state in there.items()})
        for part, state in there.items():
            seq = kept.read[part].seq if part in kept.read else START
            while page := await run.ports.log.page(
                Stream.JOURNAL,
                after=seq,
                up_to=state.last_seq,
                most=PAGE_MAX,
                partition=partitions[part],
            ):
                run.check()
                for record in page:
                    await self._refer(kept, record)
                    note(kept, record)
                seq = page[-1].seq
            kept.read[part] = ReadUpTo(state.created, max(seq, state.last_seq))
            await self._write(kept)

    async def renew(self) -> _Renewing:
        """Renew all that is to stay, and the notes; of a dry run, only count it."""
        done, noted = _Renewing(), self.noted
        kept = self._kept or KeptResults(asked="")
        await self._renew(noted.objects, done)
        of_open = {digest for each in kept.open.values() for digest in each.digests}
        for why, digests in (("what is open", of_open), ("holds", kept.held)):
            done.count(why, len(digests))
            await self._renew(digests, done)
        for day in sorted({*noted.days, *kept.ended}):
            digests = await self._of_day(day) | kept.ended.get(day, set())
            done.count("how long results are kept", len(digests))
            await self._renew(digests, done)
        if not self.run.is_dry:
            await self._put(replace(self.noted, renewed_at=self.run.now, counts=done.counts))
        return done

    async def _known(self, created: Mapping[str, str]) -> KeptResults:
        """Return what to go on from: what was noted, unless it is of something else by now."""
        noted, asked = self.noted, asked_of(self.run.state)
        open_ = await self._object(noted.open, dict[str, OpenResults])
        held = await self._object(noted.held, set[str])
        is_whole = open_ is not None and held is not None
        # guard: asked-anew-read-anew
        if noted.asked == asked and is_level(noted.read, created) and is_whole:
            assert open_ is not None
            assert held is not None
            self._kept = KeptResults(asked=asked, read={**noted.read}, open=open_, held=held)
        else:
            self.is_anew = True
            self._kept = KeptResults(asked=asked)
        return self._kept

    async def _refer(self, kept: KeptResults, record: Recorded) -> None:
        """Have `kept` know the episode of a commit that refers to something."""
        if record.subject in kept.open or not digests_of(record):
            return
        opened = opening_of(record)
        if opened is None:
            past = await read_up_to(self.run.ports.log, self.run.clock, record)
            opened = opening_of(past[0])
        _, episode_id = self.run.ports.stack.aggregate_of(record.subject)
        kept.open[record.subject] = opened_with(opened, self.run.state, episode_id=episode_id)

    async def _write(self, kept: KeptResults) -> None:
        """Note what is known by now."""
        if self.run.is_dry:
            return
        now = self.run.now
        days = {day: each for day, each in self.noted.days.items() if not is_over(day, now=now)}
        for day, digests in kept.ended.items():
            if not is_over(day, now=now):
                days[day] = await self._stored(sorted(await self._of_day(day) | digests))
        kept.ended.clear()
        await self._put(
            replace(
                self.noted,
                asked=kept.asked,
                read={**kept.read},
                open=await self._stored(kept.open),
                held=await self._stored(sorted(kept.held)),
                days=days,
            )
        )

    async def _put(self, noted: ResultsNote) -> None:
        self.run.check()
        if self._has_lost:
            noted = replace(noted, asked="")
        data = msgspec.json.encode(noted)
        self.revision = await self.run.ports.gates.put(KEPT_RESULTS, data, after=self.revision)
        self.noted = noted

    async def _of_day(self, day: str) -> set[str]:
        """Return what is noted of a day; nothing, if that is lost: it is read again."""
        digests = await self._object(self.noted.days.get(day, ""), set[str])
        self._has_lost |= digests is None  # guard: lost-day-read-again
        return digests or set()

    async def _stored(self, value: object) -> str:
        """Return the digest of a note, which is stored unless it is there."""
        data, objects = bytes(raw(value)), self.run.ports.objects
        digest = digest_of(data)
        # guard: lost-note-stored-again
        is_there = digest in self.noted.objects and await objects.renew(digest)
        return digest if is_there else await objects.put(data)

    async def _object(self, digest: str, kind: type[T]) -> T | None:
        """Return a note; None: it is lost. What was never noted is empty."""
        try:
            data = await self.run.ports.objects.get(digest) if digest else b""
            if data is None:
                return None
            return msgspec.json.decode(data, type=kind) if data else kind()
        except (DamagedObject, *UNDECODABLE):
            return None

    async def _renew(self, digests: Iterable[str], done: _Renewing) -> None:
        if not self.run.is_dry:
            work = partial(self._renew_one, done=done)
            await gather_bounded(work, sorted(digests), in_flight_max=IN_FLIGHT_MAX)

    async def _renew_one(self, digest: str, done: _Renewing) -> None:
        self.run.check()
        try:
            done.lost += not await self.run.ports.objects.renew(digest)
        except DamagedObject:
            done.lost += 1
        except StreamError as error:  # guard: one-result-stops-no-other
            done.problem = str(error)


async def _noted(ports: Ports) -> tuple[ResultsNote, int]:
    """Return what was noted, and its revision; nothing, if nobody knows."""
    entry = await ports.gates.get(KEPT_RESULTS)
    revision = entry.revision if entry is not None else 0
    if entry is None or entry.value is None:
        return ResultsNote(), revision
    try:
        return msgspec.json.decode(entry.value, type=ResultsNote), revision
    except UNDECODABLE:
        return ResultsNote(), revision
