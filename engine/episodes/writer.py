"""`JournalWriter`: writes one episode's journal, in order, with one append in flight.

What is recorded while an append is in flight goes into the next commit, and `barrier` waits until
everything is durable. So a run of quick steps costs one commit, and no side effect happens before
the journal has what led to it. The first commit is the fence: after it no other node can append.
Just before it the attempt makes its claim, whose revision the start carries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from engine.episodes.attempt import Attempt, AttemptState
from engine.episodes.episode import Command, Episode, decide, evolve
from engine.episodes.service_level import EpisodeTimes, judge
from streams.clock import Clock
from streams.errors import StreamError, TooLarge, UnknownOutcome, VersionConflict
from streams.model.events import EpisodeEvent, EpisodeFinished, EpisodeStarted
from streams.ports.log import Commit, EventLog, Recorded
from streams.tracing import traceparent

EVENTS_PER_COMMIT_MAX: Final = 64
"""Most events in one commit; a commit must fit in one message."""


class JournalWriter:
    """The one writer of an episode's journal, for one attempt."""

    def __init__(
        self,
        log: EventLog,
        clock: Clock,
        *,
        subject: str,
        episode: Episode,
        version: int,
        writer_id: str,
        attempt: Attempt,
        times: EpisodeTimes | None = None,
    ) -> None:
        """Continue from `episode` at `version`.

        Args:
            writer_id: unique for ever; commit ids start with it.
            attempt: makes its claim before the first commit; what that raises, `barrier` raises,
                and nothing is written. It is fenced as soon as the first commit is durable.
            times: of an episode with a service level, so far: its end tells whether it was met.
        """
        self.episode = episode
        self.version = version
        self._attempt = attempt
        self._log, self._clock, self._subject, self._writer_id = log, clock, subject, writer_id
        self._times = times
        self._commits = 0
        self._pending: list[EpisodeEvent] = []
        self._soon: asyncio.Handle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        """Branches of a function may come to a barrier at the same time."""
        self._broken: StreamError | None = None
        """Why an append failed: nothing is written after it, for it may have happened."""
        self._in_doubt: Commit | None = None
        """What was canceled while it was sent, and may be stored: it is sent again first."""

    def record(self, *commands: Command, wall_used_s: float | None = None) -> None:
        """Decide the events of `commands` and start to write them; an earlier append may fail.

        `wall_used_s` is how long the episode has run by now, over all attempts; None: not longer.
        """
        if wall_used_s is not None:
            self.episode = replace(self.episode, wall_used_s=wall_used_s)
        for command in commands:
            event = decide(self.episode, command)
            self.episode = evolve(self.episode, event)
            self._pending.append(event)
        if self._writing is not None and self._writing.done():
            self._writing.result()  # A refused append stops the episode here, not at a barrier.
            self._writing = None
        if self._writing is None and self._soon is None:
            self._soon = asyncio.get_running_loop().call_soon(self._write_beside)

    async def barrier(self) -> None:
        """Wait until everything recorded is durable.

        If no write is in flight it is made here: a task would only cost turns of the loop.

        Raises:
            VersionConflict: another node has taken the episode over. Stop; write nothing more.
            Busy, LeaseLost: before the fence, the claim could not be made or relied on.
            TooLarge: an event does not fit in one message.
        """
        writing = self._writing
        if writing is None:
            self._not_soon()
            await self._write()
            return
        await asyncio.shield(writing)
        if self._writing is writing:  # guard: newer-write-not-forgotten
            self._writing = None

    def check_newest(self, newest: Recorded | None) -> None:
        """Raise `VersionConflict` unless `newest`, the episode's last record, is known or ours.

        What is on its way while branches of a function go on is ours, too.
        """
        is_known = newest is not None and newest.seq == self.version
        is_ours = newest is not None and newest.commit.id.startswith(f"{self._writer_id}-")
        if not is_known and not is_ours:  # guard: report-of-own-branch
            raise VersionConflict(self._subject, expected=self.version)

    async def close(self) -> None:
        """Stop writing. What is not durable by now is left to the next owner."""
        self._not_soon()
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)
            self._writing = None

    def _write_beside(self) -> None:
        self._soon = None
        self._writing = asyncio.create_task(self._write())

    def _not_soon(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None

    async def _write(self) -> None:
        async with self._turn:  # guard: branches-write-in-turn
            await self._write_pending()

    async def _write_pending(self) -> None:
        most = EVENTS_PER_COMMIT_MAX
        if self._broken is not None:
            raise self._broken
        while self._pending:
            if self._in_doubt is None:
                await self._secure(self._pending[:most])
            commit = self._in_doubt or self._commit(tuple(self._pending[:most]))
            try:
                self.version = await self._append(commit)
            except TooLarge:
                if len(commit.events) == 1:
                    raise
                most = len(commit.events) // 2
            except StreamError as error:
                self._broken = error  # guard: failed-append-stops-branches
                raise
            except asyncio.CancelledError:
                self._in_doubt = commit  # guard: cancelled-send-sent-first
                raise
            else:
                del self._pending[: len(commit.events)]
                if self._attempt.state is not AttemptState.FENCED:
                    await self._attempt.note_fenced()

    async def _secure(self, events: Sequence[EpisodeEvent]) -> None:
        """Make the claim if it is needed; whether one was made is not found out a second time."""
        is_fenced = self._attempt.state is AttemptState.FENCED
        try:
            # guard: claim-trusted-at-fence
            await self._attempt.claim_for(events, has_outputs_left=bool(self.episode.outputs_left))
        except asyncio.CancelledError:
            # guard: cancelled-claim-unrelied
            self._broken = UnknownOutcome(self._subject, detail="canceled while it was claimed")
            raise
        if not is_fenced:
            self._sign()

    def _sign(self) -> None:
        """Put what stands for the claim into the start, which was recorded before there was one."""
        claim = self._attempt.claim
        self._pending = [
            replace(event, claim_revision=claim.revision, node_lease_since=claim.covered_since)
            if isinstance(event, EpisodeStarted)
            else event
            for event in self._pending
        ]

    def _commit(self, events: tuple[EpisodeEvent, ...]) -> Commit:
        self._commits += 1
        at = self._clock.now()
        if self._times is not None:
            self._times, events = judge(self._times, events, at=at)
        id_ = f"{self._writer_id}-{self._commits}"
        return Commit(id=id_, at=at, events=events, trace=traceparent())

    async def _append(self, commit: Commit) -> int:
        """Return the version after `commit`, which is stored once."""
        try:
            version = await self._log.append(self._subject, commit, after=self.version)
        except VersionConflict:
            if self._in_doubt is None:
                raise
            newest = await self._log.last(self._subject)
            if newest is None or newest.commit.id != commit.id:  # guard: stored-commit-is-own
                raise
            version = newest.seq
        self._in_doubt = None
        end = commit.events[-1]
        if self._times is not None and isinstance(end, EpisodeFinished):
            self.episode = replace(self.episode, finished=end)
        return version
