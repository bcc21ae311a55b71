"""Episodes: what actors do and did; opening, forking and ending them by hand."""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from projections.episodes import is_whole, shown_result
from projections.postgres import reader
from projections.postgres.query_result import ROWS_MAX
from projections.records import (
    EpisodeCause,
    EpisodeRecord,
    EpisodeSummary,
    FailureGroup,
    StepRow,
    TimelineEntry,
    record_of,
)
from streams.errors import StreamError
from streams.json import JsonObject
from streams.model.events import EpisodeEvent, StepRecorded
from streams.model.outputs import OutputOutcome
from streams.model.triggers import LogStrategy, Mode, Overrides
from streams.ports.all import Ports
from streams.ports.domain_events import HOPS_MAX
from vigil.asking.deltas import HeardDeltas, row_of_silence
from vigil.asking.rows import ENDS, LOOK_S, find_id, not_found, require
from vigil.client.connections import Connections
from vigil.client.page import (
    EPISODE_STATUSES,
    LIMIT_MAX,
    Page,
    PagedList,
    check_past,
    check_time,
    checked_one_of,
)
from vigil.errors import Mistake, NotFound, Trouble, told
from vigil.settings import WAIT_S

if TYPE_CHECKING:
    from engine.agents.prompts.model_prompt import ModelPrompt
    from engine.app.actor import Logging
    from engine.operations.replay import Frame
    from projections.postgres.pool import Pool
    from projections.postgres.query_result import Row
    from projections.postgres.reader import OneOrMore
    from streams.ports.log import Recorded
    from streams.subjects import Stack
    from vigil.asking.episode_diff import EpisodeDiff

EPISODES: Final = PagedList(
    "episodes",
    EpisodeSummary,
    reader.list_episodes,
    {"started_at": datetime | None, "queued_at": datetime, "episode_id": UUID},
)
EPISODES_AT: Final = PagedList(
    "episodes then",
    EpisodeSummary,
    reader.list_episodes_at,
    {"queued_at": datetime, "episode_id": UUID},
)
"""Episodes as they were at a time."""

STEPS: Final = PagedList("steps", StepRow, reader.list_steps, {"step_no": int})
TIMELINE: Final = PagedList("timeline", TimelineEntry, reader.list_timeline, {"position": int})

OPENED_S_MAX: Final = 10.0
"""How long an episode may be missing, in seconds: it may have been fired a moment ago."""

ROUNDS_MAX: Final = 100
"""Most questions for the episodes of an actor."""

TOLD_EVERY_S: Final = 1.0
"""Between two lines of progress, in seconds."""

HISTORIES_MAX: Final = 1_000
"""Most histories that one call returns."""

ENDED_BY_THEMSELVES: Final = ("done", "failed", "partially_failed")
"""The statuses of episodes that nobody has canceled."""

QUIET: Final = (LogStrategy.NONE, LogStrategy.SUMMARY_ONLY)
"""Log strategies under which nobody sees what models answer."""

UNKNOWN: Final = ""
"""Status of an episode that is not on the journal."""

PARKED: Final = "parked"
"""Status of those of the blocked episodes that wait for other code."""


class EpisodeReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """An episode that was asked for."""

    episode_id: str
    actor_id: str
    is_new: bool = True
    used: str = ""
    """When its idempotency key was used before, in words; empty: it was not."""
    obstacle: str = ""
    """Why nothing begins now, in words; empty: something does."""


class ForkEachOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one of several forks."""

    forked_from: str
    episode_id: str
    """Empty: it was refused."""
    refused: str


class EpisodeLog(msgspec.Struct, frozen=True, kw_only=True):
    """The log of an episode, as far as people may see it."""

    rows: Sequence[dict[str, object]]
    """A row for each line, which has the line's text as `line`."""
    why_none: str = ""
    """Why there is no line, in words."""


FAILURES_MAX: Final = 10_000
"""Most failed episodes that are put together: some hundred milliseconds, as the step that failed is
looked up for each."""


NEWEST_MAX: Final = 1_000
"""How many episodes of each status `count_newest` looks at."""


class NewestCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the newest episodes of a status fit."""

    status: str
    episodes: int
    is_more: bool
    """Whether there are more of the status than were looked at, so that more may fit."""


class EpisodeSpan(msgspec.Struct, frozen=True, kw_only=True):
    """How many episodes have started in a span of time."""

    since: datetime
    counts: Mapping[str, int]
    """Status → how many of them have it now."""


class _Counted(msgspec.Struct, frozen=True, kw_only=True):
    since: datetime
    status: str
    episodes: int


@dataclass(frozen=True)
class EpisodeToCancel:
    """An episode, and its status."""

    episode_id: UUID
    actor_id: str
    status: str
    """Empty: there is no such episode."""

    @property
    def is_open(self) -> bool:
        """Whether it can still be canceled."""
        return self.status not in {UNKNOWN, *ENDS}

    @property
    def outlook(self) -> str:
        """What becomes of it, in words: for good, or once a node has handled the request."""
        return f"{self.status}, to be canceled" if self.is_open else self.status

    def as_row(self) -> Row:
        """Return it as programs read it."""
        return {**vars(self), "episode_id": str(self.episode_id)}


def silent(_: str) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class EpisodeCalls:
    """Calls about episodes: `client.episodes`.

    An episode is named by its id, or so much of its beginning that it is one; a beginning that
    fits several is a `Mistake`, and one that fits none is `NotFound`.
    """

    _connections: Connections

    async def find(self, id: UUID | str) -> UUID:
        """Return the id of an episode whose id alone begins so; a whole id is not looked up.

        Raises:
            Mistake: it can be no such id, or is the beginning of several.
            NotFound: there is no such episode.
        """
        if isinstance(id, UUID):
            return id
        return await find_id(
            self._connections.rows,
            self._connections.stack,
            id,
            of="episode",
            among=reader.list_episode_ids,
            remedy="`vigil episodes list` shows those that there are",
        )

    async def latest(self) -> UUID:
        """Return the id of the episode that was opened last; `NotFound`: there is none."""
        async with self._connections.rows() as pool:
            found = await reader.latest_episode(pool, self._connections.stack)
        if found is None:
            raise NotFound(f"there is no episode in stack {self._connections.stack.name}")
        return found

    async def list(
        self,
        *,
        status: OneOrMore | None = None,
        actor: OneOrMore | None = None,
        expectation: str | None = None,
        subject: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        error_class: str | None = None,
        at: datetime | None = None,
        after: UUID | str | None = None,
        reverse: bool = False,
        limit: int = 50,
    ) -> Page[EpisodeSummary]:
        """Return the episodes that fit all that is given: queued first, then the latest started.

        Args:
            status: `queued`, `running`, `blocked`, `done`, `failed`, `partially_failed` or
                `canceled`, or several of them; None: any.
            actor: one, or several.
            subject: the id of what they are about.
            since: only those that were opened then or later.
            until: only those that were opened before.
            error_class: only those that ended with it, such as `crash`.
            at: as they were then, the latest opened first; None: as they are. None where nobody
                knows any more: what one that had started and not ended had used, its model and
                agent, the metadata of one that had not ended, and places in a queue. As of now,
                too: `journal_seq`. Of an episode that nodes gave back or that waited for its
                outputs several times, only the last time is known: before, it is `running`.
            after: the `next` of a page: what follows it. Or, without `at`, an id: what the list has
                now after that episode.
            reverse: from the other end of the list: the first that started comes first.

        Raises:
            Mistake: there is no such `status`, a time has no time zone, `at` is yet to come, or
                `after` is neither.
            NotFound: there is no episode of the id `after`.
        """
        status = checked_one_of("status", status, EPISODE_STATUSES)
        check_time("since", since)
        check_time("until", until)
        check_past(at, self._connections.clock.now())
        if at is not None:
            return await EPISODES_AT.page(
                self._connections,
                after=after,
                limit=limit,
                at=at,
                status=status,
                actor=actor,
                expectation=expectation,
                subject=subject,
                since=since,
                until=until,
                error_class=error_class,
                reverse=reverse,
            )
        return await EPISODES.page(
            self._connections,
            after=after,
            limit=limit,
            row_of=self._row,
            status=status,
            actor=actor,
            expectation=expectation,
            subject=subject,
            since=since,
            until=until,
            error_class=error_class,
            reverse=reverse,
        )

    async def count(
        self,
        *,
        actor: OneOrMore | None = None,
        expectation: str | None = None,
        subject: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        at: datetime | None = None,
    ) -> Mapping[str, int]:
        """Return status → how many of the episodes that fit have it; arguments are as for `list`.

        Raises:
            Mistake: a time has no time zone, or `at` is yet to come.
        """
        check_time("since", since)
        check_time("until", until)
        check_past(at, self._connections.clock.now())
        async with self._connections.rows() as pool:
            if at is not None:
                return await reader.count_episodes_at(
                    pool,
                    self._connections.stack,
                    at=at,
                    actor=actor,
                    expectation=expectation,
                    subject=subject,
                    since=since,
                    until=until,
                )
            return await reader.count_episodes(
                pool,
                self._connections.stack,
                actor=actor,
                expectation=expectation,
                subject=subject,
                since=since,
                until=until,
            )

    async def count_newest(
        self,
        *,
        actor: OneOrMore | None = None,
        expectation: str | None = None,
        at: datetime | None = None,
    ) -> Mapping[str, NewestCount]:
        """Return status → how many of the newest 1,000 episodes with it fit.

        However many there are, this takes some milliseconds; `count` looks at all.

        Args:
            at: as they were at that time, of the 1,000 that fit and were opened last before it; a
                status that none of them had is left out.

        Raises:
            Mistake: `at` has no time zone, or is yet to come.
        """
        check_past(at, self._connections.clock.now())
        stack, most = self._connections.stack, NEWEST_MAX
        async with self._connections.rows() as pool:
            if at is not None:
                rows = await reader.count_newest_episodes_at(
                    pool, stack, at=at, actor=actor, expectation=expectation, most=most
                )
            else:
                rows = await reader.count_newest_episodes(
                    pool,
                    stack,
                    statuses=EPISODE_STATUSES,
                    actor=actor,
                    expectation=expectation,
                    most=most,
                )
        found = msgspec.convert(rows, list[NewestCount])
        return {each.status: each for each in found}

    async def count_over_time(
        self,
        *,
        since: datetime,
        span_s: float,
        actor: str | None = None,
        expectation: str | None = None,
    ) -> Sequence[EpisodeSpan]:
        """Return how many episodes have started in each span of time since then, in order.

        Args:
            since: the beginning of the first span.
            span_s: the length of a span, in seconds, at least 1.
            actor: only of this one; None: of all.
            expectation: as `actor`.

        Raises:
            Mistake: a time has no time zone, or a span is too short.
        """
        check_time("since", since)
        if span_s < 1:
            raise Mistake(f"span_s: {span_s!r} is less than 1")
        async with self._connections.rows() as pool:
            rows = await reader.count_episodes_over_time(
                pool,
                self._connections.stack,
                since=since,
                span_s=span_s,
                actor=actor,
                expectation=expectation,
            )
        by_time: dict[datetime, dict[str, int]] = {}
        for each in msgspec.convert(rows, list[_Counted]):
            by_time.setdefault(each.since, {})[each.status] = each.episodes
        return [EpisodeSpan(since=at, counts=counts) for at, counts in by_time.items()]

    async def failures(
        self,
        *,
        actor: OneOrMore | None = None,
        expectation: str | None = None,
        since: datetime | None = None,
        newest: int = FAILURES_MAX,
        limit: int = 50,
    ) -> Sequence[FailureGroup]:
        """Return failed episodes, those that failed alike as one, the last failed first.

        They failed alike if they are of the same expectation, with the same class of error, and the
        last step that failed called the same tool.

        Args:
            actor: one, or several.
            since: only those that started then or later.
            newest: how many are looked at, of those that started last: from 1 to 10,000. A thousand
                take some ten milliseconds.

        Raises:
            Mistake: a time has no time zone, or `newest` is out of range.
        """
        check_time("since", since)
        if not 1 <= newest <= FAILURES_MAX:
            raise Mistake(f"newest: {newest:,} is not from 1 to {FAILURES_MAX:,}")
        async with self._connections.rows() as pool:
            rows = await reader.list_failures(
                pool,
                self._connections.stack,
                actor=actor,
                expectation=expectation,
                since=since,
                episodes_max=newest,
                limit=limit,
            )
        return [record_of(each, FailureGroup) for each in rows]

    async def get(self, id: UUID | str) -> EpisodeRecord:
        """Return one episode."""
        return record_of(await self._row(id), EpisodeRecord)

    async def describe(self, id: UUID | str, *, at: datetime | None = None) -> Row:
        """Return everything about one episode, as `vigil episodes show --json` prints it.

        `waits_for` is a row or None, `findings` are what it did to findings, `outputs` are rows of
        those that it proposed, each with its `outcome` once that is settled, and `children` are
        those that it has started, theirs, and so on.

        Args:
            at: as all of that was then; None: as it is. None where nobody knows any more, as for
                `list`.

        Raises:
            NotFound: there is no such episode, or there was none by then.
            Mistake: `at` has no time zone or is yet to come.
        """
        check_past(at, self._connections.clock.now())
        wanted = await self.find(id)
        if at is not None:
            return await self._described_at(wanted, at)
        async with self._connections.rows() as pool:
            stack = self._connections.stack
            found = await reader.show_episode(pool, stack, wanted)
            row = require(found, "episode", wanted, stack)
            is_blocked = row["status"] == "blocked"  # guard: asleep-shows-until-when
            block = await reader.show_block(pool, stack, wanted) if is_blocked else None
            is_open = block is not None and block["resolution"] is None
            own = await reader.list_outputs(pool, stack, episode_id=wanted, limit=ROWS_MAX)
            outcomes = msgspec.convert(row["outputs"] or (), tuple[OutputOutcome, ...])
            children = await reader.list_children(pool, stack, wanted, levels=HOPS_MAX)
            findings = await reader.list_finding_events_of(pool, stack, wanted)
        return row | {
            "waits_for": block if is_open else None,
            "findings": [*findings],
            "outputs": came_to(outcomes, own),
            "children": [*children],
        }

    async def _described_at(self, wanted: UUID, at: datetime) -> Row:
        async with self._connections.rows() as pool:
            stack = self._connections.stack
            found = await reader.show_episode_at(pool, stack, wanted, at=at)
            row = require(found, "episode", wanted, stack)
            is_blocked = row["status"] == "blocked"
            block = await reader.show_block_at(pool, stack, wanted, at=at) if is_blocked else None
            own = await reader.list_outputs_at(
                pool, stack, at=at, episode_id=wanted, limit=ROWS_MAX
            )
            outcomes = msgspec.convert(row["outputs"] or (), tuple[OutputOutcome, ...])
            children = await reader.list_children_at(pool, stack, wanted, at=at, levels=HOPS_MAX)
            findings = await reader.list_finding_events_of(pool, stack, wanted)
        return row | {
            "waits_for": block,
            "findings": [each for each in findings if _is_by(each["at"], at)],
            "outputs": came_to(outcomes, own),
            "children": [*children],
        }

    async def causal_chain(self, id: UUID | str, *, depth: int = 10) -> Sequence[EpisodeCause]:
        """Return an episode and what led to it, step by step, up to `depth` steps.

        What led to a child is its parent, to a fork the episode that it was made of, and to any
        other the episode that the engine's event tells of, such as that of `finding.raised`; for an
        item of a workflow, of the event that started the instance. The last one was woken from
        outside, by time or by a person, or by an episode that the rows do not have.

        Raises:
            NotFound: the rows have no such episode.
        """
        wanted = await self.find(id)
        async with self._connections.rows() as pool:
            stack = self._connections.stack
            found = await reader.list_episode_causes(pool, stack, wanted, depth=depth)
            rows = require(found, "episode", wanted, stack)
            return msgspec.convert(rows, tuple[EpisodeCause, ...])

    async def steps(
        self, id: UUID | str, *, after: str | None = None, limit: int = LIMIT_MAX
    ) -> Page[StepRow]:
        """Return the steps of one episode, in order, as far as people may see them.

        Args:
            after: the `next` of a page: only what follows it.

        Raises:
            Mistake: `after` is no such `next`.
        """
        wanted = (await self._row(id))["episode_id"]
        return await STEPS.page(self._connections, wanted, after=after, limit=limit)

    async def timeline(
        self,
        id: UUID | str,
        *,
        at: datetime | None = None,
        after: str | None = None,
        limit: int = LIMIT_MAX,
    ) -> Page[TimelineEntry]:
        """Return all that one episode did, in order, as far as people may see it.

        Args:
            at: only what it had done by then; None: all.
            after: the `next` of a page: only what follows it.

        Raises:
            Mistake: `after` is no such `next`, or `at` has no time zone or is yet to come.
        """
        check_past(at, self._connections.clock.now())
        wanted = (await self._row(id))["episode_id"]
        return await TIMELINE.page(self._connections, wanted, at=at, after=after, limit=limit)

    async def log(
        self, id: UUID | str, *, strategy: Logging | LogStrategy | None = None
    ) -> EpisodeLog:
        """Return what one episode did, as far as its log strategy lets people see it.

        Args:
            strategy: how much to return, of what is kept; None: the episode's own.

        Raises:
            Mistake: there is no such `strategy`.
        """
        if strategy is not None and strategy not in {*LogStrategy}:
            raise Mistake(f"strategy: {strategy!r} is not one of {', '.join(LogStrategy)}")
        wanted = await self.find(id)
        async with self._connections.rows() as pool:
            stack = self._connections.stack
            found = await reader.show_episode(pool, stack, wanted)
            episode = require(found, "episode", wanted, stack)
            lines = await reader.list_log_lines(pool, stack, wanted, strategy=strategy)
        return EpisodeLog(rows=lines, why_none="" if lines else why_silent(episode, strategy))

    async def tail(
        self,
        id: UUID | str,
        *,
        strategy: Logging | LogStrategy | None = None,
        timeout_s: float = WAIT_S,
        deltas: bool = False,
    ) -> AsyncIterator[Row]:
        """Yield the lines of an episode's log, once each, until it has ended.

        Args:
            strategy: as for `log`.
            timeout_s: longest wait for its end, in seconds.
            deltas: between them, yield what models answer while they do, if their agents are run
                with `stream=True`: rows whose `kind` is `delta`, each with the `path` of its step,
                the `attempt` of the episode, its `place` in the answer, from 0, the `text` that
                follows, the `tools` of calls that begin then, and the `end` of the last one, `done`
                or `failed`. `missing` is how many were lost before it; if one `is_anew`, what came
                before is of an attempt that has died. Where NATS cannot be heard, a row whose
                `kind` is `no_deltas` says `why`, and the log goes on.

        Raises:
            NotFound: it is not there after 10 s.
            Trouble: it has not ended after `timeout_s`.
        """
        wanted = await self.find(id)
        is_asked = deltas and strategy not in QUIET
        async with AsyncExitStack() as entered:
            heard = None
            if is_asked:
                try:
                    heard = await self._hear(wanted, entered)
                except Trouble as error:  # guard: tail-without-nats
                    yield row_of_silence(str(error))
            rows = self._tailed(wanted, strategy, timeout_s, heard)
            async for row in await entered.enter_async_context(aclosing(rows)):
                yield row

    async def _hear(self, id: UUID, entered: AsyncExitStack) -> HeardDeltas:
        """Return what hears the deltas of an episode until `entered` is left."""
        with told():
            ports = await entered.enter_async_context(self._connections.log(is_reading=True))
            listener = await entered.enter_async_context(ports.deltas.listen(str(id)))
            return HeardDeltas(listener, self._connections.clock)

    async def _tailed(
        self,
        wanted: UUID,
        strategy: Logging | LogStrategy | None,
        timeout_s: float,
        heard: HeardDeltas | None,
    ) -> AsyncGenerator[Row]:
        clock, stack = self._connections.clock, self._connections.stack
        began_s, yielded = clock.monotonic_s(), set[object]()
        while True:
            async with self._connections.rows() as pool:
                episode = await reader.show_episode(pool, stack, wanted)
                # Read after the row: what is missing then comes with the next look.
                lines = await reader.list_log_lines(pool, stack, wanted, strategy=strategy)
            for line in lines:
                if (place := _place(line)) not in yielded:  # guard: tail-prints-once
                    yielded.add(place)
                    yield line
            if episode is not None and episode["status"] in ENDS:
                return
            waited_s = clock.monotonic_s() - began_s
            if episode is None and waited_s >= min(OPENED_S_MAX, timeout_s):
                raise not_found("episode", wanted, stack)
            if waited_s >= timeout_s:
                raise Trouble(f"episode {wanted} has not ended after {timeout_s:g} s")
            if heard is None:
                await clock.sleep(LOOK_S)
                continue
            try:
                async for row in heard.rows(within_s=LOOK_S):
                    yield row
            except StreamError as error:
                heard = None
                yield row_of_silence(str(error))

    async def result(self, id: UUID | str, step_no: int) -> object:
        """Return the result of a step, however large, as far as people may see it.

        Raises:
            NotFound: there is no such step on the journal.
            Trouble: it has failed, may not be shown, or is lost.
        """
        wanted = await self.find(id)
        async with self._connections.log(is_reading=True) as ports:
            return msgspec.json.decode(await _shown(ports, wanted, step_no))

    async def prompt(self, id: UUID | str, step_no: int | None = None) -> ModelPrompt:
        """Return what an agent asked its model in a step, as far as people may see it.

        It is computed from the journal: the instructions, the tools and the settings as they were
        then, and the conversation up to there. What tools hide is hidden there, too, and texts are
        cut as elsewhere. The log strategy of the episode must be `full_debug`.

        Args:
            step_no: the number of the step; None: of the newest that has asked a model. `requests`
                of the answer has the numbers of all of them.

        Raises:
            NotFound: there is no such step on the journal.
            Trouble: it is no request to a model, may not be shown, or is lost.
        """
        wanted = await self.find(id)
        async with self._connections.log(is_reading=True) as ports:
            return await _prompt(ports, str(wanted), step_no)

    async def replay(self, id: UUID | str) -> Sequence[Frame]:
        """Return each event of an episode's journal, and the episode after it.

        Raises:
            NotFound: it is not on the journal.
        """
        from engine.operations.replay import frames as frames_of

        wanted = await self.find(id)
        async with self._connections.log(is_reading=True) as ports:
            frames = list(frames_of(await _journal(ports, str(wanted))))
        return [msgspec.structs.replace(each, event=as_shown(each.event)) for each in frames]

    async def diff(self, left: UUID | str, right: UUID | str) -> EpisodeDiff:
        """Return how two episodes differ, by their journals, as far as people may see them.

        That is their common beginning, the first step that differs, the findings and outputs that
        they asked for, how they ended, and what each cost. Usually one is a fork of the other, or
        both are dry runs; they may be of different actors.

        Raises:
            NotFound: one of them is not on the journal.
        """
        from vigil.asking.episode_diff import diff

        ids = [str(await self.find(each)) for each in (left, right)]
        async with self._connections.log(is_reading=True) as ports:
            first, second = [await _journal(ports, each) for each in ids]
        return diff(first, second)

    async def histories(
        self,
        *,
        actor: str,
        expectation: str | None = None,
        last: int = 100,
        say: Callable[[str], None] = silent,
    ) -> Mapping[str, bytes]:
        """Return id → history of an actor's live episodes that have ended, the newest first.

        A history is a journal with its large results, for `vigil.histories.load`. It is not
        redacted: protect it accordingly. Episodes that were canceled are left out, and those whose
        journal or large results are kept no longer.

        Args:
            last: how many at most, from 1 to 1,000.
            say: called with a line for people about each that is kept no longer.

        Raises:
            Mistake: there can be no such `last`.
        """
        from engine.errors import BadHistory
        from engine.operations.replay import record
        from vigil.asking.requests import in_batches

        if not 1 <= last <= HISTORIES_MAX:
            raise Mistake(f"last: {last:,} is not from 1 to {HISTORIES_MAX:,}")
        ids: list[str] = []
        after: str | None = None
        while len(ids) < last:
            page = await self.list(
                status=ENDED_BY_THEMSELVES,
                actor=actor,
                expectation=expectation,
                after=after,
                limit=last,
            )
            # guard: histories-of-live-episodes
            ids += [str(each.episode_id) for each in page if each.mode == Mode.LIVE]
            after = page.next
            if after is None:
                break
        async with self._connections.log(is_reading=True) as ports:

            async def one(id_: str) -> bytes:
                try:
                    return await record(ports, id_)
                except BadHistory as error:
                    say(f"left out: episode {id_}: {error}")
                    return b""

            found = await in_batches(ids[:last], one)
        return {id_: each for id_, each in zip(ids, found, strict=False) if each}

    async def wait(
        self, id: UUID | str, *, timeout_s: float = WAIT_S, delay_s: float = 0.0
    ) -> EpisodeRecord:
        """Return an episode once it has ended; it need not be opened yet.

        Args:
            delay_s: how long until it begins, which is waited for in any case, in seconds.

        Raises:
            Trouble: it has not ended in time.
        """
        row = await self.describe_end(id, timeout_s=timeout_s, delay_s=delay_s)
        return record_of(row, EpisodeRecord)

    async def describe_end(
        self, id: UUID | str, *, timeout_s: float = WAIT_S, delay_s: float = 0.0
    ) -> Row:
        """Return the same with every column; arguments and errors are as for `wait`."""
        clock = self._connections.clock
        until_s = clock.monotonic_s() + delay_s + timeout_s
        return await self._wait_end(await self.find(id), until_s=until_s, timeout_s=timeout_s)

    async def fire(
        self,
        actor: str,
        expectation: str,
        payload: JsonObject | None = None,
        *,
        reason: str = "",
        by: str | None = None,
        key: str | None = None,
        priority: int = 0,
        at: datetime | None = None,
        dry_run: bool = False,
        overrides: Overrides | None = None,
        metadata: JsonObject | None = None,
        budget: Mapping[str, int | float | str] | None = None,
        revision: int = 0,
        log_strategy: Logging | None = None,
        attempts_max: int = 0,
    ) -> EpisodeReceipt:
        """Open an episode by hand, now or later.

        Args:
            key: idempotency key: the same one opens no second episode.
            priority: episodes with a higher number run earlier.
            at: when, with a time zone; None: now.
            overrides: results that a dry run uses instead of calling tools.
            metadata: to find the episode by.
            budget: limit → what it may use instead of what the expectation says.
            revision: of the actor's definition, to run it on; 0: today's.
            log_strategy: what people may see of it, instead of what is declared.
            attempts_max: crashes that end it, instead of what is declared; 0: that.

        Raises:
            NotFound: nodes are up, and nobody knows the actor, or it has no such expectation.
            Mistake: a value is impossible.
            Trouble: the actor is disabled, or never had the revision.
        """
        from engine.episodes.fire import fire
        from vigil.asking.requests import key_use_of
        from vigil.asking.stack import (
            read_stack,
            require_expectation,
            require_in_force,
            require_plausible,
            require_revision,
            waking_obstacle,
        )

        async with self._connections.log() as ports:
            seen = await read_stack(ports)
            await require_plausible(self._connections.raw_rows, ports, seen, actor)
            await require_in_force(ports, seen, actor)
            require_expectation(seen, actor, expectation)
            await require_revision(ports, actor, revision)
            used = await key_use_of(ports, actor, expectation, key, dry_run=dry_run)
            episode_id = await fire(
                ports,
                actor,
                expectation,
                payload=payload,
                by=self._connections.who(by),
                reason=reason,
                key=key,
                priority=priority,
                at=at,
                dry_run=dry_run,
                overrides=overrides,
                metadata=metadata,
                budget=budget,
                revision=revision,
                log_strategy=log_strategy,
                attempts_max=attempts_max,
            )
            is_over = used is not None and used.is_over
            return EpisodeReceipt(
                episode_id=episode_id,
                actor_id=actor,
                is_new=used is None,
                used="" if used is None else used.in_words,
                obstacle="" if is_over else waking_obstacle(seen, actor),
            )

    async def fork(
        self,
        id: UUID | str,
        *,
        at: int,
        payload: JsonObject | None = None,
        reason: str = "",
        by: str | None = None,
        key: str | None = None,
        dry_run: bool = False,
        overrides: Overrides | None = None,
    ) -> EpisodeReceipt:
        """Open an episode that begins with the first steps of another one.

        Args:
            at: the number of the last step that both have.
            payload: another one for the trigger; None: the same.
            key: idempotency key: the same one opens no second fork. Dry runs have keys of their
                own.
            overrides: results that a dry run uses instead of calling tools.

        Raises:
            NotFound: it is not on the journal.
            Mistake: a value is impossible.
            Trouble: the engine refuses it, as its message says.
        """
        from engine.episodes.fork import fork

        name = self._connections.who(by)

        async def forked(ports: Ports, forked_id: str) -> str:
            return await fork(
                ports,
                forked_id,
                at=at,
                by=name,
                reason=reason,
                payload=payload,
                key=key,
                dry_run=dry_run,
                overrides=overrides,
            )

        return await self._open(id, forked)

    async def settle(
        self,
        id: UUID | str,
        settlement: str,
        *,
        result: object = None,
        call: str = "",
        reason: str = "",
        by: str | None = None,
    ) -> EpisodeReceipt:
        """Say what became of a call of an episode that ended as outcome_unknown, and go on.

        Args:
            settlement: `happened`, `not_happened` or `again`.
            result: with `happened`, what the call has returned.
            call: which call, such as 4.2.1, if several are open in a function.

        Raises as `fork` does.
        """
        from engine.operations.settle import settle

        name = self._connections.who(by)

        async def settled(ports: Ports, settled_id: str) -> str:
            return await settle(
                ports, settled_id, settlement, by=name, reason=reason, result=result, call=call
            )

        return await self._open(id, settled)

    async def fork_each(
        self,
        episodes: Iterable[EpisodeToCancel],
        *,
        at: int,
        reason: str = "",
        by: str | None = None,
        dry_run: bool = False,
    ) -> Sequence[ForkEachOutcome]:
        """Open a fork of each of `episodes`, once however often it is asked for."""
        from engine.episodes.fork import fork
        from engine.errors import Refused
        from vigil.asking.requests import in_batches

        name = self._connections.who(by)
        async with self._connections.log() as ports:

            async def one(each: EpisodeToCancel) -> ForkEachOutcome:
                id_ = str(each.episode_id)
                try:
                    new = await fork(
                        ports,
                        id_,
                        at=at,
                        by=name,
                        reason=reason,
                        key=f"each:{id_}:{at}",
                        dry_run=dry_run,
                    )
                except Refused as refused:
                    return ForkEachOutcome(forked_from=id_, episode_id="", refused=str(refused))
                return ForkEachOutcome(forked_from=id_, episode_id=new, refused="")

            return await in_batches([*episodes], one)

    async def cancel(
        self, *ids: UUID | str, reason: str = "", by: str | None = None
    ) -> Sequence[EpisodeToCancel]:
        """Request that episodes be canceled, be they queued, running or blocked; return as it was.

        One that has ended stays as it is, and one that there is not has an empty status. An open
        one is canceled once a node has handled the request: `wait` for that.

        Raises:
            Mistake: a text cannot be kept.
        """
        found = await self.read([await self.find(each) for each in ids])
        await self.cancel_each(found, reason=reason, by=by)
        return found

    async def read(self, ids: Iterable[UUID]) -> Sequence[EpisodeToCancel]:
        """Return the status of each episode as its journal has it."""
        from engine.episodes.episode import fold
        from vigil.asking.requests import in_batches

        async with self._connections.log() as ports:

            async def one(id_: UUID) -> EpisodeToCancel:
                episode = fold(await ports.log.read(ports.stack.episode(str(id_))))
                if episode.opened is None:
                    return EpisodeToCancel(id_, "", UNKNOWN)
                return EpisodeToCancel(id_, episode.opened.actor_id, episode.status.value)

            return await in_batches(list(dict.fromkeys(ids)), one)

    async def unended(
        self,
        actor: str,
        *,
        expectation: str | None = None,
        status: str | None = None,
        say: Callable[[str], None] = silent,
    ) -> Sequence[EpisodeToCancel]:
        """Return all episodes of an actor that have not ended as far as rows show, oldest first.

        Args:
            status: `queued`, `running`, `blocked`, or `parked` for those of the blocked that wait
                for other code; None: any.
            say: called with a line for people if there are too many for one answer.

        Raises:
            NotFound: there are none, and nobody knows the actor or the expectation.
        """
        async with self._connections.rows() as pool:
            found = await read_unended(
                pool,
                self._connections.stack,
                actor=actor,
                expectation=expectation,
                status=status,
                say=say,
            )
        if not found:
            from vigil.asking.stack import read_stack, require_expectation, require_known

            async with self._connections.log() as ports:
                seen = await read_stack(ports)
                await require_known(self._connections.raw_rows, ports, seen, actor)
                if expectation is not None:
                    require_expectation(seen, actor, expectation)
        return found

    async def cancel_each(
        self,
        episodes: Sequence[EpisodeToCancel],
        *,
        reason: str = "",
        by: str | None = None,
        say: Callable[[str], None] = silent,
    ) -> None:
        """Request that those of `episodes` that are open be canceled.

        Args:
            say: called with lines for people: how far it is, and what no node can end now.

        Raises:
            Mistake: a text cannot be kept.
        """
        from engine.cluster.members import live_nodes
        from engine.episodes import cancel as requester
        from engine.operations.events.why_unheard import unheard
        from vigil.asking.requests import IN_FLIGHT_MAX, in_batches

        open_, name = [each for each in episodes if each.is_open], self._connections.who(by)
        if not open_:
            return
        clock = self._connections.clock
        async with self._connections.log() as ports:
            asked, told_s = 0, clock.monotonic_s()

            async def one(each: EpisodeToCancel) -> None:
                id_ = str(each.episode_id)
                await requester.cancel(ports, each.actor_id, id_, by=name, reason=reason)

            for at in range(0, len(open_), IN_FLIGHT_MAX):
                asked += len(await in_batches(open_[at : at + IN_FLIGHT_MAX], one))
                if clock.monotonic_s() - told_s >= TOLD_EVERY_S:
                    told_s = clock.monotonic_s()
                    say(f"asked for {asked:,} of {len(open_):,}")
            nodes = await live_nodes(ports.gates)
            for actor in sorted({each.actor_id for each in open_}):
                # To end an episode a node needs neither its revision nor its expectation.
                if why := unheard(nodes, actor):
                    say(f"vigil: {why}")

    async def wait_each(
        self, episodes: Iterable[EpisodeToCancel], *, timeout_s: float = WAIT_S
    ) -> Sequence[EpisodeToCancel]:
        """Return `episodes` once all of them have ended, each with its status then.

        Raises:
            Trouble: one has not ended after `timeout_s`.
        """
        until_s = self._connections.clock.monotonic_s() + timeout_s
        found: list[EpisodeToCancel] = []
        for each in episodes:
            status = each.status
            if each.is_open:
                row = await self._wait_end(each.episode_id, until_s=until_s, timeout_s=timeout_s)
                status = str(row["status"])
            found.append(EpisodeToCancel(each.episode_id, each.actor_id, status))
        return found

    async def _row(self, id: UUID | str) -> Row:
        wanted = await self.find(id)
        async with self._connections.rows() as pool:
            stack = self._connections.stack
            found = await reader.show_episode(pool, stack, wanted)
            return require(found, "episode", wanted, stack)

    async def _wait_end(self, id_: UUID, *, until_s: float, timeout_s: float) -> Row:
        clock, stack = self._connections.clock, self._connections.stack
        while True:
            async with self._connections.rows() as pool:
                row = await reader.show_episode(pool, stack, id_)
            if row is not None and row["status"] in ENDS:
                return row
            if clock.monotonic_s() >= until_s:
                status = "not opened" if row is None else row["status"]
                raise Trouble(f"episode {id_} is still {status} after {timeout_s:g} s")
            await clock.sleep(LOOK_S)

    async def _open(
        self, id: UUID | str, opened: Callable[[Ports, str], Awaitable[str]]
    ) -> EpisodeReceipt:
        from engine.episodes.episode import fold
        from vigil.asking.stack import read_stack, running_obstacle

        wanted = str(await self.find(id))
        async with self._connections.log() as ports:
            before = fold(await ports.log.read(ports.stack.episode(wanted))).opened
            if before is None:
                raise NotFound(f"no episode {wanted} on the journal of stack {ports.stack.name}")
            new = await opened(ports, wanted)
            actor = before.actor_id
            obstacle = running_obstacle(await read_stack(ports), actor)
            return EpisodeReceipt(episode_id=new, actor_id=actor, obstacle=obstacle)


async def read_unended(
    pool: Pool,
    stack: Stack,
    *,
    actor: str,
    expectation: str | None = None,
    status: str | None = None,
    round_max: int = ROWS_MAX,
    say: Callable[[str], None] = silent,
) -> Sequence[EpisodeToCancel]:
    """Return all episodes of an actor that have not ended as far as the rows show, oldest first.

    `round_max` are asked for at a time; `say` tells if `ROUNDS_MAX` such rounds find not all.
    """
    found: list[EpisodeToCancel] = []
    past: Row | None = None
    for _ in range(ROUNDS_MAX):
        rows = await reader.list_unended_episodes(
            pool,
            stack,
            actor=actor,
            expectation=expectation,
            status=status,
            past=past,
            limit=round_max,
        )
        found += [
            EpisodeToCancel(UUID(str(row["episode_id"])), str(row["actor_id"]), str(row["status"]))
            for row in rows
        ]
        if len(rows) < round_max:  # guard: cancel-all-rounds
            return found
        past = rows[-1]
    say(f"vigil: these are the oldest {len(found):,}; ask again")
    return found


def came_to(outcomes: Iterable[OutputOutcome], own: Iterable[Row]) -> list[Row]:
    """Return a row for each output of an episode, with its `outcome` once that is settled.

    `own` are rows of what it proposed itself: of another's, only the outcome is known here.
    """
    settled = {each.output_key: each for each in outcomes}
    rows: list[Row] = []
    for each in own:
        outcome = settled.pop(str(each["output_key"]), None)
        rows.append({**each, "outcome": outcome and outcome.outcome})
    for left in settled.values():
        said = {"output_key": left.output_key, "outcome": left.outcome}
        rows.append({**said, "error_class": left.error_class or None})
    return rows


def why_silent(episode: Row, strategy: Logging | LogStrategy | None) -> str:
    """Return why the log of `episode` has no line, in words."""
    shown = strategy or episode["log_strategy"]
    if shown == LogStrategy.SUMMARY_ONLY:
        return f"it is still {episode['status']}; its summary is printed when it has ended"
    return f"nothing to show: its log strategy is {shown}"


def _place(line: Row) -> object:
    # Not `position`: what is projected later may have happened earlier.
    return tuple(line[each] for each in ("kind", "step_no", "name", "at", "says"))


def _is_by(time: object, at: datetime) -> bool:
    return isinstance(time, datetime) and time <= at


async def _journal(ports: Ports, id_: str) -> Sequence[Recorded]:
    """Return the journal of an episode; `NotFound`: there is none."""
    records = await ports.log.read(ports.stack.episode(id_))
    if not records:
        raise NotFound(f"no episode {id_} on the journal of stack {ports.stack.name}")
    return records


async def _shown(ports: Ports, episode_id: UUID, step_no: int) -> msgspec.Raw:
    """Return the result of a step as people may see it; `Trouble`: there is none."""
    from engine.episodes.results import fetch
    from engine.errors import EpisodeFailed

    records = await ports.log.read(ports.stack.episode(str(episode_id)))
    events = [event for record in records for event in record.commit.events]
    steps = [each for each in events if isinstance(each, StepRecorded) and each.step_no == step_no]
    if not steps:
        raise NotFound(f"no step {step_no} of an episode {episode_id} in stack {ports.stack.name}")
    step = steps[0]
    if step.error_class:
        raise Trouble(f"step {step_no} has failed: {step.error_class}: {step.error_detail}")
    if step.is_hidden:  # guard: command-shows-no-more
        raise Trouble(f"nothing of the result of step {step_no} may be shown to people")
    if step.stored is None or not is_whole(step):
        return shown_result(step)
    try:
        return await fetch(ports.objects, step.stored)
    except EpisodeFailed as lost:
        raise Trouble(lost.detail) from lost


async def _prompt(ports: Ports, episode_id: str, step_no: int | None) -> ModelPrompt:
    """Return what a model was asked in a step; `Trouble`: nobody may see it, or knows it."""
    from engine.agents.prompts.model_prompt import model_prompt
    from engine.episodes.results import fetch
    from engine.errors import EpisodeFailed, PromptNotKept

    records = await _journal(ports, episode_id)
    events = [event for record in records for event in record.commit.events]
    numbers = {each.step_no for each in events if isinstance(each, StepRecorded)}
    if step_no is not None and step_no not in numbers:
        raise NotFound(f"no step {step_no} of an episode {episode_id} in stack {ports.stack.name}")
    try:
        return await model_prompt(events, step_no, partial(fetch, ports.objects))
    except PromptNotKept as error:
        raise Trouble(f"what was asked cannot be told: {error}") from error
    except EpisodeFailed as lost:
        raise Trouble(lost.detail) from lost


def as_shown(event: EpisodeEvent) -> EpisodeEvent:
    """Return `event` as people may see it: a step's result may be for the replay alone."""
    if not isinstance(event, StepRecorded):  # guard: replay-keeps-hidden
        return event
    stored = event.stored
    if stored is not None and not is_whole(event):
        stored = msgspec.structs.replace(stored, digest="")
    return msgspec.structs.replace(event, result=shown_result(event), stored=stored)
