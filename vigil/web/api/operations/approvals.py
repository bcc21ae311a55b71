"""Operations on what waits for approval. Only people decide."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Final, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta

from engine.people.identity import Role
from projections.records import DecisionSummary
from streams.json import unraw
from vigil.client.client import Client
from vigil.client.types import ApprovalTarget, CommandOutcome
from vigil.web.api.operation import (
    READ,
    AnyOperation,
    ApiRequest,
    AskedOfList,
    ListAnswer,
    Operation,
    Past,
    Reason,
    WaitS,
    Words,
    listed,
    said,
)

DECIDE: Final = "approvals:decide"


class ApprovalAsked(ApiRequest, frozen=True, kw_only=True):
    """What asks for approval."""

    kind: Literal["episode", "output", "step"]
    id: Annotated[str, Meta(description="Of an output its key, of a step that of its instance.")]
    step: Annotated[str, Meta(description="Of the instance; empty: no step asks.")] = ""

    @property
    def target(self) -> ApprovalTarget:
        """The same, as the client has it."""
        return ApprovalTarget(self.kind, self.id, self.step)


class ListDecisions(AskedOfList, frozen=True, kw_only=True):
    """Which decisions."""

    by: Annotated[str | None, Meta(description="Only what this person has decided.")] = None
    actor: Words = None
    episode_ids: Annotated[
        tuple[UUID, ...] | None, Meta(description="Only what these episodes had asked for.")
    ] = None
    at: Past = None


class DecideApproval(ApprovalAsked, frozen=True, kw_only=True):
    """A decision."""

    plan_hash: Annotated[
        str | None,
        Meta(
            description="The first 8 hex digits, or more, of the hash of what was looked at; "
            "null: what waits now."
        ),
    ] = None
    changes: Annotated[
        object, Meta(description="A JSON merge patch (RFC 7396) for the plan; left out: none.")
    ] = UNSET
    reason: Reason = ""
    wait_s: WaitS = 30.0


class PendingApproval(msgspec.Struct, frozen=True, kw_only=True):
    """What waits for a decision."""

    plan_hash: str
    """SHA-256 of the plan, in hex: a decision names it."""
    plan: object
    """What is to be done; of an output, what is to be delivered; of a step, its inputs."""
    summary: str
    approvers: Sequence[str]
    """Names of those who may decide; none: anybody."""
    asked_at: datetime
    expires_at: datetime | None
    on_expiry: str
    editable: bool
    """Whether who approves may change the plan."""


async def _read(client: Client, asked: ApprovalAsked, _: str) -> PendingApproval:
    found = await client.approvals.read(asked.target)
    approval = found.approval
    return PendingApproval(
        plan_hash=approval.plan_hash,
        plan=unraw(found.plan),
        summary=approval.summary,
        approvers=approval.approvers,
        asked_at=found.asked_at,
        expires_at=approval.expires_at,
        on_expiry=approval.on_expiry.value,
        editable=approval.editable,
    )


async def _decide(
    client: Client, asked: DecideApproval, by: str, *, verdict: Literal["approve", "deny"]
) -> CommandOutcome:
    return await client.approvals.decide(
        asked.target,
        verdict,
        plan_hash=asked.plan_hash,
        changes=asked.changes,
        reason=asked.reason,
        by=by,
        wait_s=asked.wait_s,
    )


OPERATIONS: Final[Sequence[AnyOperation]] = (
    Operation(
        name="approvals.decided",
        method="GET",
        path="/decisions",
        does="List what people have decided on, the latest first.",
        role=Role.VIEWER,
        scope=READ,
        asks=ListDecisions,
        gives=ListAnswer[DecisionSummary],
        call=lambda client, asked, _: listed(client.approvals.decided(**said(asked))),
        commands=["decisions"],
    ),
    Operation(
        name="approvals.read",
        method="GET",
        path="/approvals/{kind}/{id}",
        does="Return what waits for a decision: the plan, its hash, and who may decide.",
        role=Role.VIEWER,
        scope=READ,
        asks=ApprovalAsked,
        gives=PendingApproval,
        call=_read,
    ),
    Operation(
        name="approvals.approve",
        method="POST",
        path="/approvals/{kind}/{id}/approve",
        does="Approve what waits.",
        role=Role.APPROVER,
        scope=DECIDE,
        asks=DecideApproval,
        gives=CommandOutcome,
        call=partial(_decide, verdict="approve"),
        of_people=True,
        commands=["episodes approve", "outputs approve", "workflows approve"],
    ),
    Operation(
        name="approvals.deny",
        method="POST",
        path="/approvals/{kind}/{id}/deny",
        does="Deny what waits.",
        role=Role.APPROVER,
        scope=DECIDE,
        asks=DecideApproval,
        gives=CommandOutcome,
        call=partial(_decide, verdict="deny"),
        of_people=True,
        commands=["episodes deny", "outputs reject", "workflows deny"],
    ),
)
