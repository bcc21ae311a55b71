"""Operations on how long things are kept, and on what people hold."""

from __future__ import annotations

from typing import Final

from engine.people.identity import Role
from vigil.client.stack.orders import OrderOutcome
from vigil.client.stack.retention import RetentionHold, RetentionOutcome, RetentionView
from vigil.web.api.operation import (
    READ,
    AnyOperation,
    ApiRequest,
    DryRun,
    ListAnswer,
    NothingAsked,
    Operation,
    Reason,
    listed,
    said,
)

RETAIN: Final = "retention:write"


class RunRetention(ApiRequest, frozen=True, kw_only=True):
    """Whether only to count."""

    dry_run: DryRun = None


class ChangeHold(ApiRequest, frozen=True, kw_only=True):
    """What to hold, or to let go of."""

    kind: str
    """`subject`, `actor` or `episode`."""
    held: str
    """The subject's id, the actor or the episode."""
    reason: Reason = ""


class AddHold(ChangeHold, frozen=True, kw_only=True):
    """What to hold."""

    unseen: bool = False
    """Whether to hold it though the tables have nothing of it."""


OPERATIONS: Final[tuple[AnyOperation, ...]] = (
    Operation(
        name="retention.show",
        method="GET",
        path="/retention",
        does="Return how long things are kept, what is old enough to go, and what is held.",
        role=Role.VIEWER,
        scope=READ,
        asks=NothingAsked,
        gives=RetentionView,
        call=lambda client, *_: client.retention.show(),
        commands=["retention show"],
    ),
    Operation(
        name="retention.run",
        method="POST",
        path="/retention/run",
        does="Let go what is old now, as a node does every hour.",
        scope=RETAIN,
        asks=RunRetention,
        gives=RetentionOutcome,
        call=lambda client, asked, by: client.retention.run(**said(asked), by=by),
        commands=["retention run"],
    ),
    Operation(
        name="retention.holds",
        method="GET",
        path="/retention/holds",
        does="List what people hold, so that nothing of it goes.",
        role=Role.VIEWER,
        scope=READ,
        asks=NothingAsked,
        gives=ListAnswer[RetentionHold],
        call=lambda client, *_: listed(client.retention.holds()),
        commands=["retention hold list"],
    ),
    Operation(
        name="retention.hold",
        method="POST",
        path="/retention/holds",
        does="Hold a subject, an actor or an episode: nothing of it goes, however old it is.",
        role=Role.ADMIN,
        scope=RETAIN,
        asks=AddHold,
        gives=OrderOutcome,
        call=lambda client, asked, by: client.retention.hold(**said(asked), by=by),
        commands=["retention hold add"],
    ),
    Operation(
        name="retention.release",
        method="POST",
        path="/retention/holds/release",
        does="Let go of what is held: it is kept for as long as everything else again.",
        role=Role.ADMIN,
        scope=RETAIN,
        asks=ChangeHold,
        gives=OrderOutcome,
        call=lambda client, asked, by: client.retention.release(**said(asked), by=by),
        commands=["retention hold remove"],
    ),
)
