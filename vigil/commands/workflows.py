"""`vigil workflows`: graphs of steps, each an episode of an actor."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import Annotated, Final

import typer
from typer import Argument, Option

from projections.postgres.reader import list_workflows
from streams.model.workflows import ResumeHow, WorkflowStatus
from vigil import options
from vigil.asking.rows import ask, parse_id, show_found
from vigil.commands import definitions
from vigil.errors import EXIT_TROUBLE, Mistake
from vigil.printing import tables
from vigil.printing.output import show_record, show_rows

app = typer.Typer(no_args_is_help=True)

COLUMNS: Final = (
    "instance_id", "workflow_id", "status", "subject_value", "done", "items", "running", "waiting",
    "started_at", "finished_at", "error_class",
)  # fmt: skip
SPARE: Final = ("finished_at", "started_at", "running", "waiting", "items", "done")

DEFINED: Final = ("workflow_id", "source", "triggers", "steps", "nodes", "problems")

Id = Annotated[str, Argument(metavar="ID", help="The instance's id, as the list shows it.")]
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
    limit: options.Limit = 50,
    is_json: options.IsJson = False,
) -> None:
    """List instances of workflows, the latest begun first."""
    config = options.config(ctx)
    question = partial(
        list_workflows, stack=config.stack, status=status, workflow=workflow, limit=limit
    )
    show_found(config, ask(config, question), COLUMNS, is_json=is_json, spare=SPARE)


@app.command()
def show(ctx: typer.Context, *, instance_id: Id, is_json: options.IsJson = False) -> None:
    """Show one instance, and the state of each of its steps."""
    from vigil.asking.instances import read_instance
    from vigil.printing import workflow_tree

    instance = read_instance(options.config(ctx), _parsed(instance_id))
    row, steps = workflow_tree.record_of(instance), workflow_tree.rows_of(instance)
    if is_json:
        show_record({**row, "steps": steps}, is_json=True)
        return
    show_record(row, is_json=False)
    terminal = tables.terminal()
    if terminal.is_terminal:
        terminal.print(workflow_tree.tree_of(instance))
    else:
        show_rows(steps, workflow_tree.STEP_COLUMNS, is_json=False)


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
    from vigil.asking import instances
    from vigil.asking.requests import say_begun, waiting
    from vigil.commands.fire import overrides_of
    from vigil.printing import workflow_tree

    config = options.config(ctx)
    asked = instances.StartRequest(
        workflow=name,
        payload=options.read_object(payload, what="--payload"),
        by=options.who(config, by),
        reason=reason,
        key=key,
        dry_run=is_dry,
        overrides=None if overrides is None else overrides_of(overrides),
        step_overrides=(
            None if step_overrides is None else instances.step_overrides_of(step_overrides)
        ),
    )
    started = instances.start(config, asked)
    id_ = started.instance_id
    row: dict[str, object] = {"instance_id": id_, "workflow_id": name}
    is_done = True
    with waiting(f"it goes on; `vigil workflows show {id_}` shows how far it is"):
        say_begun(name, id_, used=started.used, obstacle=started.obstacle, is_json=is_json)
        if is_waiting:
            ended = instances.wait_end(config, started, timeout_s=timeout_s)
            row, is_done = workflow_tree.record_of(ended), ended.status is WorkflowStatus.DONE
    if is_json:
        print(tables.as_json({**row, "is_new": started.used is None}))
    elif is_waiting:
        print(": ".join(str(row[each]) for each in ("status", "error_class") if row[each]))
    if not is_done:
        raise typer.Exit(EXIT_TROUBLE)


@app.command("definitions")
def definitions_(ctx: typer.Context, *, is_json: options.IsJson = False) -> None:
    """List the workflows that nodes have, or that were defined: source, triggers, steps.

    Problems: the nodes that cannot run one; `vigil actors show workflow-NAME` shows why.
    """
    from vigil.asking.definitions import list_workflows as list_defined
    from vigil.asking.stack import in_short

    rows = list_defined(options.config(ctx))
    shown = rows if is_json else [tables.in_words(in_short(row)) for row in rows]
    show_rows(shown, DEFINED, is_json=is_json)


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
    from vigil.asking import instances

    if is_retry is is_skip:
        raise Mistake("give --retry or --skip")
    config, wait_s = options.config(ctx), timeout_s if is_waiting else None
    how = ResumeHow.RETRY if is_retry else ResumeHow.SKIP
    id_, name = _parsed(instance_id), options.who(config, by)
    instances.resume(config, id_, step, how, by=name, reason=reason, wait_s=wait_s)


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
    from vigil.asking import instances

    config, wait_s = options.config(ctx), timeout_s if is_waiting else None
    id_, name = _parsed(instance_id), options.who(config, by)
    instances.cancel(config, id_, by=name, reason=reason, wait_s=wait_s)


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
    from vigil.asking.approvals import Choice, decide_step

    wait_s = timeout_s if is_waiting else None
    choice = Choice("approve", hash_, is_sure, by, reason, wait_s)
    decide_step(options.config(ctx), instance_id, step, choice.with_changes(changes))


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
    from vigil.asking.approvals import Choice, decide_step

    choice = Choice("deny", hash_, is_sure, by, reason, timeout_s if is_waiting else None)
    decide_step(options.config(ctx), instance_id, step, choice)


definitions.add_to(app)


def _parsed(instance_id: str) -> str:
    return str(parse_id(instance_id, of="instance"))
