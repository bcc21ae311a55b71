"""Options that commands share, and what their values mean."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias, cast

import typer
from typer import Argument, Option

from vigil import settings
from vigil.errors import Mistake, Trouble
from vigil.settings import Config

WAIT_S: Final = settings.WAIT_S
DECISION_S: Final = settings.DECISION_S

PAST_S_MAX: Final = 3_660 * 86_400
"""Longest time ago that can be given as a duration, in seconds: ten years."""


def _checked_limit(limit: int) -> int:
    from projections.postgres.query_result import ROWS_MAX  # Help needs no Postgres.

    if limit > ROWS_MAX:
        raise typer.BadParameter(f"{limit:,} is more than {ROWS_MAX:,}")
    return limit


EpisodeId: TypeAlias = Annotated[
    str,
    Argument(metavar="ID", help="The episode's id, or so much of its beginning that it is one."),
]
EpisodeIdOrLatest: TypeAlias = Annotated[
    str | None,
    Argument(metavar="ID", help="The episode's id, or so much of its beginning that it is one."),
]
AppName: TypeAlias = Annotated[
    str | None,
    Argument(
        metavar="APP",
        help="The app, as module:attribute, such as watch:app; by default that of vigil.toml.",
    ),
]
IsLatest: TypeAlias = Annotated[
    bool, Option("--latest", help="Instead of an id: the episode that was opened last.")
]
IsJson: TypeAlias = Annotated[bool, Option("--json", help="Print JSON, for programs.")]
IsWide: TypeAlias = Annotated[
    bool, Option("--wide", help="Print ids, times and texts in full, and every column.")
]
Limit: TypeAlias = Annotated[
    int, Option(min=1, callback=_checked_limit, help="Most rows to print.")
]
PastTime: TypeAlias = Annotated[
    str | None,
    Option(metavar="TIME", help="As it was then: 2030-01-31T09:00:00Z, or 2h ago."),
]
"""The time of a list of the past."""
Timeout: TypeAlias = Annotated[
    float, Option("--timeout", min=0.0, help="Longest wait, in seconds.")
]
By: TypeAlias = Annotated[
    str | None, Option(help="Your name, kept with the change; by default your user name.")
]
Reason: TypeAlias = Annotated[str, Option(help="Why; kept with the change.")]
Hash: TypeAlias = Annotated[
    str | None,
    Option("--hash", help="The first 8 hex digits, or more, of the hash of what you saw."),
]
Changes: TypeAlias = Annotated[
    str | None,
    Option(
        help="Approve it with these changes: JSON that is merged into it, null removes a key;"
        " @FILE, or - for standard input."
    ),
]
Verdict: TypeAlias = Literal["approve", "deny"]
"""What is decided on a request for approval."""

IsSure: TypeAlias = Annotated[bool, Option("--yes", help="Do not ask for confirmation.")]
IsDry: TypeAlias = Annotated[
    bool, Option("--dry-run/--no-dry-run", help="Run all of it, and change nothing outside.")
]
OverridesText: TypeAlias = Annotated[
    str | None,
    Option(
        "--overrides",
        help="Results that a dry run uses instead of calling tools: a JSON object with tools,"
        " failures, synthesis, persist_findings; @FILE, or - for standard input.",
    ),
]
IsWaitingForEnd: TypeAlias = Annotated[
    bool, Option("--wait", help="Wait for its end; exit code 1 unless it is done.")
]
IsWaiting: TypeAlias = Annotated[
    bool, Option("--wait/--no-wait", help="Whether to wait until it is on the journal.")
]


def given(ctx: typer.Context) -> Mapping[str, object]:
    """Return the settings that were given as flags; None for those that were not."""
    return cast("Mapping[str, object]", ctx.obj or {})


def config(ctx: typer.Context, **known: object) -> Config:
    """Return the settings in force; `known` overrides even the flags."""
    return settings.read({**given(ctx), **known})


def app_name(ctx: typer.Context, typed: str | None, *, flag: str = "--app") -> tuple[str, str]:
    """Return the name of the app in force, and who named it: `typed`, else the settings.

    Raises `Mistake` if nobody names one.
    """
    if typed is not None:
        return typed, flag
    found = config(ctx)
    if not found.settings.app:
        place = flag or "the app"
        raise Mistake(
            f'which app? give {place}, such as watch:app; or write app = "watch:app" into'
            f" {settings.FILE}, or set {settings.PREFIX}APP"
        )
    origin = found.origins["app"]
    is_variable = origin == settings.ENVIRONMENT
    return found.settings.app, f"{settings.PREFIX}APP" if is_variable else f"{origin}: app ="


def who(config: Config, by: str | None) -> str:
    """Return the person who gives a command: `by`, else the user name, else this program's."""
    if by is not None and not by.strip():
        raise Mistake("--by: give a name, or leave it out")
    return by[: settings.BY_CHARS_MAX] if by else settings.user(config)


