"""`vigil login`, `logout` and `whoami`: who gives the orders that are typed on this machine."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer import Argument, Option

from vigil import logins, options
from vigil.commands.call import call
from vigil.commands.people.typed import ask_unseen, read_stdin
from vigil.errors import Mistake, NotSignedIn
from vigil.logins import KeptLogin
from vigil.options import IsJson
from vigil.printing import tables
from vigil.printing.tables import Row

if TYPE_CHECKING:
    from engine.people.identity import Identity
    from vigil.client.client import Client

_NOBODY: Final = "nobody has signed in here"

_SIGN_IN: Final = "run `vigil login`"


def login(
    ctx: typer.Context,
    *,
    name: Annotated[
        str | None, Argument(metavar="NAME", help="Your name; by default your user name.")
    ] = None,
    is_from_stdin: Annotated[
        bool, Option("--password-stdin", help="Read the password from standard input.")
    ] = False,
    has_secret: Annotated[
        bool,
        Option(
            "--secret-stdin",
            help="Read a token, or the secret of a session, from standard input instead.",
        ),
    ] = False,
) -> None:
    """Sign in to a stack, for the commands of this user on this machine.

    What shows the stack who you are is kept in a file that only you may read.
    """
    config = options.config(ctx)
    if has_secret and (is_from_stdin or name is not None):
        raise Mistake("--secret-stdin takes no name and no password")
    if has_secret:
        secret = read_stdin("secret")
        who = call(ctx, lambda client: client.people.identify(secret))
        if who is None:
            raise NotSignedIn("this is no secret of anybody, or it is over")
        kept = KeptLogin(name=who.name, secret=secret)
    else:
        asked = options.who(config, name)
        if is_from_stdin:
            password = read_stdin("password")
        else:
            password = ask_unseen(f"password of {asked}", flag="--password-stdin")
        agent = f"vigil on {platform.node()}"
        begun = call(ctx, lambda client: client.people.sign_in(asked, password, agent=agent))
        who = begun.identity
        kept = KeptLogin(name=who.name, secret=begun.secret, expires_at=begun.expires_at)
    logins.keep(config, kept)
    until = f", until {kept.expires_at:%Y-%m-%d %H:%M} UTC" if kept.expires_at else ""
    print(f"signed in to stack {config.stack.name} as {_described(who)}{until}")


def logout(ctx: typer.Context) -> None:
    """Sign out of a stack, and forget on this machine who has signed in."""
    config = options.config(ctx)
    secret = logins.secret_for(config)
    if secret is None:
        print(_NOBODY)
        return
    logins.keep(config, None)
    ended = call(ctx, lambda client: client.people.sign_out(secret))
    print("signed out" if ended else "forgotten on this machine; there was no session to end")


def whoami(ctx: typer.Context, *, is_json: IsJson = False) -> None:
    """Show who has signed in to a stack here, and whether the stack wants to know."""
    secret = logins.secret_for(options.config(ctx))

    async def read(client: Client) -> tuple[Identity | None, bool]:
        who = None if secret is None else await client.people.identify(secret)
        return who, await client.people.is_login_required()

    who, is_required = call(ctx, read)
    if is_json:
        print(tables.as_json({**_as_row(who), "login_required": is_required}))
        return
    wants = "this stack wants people to sign in" if is_required else "this stack asks nobody"
    if who is not None:
        print(f"{_described(who)}; {wants}")
        return
    over = _NOBODY if secret is None else "your login is over"
    print(f"{over}; {wants}{f': {_SIGN_IN}' if is_required else ''}")


def _as_row(who: Identity | None) -> Row:
    if who is None:
        return {"name": None, "role": None, "groups": [], "scopes": None}
    return {
        "name": who.name,
        "role": who.role.value,
        "groups": sorted(who.groups),
        "scopes": None if who.scopes is None else sorted(who.scopes),
    }


def _described(who: Identity) -> str:
    parts = [
        who.role.value,
        f"in {', '.join(sorted(who.groups))}" if who.groups else "",
        f"for {', '.join(sorted(who.scopes))}" if who.scopes is not None else "",
    ]
    return f"{who.name}: {', '.join(filter(None, parts))}"
