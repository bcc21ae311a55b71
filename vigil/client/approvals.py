"""Approvals: what waits for one, and deciding on it.

A decision is about the newest request. It is checked on the journal before it is sent, and again by
the node that handles it: between the two somebody else may decide, or the time may run out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final, Literal
from uuid import UUID

from msgspec import UNSET

from projections.postgres.reader import list_decisions
from projections.records import DecisionSummary
from streams.json import unraw
from vigil.client.connections import Connections
from vigil.client.episodes import EpisodeCalls
from vigil.client.page import Page, PagedList, check_past
from vigil.client.workflows import WorkflowCalls
from vigil.errors import Mistake, Trouble
from vigil.settings import DECISION_S

if TYPE_CHECKING:
    from engine.operations.decide_request import ApprovalTarget
    from projections.postgres.reader import OneOrMore
    from vigil.asking.approval_requests import ApprovalRequest
    from vigil.asking.requests import CommandOutcome

_ID: Final = re.compile(r"[0-9a-fA-F-]+")

_REMEDY: Final = (
    "give the id of an episode, or ApprovalTarget('output', KEY) or "
    "ApprovalTarget('step', INSTANCE, STEP) of vigil.ports"
)


DECISIONS: Final = PagedList(
    "decisions", DecisionSummary, list_decisions, {"at": datetime, "id": str, "kind": str}
)


@dataclass(frozen=True)
class ApprovalCalls:
    """Calls about what waits for approval: `client.approvals`. They read the log.

    What asks is an `ApprovalTarget`, or the id of an episode. Of an id of an episode or an instance
    its beginning is enough, if that is one; that is looked for in the rows.
    """

    _connections: Connections

    async def read(self, target: ApprovalTarget | UUID | str) -> ApprovalRequest:
        """Return the newest request of `target`, which waits for a decision.

        Raises:
            Mistake: nothing can be called so, or the beginning of an id is that of several.
            NotFound: there is no such thing on the journal.
            AlreadyDecided: it does not wait any more.
            Trouble: it does not ask for approval.
        """
        from vigil.asking.approval_requests import read_pending

        target = await self._whole(target)
        async with self._connections.log(about=str(target)) as ports:
            pending, _ = await read_pending(ports, target)
            return pending

    async def decided(
        self,
        *,
        by: str | None = None,
        actor: OneOrMore | None = None,
        episode_ids: Sequence[UUID] | None = None,
        at: datetime | None = None,
        after: str | None = None,
        reverse: bool = False,
        limit: int = 50,
    ) -> Page[DecisionSummary]:
        """Return what people have decided on, of the rows: the latest first.

        Of a request that several people had to approve, an episode's and a step's is one decision
        of all of them; an output's also has each approval before the last.

        Args:
            by: only what this person has decided.
            actor: one, or several.
            episode_ids: only what these episodes had asked for, and their outputs.
            at: only what was decided by then; None: all.
            after: the `next` of a page: what follows it.
            reverse: from the other end of the list: the first comes first.

        Raises:
            Mistake: `after` is no such `next`, or `at` has no time zone or is yet to come.
        """
        check_past(at, self._connections.clock.now())
        return await DECISIONS.page(
            self._connections,
            after=after,
            limit=limit,
            by=by,
            actor=actor,
            episode_ids=episode_ids,
            at=at,
            reverse=reverse,
        )

    async def decide(
        self,
        target: ApprovalTarget | UUID | str,
        verdict: Literal["approve", "deny"],
        *,
        plan_hash: str | None = None,
        changes: object = UNSET,
        reason: str = "",
        by: str | None = None,
        wait_s: float | None = DECISION_S,
    ) -> CommandOutcome:
        """Decide on the newest request of `target`, and return what became of it.

        Where several people have to approve it, the outcome of all but the last says how many have.
        Who has changed the plan is the first to approve what it became, and the others see that.

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
        from engine.operations.decide_request import decide_request
        from engine.people.store import PeopleStore
        from vigil.asking.approval_requests import (
            changed,
            check_hash,
            problem_with,
            read_pending,
            result_of_decision,
        )
        from vigil.asking.requests import SentCommand, watch

        if plan_hash is not None:
            check_hash(plan_hash, what="plan_hash")
        target = await self._whole(target)
        name, is_edited = self._connections.who(by), changes is not UNSET
        async with self._connections.log(about=str(target)) as ports:
            pending, owner = await read_pending(ports, target)
            whole_hash = pending.approval.plan_hash
            # guard: decision-about-seen-plan
            if plan_hash is not None and not whole_hash.startswith(plan_hash.lower()):
                raise Trouble(f"{target} waits for a decision on another plan: {whole_hash}")
            now = self._connections.clock.now()
            plan = changed(unraw(pending.plan), changes, target) if is_edited else UNSET
            groups = await PeopleStore(ports, self._connections.clock).groups_of(name)
            is_denial = verdict == "deny"
            problem = problem_with(
                pending, by=name, at=now, plan=plan, groups=groups, is_denial=is_denial
            )
            if problem:
                raise Trouble(f"{target}: {problem}")
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

    async def _whole(self, target: ApprovalTarget | UUID | str) -> ApprovalTarget:
        """Return what asks, with its whole id."""
        from engine.operations.decide_request import ApprovalTarget

        given: object = target
        if isinstance(given, str | UUID):
            if isinstance(given, str) and not _ID.fullmatch(given):  # guard: decided-text-is-an-id
                raise Mistake(f"target: {given!r} is no id of an episode", remedy=_REMEDY)
            return ApprovalTarget("episode", str(await EpisodeCalls(self._connections).find(given)))
        if not isinstance(given, ApprovalTarget):
            raise Mistake(f"target: {given!r} asks for nothing", remedy=_REMEDY)
        match given.kind:
            case "episode":
                found = await EpisodeCalls(self._connections).find(given.id)
            case "step":
                found = await WorkflowCalls(self._connections).find(given.id)
            case _:
                return given
        return ApprovalTarget(given.kind, str(found), given.step)
