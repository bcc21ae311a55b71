"""Instances of workflows: graphs of steps, each an episode of an actor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final
from uuid import UUID

from projections.postgres import reader
from projections.records import WorkflowRecord, WorkflowSummary, record_of
from streams.json import JsonObject
from streams.model.workflows import ResumeHow, WorkflowStatus
from vigil.asking.rows import find_id, require
from vigil.client.connections import Connections
from vigil.client.page import Page, PagedList, check_past, checked_one_of
from vigil.settings import DECISION_S, WAIT_S

if TYPE_CHECKING:
    from engine.workflows.instance import Instance
    from projections.postgres.query_result import Row
    from projections.postgres.reader import OneOrMore
    from streams.model.triggers import Overrides
    from vigil.asking.requests import CommandOutcome
    from vigil.asking.starting import StartedInstance

_PLACE: Final = {"started_at": datetime, "instance_id": UUID}

INSTANCES: Final = PagedList("workflows", WorkflowSummary, reader.list_workflows, _PLACE)

INSTANCES_AT: Final = PagedList("workflows then", WorkflowSummary, reader.list_workflows_at, _PLACE)
"""Instances as they were at a time."""


@dataclass(frozen=True)
class WorkflowCalls:
    """Calls about instances of workflows: `client.workflows`.

    An instance is named by its id, or so much of its beginning that it is one; a beginning that
    fits several is a `Mistake`, and one that fits none is `NotFound`.
    """

    _connections: Connections

    async def find(self, id: UUID | str) -> UUID:
        """Return the id of an instance whose id alone begins so; a whole id is not looked up.

        Raises:
            Mistake: it can be no such id, or is the beginning of several.
            NotFound: there is no such instance.
        """
        if isinstance(id, UUID):
            return id
        return await find_id(
            self._connections.rows,
            self._connections.stack,
            id,
            of="instance",
            among=reader.list_instance_ids,
            remedy="`vigil workflows list` shows those that there are",
        )

    async def list(
        self,
        *,
        status: OneOrMore | None = None,
        workflow: str | None = None,
        at: datetime | None = None,
        after: UUID | str | None = None,
        reverse: bool = False,
        limit: int = 50,
    ) -> Page[WorkflowSummary]:
        """Return instances, and how far each is: the latest begun first.

        Args:
            status: `running`, `blocked`, `stopping`, `compensating`, `done`, `failed` or
                `canceled`, or several of them; None: any.
            at: as they were then; None: as they are. None where nobody knows any more, of one that
                has gone on since: what it had spent, and when it had last changed.
            after: the `next` of a page: what follows it. Or, without `at`, an id: what the list has
                after that instance.
            reverse: from the other end of the list: the first begun comes first.

        Raises:
            Mistake: there is no such `status`, or `at` has no time zone or is yet to come.
            NotFound: there is no instance of the id `after`.
        """
        check_past(at, self._connections.clock.now())
        status = checked_one_of("status", status, WorkflowStatus)
        if at is not None:
            return await INSTANCES_AT.page(
                self._connections,
                after=after,
                limit=limit,
                at=at,
                status=status,
                workflow=workflow,
                reverse=reverse,
            )
        return await INSTANCES.page(
            self._connections,
            after=after,
            limit=limit,
            row_of=self._row,
            status=status,
            workflow=workflow,
            reverse=reverse,
        )

    async def count(
        self, *, workflow: str | None = None, at: datetime | None = None
    ) -> Mapping[str, int]:
        """Return status → how many instances have it; with `at`, how many had it then.

        Raises:
            Mistake: `at` has no time zone or is yet to come.
        """
        check_past(at, self._connections.clock.now())
        async with self._connections.rows() as pool:
            stack = self._connections.stack
            if at is not None:
                return await reader.count_workflows_at(pool, stack, at=at, workflow=workflow)
            return await reader.count_workflows(pool, stack, workflow=workflow)

    async def get(self, id: UUID | str, *, at: datetime | None = None) -> WorkflowRecord:
        """Return one instance, and under `items` those of its steps, as far as rows have them.

        Args:
            at: as it was then; None: as it is. None where nobody knows any more: as for `list`, and
                of an item that was tried again since, that attempt.

        Raises:
            NotFound: the rows have no such instance, or had none by then.
            Mistake: `at` has no time zone or is yet to come.
        """
        check_past(at, self._connections.clock.now())
        return record_of(await self._row(id, at=at), WorkflowRecord)

    async def read(self, id: UUID | str, *, at: datetime | None = None) -> Instance:
        """Return one instance as its journal has it; with `at`, as it had it then.

        Raises:
            NotFound: there is none, or there was none by then.
            Mistake: `at` has no time zone or is yet to come.
        """
        from engine.workflows.requests import read_instance

        check_past(at, self._connections.clock.now())
        wanted = str(await self.find(id))
        async with self._connections.log(about=f"instance {wanted}") as ports:
            return await read_instance(ports, wanted, at=at)

    async def definitions(self) -> Sequence[Mapping[str, object]]:
        """Return the workflows that nodes have, or that were ever defined, in columns.

        They are `workflow_id`, `source`, `triggers`, `steps`, `nodes` and `problems` among others.
        """
        from vigil.asking.definitions.changes import list_workflows

        async with self._connections.log(is_reading=True) as ports:
            return await list_workflows(ports)

    async def start(
        self,
        workflow: str,
        payload: JsonObject | None = None,
        *,
        reason: str = "",
        by: str | None = None,
        key: str | None = None,
        dry_run: bool = False,
        overrides: Overrides | None = None,
        step_overrides: Mapping[str, Overrides] | None = None,
    ) -> StartedInstance:
        """Request an instance, and watch for a moment whether it begins.

        Args:
            key: idempotency key: the same one starts no second instance.
            overrides: results that a dry run uses instead of calling tools.
            step_overrides: the same for single steps, by their names.

        Raises:
            NotFound: nodes are up, and nobody knows the workflow.
            Mistake: a value is impossible.
            Trouble: it is disabled, or no instance begins.
        """
        from vigil.asking import starting

        asked = starting.StartRequest(
            workflow=workflow,
            payload={} if payload is None else payload,
            by=self._connections.who(by),
            reason=reason,
            key=key,
            dry_run=dry_run,
            overrides=overrides,
            step_overrides=step_overrides,
        )
        rows, clock = self._connections.raw_rows, self._connections.clock
        async with self._connections.log(about="instance") as ports:
            return await starting.start(ports, asked, rows=rows, clock=clock)

    async def wait(self, started: StartedInstance, *, timeout_s: float = WAIT_S) -> Instance:
        """Return an instance once it has ended.

        Raises:
            Trouble: it has not after `timeout_s`, or does not begin at all.
        """
        from vigil.asking import starting

        clock = self._connections.clock
        async with self._connections.log(about=f"instance {started.instance_id}") as ports:
            return await starting.wait_end(ports, started, timeout_s=timeout_s, clock=clock)

    async def retry(
        self,
        id: UUID | str,
        step: str,
        *,
        reason: str = "",
        by: str | None = None,
        wait_s: float | None = DECISION_S,
    ) -> CommandOutcome:
        """Try a paused step again, and return what became of that.

        Args:
            wait_s: how long to wait until it is on the journal, in seconds; None: not at all.

        Raises:
            Mistake: a value is impossible.
            NotFound: there is no such instance, or it has no such step.
            Trouble: the step is not paused.
        """
        return await self._resume(id, step, ResumeHow.RETRY, reason, by=by, wait_s=wait_s)

    async def skip(
        self,
        id: UUID | str,
        step: str,
        *,
        reason: str = "",
        by: str | None = None,
        wait_s: float | None = DECISION_S,
    ) -> CommandOutcome:
        """Go on without a paused step; arguments and errors are as for `retry`."""
        return await self._resume(id, step, ResumeHow.SKIP, reason, by=by, wait_s=wait_s)

    async def cancel(
        self,
        id: UUID | str,
        *,
        reason: str = "",
        by: str | None = None,
        wait_s: float | None = DECISION_S,
    ) -> CommandOutcome:
        """Cancel an instance: running steps end, and finished ones are compensated.

        What is returned is as for `retry`.

        Raises:
            Mistake: a text cannot be kept.
            NotFound: there is no such instance.
            Trouble: it has ended, or is being canceled already.
        """
        from vigil.asking import starting

        wanted, name = str(await self.find(id)), self._connections.who(by)
        async with self._connections.log(about=f"instance {wanted}") as ports:
            return await starting.cancel(ports, wanted, by=name, reason=reason, wait_s=wait_s)

    async def _row(self, id: UUID | str, *, at: datetime | None = None) -> Row:
        wanted = await self.find(id)
        async with self._connections.rows() as pool:
            stack = self._connections.stack
            found = await reader.show_workflow(pool, stack, wanted, at=at)
            return require(found, "instance", wanted, stack)

    async def _resume(
        self,
        id: UUID | str,
        step: str,
        how: ResumeHow,
        reason: str,
        *,
        by: str | None,
        wait_s: float | None,
    ) -> CommandOutcome:
        from vigil.asking import starting

        wanted, name = str(await self.find(id)), self._connections.who(by)
        async with self._connections.log(about=f"instance {wanted}") as ports:
            return await starting.resume(
                ports, wanted, step, how, by=name, reason=reason, wait_s=wait_s
            )
