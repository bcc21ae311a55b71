"""Findings: what actors found, and what people say about it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from projections.postgres import reader
from projections.records import (
    FindingCause,
    FindingRecord,
    FindingSummary,
    RelatedFinding,
    record_of,
)
from streams.model.findings import Severity
from vigil.asking.rows import not_found, require
from vigil.client.connections import Connections
from vigil.client.page import FINDING_STATUSES, Page, PagedList, check_past, checked_one_of
from vigil.errors import Mistake

if TYPE_CHECKING:
    from engine.findings.requests import FindingRequests
    from engine.findings.store import FindingChange
    from projections.postgres.query_result import Row
    from projections.postgres.reader import OneOrMore

RELATED_MAX: Final = 100
"""Most findings that are told as related to another one."""

RELATED_STEPS_MAX: Final = 10
"""Most steps away that they are told."""

_PLACE: Final = {
    "severity": Severity,
    "updated_at": datetime,
    "finding_key": str,
    "raise_no": int,
}

FINDINGS: Final = PagedList(
    "findings",
    FindingSummary,
    reader.list_findings,
    _PLACE,
)

FINDINGS_AT: Final = PagedList("findings then", FindingSummary, reader.list_findings_at, _PLACE)
"""Findings as they were at a time."""


@dataclass(frozen=True)
class FindingCalls:
    """Calls about findings: `client.findings`."""

    _connections: Connections

    async def list(
        self,
        *,
        status: OneOrMore | None = "active",
        severity: OneOrMore | None = None,
        actor: OneOrMore | None = None,
        at: datetime | None = None,
        after: str | None = None,
        reverse: bool = False,
        limit: int = 50,
    ) -> Page[FindingSummary]:
        """Return findings: the most severe first, then the latest changed.

        One that changes while pages are read moves to the front of its severity: later pages may
        lack it, or in reverse have it once more. None of the others is left out.

        Args:
            status: `active`, `cleared`, `expired`, or `superseded` for what was raised anew since,
                or several of them; None: any.
            severity: `low`, `medium`, `high` or `critical`, or several; None: any.
            actor: one, or several.
            at: as they were then, by their history; None: as they are. As of now, too: `class_` and
                `caused_by_key`.
            after: the `next` of a page: what follows it. Or, without `at`, a key: what the list has
                now after that finding.
            reverse: from the other end of the list: the least severe comes first.

        Raises:
            Mistake: there is no such `status` or `severity`, or `at` has no time zone or is yet to
                come.
            NotFound: there is no finding of the key `after`.
        """
        check_past(at, self._connections.clock.now())
        status = checked_one_of("status", status, FINDING_STATUSES)
        severity = checked_one_of("severity", severity, Severity)
        if at is not None:
            return await FINDINGS_AT.page(
                self._connections,
                after=after,
                limit=limit,
                at=at,
                status=status,
                severity=severity,
                actor=actor,
                reverse=reverse,
            )
        return await FINDINGS.page(
            self._connections,
            after=after,
            limit=limit,
            row_of=self._row,
            status=status,
            severity=severity,
            actor=actor,
            reverse=reverse,
        )

    async def count(
        self,
        *,
        severity: OneOrMore | None = None,
        actor: OneOrMore | None = None,
        at: datetime | None = None,
        most: int | None = None,
    ) -> Mapping[str, int]:
        """Return status → how many of the findings that fit have it; arguments are as for `list`.

        Args:
            most: count no further than this of each status, so that it takes some milliseconds
                however many there are; None: all. With `at`, all are counted.

        Raises:
            Mistake: there is no such `severity`, or `at` has no time zone or is yet to come.
        """
        severity = checked_one_of("severity", severity, Severity)
        check_past(at, self._connections.clock.now())
        async with self._connections.rows() as pool:
            stack = self._connections.stack
            if at is not None:
                return await reader.count_findings_at(
                    pool, stack, at=at, severity=severity, actor=actor
                )
            return await reader.count_findings(
                pool, stack, severity=severity, actor=actor, most=most
            )

    async def count_active(self, *, at: datetime | None = None) -> Mapping[str, int]:
        """Return severity → how many active findings have it, the worst first.

        With `at`, how many had it then.

        Raises:
            Mistake: `at` has no time zone or is yet to come.
        """
        check_past(at, self._connections.clock.now())
        async with self._connections.rows() as pool:
            if at is not None:
                stack = self._connections.stack
                return await reader.count_active_findings_at(pool, stack, at=at)
            return await reader.count_active_findings(pool, self._connections.stack)

    async def get(self, key: str, *, at: datetime | None = None) -> FindingRecord:
        """Return the latest raise of a finding, and under `history` what happened to it.

        Args:
            at: as for `list`.

        Raises:
            NotFound: the rows have no finding of this key, or had none by then.
            Mistake: `at` has no time zone or is yet to come.
        """
        return record_of(await self.describe(key, at=at), FindingRecord)

    async def describe(self, key: str, *, at: datetime | None = None) -> Row:
        """Return the same with every column, as `vigil findings show --json` prints it.

        Arguments and errors are as for `get`.
        """
        check_past(at, self._connections.clock.now())
        async with self._connections.rows() as pool:
            stack = self._connections.stack
            found = await reader.show_finding(pool, stack, key, at=at)
            return require(found, "finding", key, stack)

    async def causal_chain(self, key: str, *, depth: int = 10) -> Sequence[FindingCause]:
        """Return a finding and what explains it, step by step, up to `depth` steps.

        Raises:
            NotFound: the rows have no finding of this key.
        """
        async with self._connections.rows() as pool:
            stack = self._connections.stack
            found = await reader.list_causal_chain(pool, stack, key, depth=depth)
            rows = require(found, "finding", key, stack)
            return msgspec.convert(rows, tuple[FindingCause, ...])

    async def related(self, key: str) -> Sequence[RelatedFinding]:
        """Return a finding, what explains it and what it explains, the nearest first.

        Those up to 10 steps away, at most 100. Each has what the episodes that raised or changed it
        have cost, and what those of all have cost together: one may have changed several.

        Raises:
            NotFound: the rows have no finding of this key.
        """
        async with self._connections.rows() as pool:
            stack = self._connections.stack
            found = await reader.list_finding_graph(
                pool, stack, key, depth=RELATED_STEPS_MAX, limit=RELATED_MAX
            )
            rows = require(found, "finding", key, stack)
            return [record_of(each, RelatedFinding) for each in rows]

    async def clear(self, key: str, *, reason: str = "", by: str | None = None) -> FindingChange:
        """Clear a finding; one that has ended stays as it is, and `is_made` is False.

        Raises:
            NotFound: no finding was ever raised under this key.
            Mistake: a text cannot be kept.
        """
        name = self._connections.who(by)
        return await self._change(key, lambda each: each.clear(key, by=name, reason=reason))

    async def acknowledge(
        self, key: str, *, reason: str = "", by: str | None = None
    ) -> FindingChange:
        """Acknowledge a finding, which stays active; only the first one counts.

        `is_made` is False if somebody has, or if it has ended: `before` tells which.

        Raises:
            NotFound: no finding was ever raised under this key.
            Mistake: a text cannot be kept.
        """
        name = self._connections.who(by)
        return await self._change(key, lambda each: each.acknowledge(key, by=name, reason=reason))

    async def note(self, key: str, text: str, *, by: str | None = None) -> FindingChange:
        """Add a note to a finding, which may have ended. Repeated, it is noted again.

        Raises:
            NotFound: no finding was ever raised under this key.
            Mistake: the text is empty, or cannot be kept.
        """
        if not text.strip():  # guard: empty-note-is-mistake
            raise Mistake("text: a note says something")
        name = self._connections.who(by)
        return await self._change(key, lambda each: each.note(key, by=name, text=text))

    async def _row(self, key: UUID | str) -> Row:
        return await self.describe(str(key))

    async def _change(
        self, key: str, act: Callable[[FindingRequests], Awaitable[FindingChange]]
    ) -> FindingChange:
        from engine.errors import NoFinding
        from engine.findings.requests import FindingRequests

        async with self._connections.log() as ports:
            try:
                return await act(FindingRequests(ports, self._connections.clock))
            except NoFinding as error:
                raise not_found("finding", key, ports.stack) from error
