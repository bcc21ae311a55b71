"""`vigil findings`: what actors found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer import Argument, Option

from streams.clock import SystemClock
from streams.model.findings import Finding, FindingStatus, Severity
from vigil.client.dead_letters import argument
from vigil.commands.call import call
from vigil.errors import Mistake, NotFound, Trouble
from vigil.options import By, IsJson, IsWide, Limit, PastTime, Reason, read_past
from vigil.printing import columns
from vigil.printing.columns import Column, Form, Listing
from vigil.printing.output import (
    rows_of,
    say_aside,
    show_record,
    show_section,
    show_sheet,
    show_table,
)
from vigil.printing.tables import Row

if TYPE_CHECKING:
    from engine.findings.store import FindingChange

app = typer.Typer(no_args_is_help=True)

LISTING: Final = Listing(
    (
        Column("key", "finding_key"),
        Column("severity", "severity"),
        Column("status", "standing", room=20),
        Column("age", "raised_at", Form.AGE, wide="raised"),
        Column("summary", "summary", room=32),
        Column("about", "subject_id"),
        Column("class", "class"),
        Column("actor", "actor_id"),
        Column("expires", "expires_at", Form.AGE),
        Column("acknowledged by", "acknowledged_by"),
        Column("caused by", "caused_by_key"),
    ),
    spare=(
        "caused by", "acknowledged by", "expires", "actor", "about", "class", "summary", "age",
        "status",
    ),
)  # fmt: skip
HISTORY: Final = Listing(
    (
        Column("at", "at", Form.TIME),
        Column("what happened", "what"),
        Column("severity", "severity"),
        Column("episode", "episode_id", Form.ID),
        Column("by", "person"),
        Column("reason", "reason"),
        Column("summary", "summary"),
        Column("raised times", "raise_no"),
    ),
    spare=("raised times", "summary", "episode", "severity", "reason"),
)
CHAIN: Final = Listing(
    (
        Column("key", "finding_key"),
        Column("severity", "severity"),
        Column("status", "status"),
        Column("class", "class"),
        Column("summary", "summary"),
    ),
    spare=("class", "summary", "status"),
)

TOLD: Final = frozenset({
    "stack", "journal_seq", "history", "finding_key", "severity", "status", "class", "summary",
    "subject_kind", "subject_id", "actor_id", "expectation_id", "raised_by_episode_id", "raised_at",
    "updated_at", "expires_at", "ttl_s", "acknowledged_by", "acknowledged_at",
})  # fmt: skip
"""The columns of a finding that the first lines tell, that have a table, or are for programs."""

ACKNOWLEDGED: Final = "active, acknowledged"
"""The status of a finding that somebody has acknowledged; `--json` has both in columns."""

CAUSED: Final = "Each finding was caused by the one below it"

_CLOCK: Final = SystemClock()

Key = Annotated[str, Argument(metavar="KEY", help="The finding's key.")]


class WantedStatus(StrEnum):
    """Statuses to list. `superseded` is one of rows alone: a key has its last raise."""

    ACTIVE = FindingStatus.ACTIVE
    CLEARED = FindingStatus.CLEARED
    EXPIRED = FindingStatus.EXPIRED
    SUPERSEDED = "superseded"
    ALL = "all"


@app.command("list")
def list_(
    ctx: typer.Context,
    *,
    status: Annotated[WantedStatus, Option(help="Only with this status.")] = WantedStatus.ACTIVE,
    severity: Annotated[Severity | None, Option(help="Only of this severity.")] = None,
    actor: Annotated[str | None, Option(help="Only of this actor.")] = None,
    at: PastTime = None,
    limit: Limit = 50,
    is_wide: IsWide = False,
    is_json: IsJson = False,
) -> None:
    """List findings: the most severe first, then the latest changed."""
    only = None if status is WantedStatus.ALL else status
    then = read_past(at, what="--at", now=_CLOCK.now())
    page = call(
        ctx,
        lambda client: client.findings.list(
            status=only, severity=severity, actor=actor, at=then, limit=limit
        ),
    )
    print_findings(page.rows, is_json=is_json, is_wide=is_wide, why_none=page.why_none, now=then)


def print_findings(
    rows: Sequence[Row],
    *,
    is_json: bool = False,
    is_wide: bool = False,
    why_none: str = "",
    now: datetime | None = None,
) -> None:
    """Print a list of findings."""
    shown = rows if is_json else [{**row, "standing": _standing(row)} for row in rows]
    show_table(shown, LISTING, is_json=is_json, is_wide=is_wide, why_none=why_none, now=now)


def _standing(row: Row) -> object:
    """Return the status of a finding, and whether somebody has taken it up."""
    is_seen = row["status"] == FindingStatus.ACTIVE and row["acknowledged_by"]
    return ACKNOWLEDGED if is_seen else row["status"]


@app.command()
def show(ctx: typer.Context, *, key: Key, at: PastTime = None, is_json: IsJson = False) -> None:
    """Show one finding, and its history."""
    then = read_past(at, what="--at", now=_CLOCK.now())
    found = call(ctx, lambda client: client.findings.describe(key, at=then))
    if is_json:
        show_record(found, is_json=True)
        return
    print_finding(found, now=then or _CLOCK.now())


def print_finding(row: Row, *, now: datetime) -> None:
    """Print one finding, and its history, the latest first."""
    about = " ".join(str(row[each]) for each in ("subject_kind", "subject_id") if row[each])
    first = {
        "status": _standing(row),
        "severity": row["severity"],
        "class": row["class"],
        "summary": row["summary"],
        "about": about,
        "raised by": f"{row['actor_id']}.{row['expectation_id']}",
        "episode": row["raised_by_episode_id"],
        "raised": columns.moment(row["raised_at"], now),
        "changed": columns.moment(row["updated_at"], now),
        "expires": columns.moment(row["expires_at"], now),
        "acknowledged": _acknowledged(row, now),
        "what to do": what_to_do(row),
    }
    usual = {"raise_no": 1, "confidence": 1.0}
    told = columns.sheet(row, usual=usual, hidden=TOLD, first=first)
    show_sheet(f"finding {row['finding_key']}", told)
    history = row["history"]
    assert isinstance(history, list)
    changes = [{**each, "what": str(each["kind"]).removeprefix("finding_")} for each in history]
    show_section("History", changes, HISTORY, now=now)


def what_to_do(row: Row) -> str | None:
    """Return the commands that answer an active finding, a line each."""
    if row["status"] != FindingStatus.ACTIVE:
        return None
    acts = ["clear"] if row["acknowledged_by"] else ["ack", "clear"]
    return "\n".join(f"vigil findings {each} {argument(str(row['finding_key']))}" for each in acts)


def _acknowledged(row: Row, now: datetime) -> str | None:
    by, at = row["acknowledged_by"], columns.moment(row["acknowledged_at"], now)
    return ", ".join(filter(None, (f"by {by}" if by else None, at))) or None


@app.command()
def clear(ctx: typer.Context, *, key: Key, reason: Reason = "", by: By = None) -> None:
    """Clear a finding. One that has ended stays as it is."""
    with _asked_for():
        change = call(ctx, lambda client: client.findings.clear(key, reason=reason), by=by)
    if change.is_made:
        print(f"{key}: cleared by {_newest(change).cleared_by}")
    else:
        print(f"{key}: nothing to clear, it {_ended(_finding(change))}")


@app.command()
def ack(ctx: typer.Context, *, key: Key, reason: Reason = "", by: By = None) -> None:
    """Acknowledge a finding. It stays active; one that has ended is refused."""
    with _asked_for():
        change = call(ctx, lambda client: client.findings.acknowledge(key, reason=reason), by=by)
    if change.is_made:
        print(f"{key}: acknowledged by {_newest(change).acknowledged_by}")
        return
    finding = _finding(change)
    if finding.status is not FindingStatus.ACTIVE:
        # guard: vain-acknowledge-told
        raise Trouble(f"{key}: nothing to acknowledge, it {_ended(finding)}")
    print(f"{key}: nothing to do, {finding.acknowledged_by} has acknowledged it")


@app.command()
def note(
    ctx: typer.Context,
    *,
    key: Key,
    text: Annotated[str, Argument(metavar="TEXT", help="The note.")],
    by: By = None,
) -> None:
    """Add a note to a finding. It stays active."""
    with _asked_for():
        call(ctx, lambda client: client.findings.note(key, text), by=by)
    print(f"{key}: noted")


@app.command()
def chain(
    ctx: typer.Context,
    *,
    key: Key,
    depth: Annotated[int, Option(help="Most steps.", min=1, max=100)] = 10,
    is_wide: IsWide = False,
    is_json: IsJson = False,
) -> None:
    """Show a finding and its causes, step by step."""
    causes = call(ctx, lambda client: client.findings.causal_chain(key, depth=depth))
    print_chain(rows_of(causes), is_json=is_json, is_wide=is_wide)


def print_chain(
    rows: Sequence[Row],
    *,
    is_json: bool = False,
    is_wide: bool = False,
    now: datetime | None = None,
) -> None:
    """Print a finding and its causes."""
    show_table(rows, CHAIN, is_json=is_json, is_wide=is_wide, title=CAUSED, now=now)
    named = rows[-1]["caused_by_key"] if rows else None
    if not named or is_json:
        return
    is_again = named in [each["finding_key"] for each in rows]
    why = "stands above" if is_again else "was never raised, or is beyond --depth"
    say_aside(f"the next cause, {named}, {why}")


@contextmanager
def _asked_for() -> Iterator[None]:
    """Turn a key that was never raised into a mistake: it was typed wrongly."""
    try:
        yield
    except NotFound as error:
        raise Mistake(str(error)) from error


def _newest(change: FindingChange) -> Finding:
    assert change.newest is not None, "a change that was made"
    return change.newest.finding


def _finding(change: FindingChange) -> Finding:
    assert change.before is not None, "a change of a finding that exists"
    return change.before


def _ended(finding: Finding) -> str:
    assert finding.cleared_at is not None, "a finding that has ended"
    at = f"{finding.cleared_at:%Y-%m-%d %H:%M:%S} UTC"
    if finding.status is FindingStatus.EXPIRED:
        return f"expired at {at}"
    return f"was cleared at {at} by {finding.cleared_by or 'its actor'}"
