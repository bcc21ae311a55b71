"""`vigil outputs`: what actors deliver to the outside."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer
from typer import Argument, Option

from projections.postgres.query_result import ROWS_MAX
from projections.postgres.reader import list_outputs, show_output
from streams.model.outputs import OutputStatus
from vigil import options
from vigil.asking.rows import ask, ask_one, show_found
from vigil.errors import Mistake
from vigil.printing import tables
from vigil.printing.output import show_record, show_rows

if TYPE_CHECKING:
    from streams.model.events import LogEvent
    from streams.ports.all import Ports
    from streams.ports.log import Recorded
    from vigil.asking.requests import CommandOutcome, CommandResult, SentCommand
    from vigil.settings import Config

app = typer.Typer(no_args_is_help=True)

COLUMNS: Final = (
    "output_key", "adapter", "status", "actor_id", "summary", "attempts", "next_attempt_at",
    "delivered_at", "error_class",
)  # fmt: skip
SPARE: Final = (
    "attempts", "next_attempt_at", "delivered_at", "actor_id", "adapter", "summary", "error_class",
)  # fmt: skip
HISTORY_COLUMNS: Final = (
    "at", "kind", "proposal_no", "attempt", "node", "person", "reason", "error_class",
    "error_detail", "next_attempt_at",
)  # fmt: skip

Key = Annotated[str, Argument(metavar="KEY", help="The output's key, as the list shows it.")]

SendsRequest: TypeAlias = "Callable[[Ports, str], Awaitable[str]]"
"""Sends a request about the output of a key, and returns the request's id."""

ReadsResult: TypeAlias = "Callable[[str, LogEvent], CommandResult | None]"
"""Request's id, an event after it → the request's result; None: the event is none."""


@app.command("list")
def list_(
    ctx: typer.Context,
    *,
    status: Annotated[OutputStatus | None, Option(help="Only with this status.")] = None,
    actor: Annotated[str | None, Option(help="Only of this actor.")] = None,
    adapter: Annotated[str | None, Option(help="Only for this adapter.")] = None,
    limit: options.Limit = 50,
    is_json: options.IsJson = False,
) -> None:
    """List outputs, the latest proposed first."""
    config = options.config(ctx)
    question = partial(
        list_outputs, stack=config.stack, status=status, actor=actor, adapter=adapter, limit=limit
    )
    show_found(config, ask(config, question), COLUMNS, is_json=is_json, spare=SPARE)


@app.command()
def show(ctx: typer.Context, *, key: Key, is_json: options.IsJson = False) -> None:
    """Show one output, and its history."""
    config = options.config(ctx)
    question = partial(show_output, stack=config.stack, key=key)
    found = ask_one(config, question, f"output {key!r}")
    if is_json:
        show_record(found, is_json=True)
        return
    history = found.pop("history")
    assert isinstance(history, list)
    show_record(tables.in_words(tables.spelled_out(found, "payload")), is_json=False)
    show_rows(history, HISTORY_COLUMNS, is_json=False)


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
    from vigil.asking.approvals import Choice, decide_output

    wait_s = timeout_s if is_waiting else None
    choice = Choice("approve", hash_, is_sure, by, reason, wait_s)
    decide_output(options.config(ctx), key, choice.with_changes(changes))


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
    from vigil.asking.approvals import Choice, decide_output

    choice = Choice("deny", hash_, is_sure, by, reason, timeout_s if is_waiting else None)
    decide_output(options.config(ctx), key, choice)


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
    from engine.outputs.requests import retry_output

    if bool(keys) is is_all:
        raise Mistake("name the outputs, or give --all")
    if not is_all and (actor or adapter or is_sure):
        raise Mistake("--actor, --adapter and --yes go with --all")
    config = options.config(ctx)
    chosen = keys or _failed(config, actor=actor, adapter=adapter)
    if is_all and chosen and not is_sure:
        options.require_consent(f"retry {len(chosen):,} outputs?")
    if not chosen:
        print("nothing to retry")
    send = partial(retry_output, by=options.who(config, by), reason=reason)
    _request(config, chosen, send, retry_result, wait_s=timeout_s if is_waiting else None)


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
    from engine.outputs.requests import cancel_output

    config = options.config(ctx)
    send = partial(cancel_output, by=options.who(config, by), reason=reason)
    _request(config, keys, send, cancel_result, wait_s=timeout_s if is_waiting else None)


