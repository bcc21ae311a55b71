"""Operations on people and on tokens of programs. Passwords are no part of the API."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from engine.people.identity import Role
from engine.people.names import SCOPES_MAX
from engine.people.token import TOKEN_S
from projections.records import AuditEntry, TokenSummary
from streams.model.people import SavedView
from vigil.client.client import Client
from vigil.client.stack.people import PersonRecord, SessionRecord
from vigil.client.stack.tokens import NewToken
from vigil.web.api.operation import (
    AnyOperation,
    ApiRequest,
    AskedOfList,
    ListAnswer,
    NothingAsked,
    Operation,
    Reason,
    Words,
    listed,
    said,
)

READ: Final = "people:read"
WRITE: Final = "people:write"

VIEWS: Final = "views"

GROUPS_MAX: Final = 64
"""Most groups that one request names."""

Groups = Annotated[tuple[str, ...], Meta(max_length=GROUPS_MAX)]


class OnePerson(ApiRequest, frozen=True, kw_only=True):
    """Who."""

    name: str


class AddPerson(OnePerson, frozen=True, kw_only=True):
    """Somebody who may use the stack."""

    role: Role = Role.VIEWER
    groups: Groups = ()
    reason: Reason = ""


class RemovePerson(OnePerson, frozen=True, kw_only=True):
    """Who, and why."""

    reason: Reason = ""


class SetRole(RemovePerson, frozen=True, kw_only=True):
    """A role."""

    role: Role


class SetGroups(RemovePerson, frozen=True, kw_only=True):
    """All groups of somebody."""

    groups: Groups


class EndSessions(RemovePerson, frozen=True, kw_only=True):
    """Which session; none: all."""

    session_id: str | None = None


class ReadAudit(AskedOfList, frozen=True, kw_only=True):
    """Which entries."""

    name: str | None = None
    change: Words = None


class ListTokens(AskedOfList, frozen=True, kw_only=True):
    """Which tokens."""

    is_good: Annotated[
        bool | None, Meta(description="Only those that are good now, or only the others.")
    ] = None


class IssueToken(ApiRequest, frozen=True, kw_only=True):
    """A token for a program."""

    name: str
    role: Role = Role.VIEWER
    scopes: Annotated[tuple[str, ...], Meta(max_length=SCOPES_MAX)] | None = None
    expires_in: Annotated[
        float | str, Meta(description="Seconds, or a text such as `30d`: a minute to 366 days.")
    ] = TOKEN_S
    is_agent: bool = False
    reason: Reason = ""


class RevokeToken(ApiRequest, frozen=True, kw_only=True):
    """Which token, and why."""

    token_id: str
    reason: Reason = ""


class SaveView(ApiRequest, frozen=True, kw_only=True):
    """The address of a list of the console, under a name."""

    name: str
    address: str
    is_default: bool = False


class RemoveView(ApiRequest, frozen=True, kw_only=True):
    """Which view of which list, such as `/episodes`."""

    page: str
    name: str


class SetDefaultView(ApiRequest, frozen=True, kw_only=True):
    """To which view of a list the navigation leads; none: to the whole list."""

    page: str
    name: str | None = None


class ChangeMade(msgspec.Struct, frozen=True, kw_only=True):
    """Whether something has changed."""

    is_made: bool
    """False: all was so already."""


async def _changed(change: Awaitable[bool]) -> ChangeMade:
    return ChangeMade(is_made=await change)


async def _remove(client: Client, asked: RemovePerson, by: str) -> ChangeMade:
    await client.people.remove(asked.name, reason=asked.reason, by=by)
    return ChangeMade(is_made=True)


OPERATIONS: Final[Sequence[AnyOperation]] = (
    Operation(
        name="people.list",
        method="GET",
        path="/people",
        does="List who may use the stack, by name.",
        role=Role.ADMIN,
        scope=READ,
        asks=NothingAsked,
        gives=ListAnswer[PersonRecord],
        call=lambda client, *_: listed(client.people.list()),
        commands=["users list"],
    ),
    Operation(
        name="people.get",
        method="GET",
        path="/people/{name}",
        does="Return somebody.",
        role=Role.ADMIN,
        scope=READ,
        asks=OnePerson,
        gives=PersonRecord,
        call=lambda client, asked, _: client.people.get(asked.name),
        commands=["users show"],
    ),
    Operation(
        name="people.add",
        method="POST",
        path="/people",
        does="Let somebody use the stack, without a password: a provider vouches for that one.",
        role=Role.ADMIN,
        scope=WRITE,
        asks=AddPerson,
        gives=PersonRecord,
        call=lambda client, asked, by: client.people.add(**said(asked), by=by),
        of_people=True,
        commands=["users add"],
    ),
    Operation(
        name="people.remove",
        method="DELETE",
        path="/people/{name}",
        does="Let somebody use the stack no more: sessions and tokens are over at once.",
        role=Role.ADMIN,
        scope=WRITE,
        asks=RemovePerson,
        gives=ChangeMade,
        call=_remove,
        of_people=True,
        commands=["users remove"],
    ),
    Operation(
        name="people.set_role",
        method="PUT",
        path="/people/{name}/role",
        does="Give somebody a role. All sessions of that one end.",
        role=Role.ADMIN,
        scope=WRITE,
        asks=SetRole,
        gives=ChangeMade,
        call=lambda client, asked, by: _changed(client.people.set_role(**said(asked), by=by)),
        of_people=True,
        commands=["users role"],
    ),
    Operation(
        name="people.set_groups",
        method="PUT",
        path="/people/{name}/groups",
        does="Put somebody into these groups and no others.",
        role=Role.ADMIN,
        scope=WRITE,
        asks=SetGroups,
        gives=ChangeMade,
        call=lambda client, asked, by: _changed(client.people.set_groups(**said(asked), by=by)),
        of_people=True,
        commands=["users groups"],
    ),
    Operation(
        name="people.sessions",
        method="GET",
        path="/people/{name}/sessions",
        does="List the sessions of somebody that are not over, the first one first.",
        role=Role.ADMIN,
        scope=READ,
        asks=OnePerson,
        gives=ListAnswer[SessionRecord],
        call=lambda client, asked, _: listed(client.people.sessions(asked.name)),
    ),
    Operation(
        name="people.end_sessions",
        method="DELETE",
        path="/people/{name}/sessions",
        does="End a session of somebody, or all.",
        role=Role.ADMIN,
        scope=WRITE,
        asks=EndSessions,
        gives=ChangeMade,
        call=lambda client, asked, by: _changed(client.people.end_sessions(**said(asked), by=by)),
        of_people=True,
        commands=["users sign-out"],
    ),
    Operation(
        name="people.audit",
        method="GET",
        path="/audit",
        does="List who signed in, was refused, or changed what about people: the latest first.",
        role=Role.ADMIN,
        scope=READ,
        asks=ReadAudit,
        gives=ListAnswer[AuditEntry],
        call=lambda client, asked, _: listed(client.people.audit(**said(asked))),
    ),
    Operation(
        name="people.views",
        method="GET",
        path="/views",
        does="List the views of the console's lists that you have saved.",
        role=Role.VIEWER,
        scope=VIEWS,
        asks=NothingAsked,
        gives=ListAnswer[SavedView],
        call=lambda client, _, by: listed(client.people.views(by=by)),
        of_people=True,
    ),
    Operation(
        name="people.save_view",
        method="PUT",
        path="/views",
        does="Save the address of a list under a name, for you alone.",
        role=Role.VIEWER,
        scope=VIEWS,
        asks=SaveView,
        gives=ChangeMade,
        call=lambda client, asked, by: _changed(client.people.save_view(**said(asked), by=by)),
        of_people=True,
    ),
    Operation(
        name="people.remove_view",
        method="DELETE",
        path="/views",
        does="Remove a view that you have saved of a list.",
        role=Role.VIEWER,
        scope=VIEWS,
        asks=RemoveView,
        gives=ChangeMade,
        call=lambda client, asked, by: _changed(client.people.remove_view(**said(asked), by=by)),
        of_people=True,
    ),
    Operation(
        name="people.set_default_view",
        method="PUT",
        path="/views/default",
        does="Have the navigation of your console lead to a view of a list, or to all of it.",
        role=Role.VIEWER,
        scope=VIEWS,
        asks=SetDefaultView,
        gives=ChangeMade,
        call=lambda client, asked, by: _changed(
            client.people.set_default_view(**said(asked), by=by)
        ),
        of_people=True,
    ),
    Operation(
        name="tokens.list",
        method="GET",
        path="/tokens",
        does="List tokens of programs, the latest first, without their secrets.",
        role=Role.ADMIN,
        scope=READ,
        asks=ListTokens,
        gives=ListAnswer[TokenSummary],
        call=lambda client, asked, _: listed(client.tokens.list(**said(asked))),
        commands=["tokens list"],
    ),
    Operation(
        name="tokens.issue",
        method="POST",
        path="/tokens",
        does="Issue a token for a program; its secret is told only in the answer.",
        role=Role.ADMIN,
        scope=WRITE,
        asks=IssueToken,
        gives=NewToken,
        call=lambda client, asked, by: client.tokens.issue(**said(asked), by=by),
        of_people=True,
        commands=["tokens issue"],
    ),
    Operation(
        name="tokens.revoke",
        method="DELETE",
        path="/tokens/{token_id}",
        does="Revoke a token, for good.",
        role=Role.ADMIN,
        scope=WRITE,
        asks=RevokeToken,
        gives=ChangeMade,
        call=lambda client, asked, by: _changed(client.tokens.revoke(**said(asked), by=by)),
        of_people=True,
        commands=["tokens revoke"],
    ),
)
