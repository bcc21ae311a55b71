"""`vigil users`: who may use a stack."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

import typer
from typer import Argument, Option

from streams.clock import SystemClock
from streams.model.people import Role
from vigil.commands.call import call
from vigil.commands.people.typed import ask_unseen, read_stdin
from vigil.errors import Mistake
from vigil.options import By, IsJson, IsWide, Reason, require_consent
from vigil.printing import tables
from vigil.printing.columns import Column, Form, Listing
from vigil.printing.output import rows_of, show_section, show_sheet, show_table
from vigil.printing.tables import Row

if TYPE_CHECKING:
    from projections.records import AuditEntry
    from vigil.client.client import Client
    from vigil.client.page import Page
    from vigil.client.stack.people import PersonRecord, SessionRecord

PEOPLE: Final = Listing(
    (
        Column("name", "name"),
        Column("role", "role"),
        Column("groups", "groups"),
        Column("signs in by", "signs_in_by"),
        Column("added", "added_at", Form.AGE, wide="added at"),
        Column("added by", "added_by"),
    ),
    spare=("added by", "added"),
)
SESSIONS: Final = Listing(
    (
        Column("session", "session_id"),
        Column("signed in by", "way"),
        Column("address", "address"),
        Column("program", "agent"),
        Column("begun", "begun_at", Form.AGE),
        Column("used", "used_at", Form.AGE),
    ),
    spare=("program", "used"),
)
AUDIT: Final = Listing(
    (
        Column("age", "at", Form.AGE, wide="at"),
        Column("what", "what"),
        Column("by", "person"),
        Column("address", "address"),
        Column("reason", "reason"),
    ),
    spare=("reason", "address"),
)
SHOWN_MAX: Final = 20
"""Newest entries of the audit that `vigil users show` prints."""

Name: TypeAlias = Annotated[str, Argument(metavar="NAME", help="The person's name.")]
FromStdin: TypeAlias = Annotated[
    bool, Option("--password-stdin", help="Read the password from standard input.")
]
Groups: TypeAlias = Annotated[
    list[str] | None,
    Option("--group", metavar="GROUP", help="A group that approvals may name; may be repeated."),
]

_CLOCK: Final = SystemClock()

app = typer.Typer(no_args_is_help=True)
"""`vigil users`."""


@app.command()
def add(
    ctx: typer.Context,
    *,
    name: Annotated[
        str,
        Argument(metavar="NAME", help="Letters, digits and . _ @ + -; the journal has it as is."),
    ],
    role: Annotated[Role, Option(help="What the person may do.")] = Role.VIEWER,
    groups: Groups = None,
    is_from_stdin: FromStdin = False,
    has_none: Annotated[
        bool,
        Option(
            "--no-password",
            help="No password: a provider of OpenID Connect vouches for the person.",
        ),
    ] = False,
    is_creating: Annotated[
        bool, Option("--create-stack", help="Make the stack if no node has made it yet.")
    ] = False,
    reason: Reason = "",
    by: By = None,
) -> None:
    """Let somebody use the stack. The password is typed twice, and shown nowhere."""
    if has_none and is_from_stdin:
        raise Mistake("give --password-stdin or --no-password, not both")
    password = None if has_none else _password(is_from_stdin=is_from_stdin)

    async def added(client: Client) -> PersonRecord:
        return await client.people.add(
            name, role=role, groups=groups or (), password=password, reason=reason
        )

    person = call(ctx, added, by=by, create_stack=is_creating)
    print(f"{person.name}: {_described(person)}")


@app.command("list")
def list_(ctx: typer.Context, *, is_wide: IsWide = False, is_json: IsJson = False) -> None:
    """List who may use the stack."""
    people = call(ctx, lambda client: client.people.list())
    print_people(rows_of(people), is_json=is_json, is_wide=is_wide)


def print_people(
    rows: Sequence[Row],
    *,
    is_json: bool = False,
    is_wide: bool = False,
    now: datetime | None = None,
) -> None:
    """Print a list of people."""
    given = rows if is_json else [_listed(row) for row in rows]
    none = "nobody yet; `vigil users add NAME --role admin` adds the first one"
    show_table(given, PEOPLE, is_json=is_json, is_wide=is_wide, why_none=none, now=now)


@app.command()
def show(ctx: typer.Context, *, name: Name, is_json: IsJson = False) -> None:
    """Show somebody: role, groups, sessions, and what was done last."""

    async def read(
        client: Client,
    ) -> tuple[PersonRecord, Sequence[SessionRecord], Page[AuditEntry]]:
        person = await client.people.get(name)
        sessions = await client.people.sessions(name)
        return person, sessions, await client.people.audit(name=name, limit=SHOWN_MAX)

    person, sessions, audit = call(ctx, read)
    (row,), begun = rows_of([person]), rows_of(sessions)
    if is_json:
        print(tables.as_json({**row, "sessions": begun, "audit": audit.rows}))
        return
    print_person(row, begun, audit.rows, now=_CLOCK.now())


def print_person(row: Row, sessions: Sequence[Row], audit: Sequence[Row], *, now: datetime) -> None:
    """Print a person."""
    shown = {**_listed(row), "issuer": row["issuer"], "added": row["added_at"]}
    kept = ("role", "groups", "signs_in_by", "issuer", "added", "added_by")
    labels = {each: each.replace("_", " ") for each in kept}
    show_sheet(str(row["name"]), {labels[each]: shown[each] for each in kept if shown[each]})
    show_section("sessions", sessions, SESSIONS, now=now)
    done = [{**each, "what": str(each["change"]).replace("_", " ")} for each in audit]
    show_section("what was done last", done, AUDIT, now=now)


@app.command()
def role(
    ctx: typer.Context,
    *,
    name: Name,
    wanted: Annotated[Role, Argument(metavar="ROLE", help="What the person may do from now on.")],
    reason: Reason = "",
    by: By = None,
) -> None:
    """Give somebody another role. Who has signed in has to sign in anew."""
    set_role = call(ctx, lambda client: client.people.set_role(name, wanted, reason=reason), by=by)
    print(f"{name}: {wanted}{'' if set_role else ', as before'}")


@app.command()
def groups(
    ctx: typer.Context,
    *,
    name: Name,
    wanted: Annotated[
        list[str] | None,
        Argument(metavar="GROUP...", help="All groups of the person from now on; none: no group."),
    ] = None,
    reason: Reason = "",
    by: By = None,
) -> None:
    """Put somebody into groups, and out of all others."""
    named = sorted(set(wanted or ()))
    is_new = call(ctx, lambda client: client.people.set_groups(name, named, reason=reason), by=by)
    print(f"{name}: {', '.join(named) or 'in no group'}{'' if is_new else ', as before'}")


@app.command()
def password(
    ctx: typer.Context,
    *,
    name: Name,
    is_from_stdin: FromStdin = False,
    reason: Reason = "",
    by: By = None,
) -> None:
    """Give somebody another password. Who has signed in has to sign in anew."""
    typed = _password(is_from_stdin=is_from_stdin)
    call(ctx, lambda client: client.people.set_password(name, typed, reason=reason), by=by)
    print(f"{name}: the password is another one; sessions have ended")


@app.command()
def remove(
    ctx: typer.Context,
    *,
    name: Name,
    is_sure: Annotated[bool, Option("--yes", help="Do not ask for confirmation.")] = False,
    reason: Reason = "",
    by: By = None,
) -> None:
    """Let somebody use the stack no more. Sessions and tokens end at once."""
    if not is_sure:
        require_consent(f"Remove {name}?")
    call(ctx, lambda client: client.people.remove(name, reason=reason), by=by)
    print(f"{name}: removed; sessions and tokens have ended")


@app.command("sign-out")
def sign_out(
    ctx: typer.Context,
    *,
    name: Name,
    session: Annotated[str | None, Option(help="Only this session; by default all.")] = None,
    reason: Reason = "",
    by: By = None,
) -> None:
    """End sessions of somebody: on a machine that was lost, for example."""
    ended = call(
        ctx, lambda client: client.people.end_sessions(name, session, reason=reason), by=by
    )
    print(f"{name}: {'signed out' if ended else 'there was no such session'}")


@app.command("require-login")
def require_login(
    ctx: typer.Context,
    *,
    wanted: Annotated[
        Literal["on", "off"], Argument(metavar="on|off", help="Whether people have to sign in.")
    ],
    reason: Reason = "",
    by: By = None,
) -> None:
    """Say whether people have to sign in before they order something by a command."""
    done = call(
        ctx,
        lambda client: client.people.require_login(is_required=wanted == "on", reason=reason),
        by=by,
    )
    print(f"{done.says}{'' if done.is_new else ', as before'}")


def _password(*, is_from_stdin: bool) -> str:
    if is_from_stdin:
        return read_stdin("password")
    return ask_unseen("password", flag="--password-stdin", is_repeated=True)


def _described(person: PersonRecord) -> str:
    among = f", in {', '.join(person.groups)}" if person.groups else ""
    return f"{person.role}{among}{'' if person.has_password else ', without a password'}"


def _listed(row: Row) -> Row:
    ways = [
        "password" if row["has_password"] else "",
        "OpenID Connect" if row["issuer"] else "",
    ]
    groups: object = row["groups"]
    named = ", ".join(groups) if isinstance(groups, list | tuple) else None
    return {**row, "groups": named or None, "signs_in_by": ", ".join(filter(None, ways)) or None}