def stranger_hint(approvers: Collection[str], by: str) -> str:
    """Return what to add to the error that `by` is not one of the approvers; empty: `by` is."""
    return "; give your name with --by" if approvers and by not in approvers else ""


def require_consent(question: str) -> None:
    """Ask for confirmation; raise `Mistake` if there is no terminal to ask on."""
    if not sys.stdin.isatty():
        raise Mistake("there is no terminal to confirm on; give --yes")
    typer.confirm(question, abort=True, err=True)


def read_time(text: str, *, what: str) -> datetime:
    """Return the time in `text`, which has a zone; raise `Mistake` if it has none."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise Mistake(f"{what}: {text!r} is not a time, such as 2030-01-31T09:00:00Z") from error
    if time.utcoffset() is None:
        raise Mistake(f"{what}: {text!r} is in no time zone; write Z or +01:00 after it")
    return time


def read_past(text: str | None, *, what: str, now: datetime) -> datetime | None:
    """Return the time in `text`, or so long before `now`; None: it is None.

    Raises `Mistake` if it is neither.
    """
    if text is None:
        return None
    from engine.validation import seconds_of

    try:
        return now - timedelta(seconds=seconds_of(text, least_s=0, most_s=PAST_S_MAX))
    except ValueError:
        pass
    try:
        return read_time(text, what=what)
    except Mistake as error:
        raise Mistake(f"{error}; or how long ago, such as 15m or 2d") from error


def read_bytes(text: str, *, what: str) -> bytes:
    """Return the bytes of `text`; of the file after `@`; or, for `-`, of standard input.

    Raises `Mistake` if there are more than an event may have, `Trouble` if the file cannot be read.
    """
    from streams.ports.domain_events import EVENT_BYTES_MAX

    try:
        if text == "-":
            data = sys.stdin.buffer.read(EVENT_BYTES_MAX + 1)
        elif text.startswith("@"):
            with Path(text[1:]).open("rb") as file:
                data = file.read(EVENT_BYTES_MAX + 1)
        else:
            data = text.encode(errors="surrogateescape")
    except OSError as error:
        raise Trouble(f"{what}: {text.removeprefix('@')}: {error.strerror or error}") from error
    if len(data) > EVENT_BYTES_MAX:
        raise Mistake(f"{what}: over {EVENT_BYTES_MAX:,} bytes")
    return data


def read_json(text: str, *, what: str) -> object:
    """Return the JSON value in `text`, read as by `read_bytes`; raise `Mistake` if it has none."""
    import msgspec

    from streams.json import UNDECODABLE

    try:
        value: object = msgspec.json.decode(read_bytes(text, what=what))
    except UNDECODABLE as error:
        raise Mistake(f"{what}: not JSON: {error}") from error
    return value


def read_object(text: str, *, what: str) -> dict[str, object]:
    """Return the JSON object in `text`, read as by `read_bytes`; raise `Mistake` if it has none."""
    value = read_json(text, what=what)
    if not isinstance(value, dict):
        raise Mistake(f"{what}: a {type(value).__name__}, not a JSON object")
    return value
