"""What each command that orders something takes, on a stack that wants people to sign in.

Who may read the streams and the tables of a stack is told by NATS and Postgres, which know nothing
of its people: commands that only read take nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from streams.model.people import Role
from vigil import logins
from vigil.errors import Mistake, ServerAway, StackNotFound, Trouble

if TYPE_CHECKING:
    from vigil.client.client import Client
    from vigil.settings import Config

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
    client: Client, config: Config, command: str, *, typed: str | None, is_open: bool = False
) -> None:
    """Have a client order as whoever has signed in here, if the stack wants people to.

    Args:
        typed: what was typed after `--by`.
        is_open: whether it could be a dry run, and nobody has typed whether it is one. What an
            agent types has to say so: a command that had been one in silence would seem done.

    Raises:
        NotSignedIn: nobody has signed in here, or the login is over.
        Trouble: it takes another role.
        Mistake: `typed` is somebody else, or an agent has to say whether it is a dry run.
    """
    try:
        async with client.connections.log(is_reading=True) as ports:
            if not await logins.is_login_required(ports):
                return
    except (ServerAway, StackNotFound) as error:
        # What was typed may be wrong: the command says so first. It orders nothing in any case.
        client.connections.withhold_log(error)
        return
    role = Role.VIEWER if command in OWN else NEEDED[command]
    who = await logins.login_for(config, role, identify=client.people.identify, typed=typed)
    if role is Role.APPROVER and not who.is_person:  # guard: programs-decide-nothing
        raise Trouble("programs decide on no approvals", remedy="sign in as a person")
    if who.is_agent and is_open:  # guard: agents-say-whether-dry
        raise Mistake(
            f"{who.name!r} is an agent's: say whether this is a dry run",
            remedy="add --dry-run, or --no-dry-run if it is to change something",
        )
    client.connections.order_as(who.name)
