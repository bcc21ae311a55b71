"""Purges dead letters that are over from their stream, once their rows have left.

They go from the beginning of the stream on, as the journal does, and are not archived: what a
letter is about is, where it was an episode or an output. A letter that waits keeps all after it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from engine.archive.floor import SKEW
from engine.archive.purge import purge
from engine.archive.run import KnownRows
from engine.dead_letters.letter import DeadLetter, fold
from engine.episodes import episode
from engine.reactor.position import Position
from engine.retention.rules import cut_of
from engine.retention.step import RetentionRun, StepReport
from engine.retention.store import read_state
from streams.layout import Stream
from streams.model.events import DeadLettered
from streams.model.retention import RetentionField
from streams.ports.all import Ports
from streams.ports.log import Recorded

PAGE_MAX: Final = 200
"""Commits that are looked at in one request."""

_WAITS: Final = "one that waits"
_YOUNG: Final = "one that was settled lately"
_ROWS: Final = "the tables"
_UNREAD: Final = "one whose end tables or reactor have yet to read"


@dataclass(frozen=True)
class PurgeDeadLetters:
    """Messages of dead letters whose rows are cut off."""

    rows: Callable[[], Awaitable[KnownRows | None]]
    """Returns what the tables have; None: nobody can say, so nothing goes."""

    name = "dead letters"

    async def run(self, run: RetentionRun) -> StepReport:
        """See `RetentionStep.run`. It goes by the cut that the log had when the run began."""
        before = cut_of(run.state.cuts, RetentionField.DEAD_LETTERS)
        rows = await self.rows() if before is not None else None
        if before is None:
            return StepReport(step=self.name, says="kept for ever, or not cut off yet")
        if rows is None:
            return StepReport(step=self.name, problem="Postgres does not say which rows are left")
        part = run.ports.stack.part(Stream.DEAD)
        position = await Position.read(run.ports, part)
        end = position.written.seq  # guard: unpublished-letter-stays
        if rows.positions:
            end = min(end, rows.positions.get(part, 0))
        look = _Look(run, before, rows, {}, end)
        floor, why = await look.floor()
        letters = sum(not each for each in look.stays.values())
        if not run.is_dry:
            await purge(run.ports, part, floor=floor, clock=run.clock, check=run.check)
        says = f"the rest stays for {why}" if why else ""
        return StepReport(step=self.name, gone={"letters": letters}, says=says)


@dataclass(frozen=True)
class _Look:
    """What stays of dead letters."""

    run: RetentionRun
    before: datetime
    rows: KnownRows
    stays: dict[str, str]
    """Letter → why it stays; empty: it is over."""
    end: int
    """Up to where tables and reactor have read them."""

    async def floor(self) -> tuple[int, str]:
        """Return the first sequence that stays, and what keeps it; empty: there is nothing else."""
        # What is gone comes back from nowhere: what is held by now counts.
        state = await read_state(self.run.ports, clock=self.run.clock)
        after = 0
        while page := await self._page(after):
            self.run.check()
            for record in page:
                if record.subject not in self.stays:
                    records = await self.run.ports.log.read(record.subject)
                    letter = fold(records)
                    held = await _held(self.run.ports, letter.lettered, state.holds.reasons)
                    why = self._why(letter, newest=records[-1].seq if records else 0)
                    self.stays[record.subject] = why or ", ".join(held)
                if why := self.stays[record.subject]:
                    return record.seq, why
            after = page[-1].seq
        return after + 1, ""

    async def _page(self, after: int) -> Sequence[Recorded]:
        log = self.run.ports.log
        return await log.page(Stream.DEAD, after=after, up_to=self.end, most=PAGE_MAX)

    def _why(self, letter: DeadLetter, *, newest: int) -> str:
        if newest > self.end:  # guard: unread-end-keeps-letter
            return _UNREAD
        if letter.lettered is not None and letter.settled is None:  # guard: waiting-letter-stays
            return _WAITS
        settled_at, since = letter.settled_at, self.rows.letters_since
        if settled_at is None:
            return ""
        if settled_at >= self.before:  # guard: young-letter-stays
            return _YOUNG
        if since is not None and settled_at >= since - SKEW:  # guard: letter-with-a-row-stays
            return _ROWS
        return ""


async def _held(
    ports: Ports, letter: DeadLettered | None, reasons: Callable[..., Sequence[str]]
) -> Sequence[str]:
    """Return by what a letter is held: by itself, or as its episode is."""
    if letter is None:
        return ()
    subject_id = ""
    if letter.episode_id:
        records = await ports.log.read(ports.stack.episode(letter.episode_id))
        opened = episode.fold(records).opened
        subject_id = opened.trigger.entity_id if opened is not None else ""
    # guard: held-letter-stays
    return reasons(actor_id=letter.actor_id, episode_id=letter.episode_id, subject_id=subject_id)
