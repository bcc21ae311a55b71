"""Decisions at the command line: what is decided on is shown first, unless its hash is given."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import typer
from msgspec import UNSET

from streams.clock import SystemClock
from streams.json import unraw
from vigil import options
from vigil.asking.approval_requests import (
    HASH_DIGITS_MIN,
    changed,
    check_hash,
    problem_with,
)
from vigil.client.client import Client
from vigil.commands.call import call
from vigil.errors import Mistake, Trouble
from vigil.options import stranger_hint
from vigil.printing import tables
from vigil.printing.output import report
from vigil.printing.tables import Row, as_json

if TYPE_CHECKING:
    from engine.operations.decide_request import ApprovalTarget
    from vigil.asking.approval_requests import ApprovalRequest
    from vigil.asking.requests import CommandOutcome


@dataclass(frozen=True)
class Choice:
    """What was typed with a decision."""

    verdict: options.Verdict
    hash: str | None
    is_sure: bool
    by: str | None
    reason: str
    wait_s: float | None
    """None: not at all."""
    changes: object = UNSET
    """A JSON merge patch (RFC 7396) for the plan, or for the input of each item of a step; unset:
    no changes."""

    def with_changes(self, text: str | None) -> Choice:
        """Return the choice with the changes in `text`, read as `options.read_json` does."""
        if text is None:
            return self
        return replace(self, changes=options.read_json(text, what="--changes"))

    def confirm(self, what: str, row: Row, plan_hash: str) -> None:
        """Show the request and ask for confirmation, unless `hash` tells that it was seen."""
        if self.hash is None and not self.is_sure:
            terminal = tables.terminal(stderr=True)
            # guard: plan-shown-unasked
            terminal.print(tables.record(row, width=terminal.width), crop=False)
            if not sys.stdin.isatty():  # guard: decide-only-on-seen
                digits = plan_hash[:HASH_DIGITS_MIN]
                raise Mistake(f"there is no terminal to confirm on; give --hash {digits}, or --yes")
            typer.confirm(f"{self.verdict} {what}?", abort=True, err=True)


def decide(
    ctx: typer.Context,
    choice: Choice,
    target_of: Callable[[Client], Awaitable[ApprovalTarget]],
) -> None:
    """Show the request of a target, ask whether it is meant, and print what became of it."""
    if choice.hash is not None:
        check_hash(choice.hash, what="--hash")

    async def look(client: Client) -> tuple[ApprovalTarget, ApprovalRequest, str, Sequence[str]]:
        target, by = await target_of(client), client.connections.who(None)
        pending = await client.approvals.read(target)
        return target, pending, by, await client.people.groups_of(by)

    target, pending, by, groups = call(ctx, look, by=choice.by)
    approval, is_edited = pending.approval, choice.changes is not UNSET
    now = SystemClock().now()
    plan = changed(unraw(pending.plan), choice.changes, target) if is_edited else UNSET
    is_denial = choice.verdict == "deny"
    problem = problem_with(pending, by=by, at=now, plan=plan, groups=groups, is_denial=is_denial)
    if problem:
        raise Trouble(f"{target}: {problem}{stranger_hint(approval.approvers, by)}")
    row = as_row(pending)
    if is_edited:
        row = {**row, "becomes": as_json(plan)}
    choice.confirm(str(target), row, approval.plan_hash)

    async def decided(client: Client) -> CommandOutcome:
        return await client.approvals.decide(
            target,
            choice.verdict,
            plan_hash=choice.hash or approval.plan_hash,
            changes=choice.changes,
            reason=choice.reason,
            wait_s=choice.wait_s,
        )

    report([call(ctx, decided, by=choice.by)])


def as_row(request: ApprovalRequest) -> Row:
    """Return a request as people read it before they decide, the plan last."""
    asked = request.approval
    return {
        "summary": asked.summary or None,
        "approvers": ", ".join(asked.approvers) or "anybody",
        **({"progress": request.progress} if request.progress else {}),
        **({"may not decide": asked.barred} if asked.barred else {}),
        "asked_at": request.asked_at,
        "expires_at": asked.expires_at,
        "on_expiry": asked.on_expiry.value if asked.expires_at else None,
        "plan_hash": asked.plan_hash,
        "plan": as_json(unraw(request.plan)),
    }