def retry_result(id_: str, event: LogEvent) -> CommandResult | None:
    """Return what `event` means for the request `id_` to retry; None: nothing."""
    from streams.model.events import OutputAttempted, OutputRetried
    from vigil.asking.requests import CommandResult

    match event:
        case OutputRetried(retry_id=retry_id) if retry_id == id_:  # guard: retrier-learns-earlier
            return CommandResult("tried again", is_wanted=True)
        case OutputRetried(by=by):
            return CommandResult(f"{by} has it tried again", is_wanted=False)
        case OutputAttempted():
            return CommandResult("its time had come: it is being tried", is_wanted=False)
        case _:
            return None


def cancel_result(id_: str, event: LogEvent) -> CommandResult | None:
    """Return what `event` means for the request `id_` to cancel; None: nothing."""
    from streams.model.events import OutputCanceled, OutputDelivered, OutputFailed, OutputRejected
    from vigil.asking.requests import CommandResult

    match event:
        case OutputCanceled(cancel_id=cancel_id) if cancel_id == id_:
            return CommandResult("canceled", is_wanted=True)
        case OutputCanceled(by=by):
            who_was = by or "who canceled its episode"
            return CommandResult(f"{who_was} was faster", is_wanted=False)
        case OutputDelivered():
            return CommandResult("it was delivered before", is_wanted=False)
        case OutputFailed(error_class=error_class):
            return CommandResult(f"it has failed before: {error_class}", is_wanted=False)
        case OutputRejected():
            return CommandResult("it was rejected before", is_wanted=False)
        case _:
            return None


def _failed(config: Config, *, actor: str | None, adapter: str | None) -> list[str]:
    failed = partial(list_outputs, stack=config.stack, status=OutputStatus.FAILED, limit=ROWS_MAX)
    rows = ask(config, partial(failed, actor=actor, adapter=adapter))
    if len(rows) == ROWS_MAX:
        print(f"vigil: these are the latest {ROWS_MAX:,}; ask again", file=sys.stderr, flush=True)
    return [str(row["output_key"]) for row in rows]


def _request(
    config: Config,
    keys: Iterable[str],
    send: SendsRequest,
    result: ReadsResult,
    *,
    wait_s: float | None,
) -> None:
    from vigil.asking import requests

    async def sent(ports: Ports) -> list[CommandOutcome]:
        different = list(dict.fromkeys(keys))
        asked = await requests.in_batches(different, lambda key: _send(ports, key, send, result))
        known = [each for each in asked if isinstance(each, requests.SentCommand)]
        watched = iter(await requests.watch(ports, known, wait_s=wait_s))
        return [next(watched) if isinstance(each, requests.SentCommand) else each for each in asked]

    requests.report(requests.request(config, sent))


async def _send(
    ports: Ports, key: str, send: SendsRequest, result: ReadsResult
) -> SentCommand | CommandOutcome:
    from engine.errors import Refused
    from streams.errors import BadName
    from vigil.asking.approvals import owner_of
    from vigil.asking.requests import CommandOutcome, SentCommand

    try:
        subject = ports.stack.output(key)
        records = await ports.log.read(subject)
        id_ = await send(ports, key)
    except (Refused, BadName) as error:
        return CommandOutcome(name=key, refused=str(error))
    actor_id, episode_id, _ = owner_of(records)
    return SentCommand(
        name=key,
        actor_id=actor_id,
        episode_id=episode_id,
        subject=subject,
        result=partial(_result_after, len(_events(records)), partial(result, id_)),
    )


def _result_after(
    seen: int, result: Callable[[LogEvent], CommandResult | None], records: Iterable[Recorded]
) -> CommandResult | None:
    """Return the result of a request that was sent when the journal had `seen` events."""
    from streams.model.events import OutputProposed
    from vigil.asking.requests import CommandResult

    for event in islice(_events(records), seen, None):
        if (found := result(event)) is not None:
            return found
        if isinstance(event, OutputProposed):
            return CommandResult("another episode has proposed it anew", is_wanted=False)
    return None


def _events(records: Iterable[Recorded]) -> Sequence[LogEvent]:
    return [event for record in records for event in record.commit.events]
