"""Operations on findings."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from engine.people.identity import Role
from projections.records import FindingCause, FindingRecord, FindingSummary, RelatedFinding
from vigil.client.client import Client
from vigil.client.types import FindingChange
from vigil.web.api.operation import (
    READ,
    AnyOperation,
    ApiRequest,
    AskedOfList,
    Counts,
    ListAnswer,
    Operation,
    Past,
    Reason,
    Words,
    counted,
    listed,
    said,
)

WRITE: Final = "findings:write"

DEPTH_MAX: Final = 100
"""Longest causal chain that is returned."""


class ListFindings(AskedOfList, frozen=True, kw_only=True):
    """Which findings."""

    status: Annotated[
        tuple[str, ...], Meta(description="One, or several; `any`: those of any.")
    ] = ("active",)
    severity: Words = None
    actor: Words = None
    at: Past = None


class CountFindings(ApiRequest, frozen=True, kw_only=True):
    """Which findings."""

    severity: Words = None
    actor: Words = None
    at: Past = None
    most: Annotated[int, Meta(ge=1)] | None = None


class CountActiveFindings(ApiRequest, frozen=True, kw_only=True):
    """When."""

    at: Past = None


class FindingAsked(ApiRequest, frozen=True, kw_only=True):
    """Which finding."""

    key: str


class ReadFinding(FindingAsked, frozen=True, kw_only=True):
    """Which finding, and when."""

    at: Past = None


class CausesOfFinding(FindingAsked, frozen=True, kw_only=True):
    """Which finding, and how far back."""

    depth: Annotated[int, Meta(ge=1, le=DEPTH_MAX)] = 10


class ChangeFinding(FindingAsked, frozen=True, kw_only=True):
    """Which finding, and why."""

    reason: Reason = ""


class NoteFinding(FindingAsked, frozen=True, kw_only=True):
    """Which finding, and what to note."""

    text: str


class FindingAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a request about a finding."""

    is_made: bool
    """False: it was so already, or the finding has ended."""
    before: str
    """The status of the finding before."""


async def _changed(change: Awaitable[FindingChange]) -> FindingAnswer:
    made = await change
    before = "" if made.before is None else made.before.status.value
    return FindingAnswer(is_made=made.is_made, before=before)


async def _list(client: Client, asked: ListFindings, _: str) -> ListAnswer[FindingSummary]:
    status = None if "any" in asked.status else asked.status
    return await listed(client.findings.list(**said(asked, "status"), status=status))


OPERATIONS: Final[Sequence[AnyOperation]] = (
    Operation(
        name="findings.list",
        method="GET",
        path="/findings",
        does="List findings: the most severe first, then the latest changed.",
        role=Role.VIEWER,
        scope=READ,
        asks=ListFindings,
        gives=ListAnswer[FindingSummary],
        call=_list,
        commands=["findings list"],
    ),
    Operation(
        name="findings.count",
        method="GET",
        path="/counts/findings",
        does="Count findings by their status.",
        role=Role.VIEWER,
        scope=READ,
        asks=CountFindings,
        gives=Counts,
        call=lambda client, asked, _: counted(client.findings.count(**said(asked))),
    ),
    Operation(
        name="findings.count_active",
        method="GET",
        path="/counts/active-findings",
        does="Count active findings by their severity, the worst first.",
        role=Role.VIEWER,
        scope=READ,
        asks=CountActiveFindings,
        gives=Counts,
        call=lambda client, asked, _: counted(client.findings.count_active(**said(asked))),
    ),
    Operation(
        name="findings.get",
        method="GET",
        path="/findings/{key}",
        does="Return the latest raise of a finding, and what happened to it.",
        role=Role.VIEWER,
        scope=READ,
        asks=ReadFinding,
        gives=FindingRecord,
        call=lambda client, asked, _: client.findings.get(asked.key, at=asked.at),
        commands=["findings show"],
    ),
    Operation(
        name="findings.causal_chain",
        method="GET",
        path="/findings/{key}/causes",
        does="Return a finding and what explains it, step by step.",
        role=Role.VIEWER,
        scope=READ,
        asks=CausesOfFinding,
        gives=ListAnswer[FindingCause],
        call=lambda client, asked, _: listed(client.findings.causal_chain(**said(asked))),
        commands=["findings chain"],
    ),
    Operation(
        name="findings.related",
        method="GET",
        path="/findings/{key}/related",
        does="Return a finding, what explains it and what it explains, each with what it has cost.",
        role=Role.VIEWER,
        scope=READ,
        asks=FindingAsked,
        gives=ListAnswer[RelatedFinding],
        call=lambda client, asked, _: listed(client.findings.related(asked.key)),
    ),
    Operation(
        name="findings.clear",
        method="POST",
        path="/findings/{key}/clear",
        does="Clear a finding. One that has ended stays as it is.",
        scope=WRITE,
        asks=ChangeFinding,
        gives=FindingAnswer,
        call=lambda client, asked, by: _changed(client.findings.clear(**said(asked), by=by)),
        commands=["findings clear"],
    ),
    Operation(
        name="findings.acknowledge",
        method="POST",
        path="/findings/{key}/acknowledge",
        does="Acknowledge a finding, which stays active; only the first one counts.",
        scope=WRITE,
        asks=ChangeFinding,
        gives=FindingAnswer,
        call=lambda client, asked, by: _changed(client.findings.acknowledge(**said(asked), by=by)),
        commands=["findings ack"],
    ),
    Operation(
        name="findings.note",
        method="POST",
        path="/findings/{key}/notes",
        does="Add a note to a finding. Repeated, it is noted again.",
        scope=WRITE,
        asks=NoteFinding,
        gives=FindingAnswer,
        call=lambda client, asked, by: _changed(client.findings.note(**said(asked), by=by)),
        commands=["findings note"],
    ),
)
