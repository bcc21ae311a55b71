"""Operations on dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import Meta

from engine.people.identity import Role
from projections.records import DeadLetterRecord, DeadLetterSummary
from vigil.client.client import Client
from vigil.client.types import CommandOutcome
from vigil.web.api.operation import (
    READ,
    AnyOperation,
    ApiRequest,
    AskedOfList,
    Counts,
    Keys,
    ListAnswer,
    Operation,
    Words,
    counted,
    listed,
    said,
)

WRITE: Final = "dead_letters:write"


class ListDeadLetters(AskedOfList, frozen=True, kw_only=True):
    """Which dead letters."""

    status: Annotated[
        tuple[str, ...], Meta(description="One, or several; `any`: those of any.")
    ] = ("waiting",)
    actor: Words = None


class CountDeadLetters(ApiRequest, frozen=True, kw_only=True):
    """Which dead letters."""

    actor: Words = None


class OneDeadLetter(ApiRequest, frozen=True, kw_only=True):
    """Which dead letter."""

    key: str


class RequeueDeadLetters(ApiRequest, frozen=True, kw_only=True):
    """Which dead letters."""

    keys: Keys


class DiscardDeadLetters(RequeueDeadLetters, frozen=True, kw_only=True):
    """Which dead letters, and why."""

    reason: Annotated[str, Meta(min_length=1)]


async def _list(client: Client, asked: ListDeadLetters, _: str) -> ListAnswer[DeadLetterSummary]:
    status = None if "any" in asked.status else asked.status
    return await listed(client.dead_letters.list(**said(asked, "status"), status=status))


OPERATIONS: Final[Sequence[AnyOperation]] = (
    Operation(
        name="dead_letters.list",
        method="GET",
        path="/dead-letters",
        does="List dead letters, the latest first, without their messages.",
        role=Role.VIEWER,
        scope=READ,
        asks=ListDeadLetters,
        gives=ListAnswer[DeadLetterSummary],
        call=_list,
        commands=["dead list"],
    ),
    Operation(
        name="dead_letters.count",
        method="GET",
        path="/counts/dead-letters",
        does="Count dead letters by their status.",
        role=Role.VIEWER,
        scope=READ,
        asks=CountDeadLetters,
        gives=Counts,
        call=lambda client, asked, _: counted(client.dead_letters.count(**said(asked))),
    ),
    Operation(
        name="dead_letters.get",
        method="GET",
        path="/dead-letters/{key}",
        does="Return one dead letter; its message is in base64.",
        role=Role.VIEWER,
        scope=READ,
        asks=OneDeadLetter,
        gives=DeadLetterRecord,
        call=lambda client, asked, _: client.dead_letters.get(asked.key),
        commands=["dead show"],
    ),
    Operation(
        name="dead_letters.requeue",
        method="POST",
        path="/requeues",
        does="Try again what dead letters are about.",
        scope=WRITE,
        asks=RequeueDeadLetters,
        gives=ListAnswer[CommandOutcome],
        call=lambda client, asked, by: listed(client.dead_letters.requeue(*asked.keys, by=by)),
        commands=["dead requeue"],
    ),
    Operation(
        name="dead_letters.discard",
        method="POST",
        path="/discards",
        does="Discard dead letters. They stay in the table, and no longer wait.",
        scope=WRITE,
        asks=DiscardDeadLetters,
        gives=ListAnswer[CommandOutcome],
        call=lambda client, asked, by: listed(
            client.dead_letters.discard(*asked.keys, reason=asked.reason, by=by)
        ),
        commands=["dead discard"],
    ),
)
