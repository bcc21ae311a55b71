"""`OutputStore`: the log of one output, read and appended to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Final

from engine.outputs.output import UNPROPOSED, Output, decide, evolve, fold
from engine.validation import backoff_s
from streams.clock import Clock
from streams.errors import Unavailable, VersionConflict
from streams.model.events import (
    OutputApproved,
    OutputCanceled,
    OutputEvent,
    OutputFailed,
    OutputForgone,
    OutputProposed,
    OutputRejected,
)
from streams.ports.all import Ports
from streams.ports.log import START, Commit, Recorded
from streams.tracing import traceparent

READS_MAX: Final = 10
"""Reads of a log whose end a replica holds later than the leader, in up to 2 s."""

READ_S: Final = 0.01
"""Pause after the first of them, in seconds; it doubles each time."""

READ_MAX_S: Final = 0.5

AMENDS_MAX: Final = 8
"""Most tries to add to an output that others add to at the same time."""


class Overtaken(Exception):
    """Somebody else has added to an output since it was read. Read it again, and rule again."""


class Proposal:
    """One proposal of an output, and all that has happened to it."""

    def __init__(
        self, proposed: OutputProposed, happened: Sequence[tuple[OutputEvent, int, datetime]]
    ) -> None:
        """Take what `happened` to it, from `proposed` on."""
        self.proposed = proposed
        self.history = [(event, seq) for event, seq, _ in happened]
        """Each event, and where it is on the log."""
        self.output: Output = UNPROPOSED
        """What it has come to."""
        for event, _, at in happened:
            self.output = evolve(self.output, event, at=at)

    def told_until(self, version: int) -> int:
        """Return up to where the world has been told of this, if it was found at `version`.

        Whoever wrote a decision down may have died before they told of it. Whoever goes on with the
        output from there tells of it once more, and who comes after them finds more than that.
        """
        found = [(event, seq) for event, seq in self.history if seq <= version]
        own = [each for each in found if not isinstance(each[0], OutputForgone)]
        return own[-1][1] - 1 if own and _is_decision(own[-1][0]) else version


class OutputStore:
    """An output as its log stands, as far as we know it."""

    def __init__(self, ports: Ports, clock: Clock, key: str, *, writer_id: str) -> None:
        """Know nothing, which is right for what nobody has proposed.

        Args:
            ports: of the stack.
            clock: stamps what is added.
            key: the output's.
            pen: unique for ever to this writer; commit ids start with it.
        """
        self.key = key
        self.output: Output = UNPROPOSED
        self.version = START
        self._happened: list[tuple[OutputEvent, int, datetime]] = []
        """All that has: each event, where it is on the log, and when it was recorded."""
        self.since: int | None = None
        """The version at which it was first read, or added to unread; None: it was neither."""
        self._ports, self._clock, self._writer_id = ports, clock, writer_id
        self._subject = ports.stack.output(key)
        self._commits = 0

    @property
    def history(self) -> Iterable[tuple[OutputEvent, datetime]]:
        """All that has happened to it, as far as that is known, and when."""
        return ((event, at) for event, _, at in self._happened)

    async def read(self) -> None:
        """Learn what the log says by now, up to what its leader holds."""
        last = await self._ports.log.last(self._subject)
        records = await self._up_to(last.seq) if last else ()
        self.output = fold(records)
        self.version = records[-1].seq if records else START
        self.since = self.version if self.since is None else self.since
        self._happened = [
            (event, each.seq, each.commit.at) for each in records for event in _events(each)
        ]

    async def append(self, *events: OutputEvent) -> None:
        """Add `events` to the log, in one commit.

        Raises:
            Rejected: they do not fit what we know.
            VersionConflict: someone else has added to it since it was read. Read it again.
            TooLarge, Unwritable: the log cannot keep them.
        """
        now, after = self._clock.now(), self.output
        for event in events:
            after = evolve(after, decide(after, event), at=now)
        self._commits += 1
        commit = Commit(
            id=f"{self._writer_id}-{self._commits}", at=now, events=events, trace=traceparent()
        )
        before = self.version
        self.version = await self._ports.log.append(self._subject, commit, after=before)
        self.since = before if self.since is None else self.since
        self.output = after
        self._happened += ((event, self.version, now) for event in events)

    async def write(self, *events: OutputEvent) -> None:
        """As `append`, for those who go on if others were faster.

        Raises:
            Overtaken: someone else has added to it since it was read.
        """
        try:
            await self.append(*events)
        except VersionConflict as error:
            raise Overtaken from error

    async def amend(self, ruled: Callable[[Output], OutputEvent | None]) -> bool:
        """Read it, add what a rule makes of it, and return whether it makes anything of it.

        Args:
            ruled: the rule; it is asked again if others were faster.
        """
        for _ in range(AMENDS_MAX):
            await self.read()
            event = ruled(self.output)
            if event is None:
                return False
            try:
                await self.write(event)
            except Overtaken:
                continue
            return True
        raise Unavailable(f"output {self.key!r}", detail="others write to it at the same time")

    def proposal_of(self, episode_id: str) -> Proposal | None:
        """Return the newest proposal of an episode, though others may have proposed it anew since.

        None: the episode has proposed nothing.
        """
        begins = [at for at, (event, *_) in enumerate(self._happened) if _is_proposal(event)]
        for begin, end in reversed(list(pairwise([*begins, len(self._happened)]))):
            event = self._happened[begin][0]
            if isinstance(event, OutputProposed) and event.episode_id == episode_id:
                return Proposal(event, self._happened[begin:end])
        return None

    async def _up_to(self, seq: int) -> Sequence[Recorded]:
        for tries in range(1, READS_MAX + 1):
            records = await self._ports.log.read(self._subject)
            if records and records[-1].seq >= seq:
                return records
            pause_s = backoff_s(tries, first_s=READ_S, most_s=READ_MAX_S)
            await self._clock.sleep(pause_s)
        raise Unavailable(f"read {self._subject}", detail=f"no replica shows commit {seq} yet")


def _events(record: Recorded) -> Iterable[OutputEvent]:
    return (event for event in record.commit.events if isinstance(event, OutputEvent))


def _is_proposal(event: OutputEvent) -> bool:
    return isinstance(event, OutputProposed)


def _is_decision(event: OutputEvent) -> bool:
    """Return whether `event` may be by somebody who does not carry the output."""
    match event:
        case OutputApproved() | OutputRejected() | OutputCanceled():
            return True
        case OutputFailed(attempt=attempt):
            return attempt == 0
        case _:
            return False
