"""Operations on instances of workflows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from engine.people.identity import Role
from projections.records import WorkflowRecord, WorkflowSummary
from streams.json import JsonObject
from vigil.client.client import Client
from vigil.client.types import CommandOutcome
from vigil.web.api.operation import (
    READ,
    AnyOperation,
    ApiRequest,
    AskedOfList,
    AskedOverrides,
    Counts,
    DryRun,
    Key,
    ListAnswer,
    NothingAsked,
    Operation,
    Past,
    Reason,
    WaitS,
    Words,
    counted,
    listed,
    said,
)

WRITE: Final = "workflows:write"


class ListWorkflows(AskedOfList, frozen=True, kw_only=True):
    """Which instances."""

    status: Words = None
    workflow: str | None = None
    at: Past = None


class CountWorkflows(ApiRequest, frozen=True, kw_only=True):
    """Which instances."""

    workflow: str | None = None
    at: Past = None


class OneInstance(ApiRequest, frozen=True, kw_only=True):
    """Which instance."""

    id: Annotated[str, Meta(description="Its id, or so much of the beginning that it is one.")]


class ReadInstance(OneInstance, frozen=True, kw_only=True):
    """Which instance, and when."""

    at: Past = None


class StartWorkflow(ApiRequest, frozen=True, kw_only=True):
    """An instance to start."""

    workflow: str
    payload: JsonObject | None = None
    reason: Reason = ""
    key: Key = None
    dry_run: DryRun = None
    overrides: AskedOverrides | None = None
    step_overrides: dict[str, AskedOverrides] | None = None


class ResumeStep(OneInstance, frozen=True, kw_only=True):
    """Which paused step."""

    step: str
    reason: Reason = ""
    wait_s: WaitS = 30.0


class CancelInstance(OneInstance, frozen=True, kw_only=True):
    """Which instance."""

    reason: Reason = ""
    wait_s: WaitS = 30.0


class InstanceReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that was asked for."""

    instance_id: str
    is_new: bool
    used: str
    """When its idempotency key was used before, in words; empty: it was not."""
    obstacle: str
    """Why nothing comes of it now, in words; empty: something does."""


async def _start(client: Client, asked: StartWorkflow, by: str) -> InstanceReceipt:
    given = asked.step_overrides
    steps = None if given is None else {step: each.overrides() for step, each in given.items()}
    started = await client.workflows.start(
        **said(asked, "step_overrides"), step_overrides=steps, by=by
    )
    return InstanceReceipt(
        instance_id=started.instance_id,
        is_new=started.used is None,
        used=started.used_before,
        obstacle=started.obstacle,
    )


OPERATIONS: Final[Sequence[AnyOperation]] = (
    Operation(
        name="workflows.list",
        method="GET",
        path="/workflows",
        does="List instances of workflows, the latest begun first.",
        role=Role.VIEWER,
        scope=READ,
        asks=ListWorkflows,
        gives=ListAnswer[WorkflowSummary],
        call=lambda client, asked, _: listed(client.workflows.list(**said(asked))),
        commands=["workflows list"],
    ),
    Operation(
        name="workflows.count",
        method="GET",
        path="/counts/workflows",
        does="Count instances of workflows by their status.",
        role=Role.VIEWER,
        scope=READ,
        asks=CountWorkflows,
        gives=Counts,
        call=lambda client, asked, _: counted(client.workflows.count(**said(asked))),
    ),
    Operation(
        name="workflows.get",
        method="GET",
        path="/workflows/{id}",
        does="Return one instance, and the state of each of its steps.",
        role=Role.VIEWER,
        scope=READ,
        asks=ReadInstance,
        gives=WorkflowRecord,
        call=lambda client, asked, _: client.workflows.get(asked.id, at=asked.at),
        commands=["workflows show"],
    ),
    Operation(
        name="workflows.definitions",
        method="GET",
        path="/workflow-definitions",
        does="List the workflows that nodes have, or that were ever defined.",
        role=Role.VIEWER,
        scope=READ,
        asks=NothingAsked,
        gives=ListAnswer[dict[str, Any]],
        call=lambda client, *_: listed(client.workflows.definitions()),
        commands=["workflows definitions"],
    ),
    Operation(
        name="workflows.start",
        method="POST",
        path="/workflows",
        does="Request an instance of a workflow, and watch for a moment whether it begins.",
        scope=WRITE,
        asks=StartWorkflow,
        gives=InstanceReceipt,
        call=_start,
        key="key",
        commands=["workflows start"],
    ),
    Operation(
        name="workflows.retry",
        method="POST",
        path="/workflows/{id}/steps/{step}/retry",
        does="Try a paused step again.",
        scope=WRITE,
        asks=ResumeStep,
        gives=CommandOutcome,
        call=lambda client, asked, by: client.workflows.retry(**said(asked), by=by),
        commands=["workflows resume"],
    ),
    Operation(
        name="workflows.skip",
        method="POST",
        path="/workflows/{id}/steps/{step}/skip",
        does="Go on without a paused step.",
        scope=WRITE,
        asks=ResumeStep,
        gives=CommandOutcome,
        call=lambda client, asked, by: client.workflows.skip(**said(asked), by=by),
        commands=["workflows resume"],
    ),
    Operation(
        name="workflows.cancel",
        method="POST",
        path="/workflows/{id}/cancel",
        does="Cancel an instance: running steps end, and finished ones are compensated.",
        scope=WRITE,
        asks=CancelInstance,
        gives=CommandOutcome,
        call=lambda client, asked, by: client.workflows.cancel(**said(asked), by=by),
        commands=["workflows cancel"],
    ),
)
