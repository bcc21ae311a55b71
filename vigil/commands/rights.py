"""What each command that orders something takes, on a stack that wants people to sign in.

Who may read the streams and the tables of a stack is told by NATS and Postgres, which know nothing
of its people: commands that only read take nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from streams.model.people import Role
from vigil import logins
from vigil.errors import Mistake, NotSignedIn, ServerAway, StackNotFound, Trouble

if TYPE_CHECKING:
    from vigil.client.client import Client
    from vigil.settings import Config

SCOPE: Final = "commands"
"""What a token with scopes has to have for the command line."""

_SIGN_IN: Final = "run `vigil login`"

NEEDED: Final[Mapping[str, Role]] = {
    **dict.fromkeys(
        (
            "publish",
            "apply",
            "fire",
            "mode",
            "recover",
            "reconcile",
            "repartition",
            "projections rebuild",
            "projections verify",
            "archive run",
            "archive restore",
            "actors pause",
            "actors resume",
            "actors reset",
            "actors apply",
            "actors disable",
            "orders rebuild",
            "episodes fork",
            "episodes cancel",
            "episodes settle",
            "episodes resolve",
            "findings clear",
            "findings ack",
            "findings note",
            "outputs retry",
            "outputs cancel",
            "workflows start",
            "workflows resume",
            "workflows cancel",
            "workflows apply",
            "workflows disable",
            "retention run",
            "dead requeue",
            "dead discard",
        ),
        Role.OPERATOR,
    ),
    **dict.fromkeys(
        (
            "episodes approve",
            "episodes deny",
            "outputs approve",
            "outputs reject",
            "workflows approve",
            "workflows deny",
        ),
        Role.APPROVER,
    ),
    **dict.fromkeys(
        (
            "retention hold add",
            "retention hold remove",
            "users add",
            "users role",
            "users groups",
            "users password",
            "users remove",
            "users sign-out",
            "users require-login",
            "tokens issue",
            "tokens revoke",
            "backup create",
            "backup restore",
            "encrypt",
            "erase",
        ),
        Role.ADMIN,
    ),
}
"""Command → the role that it takes."""

OWN: Final = frozenset({"tokens issue"})
"""Everybody may do this for as much as that one may, so its own rules decide."""


async def order_as_login(
    client: Client, config: Config, command: str, *, typed: str | None
) -> None:
    """Have a client order as whoever has signed in here, if the stack wants people to.

    Args:
        typed: what was typed after `--by`.

    Raises:
        NotSignedIn: nobody has signed in here, or the login is over.
        Trouble: it takes another role.
        Mistake: `typed` is somebody else.
    """
    try:
        async with client.connections.log(is_reading=True) as ports:
            if not await logins.is_login_required(ports):
                return
    except (ServerAway, StackNotFound) as error:
        # What was typed may be wrong: the command says so first. It orders nothing in any case.
        client.connections.withhold_log(error)
        return
    secret = logins.secret_for(config)
    if secret is None:
        raise NotSignedIn("this stack wants to know who orders something", remedy=_SIGN_IN)
    who = await client.people.identify(secret)
    if who is None:
        raise NotSignedIn("your login is over", remedy=_SIGN_IN)
    role = Role.VIEWER if command in OWN else NEEDED[command]
    if not who.may(role, SCOPE):  # guard: command-for-its-role
        says = f"this takes the role {role}, and {who.name!r} is {who.role}"
        scopes = "" if who.scopes is None else f", for {', '.join(sorted(who.scopes))} alone"
        raise Trouble(f"{says}{scopes}")
    if role is Role.APPROVER and not who.is_person:  # guard: programs-decide-nothing
        raise Trouble("programs decide on no approvals", remedy="sign in as a person")
    if typed is not None and typed != who.name:  # guard: by-is-the-login
        raise Mistake(f"--by: you are signed in as {who.name!r}, and nobody else; leave it out")
    client.connections.order_as(who.name)
