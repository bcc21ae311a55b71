"""Approvals: what waits for one, and deciding on it.

A decision is about the newest request. It is checked on the journal before it is sent, and again by
the node that handles it: between the two somebody else may decide, or the time may run out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from msgspec import UNSET

from engine.operations.decide_request import ApprovalTarget, decide_request
from streams.json import unraw
from vigil.asking.approval_requests import (
    ApprovalRequest,
    changed,
    check_hash,
    problem_with,
    read_pending,
    result_of_decision,
)
from vigil.asking.requests import CommandOutcome, SentCommand, watch
from vigil.client.connections import Connections
from vigil.errors import Trouble
from vigil.settings import DECISION_S


@dataclass(frozen=True)
class ApprovalCalls:
    """Calls about what waits for approval: `client.approvals`. They read the log."""

    _connections: Connections

    async def read(self, target: ApprovalTarget) -> ApprovalRequest:
        """Return the newest request of `target`, which waits for a decision.

        Raises:
            NotFound: there is no such thing on the journal.
            Trouble: it does not ask for approval, or does not wait any more.
        """
        async with self._connections.log(about=str(target)) as ports:
            pending, _ = await read_pending(ports, target)
            return pending

    async def decide(
        self,
        target: ApprovalTarget,
        verdict: Literal["approve", "deny"],
        *,
        plan_hash: str | None = None,
        changes: object = UNSET,
        reason: str = "",
        by: str | None = None,
        wait_s: float | None = DECISION_S,
    ) -> CommandOutcome:
        """Decide on the newest request of `target`, and return what became of it.

        Args:
            plan_hash: the first 8 hex digits, or more, of the hash of what was looked at; None:
                what waits now.
            changes: a JSON merge patch (RFC 7396) for the plan, or for the input of each item of a
                step; unset: none.
            wait_s: how long to wait until it is on the journal, in seconds; None: not at all.

        Raises:
            NotFound: there is no such thing on the journal.
            Mistake: a value is impossible.
            Trouble: it does not wait, waits with another plan, or `by` may not decide on it.
        """
        if plan_hash is not None:
            check_hash(plan_hash, what="plan_hash")
        name, is_edited = self._connections.who(by), changes is not UNSET
        async with self._connections.log(about=str(target)) as ports:
            pending, owner = await read_pending(ports, target)
            whole_hash = pending.approval.plan_hash
            # guard: decision-about-seen-plan
            if plan_hash is not None and not whole_hash.startswith(plan_hash.lower()):
                raise Trouble(f"{target} waits for a decision on another plan: {whole_hash}")
            now = self._connections.clock.now()
            if problem := problem_with(pending, by=name, at=now, is_edited=is_edited):
                raise Trouble(f"{target}: {problem}")
            plan = changed(unraw(pending.plan), changes, target) if is_edited else UNSET
            id_ = await decide_request(
                ports,
                target,
                verdict,
                plan_hash=whole_hash,
                by=name,
                reason=reason,
                plan=plan,
                clock=self._connections.clock,
            )
            sent = SentCommand(
                name=target.id,
                **owner._asdict(),
                subject=target.subject(ports.stack),
                result=partial(result_of_decision, pending, id_),
            )
            (outcome,) = await watch(ports, [sent], wait_s=wait_s)
            return outcome
