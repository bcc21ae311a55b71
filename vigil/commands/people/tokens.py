"""`vigil tokens`: with which programs use a stack."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer import Argument, Option

from streams.clock import SystemClock
from streams.model.people import Role
from vigil.commands.call import call
from vigil.options import By, IsJson, IsWide, Limit, Reason
from vigil.printing import tables
from vigil.printing.columns import Column, Form, Listing
from vigil.printing.output import rows_of, say_aside, show_table
from vigil.printing.tables import Row

if TYPE_CHECKING:
    from vigil.client.client import Client
    from vigil.client.stack.tokens import NewToken

TOKENS: Final = Listing(
    (
        Column("token", "token_id"),
        Column("program", "name"),
        Column("role", "role"),
        Column("scopes", "scopes"),
        Column("state", "state"),
        Column("ends", "expires_at", Form.AGE, wide="ends at"),
        Column("issued", "issued_at", Form.AGE, wide="issued at"),
        Column("issued by", "issued_by"),
        Column("reason", "reason"),
    ),
    spare=("reason", "issued", "issued by"),
)

_CLOCK: Final = SystemClock()

app = typer.Typer(no_args_is_help=True)
"""`vigil tokens`."""


@app.command()
def issue(
    ctx: typer.Context,
    *,
    name: Annotated[
        str,
        Argument(metavar="NAME", help="What the program is called; the journal has token:NAME."),
    ],
    role: Annotated[Role, Option(help="What it may do at most.")] = Role.VIEWER,
    scopes: Annotated[
        list[str] | None,
        Option(
            "--scope",
            metavar="SCOPE",
            help="What it is for, such as read or events:publish; may be repeated. By default all"
            " that its role may.",
        ),
    ] = None,
    expires_in: Annotated[
        str, Option(metavar="DURATION", help="How long it is good: up to 366 days.")
    ] = "90d",
    is_agent: Annotated[
        bool, Option("--agent", help="A model decides what is done with it.")
    ] = False,
    reason: Reason = "",
    by: By = None,
    is_json: IsJson = False,
) -> None:
    """Issue a token for a program, and print it: nobody can see it again."""

    async def issued(client: Client) -> NewToken:
        return await client.tokens.issue(
            name,
            role=role,
            scopes=scopes or None,
            expires_in=expires_in,
            is_agent=is_agent,
            reason=reason,
        )

    token = call(ctx, issued, by=by)
    if is_json:
        print(tables.as_json(rows_of([token])[0]))
        return
    print(token.secret)
    until = token.expires_at.strftime("%Y-%m-%d")
    say_aside(f"token {token.token_id}, good until {until}; keep it, it is not shown again")


@app.command("list")
def list_(
    ctx: typer.Context,
    *,
    shows_all: Annotated[
        bool, Option("--all", help="Also those that were revoked or have expired.")
    ] = False,
    limit: Limit = 50,
    is_wide: IsWide = False,
    is_json: IsJson = False,
) -> None:
    """List tokens, the latest first."""
    page = call(
        ctx,
        lambda client: client.tokens.list(is_good=None if shows_all else True, limit=limit),
    )
    print_tokens(page.rows, is_json=is_json, is_wide=is_wide, why_none=page.why_none)


def print_tokens(
    rows: Sequence[Row],
    *,
    is_json: bool = False,
    is_wide: bool = False,
    why_none: str = "",
    now: datetime | None = None,
) -> None:
    """Print a list of tokens."""
    at = now or _CLOCK.now()
    given = rows if is_json else [_listed(row, at) for row in rows]
    show_table(given, TOKENS, is_json=is_json, is_wide=is_wide, why_none=why_none, now=at)


@app.command()
def revoke(
    ctx: typer.Context,
    *,
    token_id: Annotated[str, Argument(metavar="TOKEN", help="Its id, as the list has it.")],
    reason: Reason = "",
    by: By = None,
) -> None:
    """Revoke a token, for good."""
    is_new = call(ctx, lambda client: client.tokens.revoke(token_id, reason=reason), by=by)
    print(f"{token_id}: {'revoked' if is_new else 'was revoked before'}")


def _listed(row: Row, now: datetime) -> Row:
    ends = row["expires_at"]
    is_over = isinstance(ends, datetime) and ends <= now
    state = "revoked" if row["revoked_at"] else "expired" if is_over else "good"
    reason = row["revoked_reason"] if row["revoked_at"] else row["issued_reason"]
    scopes: object = row["scopes"]
    return {
        **row,
        "scopes": ", ".join(scopes) if isinstance(scopes, list) else "all",
        "state": f"{state}, agent" if row["is_agent"] else state,
        "reason": reason,
    }
