"""`vigil outputs`: what actors deliver to the outside."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer import Argument, Option

from streams.clock import SystemClock
from streams.model.outputs import OutputStatus
from vigil import options
from vigil.client.client import Client
from vigil.client.dead_letters import argument
from vigil.client.page import LIMIT_MAX
from vigil.commands.call import call
from vigil.errors import Mistake
from vigil.printing import columns, tables
from vigil.printing.columns import SENTENCE, Column, Form, Listing
from vigil.printing.output import report, show_record, show_section, show_sheet, show_table
from vigil.printing.tables import Row

if TYPE_CHECKING:
    from engine.operations.decide_request import ApprovalTarget

app = typer.Typer(no_args_is_help=True)

LISTING: Final = Listing(
    (
        Column("key", "output_key"),
        Column("status", "status"),
        Column("age", "created_at", Form.AGE, wide="proposed"),
        Column("summary", "summary"),
        Column("attempts", "attempts"),
        Column("next try", "next_attempt_at", Form.AGE),
        Column("error", "error", room=SENTENCE),
        Column("adapter", "adapter"),
        Column("actor", "actor_id"),
        Column("delivered", "delivered_at", Form.AGE),
    ),
    spare=("delivered", "actor", "adapter", "error", "next try", "attempts", "summary", "age"),
)
HISTORY: Final = Listing(
    (
        Column("at", "at", Form.TIME),
        Column("what happened", "what"),
        Column("attempt", "attempt"),
        Column("by", "person"),
        Column("reason", "reason"),
        Column("error", "error", room=SENTENCE),
        Column("next try", "next_attempt_at", Form.TIME),
        Column("node", "node"),
        Column("proposal", "proposal_no"),
    ),
    spare=("proposal", "node", "next try", "attempt", "reason", "error"),
)

TOLD: Final = frozenset({
    "stack", "journal_seq", "history", "output_key", "status", "adapter", "actor_id",
    "expectation_id", "summary", "error_class", "error_detail", "created_at", "updated_at",
    "delivered_at", "canceled_at", "next_attempt_at", "expires_at", "asked_at", "decided_at",
    "decision_id",
})  # fmt: skip
"""The columns of an output that the first lines tell, that have a table, or are for programs."""

_CLOCK: Final = SystemClock()

Key = Annotated[str, Argument(metavar="KEY", help="The output's key, as the list shows it.")]


@app.command("list")
def list_(
    ctx: typer.Context,
    *,
    status: Annotated[OutputStatus | None, Option(help="Only with this status.")] = None,
    actor: Annotated[str | None, Option(help="Only of this actor.")] = None,
    adapter: Annotated[str | None, Option(help="Only for this adapter.")] = None,
    at: options.PastTime = None,
    limit: options.Limit = 50,
    is_wide: options.IsWide = False,
    is_json: options.IsJson = False,
) -> None:
    """List outputs, the latest proposed first."""
    then = options.read_past(at, what="--at", now=_CLOCK.now())
    page = call(
        ctx,
        lambda client: client.outputs.list(
            status=status, actor=actor, adapter=adapter, at=then, limit=limit
        ),
    )
    print_outputs(page.rows, is_json=is_json, is_wide=is_wide, why_none=page.why_none, now=then)


def print_outputs(
    rows: Sequence[Row],
    *,
    is_json: bool = False,
    is_wide: bool = False,
    why_none: str = "",
    now: datetime | None = None,
) -> None:
    """Print a list of outputs."""
    shown = rows if is_json else [_listed(row) for row in rows]
    show_table(shown, LISTING, is_json=is_json, is_wide=is_wide, why_none=why_none, now=now)


def _listed(row: Row) -> Row:
    return {**row, "status": columns.output_status(row), "error": columns.error_of(row)}


@app.command()
def show(
    ctx: typer.Context,
    *,
    key: Key,
    at: options.PastTime = None,
    is_json: options.IsJson = False,
) -> None:
    """Show one output, and its history."""
    then = options.read_past(at, what="--at", now=_CLOCK.now())
    found = call(ctx, lambda client: client.outputs.describe(key, at=then))
    if is_json:
        show_record(found, is_json=True)
        return
    print_output(found, now=then or _CLOCK.now())


def print_output(row: Row, *, now: datetime) -> None:
    """Print one output, and its history, the latest first."""
    first = {
        "status": columns.output_status(row),
        "adapter": row["adapter"],
        "summary": row["summary"],
        "error": ": ".join(str(row[each]) for each in ("error_class", "error_detail") if row[each]),
        "proposed by": f"{row['actor_id']}.{row['expectation_id']}",
        "proposed": columns.moment(row["created_at"], now),
        "next try": columns.moment(row["next_attempt_at"], now),
        "delivered": columns.moment(row["delivered_at"], now),
        "canceled": columns.moment(row["canceled_at"], now),
        "asked for approval": columns.moment(row["asked_at"], now),
        "asked until": columns.moment(row["expires_at"], now),
        "decided": columns.moment(row["decided_at"], now),
        "what to do": what_to_do(row),
    }
    usual = {"proposal_no": 1, "attempts": 0}
    told = columns.sheet(row, usual=usual, hidden={*TOLD, "payload"}, first=first)
    payload = {} if row["payload"] is None else {"payload": tables.as_json(row["payload"])}
    show_sheet(f"output {row['output_key']}", told | payload)
    history = row["history"]
    assert isinstance(history, list)
    changes = [{**each, "what": what_of(each), "error": columns.error_of(each)} for each in history]
    show_section("History", changes, HISTORY, now=now)


TO_DO: Final[Mapping[object, Sequence[str]]] = {
    OutputStatus.AWAITING_APPROVAL: ("approve", "reject --reason '…'"),
    OutputStatus.PROPOSED: ("retry", "cancel"),
    OutputStatus.FAILED: ("retry",),
}
"""Status of an output → what people can do about it."""


def what_to_do(row: Row) -> str | None:
    """Return the commands that lead on, a line each; None: nobody need do anything."""
    if row["status"] == OutputStatus.PROPOSED and not row["attempts"]:
        return None
    key = argument(str(row["output_key"]))
    return "\n".join(f"vigil outputs {each} {key}" for each in TO_DO.get(row["status"], ())) or None


def what_of(change: Row) -> str:
    """Return what happened to an output in a change of it."""
    return str(change["kind"]).removeprefix("output_").replace("_", " ")


@app.command()
def approve(
    ctx: typer.Context,
    *,
    key: Key,
    changes: options.Changes = None,
    hash_: options.Hash = None,
    is_sure: options.IsSure = False,
    reason: options.Reason = "",
    by: options.By = None,
    is_waiting: options.IsWaiting = True,
    timeout_s: options.Timeout = options.DECISION_S,
) -> None:
    """Approve an output, so that it is delivered. Shows it first, and asks for confirmation."""
    from vigil.commands.choice import Choice, decide

    wait_s = timeout_s if is_waiting else None
    choice = Choice("approve", hash_, is_sure, by, reason, wait_s)
    decide(ctx, choice.with_changes(changes), partial(_target, key=key))


@app.command()
def reject(
    ctx: typer.Context,
    *,
    key: Key,
    hash_: options.Hash = None,
    is_sure: options.IsSure = False,
    reason: options.Reason = "",
    by: options.By = None,
    is_waiting: options.IsWaiting = True,
    timeout_s: options.Timeout = options.DECISION_S,
) -> None:
    """Reject an output: it is not delivered. Shows it first, and asks for confirmation."""
    from vigil.commands.choice import Choice, decide

    choice = Choice("deny", hash_, is_sure, by, reason, timeout_s if is_waiting else None)
    decide(ctx, choice, partial(_target, key=key))


@app.command()
def retry(
    ctx: typer.Context,
    *,
    keys: Annotated[
        list[str] | None, Argument(metavar="KEY", help="Outputs, as the list shows them.")
    ] = None,
    is_all: Annotated[bool, Option("--all", help="Every output that has failed.")] = False,
    actor: Annotated[str | None, Option(help="With --all: only of this actor.")] = None,
    adapter: Annotated[str | None, Option(help="With --all: only for this adapter.")] = None,
    is_sure: Annotated[
        bool, Option("--yes", help="With --all: do not ask for confirmation.")
    ] = False,
    reason: options.Reason = "",
    by: options.By = None,
    is_waiting: options.IsWaiting = True,
    timeout_s: options.Timeout = options.DECISION_S,
) -> None:
    """Retry the delivery of outputs that have failed."""
    if bool(keys) is is_all:
        raise Mistake("name the outputs, or give --all")
    if not is_all and (actor or adapter or is_sure):
        raise Mistake("--actor, --adapter and --yes go with --all")
    chosen = keys or _failed(ctx, actor=actor, adapter=adapter)
    if is_all and chosen and not is_sure:
        options.require_consent(f"retry {len(chosen):,} outputs?")
    if not chosen:
        print("nothing to retry")
    wait_s = timeout_s if is_waiting else None
    retried = call(
        ctx, lambda client: client.outputs.retry(*chosen, reason=reason, wait_s=wait_s), by=by
    )
    report(retried)


@app.command()
def cancel(
    ctx: typer.Context,
    *,
    keys: Annotated[list[str], Argument(metavar="KEY", help="Outputs, as the list shows them.")],
    reason: options.Reason = "",
    by: options.By = None,
    is_waiting: options.IsWaiting = True,
    timeout_s: options.Timeout = options.DECISION_S,
) -> None:
    """Cancel outputs that are not delivered yet. Their episodes go on."""
    wait_s = timeout_s if is_waiting else None
    canceled = call(
        ctx, lambda client: client.outputs.cancel(*keys, reason=reason, wait_s=wait_s), by=by
    )
    report(canceled)


async def _target(_: Client, key: str) -> ApprovalTarget:
    from vigil.ports import ApprovalTarget

    return ApprovalTarget("output", key)


def _failed(ctx: typer.Context, *, actor: str | None, adapter: str | None) -> list[str]:
    page = call(
        ctx,
        lambda client: client.outputs.list(
            status=OutputStatus.FAILED, actor=actor, adapter=adapter, limit=LIMIT_MAX
        ),
    )
    if page.next is not None:
        print(f"vigil: these are the latest {LIMIT_MAX:,}; ask again", file=sys.stderr, flush=True)
    return [each.output_key for each in page.items]
