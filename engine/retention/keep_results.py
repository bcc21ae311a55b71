"""Keeps large results of what is open, of what people hold, and for as long as actors say.

The object store lets everything go by age. What is to stay is renewed, which needs nothing but the
journal: what was read of it since the last time, and what followed from the rest, which is noted.
Without such notes all of it is read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from itertools import chain
from typing import Final

import msgspec

from engine.retention.results import (
    KeptResults,
    ReadUpTo,
    begin,
    decode,
    digests_of,
    encode,
    forget_old,
    is_asked,
    note,
    opened_with,
)
from engine.retention.rules import is_due
from engine.retention.step import RetentionRun, StepReport
from streams.errors import DamagedObject
from streams.json import UNDECODABLE
from streams.keys import KEPT_RESULTS
from streams.layout import Stream
from streams.model.events import EpisodeOpened
from streams.ports.all import Ports
from streams.ports.log import START, Recorded

EVERY_S: Final = 6 * 3_600.0
"""Between two renewals, in seconds: a store keeps everything for a day at least, and what was
renewed for half of that."""

PAGE_MAX: Final = 200
"""Commits that are read in one request: they are decoded in some 3 ms."""


class ResultsNoted(msgspec.Struct, frozen=True, kw_only=True):
    """What the gates have of the last time."""

    digest: str
    """Of the object that has `KeptResults`."""
    asked: str
    at: datetime

    def is_due(self, now: datetime, *, asked: str) -> bool:
        """Return whether it is time again, or something else is asked."""
        return self.asked != asked or is_due(self.at, now=now, every_s=EVERY_S)


class KeepResults:
    """Large results, and what models were asked."""

    name = "large results"

    async def run(self, run: RetentionRun) -> StepReport:
        """See `RetentionStep.run`. Nothing goes: the object store sees to that."""
        if not is_asked(run.state):  # guard: results-kept-if-asked
            return StepReport(step=self.name, says="go by their age; nobody keeps them for longer")
        noted = await _noted(run.ports)
        kept = begin(await _known(run.ports, noted), run.state)
        if noted is not None and not run.is_dry and not noted.is_due(run.now, asked=kept.asked):
            return StepReport(step=self.name, says=f"renewed at {noted.at:%F %H:%M}")
        stack = run.ports.stack
        for partition in stack.partitions_of(Stream.JOURNAL):
            await _read(run, kept, partition)
        forget_old(kept, now=run.now)
        lost = 0 if run.is_dry else await _renew(run, kept)
        if not run.is_dry:
            await _note(run, kept)
        says = f"{lost:,} are gone, or damaged" if lost else ""
        return StepReport(step=self.name, held=_counts(kept), says=says)


async def _noted(ports: Ports) -> ResultsNoted | None:
    """Return what the last time has left; None: there was none, or nobody knows."""
    entry = await ports.gates.get(KEPT_RESULTS)
    if entry is None or entry.value is None:
        return None
    try:
        return msgspec.json.decode(entry.value, type=ResultsNoted)
    except UNDECODABLE:
        return None


async def _known(ports: Ports, noted: ResultsNoted | None) -> KeptResults:
    """Return what stays, as far as it was noted; nothing, where that is lost."""
    try:
        data = await ports.objects.get(noted.digest) if noted is not None else None
        return KeptResults() if data is None else decode(data)
    except (DamagedObject, *UNDECODABLE):
        return KeptResults()


async def _note(run: RetentionRun, kept: KeptResults) -> None:
    digest = await run.ports.objects.put(encode(kept))
    noted = ResultsNoted(digest=digest, asked=kept.asked, at=run.now)
    await run.ports.gates.put(KEPT_RESULTS, msgspec.json.encode(noted))


async def _read(run: RetentionRun, kept: KeptResults, partition: int) -> None:
    """Note what has come to a stream of the journal since it was read last."""
    part = run.ports.stack.part(Stream.JOURNAL, partition)
    state = await run.ports.states.of(part)
    if state is None:
        return
    known = kept.read.get(part, ReadUpTo())
    # guard: new-journal-read-anew
    seq = known.seq if known.created == state.created else START
    while page := await run.ports.log.page(
        Stream.JOURNAL, after=seq, up_to=state.last_seq, most=PAGE_MAX, partition=partition
    ):
        run.check()
        for record in page:
            await _refer(run, kept, record)
            note(kept, record)
        seq = page[-1].seq
    kept.read[part] = ReadUpTo(state.created, state.last_seq)


async def _refer(run: RetentionRun, kept: KeptResults, record: Recorded) -> None:
    """Have `kept` know the episode of a commit that refers to something."""
    if record.subject in kept.open or not digests_of(record):
        return
    past = chain.from_iterable(
        each.commit.events for each in await run.ports.log.read(record.subject)
    )
    opened = next((each for each in past if isinstance(each, EpisodeOpened)), None)
    if opened is not None:  # Else its beginning was purged: it has ended, and nobody holds it.
        kept.open[record.subject] = opened_with(opened, run.state)


async def _renew(run: RetentionRun, kept: KeptResults) -> int:
    """Renew all that is to stay; return how many of them are not there, or are damaged."""
    lost = 0
    for digest in sorted({*kept.of_open, *kept.until, *kept.held}):
        run.check()
        try:
            lost += not await run.ports.objects.renew(digest)
        except DamagedObject:
            lost += 1
    return lost


def _counts(kept: KeptResults) -> Mapping[str, int]:
    """Return how many results stay, by why; one may stay for several reasons."""
    counts = {
        "what is open": len(kept.of_open),
        "how long results are kept": len(kept.until),
        "holds": len(kept.held),
    }
    return {why: count for why, count in counts.items() if count}
