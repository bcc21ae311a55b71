"""`vigil findings`: what actors found."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer import Argument, Option

from projections.postgres.reader import list_causal_chain, list_findings, show_finding
from streams.model.findings import Finding, FindingStatus, Severity
from vigil import options
from vigil.asking.connect import with_ports
from vigil.asking.rows import ask, ask_one, show_found
from vigil.errors import Mistake, Trouble
from vigil.options import By, IsJson, Limit, Reason, who
from vigil.printing.output import show_record, show_rows
from vigil.settings import Config

if TYPE_CHECKING:
    from engine.findings.requests import FindingRequests
    from engine.findings.store import FindingChange

app = typer.Typer(no_args_is_help=True)

COLUMNS: Final = (
    "finding_key", "severity", "status", "class", "summary", "actor_id", "raised_at",
    "updated_at", "expires_at", "caused_by_key",
)  # fmt: skip
SPARE: Final = (
    "caused_by_key", "raised_at", "expires_at", "updated_at", "actor_id", "status", "class",
    "summary",
)  # fmt: skip
HISTORY_COLUMNS: Final = (
    "at", "kind", "raise_no", "severity", "summary", "episode_id", "person", "reason",
)  # fmt: skip
CHAIN_COLUMNS: Final = ("depth", "finding_key", "status", "severity", "class", "summary")

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
    limit: Limit = 50,
    is_json: IsJson = False,
) -> None:
    """List findings: the most severe first, then the latest changed."""
    config = options.config(ctx)
    only = None if status is WantedStatus.ALL else status
    question = partial(
        list_findings, stack=config.stack, status=only, severity=severity, actor=actor, limit=limit
    )
    show_found(config, ask(config, question), COLUMNS, is_json=is_json, spare=SPARE)


@app.command()
def show(ctx: typer.Context, *, key: Key, is_json: IsJson = False) -> None:
    """Show one finding, and its history."""
    config = options.config(ctx)
    question = partial(show_finding, stack=config.stack, key=key)
    found = ask_one(config, question, f"finding {key!r}")
    if is_json:
        show_record(found, is_json=True)
        return
    history = found.pop("history")
    show_record(found, is_json=False)
    assert isinstance(history, list)
    show_rows(history, HISTORY_COLUMNS, is_json=False)


@app.command()
def clear(ctx: typer.Context, *, key: Key, reason: Reason = "", by: By = None) -> None:
    """Clear a finding. One that has ended stays as it is."""
    config = options.config(ctx)
    name = who(config, by)
    change = _change(config, key, lambda steward: steward.clear(key, by=name, reason=reason))
    if change.is_made:
        print(f"{key}: cleared by {name}")
    else:
        print(f"{key}: nothing to clear, it {_ended(_finding(change))}")


@app.command()
def ack(ctx: typer.Context, *, key: Key, reason: Reason = "", by: By = None) -> None:
    """Acknowledge a finding. It stays active; one that has ended is refused."""
    config = options.config(ctx)
    name = who(config, by)
    change = _change(config, key, lambda steward: steward.acknowledge(key, by=name, reason=reason))
    if change.is_made:
        print(f"{key}: acknowledged by {name}")
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
    config = options.config(ctx)
    name = who(config, by)
    _change(config, key, lambda steward: steward.note(key, by=name, text=text))
    print(f"{key}: noted")


@app.command()
def chain(
    ctx: typer.Context,
    *,
    key: Key,
    depth: Annotated[int, Option(help="Most steps.", min=1, max=100)] = 10,
    is_json: IsJson = False,
) -> None:
    """Show a finding and its causes, step by step."""
    config = options.config(ctx)
    question = partial(list_causal_chain, stack=config.stack, key=key, depth=depth)
    show_rows(ask_one(config, question, f"finding {key!r}"), CHAIN_COLUMNS, is_json=is_json)


def _change(
    config: Config, key: str, act: Callable[[FindingRequests], Awaitable[FindingChange]]
) -> FindingChange:
    from engine.errors import BadRequest, NoFinding
    from engine.findings.requests import FindingRequests
    from streams.clock import SystemClock

    try:
        return with_ports(
            config, lambda ports: act(FindingRequests(ports, SystemClock())), creates=True
        )
    except BadRequest as error:
        raise Mistake(str(error)) from error
    except NoFinding as error:
        hint = "`vigil findings list --status all` shows those there are"
        raise Mistake(f"no finding {key!r} in stack {config.stack.name}; {hint}") from error


def _finding(change: FindingChange) -> Finding:
    assert change.before is not None, "a change of a finding that exists"
    return change.before


def _ended(finding: Finding) -> str:
    assert finding.cleared_at is not None, "a finding that has ended"
    at = f"{finding.cleared_at:%Y-%m-%d %H:%M:%S} UTC"
    if finding.status is FindingStatus.EXPIRED:
        return f"expired at {at}"
    return f"was cleared at {at} by {finding.cleared_by or 'its actor'}"
