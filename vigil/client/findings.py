"""Findings: what actors found, and what people say about it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from projections.postgres import reader
from projections.records import FindingCause, FindingRecord, FindingSummary, record_of
from vigil.asking.rows import not_found, require, why_none_of
from vigil.client.connections import Connections
from vigil.client.page import FINDING_STATUSES, Page, check_asked, page_of
from vigil.errors import Mistake

if TYPE_CHECKING:
    from engine.findings.requests import FindingRequests
    from engine.findings.store import FindingChange
    from projections.postgres.query_result import Row


@dataclass(frozen=True)
class FindingCalls:
    """Calls about findings: `client.findings`."""

    _connections: Connections

    async def list(
        self,
        *,
        status: str | None = "active",
        severity: str | None = None,
        actor: str | None = None,
        limit: int = 50,
    ) -> Page[FindingSummary]:
        """Return findings: the most severe first, then the latest changed.

        Args:
            status: `active`, `cleared`, `expired`, or `superseded` for what was raised anew since;
                None: any.

        Raises:
            Mistake: there is no such `status` or `severity`.
        """
        check_asked(status=status, statuses=FINDING_STATUSES, limit=limit)
        async with self._connections.rows() as pool:
            stack = self._connections.stack
            rows = await reader.list_findings(
                pool, stack, status=status, severity=severity, actor=actor, limit=limit
            )
            return page_of(rows, FindingSummary, why_none=await why_none_of(pool, stack, rows))

    async def get(self, key: str) -> FindingRecord:
        """Return the latest raise of a finding, and under `history` what happened to it.

        Raises:
            NotFound: the rows have no finding of this key.
        """
        return record_of(await self.describe(key), FindingRecord)

    async def describe(self, key: str) -> Row:
        """Return the same with every column, as `vigil findings show --json` prints it.

        Raises:
            NotFound: the rows have no finding of this key.
        """
        async with self._connections.rows() as pool:
            stack = self._connections.stack
            return require(await reader.show_finding(pool, stack, key), "finding", key, stack)

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
