"""Operations on definitions of actors and workflows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from engine.people.identity import Role
from streams.json import JsonObject
from streams.model.definitions import ID_KINDS
from vigil.client.client import Client
from vigil.client.stack.definitions import DefinitionMoment
from vigil.web.api.operation import (
    READ,
    AnyOperation,
    ApiRequest,
    DryRun,
    ListAnswer,
    Operation,
    Reason,
    Time,
    listed,
    said,
)

WRITE: Final = "definitions:write"

APPLIED_MAX: Final = 100
"""Most definitions that one request applies."""

IfRevision = Annotated[
    int | None,
    Meta(description="Only if this is still its revision; 0: only if it was never defined."),
]

KindName = Literal["actor", "workflow"]


class ListDefinitions(ApiRequest, frozen=True, kw_only=True):
    """Which definitions."""

    kind: KindName | None = None


class OneDefinition(ApiRequest, frozen=True, kw_only=True):
    """Which definition."""

    kind: KindName
    id: str


class ReadDefinition(OneDefinition, frozen=True, kw_only=True):
    """Which revision; none: the one that was applied last."""

    revision: int | None = None


class CompareRevisions(ReadDefinition, frozen=True, kw_only=True):
    """Which two revisions."""

    since: int


class ChangesSince(ApiRequest, frozen=True, kw_only=True):
    """Since when."""

    since: Time


class ApplyDefinitions(ApiRequest, frozen=True, kw_only=True):
    """Definitions to apply."""

    definitions: Annotated[tuple[JsonObject, ...], Meta(min_length=1, max_length=APPLIED_MAX)]
    kind: KindName | None = None
    if_revision: IfRevision = None
    dry_run: DryRun = None
    reason: Reason = ""


class DisableDefinition(OneDefinition, frozen=True, kw_only=True):
    """Which definition, and why."""

    if_revision: IfRevision = None
    reason: Reason = ""


class DefinitionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A definition, without its text."""

    kind: str
    id: str
    revision: int
    holds: bool
    """False: it is disabled."""


class AppliedRevision(msgspec.Struct, frozen=True, kw_only=True):
    """A definition that was applied, or would be."""

    kind: str
    id: str
    revision: int
    happened: bool
    """Whether anything changed, or would."""
    difference: Sequence[str]
    removed: Sequence[str]
    """What it no longer has: expectations, or steps."""
    needed_by: Mapping[str, Sequence[str]]
    unchecked: Sequence[str]
    lacks: Sequence[str]


class DefinitionText(msgspec.Struct, frozen=True, kw_only=True):
    """A definition as data that can be applied again."""

    definition: JsonObject


class RevisionChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a definition, without its text."""

    change: str
    revision: int
    at: datetime
    person: str
    reason: str | None
    difference: Sequence[str]


async def _list(client: Client, asked: ListDefinitions, _: str) -> ListAnswer[DefinitionSummary]:
    found = await client.definitions.list(kind=asked.kind)
    return ListAnswer(
        items=[
            DefinitionSummary(
                kind=ID_KINDS[each.kind], id=each.id, revision=each.revision, holds=each.holds
            )
            for each in found
        ]
    )


async def _apply(client: Client, asked: ApplyDefinitions, by: str) -> ListAnswer[AppliedRevision]:
    made = await client.definitions.apply(*asked.definitions, **said(asked, "definitions"), by=by)
    return ListAnswer(
        items=[
            AppliedRevision(
                kind=ID_KINDS[each.registered.kind],
                id=each.registered.id,
                revision=each.registered.revision,
                happened=each.happened,
                difference=each.difference,
                removed=each.removed,
                needed_by=each.needed_by,
                unchecked=each.unchecked,
                lacks=each.lacks,
            )
            for each in made
        ]
    )


async def _disable(client: Client, asked: DisableDefinition, by: str) -> DefinitionSummary:
    made = (await client.definitions.disable(**said(asked), by=by)).registered
    return DefinitionSummary(
        kind=ID_KINDS[made.kind], id=made.id, revision=made.revision, holds=made.holds
    )


async def _read(client: Client, asked: ReadDefinition, _: str) -> DefinitionText:
    return DefinitionText(definition=await client.definitions.read(**said(asked)))


async def _diff(client: Client, asked: CompareRevisions, _: str) -> ListAnswer[str]:
    return ListAnswer(items=await client.definitions.diff(**said(asked)))


async def _history(client: Client, asked: OneDefinition, _: str) -> ListAnswer[RevisionChange]:
    found = await client.definitions.history(asked.kind, asked.id)
    return ListAnswer(
        items=[msgspec.convert(each, RevisionChange, from_attributes=True) for each in found]
    )


OPERATIONS: Final[Sequence[AnyOperation]] = (
    Operation(
        name="definitions.list",
        method="GET",
        path="/definitions",
        does="List what was ever defined, each at its newest revision, without the texts.",
        role=Role.VIEWER,
        scope=READ,
        asks=ListDefinitions,
        gives=ListAnswer[DefinitionSummary],
        call=_list,
    ),
    Operation(
        name="definitions.changes",
        method="GET",
        path="/definition-changes",
        does="List when definitions were applied or disabled, in order.",
        role=Role.VIEWER,
        scope=READ,
        asks=ChangesSince,
        gives=ListAnswer[DefinitionMoment],
        call=lambda client, asked, _: listed(client.definitions.changes(since=asked.since)),
    ),
    Operation(
        name="definitions.read",
        method="GET",
        path="/definitions/{kind}/{id}",
        does="Return a definition as data that can be applied again.",
        role=Role.VIEWER,
        scope=READ,
        asks=ReadDefinition,
        gives=DefinitionText,
        call=_read,
        commands=["actors definition", "workflows definition"],
    ),
    Operation(
        name="definitions.diff",
        method="GET",
        path="/definitions/{kind}/{id}/diff",
        does="Return what differs between two revisions of a definition, in lines.",
        role=Role.VIEWER,
        scope=READ,
        asks=CompareRevisions,
        gives=ListAnswer[str],
        call=_diff,
    ),
    Operation(
        name="definitions.history",
        method="GET",
        path="/definitions/{kind}/{id}/history",
        does="List the changes of a definition, oldest first, without the texts.",
        role=Role.VIEWER,
        scope=READ,
        asks=OneDefinition,
        gives=ListAnswer[RevisionChange],
        call=_history,
        commands=["actors history", "workflows history"],
    ),
    Operation(
        name="definitions.apply",
        method="POST",
        path="/definitions",
        does="Apply definitions, all checked before any is applied: nodes run them at once.",
        scope=WRITE,
        asks=ApplyDefinitions,
        gives=ListAnswer[AppliedRevision],
        call=_apply,
        commands=["apply", "actors apply", "workflows apply"],
    ),
    Operation(
        name="definitions.disable",
        method="POST",
        path="/definitions/{kind}/{id}/disable",
        does="Disable a definition until it is applied again. Open episodes go on.",
        scope=WRITE,
        asks=DisableDefinition,
        gives=DefinitionSummary,
        call=_disable,
        commands=["actors disable", "workflows disable"],
    ),
)
