"""Outputs: what actors deliver to the outside, and what people order about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from projections.postgres import reader
from projections.records import OutputRecord, OutputSummary, record_of
from streams.model.outputs import OutputStatus
from vigil.asking.rows import require, why_none_of
from vigil.client.connections import Connections
from vigil.client.episodes import EpisodeCalls
from vigil.client.page import Page, check_asked, page_of
from vigil.settings import DECISION_S

if TYPE_CHECKING:
    from projections.postgres.query_result import Row
    from vigil.asking.requests import CommandOutcome


@dataclass(frozen=True)
class OutputCalls:
    """Calls about outputs: `client.outputs`."""

    _connections: Connections

    async def list(
        self,
        *,
        status: str | None = None,
        actor: str | None = None,
        adapter: str | None = None,
        episode_id: UUID | str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Page[OutputSummary]:
        """Return outputs, the latest proposed first.

        Args:
            episode_id: only of this episode, by its id or so much of it that it is one.
            after: the `next` of a page, which is a key: only what the list has after that output.

        Raises:
            NotFound: there is no output of the key `after`, or no episode of that id.
            Mistake: there is no such `status`.
        """
        check_asked(status=status, statuses=OutputStatus, limit=limit)
        episodes = EpisodeCalls(self._connections)
        wanted = None if episode_id is None else await episodes.find(episode_id)
        async with self._connections.rows() as pool:
            stack, past = self._connections.stack, None
            if after is not None:
                found = await reader.show_output(pool, stack, after)
                past = require(found, "output", after, stack)
            rows = await reader.list_outputs(
                pool,
                stack,
                status=status,
                actor=actor,
                adapter=adapter,
                episode_id=wanted,
                past=past,
                limit=limit,
            )
            why_none = await why_none_of(pool, stack, rows)
            return page_of(rows, OutputSummary, why_none=why_none, limit=limit, key="output_key")

    async def get(self, key: str) -> OutputRecord:
        """Return an output as it was last proposed, and under `history` what happened to it.

        Raises:
            NotFound: the rows have no output of this key.
        """
        return record_of(await self.describe(key), OutputRecord)

    async def describe(self, key: str) -> Row:
        """Return the same with every column, as `vigil outputs show --json` prints it.

        Raises:
            NotFound: the rows have no output of this key.
        """
        async with self._connections.rows() as pool:
            stack = self._connections.stack
            return require(await reader.show_output(pool, stack, key), "output", key, stack)

    async def retry(
        self, *keys: str, reason: str = "", by: str | None = None, wait_s: float | None = DECISION_S
    ) -> Sequence[CommandOutcome]:
        """Retry the delivery of outputs that have failed, and return what became of each.

        Args:
            wait_s: how long to wait until that is on the journal, in seconds; None: not at all.

        Raises:
            Mistake: a text cannot be kept.
        """
        from vigil.asking import outputs

        name = self._connections.who(by)
        async with self._connections.log() as ports:
            return await outputs.retry(ports, keys, by=name, reason=reason, wait_s=wait_s)

    async def cancel(
        self, *keys: str, reason: str = "", by: str | None = None, wait_s: float | None = DECISION_S
    ) -> Sequence[CommandOutcome]:
        """Cancel outputs that are not delivered yet; their episodes go on.

        What is returned and raised is as for `retry`.
        """
        from vigil.asking import outputs

        name = self._connections.who(by)
        async with self._connections.log() as ports:
            return await outputs.cancel(ports, keys, by=name, reason=reason, wait_s=wait_s)
