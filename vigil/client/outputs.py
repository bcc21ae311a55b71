"""Outputs: what actors deliver to the outside, and what people order about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final
from uuid import UUID

from projections.postgres import reader
from projections.records import OutputRecord, OutputSummary, record_of
from streams.model.outputs import OutputStatus
from vigil.asking.rows import require
from vigil.client.connections import Connections
from vigil.client.episodes import EpisodeCalls
from vigil.client.page import Page, PagedList, check_past, checked_one_of
from vigil.settings import DECISION_S

if TYPE_CHECKING:
    from projections.postgres.query_result import Row
    from projections.postgres.reader import OneOrMore
    from vigil.asking.requests import CommandOutcome

_PLACE: Final = {"created_at": datetime, "output_key": str}

OUTPUTS: Final = PagedList("outputs", OutputSummary, reader.list_outputs, _PLACE)

OUTPUTS_AT: Final = PagedList("outputs then", OutputSummary, reader.list_outputs_at, _PLACE)
"""Outputs as they were at a time."""


@dataclass(frozen=True)
class OutputCalls:
    """Calls about outputs: `client.outputs`."""

    _connections: Connections

    async def list(
        self,
        *,
        status: OneOrMore | None = None,
        actor: OneOrMore | None = None,
        adapter: str | None = None,
        episode_id: UUID | str | None = None,
        at: datetime | None = None,
        after: str | None = None,
        reverse: bool = False,
        limit: int = 50,
    ) -> Page[OutputSummary]:
        """Return outputs, the latest proposed first.

        Args:
            status: `awaiting_approval`, `proposed`, `delivered`, `failed`, `rejected` or
                `canceled`, or several of them; None: any.
            actor: one, or several.
            episode_id: only of this episode, by its id or so much of it that it is one.
            at: as they were then, by their history; None: as they are. None where nobody knows any
                more: what was proposed, of one that was proposed anew since. As of now, too: the
                adapter.
            after: the `next` of a page: what follows it. Or, without `at`, a key: what the list has
                now after that output.
            reverse: from the other end of the list: the first proposed comes first.

        Raises:
            NotFound: there is no output of the key `after`, or no episode of that id.
            Mistake: there is no such `status`, or `at` has no time zone or is yet to come.
        """
        check_past(at, self._connections.clock.now())
        status = checked_one_of("status", status, OutputStatus)
        if at is not None:
            return await OUTPUTS_AT.page(
                self._connections,
                after=after,
                limit=limit,
                at=at,
                status=status,
                actor=actor,
                adapter=adapter,
                episode_id=await self._episode(episode_id),
                reverse=reverse,
            )
        return await OUTPUTS.page(
            self._connections,
            after=after,
            limit=limit,
            row_of=self._row,
            status=status,
            actor=actor,
            adapter=adapter,
            episode_id=await self._episode(episode_id),
            reverse=reverse,
        )

    async def count(
        self,
        *,
        actor: OneOrMore | None = None,
        adapter: str | None = None,
        episode_id: UUID | str | None = None,
        at: datetime | None = None,
    ) -> Mapping[str, int]:
        """Return status → how many of the outputs that fit have it; arguments are as for `list`.

        Raises:
            NotFound: there is no episode of that id.
            Mistake: `at` has no time zone or is yet to come.
        """
        check_past(at, self._connections.clock.now())
        wanted = await self._episode(episode_id)
        async with self._connections.rows() as pool:
            stack = self._connections.stack
            if at is not None:
                return await reader.count_outputs_at(
                    pool, stack, at=at, actor=actor, adapter=adapter, episode_id=wanted
                )
            return await reader.count_outputs(
                pool, stack, actor=actor, adapter=adapter, episode_id=wanted
            )

    async def get(self, key: str, *, at: datetime | None = None) -> OutputRecord:
        """Return an output as it was last proposed, and under `history` what happened to it.

        Args:
            at: as for `list`; `approved_by` then names all who had approved since people were last
                asked, of whatever plan.

        Raises:
            NotFound: the rows have no output of this key, or had none by then.
            Mistake: `at` has no time zone or is yet to come.
        """
        return record_of(await self.describe(key, at=at), OutputRecord)

    async def describe(self, key: str, *, at: datetime | None = None) -> Row:
        """Return the same with every column, as `vigil outputs show --json` prints it.

        Arguments and errors are as for `get`.
        """
        check_past(at, self._connections.clock.now())
        async with self._connections.rows() as pool:
            stack = self._connections.stack
            found = await reader.show_output(pool, stack, key, at=at)
            return require(found, "output", key, stack)

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

    async def _row(self, key: UUID | str) -> Row:
        return await self.describe(str(key))

    async def _episode(self, id: UUID | str | None) -> UUID | None:
        return None if id is None else await EpisodeCalls(self._connections).find(id)
