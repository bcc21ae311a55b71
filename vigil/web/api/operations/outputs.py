"""Operations on outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.people.identity import Role
from projections.records import OutputRecord, OutputSummary
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
    Past,
    Reason,
    WaitS,
    Words,
    counted,
    listed,
    said,
)

WRITE: Final = "outputs:write"


class ListOutputs(AskedOfList, frozen=True, kw_only=True):
    """Which outputs."""

    status: Words = None
    actor: Words = None
    adapter: str | None = None
    episode_id: str | None = None
    at: Past = None


class CountOutputs(ApiRequest, frozen=True, kw_only=True):
    """Which outputs."""

    actor: Words = None
    adapter: str | None = None
    episode_id: str | None = None
    at: Past = None


class OneOutput(ApiRequest, frozen=True, kw_only=True):
    """Which output."""

    key: str
    at: Past = None


class ChangeOutputs(ApiRequest, frozen=True, kw_only=True):
    """Which outputs, and why."""

    keys: Keys
    reason: Reason = ""
    wait_s: WaitS = 30.0


OPERATIONS: Final[Sequence[AnyOperation]] = (
    Operation(
        name="outputs.list",
        method="GET",
        path="/outputs",
        does="List outputs, the latest proposed first.",
        role=Role.VIEWER,
        scope=READ,
        asks=ListOutputs,
        gives=ListAnswer[OutputSummary],
        call=lambda client, asked, _: listed(client.outputs.list(**said(asked))),
        commands=["outputs list"],
    ),
    Operation(
        name="outputs.count",
        method="GET",
        path="/counts/outputs",
        does="Count outputs by their status.",
        role=Role.VIEWER,
        scope=READ,
        asks=CountOutputs,
        gives=Counts,
        call=lambda client, asked, _: counted(client.outputs.count(**said(asked))),
    ),
    Operation(
        name="outputs.get",
        method="GET",
        path="/outputs/{key}",
        does="Return an output as it was last proposed, and what happened to it.",
        role=Role.VIEWER,
        scope=READ,
        asks=OneOutput,
        gives=OutputRecord,
        call=lambda client, asked, _: client.outputs.get(asked.key, at=asked.at),
        commands=["outputs show"],
    ),
    Operation(
        name="outputs.retry",
        method="POST",
        path="/deliveries/retry",
        does="Retry the delivery of outputs that have failed.",
        scope=WRITE,
        asks=ChangeOutputs,
        gives=ListAnswer[CommandOutcome],
        call=lambda client, asked, by: listed(
            client.outputs.retry(*asked.keys, **said(asked, "keys"), by=by)
        ),
        commands=["outputs retry"],
    ),
    Operation(
        name="outputs.cancel",
        method="POST",
        path="/deliveries/cancel",
        does="Cancel outputs that are not delivered yet. Their episodes go on.",
        scope=WRITE,
        asks=ChangeOutputs,
        gives=ListAnswer[CommandOutcome],
        call=lambda client, asked, by: listed(
            client.outputs.cancel(*asked.keys, **said(asked, "keys"), by=by)
        ),
        commands=["outputs cancel"],
    ),
)
