"""`vigil workflows`: graphs of steps, each an episode of an actor."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer import Argument, Option

from streams.clock import SystemClock
from streams.model.money import dollars
from streams.model.triggers import Overrides
from streams.model.workflows import StepStatus, WorkflowStatus
from vigil import options
from vigil.client.client import Client
from vigil.commands import definitions
from vigil.commands.call import call
from vigil.errors import EXIT_TROUBLE, Mistake
from vigil.printing import columns, tables
from vigil.printing.columns import SENTENCE, Column, Form, Listing
from vigil.printing.output import (
    report,
    say_begun,
    show_record,
    show_section,
    show_sheet,
    show_table,
    waiting,
)
from vigil.printing.tables import Row

if TYPE_CHECKING:
    from engine.operations.decide_request import ApprovalTarget
    from vigil.asking.requests import CommandOutcome
    from vigil.asking.starting import StartedInstance

app = typer.Typer(no_args_is_help=True)

LISTING: Final = Listing(
    (
        Column("id", "instance_id", Form.ID),
        Column("about", "subject_value"),
        Column("workflow", "workflow_id"),
        Column("status", "status"),
        Column("age", "started_at", Form.AGE, wide="begun"),
        Column("steps", "progress"),
        Column("running", "running"),
        Column("waiting", "waiting"),
        Column("error", "error", room=SENTENCE),
        Column("failed at", "failed_step"),
    ),
    spare=("failed at", "waiting", "running", "error", "about", "steps"),
)
DEFINED: Final = Listing(
    (
        Column("workflow", "workflow_id"),
        Column("source", "source"),
        Column("triggers", "triggers"),
        Column("steps", "steps"),
        Column("nodes", "nodes"),
        Column("cannot run it", "problems"),
    ),
    spare=("nodes", "steps", "triggers"),
    wraps=("cannot run it",),
)

STEPS: Final = Listing(
    (
        Column("step", "step_id"),
        Column("status", "status"),
        Column("runs", "runs"),
        Column("after", "depends_on"),
        Column("episode", "episode_id", Form.ID),
        Column("tries", "attempts"),
        Column("at most (USD)", "at_most"),
        Column("error", "error", room=SENTENCE),
        Column("next try", "retry_at", Form.AGE),
    ),
    spare=("tries", "at most (USD)", "next try", "after", "runs", "error"),
)

_SUMS: Final = ("spent_usd", "kept_usd", "budget_usd")

_CLOCK: Final = SystemClock()

Id = Annotated[
    str,
    Argument(metavar="ID", help="The instance's id, or so much of its beginning that it is one."),
]
StepName = Annotated[str, Argument(metavar="STEP", help="The step's name.")]


class InstanceStatus(StrEnum):
    """Statuses of instances that have begun."""

    RUNNING = WorkflowStatus.RUNNING
    BLOCKED = WorkflowStatus.BLOCKED
    STOPPING = WorkflowStatus.STOPPING
    COMPENSATING = WorkflowStatus.COMPENSATING
    DONE = WorkflowStatus.DONE
    FAILED = WorkflowStatus.FAILED
    CANCELED = WorkflowStatus.CANCELED


@app.command("list")
def list_(
    ctx: typer.Context,
    *,
    status: Annotated[InstanceStatus | None, Option(help="Only with this status.")] = None,
    workflow: Annotated[str | None, Option(help="Only of this workflow.")] = None,
    at: options.PastTime = None,
    limit: options.Limit = 50,
    is_wide: options.IsWide = False,
    is_json: options.IsJson = False,
) -> None:
    """List instances of workflows, the latest begun first."""
    then = options.read_past(at, what="--at", now=_CLOCK.now())
    page = call(
        ctx,
        lambda client: client.workflows.list(
            status=status, workflow=workflow, at=then, limit=limit
        ),
    )
    print_instances(page.rows, is_json=is_json, is_wide=is_wide, why_none=page.why_none, now=then)


def print_instances(
    rows: Sequence[Row],
    *,
    is_json: bool = False,
    is_wide: bool = False,
    why_none: str = "",
    now: datetime | None = None,
) -> None:
    """Print a list of instances."""
    shown = rows if is_json else [_listed(row) for row in rows]
    show_table(shown, LISTING, is_json=is_json, is_wide=is_wide, why_none=why_none, now=now)


def _listed(row: Row) -> Row:
    return {
        **row,
        "status": columns.marked(row),
        "progress": f"{row['done']} of {row['items']}",
        "running": row["running"] or None,
        "waiting": row["waiting"] or None,
        "error": columns.error_of(row),
    }


@app.command()
def show(
    ctx: typer.Context,
    *,
    instance_id: Id,
    at: options.PastTime = None,
    is_json: options.IsJson = False,
) -> None:
    """Show one instance, and the state of each of its steps."""
    from vigil.printing import workflow_tree

    then = options.read_past(at, what="--at", now=_CLOCK.now())
    instance = call(ctx, lambda client: client.workflows.read(instance_id, at=then))
    row, steps = workflow_tree.record_of(instance), workflow_tree.rows_of(instance)
    if is_json:
        show_record({**row, "steps": steps}, is_json=True)
        return
    print_instance(row, steps, now=then or _CLOCK.now())
    terminal = tables.terminal()
    if terminal.is_terminal:
        print()
        terminal.print(workflow_tree.tree_of(instance))


def print_instance(row: Row, steps: Sequence[Row], *, now: datetime) -> None:
    """Print one instance, and its steps in the order of the graph."""
    hidden = ("instance_id", "workflow_id", "started_at", "updated_at", "subject", *_SUMS)
    first = {
        "workflow": row["workflow_id"],
        "about": row["subject"],
        "status": row["status"],
        "begun": columns.moment(row["started_at"], now),
        "changed": columns.moment(row["updated_at"], now),
    }
    told = columns.sheet(row, usual={"mode": "live"}, hidden=hidden, first=first)
    if any(row[each] for each in _SUMS):
        told["used"] = _used(row)
    if todo := what_to_do(row, steps):
        told["what to do"] = todo
    show_sheet(f"instance {row['instance_id']}", told)
    show_section("Steps", [_step(each) for each in steps], STEPS, now=now)


def _step(row: Row) -> Row:
    usd = row["budget_usd"]
    return {
        **row,
        "at_most": dollars(Decimal(str(usd))) if usd else None,
        "error": columns.error_of(row),
    }


def _used(row: Row) -> str:
    spent, kept, budget = (dollars(Decimal(str(row[each] or 0))) for each in _SUMS)
    of_budget = f" of {budget}" if row["budget_usd"] else ""
    of_running = f", {kept} more kept for what runs" if row["kept_usd"] else ""
    return f"{spent}{of_budget} USD{of_running}"


def what_to_do(row: Row, steps: Sequence[Row]) -> str:
    """Return the commands that lead on the first step that waits for a person, a line each."""
    for each in steps:
        instance_id = str(row["instance_id"])[: columns.ID_CHARS[1]]
        step = f"{instance_id} {str(each['step_id']).partition('[')[0]}"
        if each["status"] == StepStatus.AWAITING_APPROVAL:
            acts = (f"approve {step}", f"deny --reason '…' {step}")
        elif each["status"] == StepStatus.PAUSED:
            acts = (f"resume {step} --retry", f"resume {step} --skip")
        else:
            continue
        return "\n".join(f"vigil workflows {act}" for act in acts)
    return ""


@app.command()
def start(
    ctx: typer.Context,
    *,
    name: Annotated[str, Argument(metavar="NAME", help="The workflow's name.")],
    payload: Annotated[
        str, Option(help="A JSON object for the trigger; @FILE, or - for standard input.")
    ] = "{}",
    reason: options.Reason = "",
    key: Annotated[
        str | None, Option(help="Idempotency key: the same one starts no second instance.")
    ] = None,
    is_dry: options.IsDry = False,
    overrides: options.OverridesText = None,
    step_overrides: Annotated[
        str | None,
        Option(
            help="The same for single steps: a JSON object of step to overrides; @FILE, or - for"
            " standard input."
        ),
    ] = None,
    by: options.By = None,
    is_waiting: options.IsWaitingForEnd = False,
    timeout_s: options.Timeout = options.WAIT_S,
    is_json: options.IsJson = False,
) -> None:
    """Start an instance of a workflow, and print its id; exit code 1 if none begins."""
    from vigil.commands.fire import overrides_of
    from vigil.printing import workflow_tree

    body = options.read_object(payload, what="--payload")
    replaced = None if overrides is None else overrides_of(overrides)
    of_steps = None if step_overrides is None else step_overrides_of(step_overrides)

    async def start_(client: Client) -> StartedInstance:
        return await client.workflows.start(
            name,
            body,
            reason=reason,
            key=key,
            dry_run=is_dry,
            overrides=replaced,
            step_overrides=of_steps,
        )

    started = call(ctx, start_, by=by)
    id_, used = started.instance_id, started.used_before
    row: dict[str, object] = {"instance_id": id_, "workflow_id": name}
    is_done = True
    with waiting(f"it goes on; `vigil workflows show {id_}` shows how far it is"):
        say_begun(name, id_, used=used, obstacle=started.obstacle, is_json=is_json)
        if is_waiting:
            ended = call(ctx, lambda client: client.workflows.wait(started, timeout_s=timeout_s))
            row, is_done = workflow_tree.record_of(ended), ended.status is WorkflowStatus.DONE
    if is_json:
        print(tables.as_json({**row, "is_new": started.used is None}))
    elif is_waiting:
        print(": ".join(str(row[each]) for each in ("status", "error_class") if row[each]))
    if not is_done:
        raise typer.Exit(EXIT_TROUBLE)


def step_overrides_of(text: str) -> dict[str, Overrides]:
    """Return the overrides of steps in `text`, read as by `options.read_bytes`."""
    from engine.app.tools import parse_step_overrides

    try:
        return parse_step_overrides(options.read_bytes(text, what="--step-overrides"))
    except ValueError as error:
        raise Mistake(f"--step-overrides: {error}") from error


@app.command("definitions")
def definitions_(
    ctx: typer.Context, *, is_wide: options.IsWide = False, is_json: options.IsJson = False
) -> None:
    """List the workflows that nodes have, or that were defined: source, triggers, steps.

    Those that cannot run one are named, with the reason.
    """
    from vigil.asking.stack import in_short

    rows = call(ctx, lambda client: client.workflows.definitions())
    shown = rows if is_json else [tables.in_words(in_short(row)) for row in rows]
    show_table(shown, DEFINED, is_json=is_json, is_wide=is_wide)


@app.command()
def resume(
    ctx: typer.Context,
    *,
    instance_id: Id,
    step: StepName,
    is_retry: Annotated[bool, Option("--retry", help="Try the step again.")] = False,
    is_skip: Annotated[bool, Option("--skip", help="Go on without the step.")] = False,
    reason: options.Reason = "",
    by: options.By = None,
    is_waiting: options.IsWaiting = True,
    timeout_s: options.Timeout = options.DECISION_S,
) -> None:
    """Retry or skip a paused step."""
    if is_retry is is_skip:
        raise Mistake("give --retry or --skip")
    wait_s = timeout_s if is_waiting else None

    async def resumed(client: Client) -> CommandOutcome:
        act = client.workflows.retry if is_retry else client.workflows.skip
        return await act(instance_id, step, reason=reason, wait_s=wait_s)

    report([call(ctx, resumed, by=by)])


@app.command()
def cancel(
    ctx: typer.Context,
    *,
    instance_id: Id,
    reason: options.Reason = "",
    by: options.By = None,
    is_waiting: options.IsWaiting = True,
    timeout_s: options.Timeout = options.DECISION_S,
) -> None:
    """Cancel an instance: its running steps end, and finished steps are compensated."""
    wait_s = timeout_s if is_waiting else None

    async def canceled(client: Client) -> CommandOutcome:
        return await client.workflows.cancel(instance_id, reason=reason, wait_s=wait_s)

    report([call(ctx, canceled, by=by)])


@app.command()
def approve(
    ctx: typer.Context,
    *,
    instance_id: Id,
    step: StepName,
    changes: options.Changes = None,
    hash_: options.Hash = None,
    is_sure: options.IsSure = False,
    reason: options.Reason = "",
    by: options.By = None,
    is_waiting: options.IsWaiting = True,
    timeout_s: options.Timeout = options.DECISION_S,
) -> None:
    """Approve a step that waits for approval. Shows its inputs first, and asks for confirmation."""
    from vigil.commands.choice import Choice, decide

    wait_s = timeout_s if is_waiting else None
    choice = Choice("approve", hash_, is_sure, by, reason, wait_s)
    target = partial(_target, instance_id=instance_id, step=step)
    decide(ctx, choice.with_changes(changes), target)


@app.command()
def deny(
    ctx: typer.Context,
    *,
    instance_id: Id,
    step: StepName,
    hash_: options.Hash = None,
    is_sure: options.IsSure = False,
    reason: options.Reason = "",
    by: options.By = None,
    is_waiting: options.IsWaiting = True,
    timeout_s: options.Timeout = options.DECISION_S,
) -> None:
    """Deny a step that waits for approval: it fails.

    Shows its inputs first, and asks for confirmation.
    """
    from vigil.commands.choice import Choice, decide

    choice = Choice("deny", hash_, is_sure, by, reason, timeout_s if is_waiting else None)
    decide(ctx, choice, partial(_target, instance_id=instance_id, step=step))


definitions.add_to(app)


async def _target(client: Client, instance_id: str, step: str) -> ApprovalTarget:
    from vigil.ports import ApprovalTarget

    return ApprovalTarget("step", str(await client.workflows.find(instance_id)), step)
