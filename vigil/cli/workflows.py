"""`vigil workflows`: what hangs together of the actors' work."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import typer

from streams.model.commands import Verdict
from streams.model.workflows import ResumeHow, WorkflowStatus
from vigil.cli import context, definitions, verdicts
from vigil.cli.output import (
    WAIT_S,
    IsJson,
    Limit,
    Timeout,
    say_begun,
    show_record,
    show_rows,
    waiting,
)
from vigil.cli.verdicts import PATIENCE_S, By, Hash, IsSure, IsWaiting, Patience, Reason

app = typer.Typer(no_args_is_help=True, help="Workflows: list, start, approve, cancel.")

COLUMNS: Final = (
    "instance_id", "workflow_id", "status", "subject_value", "done", "items", "running", "waiting",
    "started_at", "finished_at", "error_class",
)  # fmt: skip
SPARE: Final = ("finished_at", "started_at", "running", "waiting", "items", "done")

DEFINED: Final = ("workflow_id", "source", "triggers", "steps", "nodes", "problems")

Id = Annotated[str, typer.Argument(metavar="ID", help="The instance's id, from the list.")]
StepName = Annotated[str, typer.Argument(metavar="STEP", help="The step's name.")]


class InstanceStatus(StrEnum):
    """Where instances that have begun can be in their lives."""

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
    status: Annotated[InstanceStatus | None, typer.Option(help="Only this value.")] = None,
    workflow: Annotated[str | None, typer.Option(help="Only those of this workflow.")] = None,
    limit: Limit = 50,
    is_json: IsJson = False,
) -> None:
    """List instances of workflows: the latest started first."""
    from projections.postgres.reader import list_workflows
    from vigil.reading import ask

    reading = context.reading(ctx)
    rows = ask(
        reading,
        lambda pool: list_workflows(
            pool, reading.stack, status=status, workflow=workflow, limit=limit
        ),
    )
    show_rows(rows, COLUMNS, is_json=is_json, spare=SPARE, reading=reading)


@app.command()
def show(ctx: typer.Context, *, instance_id: Id, is_json: IsJson = False) -> None:
    """Show one instance, and the status of each step."""
    from vigil import picturing, tables, workflows
    from vigil.reading import parse_id

    reading = context.reading(ctx)
    instance = workflows.look(reading, str(parse_id(instance_id, of="instance")))
    row, steps = picturing.record_of(instance), picturing.rows_of(instance)
    if is_json:
        show_record({**row, "steps": steps}, is_json=True)
        return
    show_record(row, is_json=False)
    terminal = tables.terminal()
    if terminal.is_terminal:
        terminal.print(picturing.tree_of(instance))
    else:
        show_rows(steps, picturing.STEP_COLUMNS, is_json=False)


@app.command()
def start(
    ctx: typer.Context,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The workflow's name.")],
    payload: Annotated[
        str,
        typer.Option(help="Payload of the trigger, a JSON object; @FILE, or - for standard input."),
    ] = "{}",
    reason: Reason = "",
    key: Annotated[
        str | None,
        typer.Option(help="Idempotency key: the same key starts no second instance."),
    ] = None,
    is_dry: Annotated[
        bool, typer.Option("--dry-run", help="Run it as a rehearsal, without effects outside.")
    ] = False,
    overrides: Annotated[
        str | None,
        typer.Option(
            help="Results for a dry run: a JSON object with tools,"
            " synthesis, persist_findings; @FILE, or - for standard input."
        ),
    ] = None,
    step_overrides: Annotated[
        str | None,
        typer.Option(
            help="The same for single steps: a JSON object of step to overrides; @FILE,"
            " or - for standard input."
        ),
    ] = None,
    by: By = None,
    is_waiting: Annotated[
        bool, typer.Option("--wait", help="Wait until it ends; exit code 1 unless it is done.")
    ] = False,
    timeout_s: Timeout = WAIT_S,
    is_json: IsJson = False,
) -> None:
    """Start an instance of a workflow, and print its id; exit code 1 if none starts."""
    from vigil import firing, picturing, starting, tables
    from vigil.errors import EXIT_TROUBLE
    from vigil.who import who

    reading = context.reading(ctx)
    asked = starting.Start(
        workflow=name,
        payload=firing.payload_of(payload),
        by=who(reading, by),
        reason=reason,
        key=key,
        dry_run=is_dry,
        overrides=None if overrides is None else firing.overrides_of(overrides),
        step_overrides=(
            None if step_overrides is None else starting.step_overrides_of(step_overrides)
        ),
    )
    started = starting.start(reading, asked)
    row: dict[str, object] = {"instance_id": started.instance_id, "workflow_id": name}
    is_done = True
    with waiting(f"it goes on; `vigil workflows show {started.instance_id}` says how far it is"):
        say_begun(
            name, started.instance_id, used=started.used, obstacle=started.obstacle, is_json=is_json
        )
        if is_waiting:
            ended = starting.wait_end(reading, started, timeout_s=timeout_s)
            row, is_done = picturing.record_of(ended), ended.status is WorkflowStatus.DONE
    if is_json:
        print(tables.as_json({**row, "is_new": started.used is None}))
    elif is_waiting:
        print(": ".join(str(row[each]) for each in ("status", "error_class") if row[each]))
    if not is_done:
        raise typer.Exit(EXIT_TROUBLE)


@app.command("definitions")
def definitions_(ctx: typer.Context, *, is_json: IsJson = False) -> None:
    """List workflows, of nodes and defined ones: source, triggers, steps.

    Problems: the nodes that cannot run one; `vigil actors show workflow-NAME` says why.
    """
    from vigil import defined, tables
    from vigil.editions import in_short

    rows = defined.list_workflows(context.reading(ctx))
    shown = rows if is_json else [tables.in_words(in_short(row)) for row in rows]
    show_rows(shown, DEFINED, is_json=is_json)


@app.command()
def resume(
    ctx: typer.Context,
    *,
    instance_id: Id,
    step: StepName,
    is_retry: Annotated[bool, typer.Option("--retry", help="Retry the step.")] = False,
    is_skip: Annotated[bool, typer.Option("--skip", help="Continue without its result.")] = False,
    reason: Reason = "",
    by: By = None,
    is_waiting: IsWaiting = True,
    timeout_s: Patience = PATIENCE_S,
) -> None:
    """Retry or skip a paused step."""
    from vigil import workflows
    from vigil.errors import Mistake
    from vigil.reading import parse_id
    from vigil.who import who

    if is_retry is is_skip:
        raise Mistake("say --retry or --skip")
    reading = context.reading(ctx)
    outcome = workflows.resume(
        reading,
        str(parse_id(instance_id, of="instance")),
        step,
        ResumeHow.RETRY if is_retry else ResumeHow.SKIP,
        by=who(reading, by),
        reason=reason,
        wait_s=timeout_s if is_waiting else None,
    )
    verdicts.say([outcome])


@app.command()
def cancel(
    ctx: typer.Context,
    *,
    instance_id: Id,
    reason: Reason = "",
    by: By = None,
    is_waiting: IsWaiting = True,
    timeout_s: Patience = PATIENCE_S,
) -> None:
    """Cancel an instance: running steps end, finished ones are undone."""
    from vigil import workflows
    from vigil.reading import parse_id
    from vigil.who import who

    reading = context.reading(ctx)
    outcome = workflows.cancel(
        reading,
        str(parse_id(instance_id, of="instance")),
        by=who(reading, by),
        reason=reason,
        wait_s=timeout_s if is_waiting else None,
    )
    verdicts.say([outcome])


@app.command()
def approve(
    ctx: typer.Context,
    *,
    instance_id: Id,
    step: StepName,
    hash_: Hash = None,
    is_sure: IsSure = False,
    reason: Reason = "",
    by: By = None,
    is_waiting: IsWaiting = True,
    timeout_s: Patience = PATIENCE_S,
) -> None:
    """Approve a step. Shows its inputs first, and asks."""
    choice = verdicts.Choice(
        verdict=Verdict.APPROVE,
        hash=hash_,
        is_sure=is_sure,
        by=by,
        reason=reason,
        wait_s=timeout_s if is_waiting else None,
    )
    verdicts.settle_step(context.reading(ctx), instance_id, step, choice)


@app.command()
def deny(
    ctx: typer.Context,
    *,
    instance_id: Id,
    step: StepName,
    hash_: Hash = None,
    is_sure: IsSure = False,
    reason: Reason = "",
    by: By = None,
    is_waiting: IsWaiting = True,
    timeout_s: Patience = PATIENCE_S,
) -> None:
    """Deny a step, which then fails. Shows its inputs first, and asks."""
    choice = verdicts.Choice(
        verdict=Verdict.DENY,
        hash=hash_,
        is_sure=is_sure,
        by=by,
        reason=reason,
        wait_s=timeout_s if is_waiting else None,
    )
    verdicts.settle_step(context.reading(ctx), instance_id, step, choice)


definitions.add_to(app)
