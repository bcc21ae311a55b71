"""What people are asked: who may decide, until when, and when they are reminded. Pure.

The owner of a request, an episode, an output or a step, records what is asked, and what a decision
or the expiry leads to. Signals that are waited for expire, and people are reminded, the same way.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Final, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from engine.agents.plans.edits import problem_of_edit
from engine.app.actions import GROUP, RequestApproval
from streams.json import NOTHING, raw, unraw
from streams.model.commands import Decide, DecideStep, Verdict
from streams.model.events import EpisodeOpened
from streams.model.outputs import OutputIntent
from streams.model.waits import Approval, EditableCalls, GivenApproval, Wait, progress

T = TypeVar("T", bound=Approval | Wait)

REQUESTS: Final = "vigil:approval:"
"""Begins the reference of a request that equal ones share. No signal may have such a one."""

REQUEST_BYTES: Final = 16
"""Length of the hash in it: long enough that two never collide."""


class Pending(msgspec.Struct, Generic[T], frozen=True):
    """What somebody is asked, and nobody has answered so far."""

    terms: T
    since: datetime

    def is_expired(self, *, at: datetime) -> bool:
        """Return whether the time limit has passed at `at`."""
        expires_at = self.terms.expires_at
        return expires_at is not None and expires_at <= at

    def reminder_no(self, *, at: datetime) -> int:
        """Return the number, from 1, of the newest reminder that is due; 0: none."""
        every_s = self.terms.remind_every_s
        if every_s <= 0 or at < self.since:
            return 0
        return int((at - self.since).total_seconds() / every_s)

    def next_wake(self, *, after: datetime) -> datetime | None:
        """Return when the next reminder or the expiry is due, which may be past; None: never."""
        wakes = [self.terms.expires_at] if self.terms.expires_at else []
        every_s = self.terms.remind_every_s
        if every_s > 0:
            number = self.reminder_no(at=after) + 1
            wakes.append(self.since + timedelta(seconds=number * every_s))
        return min(wakes, default=None)


def approval_for(
    asking: RequestApproval | OutputIntent,
    *,
    plan_hash: str,
    plan: msgspec.Raw = NOTHING,
    at: datetime,
    requester: str = "",
) -> Approval:
    """Return what people are asked from `at` on; `requester` is who has asked for all of it."""
    return Approval(
        plan_hash=plan_hash,
        plan=plan,
        summary=asking.summary,
        approvers=asking.approvers,
        quorum=asking.quorum if isinstance(asking.quorum, int) else 1,
        barred=requester if asking.requester_may_approve is False else "",
        expires_at=expiry_of(asking.expires_s, at=at),
        on_expiry=asking.on_expiry,
        remind_every_s=asking.remind_every_s,
        # Nothing but its delivery looks at what an output is.
        editable=isinstance(asking, OutputIntent) or asking.editable is True,
        calls=_calls_of(asking),
        per_episode=isinstance(asking, RequestApproval) and asking.per_episode is True,
    )


def _calls_of(asking: RequestApproval | OutputIntent) -> EditableCalls | None:
    calls = asking.calls if isinstance(asking, RequestApproval) else None
    return calls if isinstance(calls, EditableCalls) else None


def request_of(opened: EpisodeOpened, asked: RequestApproval, *, mark: str) -> str:
    """Return the reference of a request, the same for equal ones; empty: it is not shared.

    `mark` is its fingerprint: of all that people see, and of its time limits.
    """
    subject = opened.trigger.entity_id
    if not subject or asked.shared is False:  # guard: request-about-nothing-unshared
        return ""
    # Whose approvals are counted, and who may not decide, is a matter of each episode.
    is_counted = isinstance(asked.quorum, int) or asked.requester_may_approve is False
    if is_counted:  # guard: counted-request-unshared
        return ""
    said = raw([opened.actor_id, opened.subject_kind, subject, mark])
    return f"{REQUESTS}{blake2b(said, digest_size=REQUEST_BYTES).hexdigest()}"


def expiry_of(expires_s: float, *, at: datetime) -> datetime | None:
    """Return the end of a time limit that begins at `at`; None: 0 seconds are no limit."""
    return at + timedelta(seconds=expires_s) if expires_s else None


def names_group(approval: Approval) -> bool:
    """Return whether those who may decide are, in part, whoever is in a group."""
    return any(each.startswith(GROUP) for each in approval.approvers)


def progress_of(approval: Approval) -> str:
    """Return how many have approved what takes several, and who; empty: one is enough."""
    return progress(approval.quorum, [each.by for each in approval.given])


def one_more(
    approval: Approval, decision: Decide | DecideStep, *, at: datetime, plan: msgspec.Raw = NOTHING
) -> Approval:
    """Return what people are asked once somebody else has approved it.

    Who changes the plan is the first to approve what it has become, `plan`: the others have to
    approve that, whatever they have approved before.
    """
    said = GivenApproval(by=decision.by, at=at, reason=decision.reason, decision_id=decision.id)
    if decision.edited_hash and decision.edited_hash != approval.plan_hash:
        return replace(
            approval,
            plan_hash=decision.edited_hash,
            plan=plan,
            asked_hash=approval.asked_hash or approval.plan_hash,
            asked_plan=approval.asked_plan if approval.asked_hash else approval.plan,
            given=(said,),  # guard: changed-plan-approved-anew
        )
    return replace(approval, given=(*approval.given, said))


def is_enough(approval: Approval) -> bool:
    """Return whether as many have approved it as have to."""
    return len(approval.given) >= approval.quorum  # guard: quorum-approves


def approved_by(approval: Approval) -> str:
    """Return who has approved it, in order."""
    return ", ".join(each.by for each in approval.given)


def changed_hash(approval: Approval) -> str:
    """Return the hash of what is approved in the place of the plan; empty: nothing else is."""
    is_changed = approval.asked_hash not in ("", approval.plan_hash)
    return approval.plan_hash if is_changed else ""


def asked_anew(approval: Approval) -> Approval:
    """Return a request as it was before anybody had approved it."""
    if not approval.asked_hash:
        return replace(approval, given=())
    return replace(
        approval,
        given=(),
        plan_hash=approval.asked_hash,
        plan=approval.asked_plan,
        asked_hash="",
        asked_plan=NOTHING,
    )


def problem_of_decision(
    approval: Approval,
    *,
    plan_hash: str,
    by: str,
    at: datetime,
    groups: Collection[str] = (),
    is_edited: bool = False,
    is_denial: bool = False,
) -> str | None:
    """Return why `by` cannot decide the pending `approval`, for people; None: they can."""
    # `at` is its time by the server's clock: after `expires_at` it is late, though not expired yet.
    if plan_hash != approval.plan_hash:  # guard: other-payload-decision-refused
        return f"it is about another plan; the one that waits has hash {approval.plan_hash}"
    if approval.barred and _is_same(by, approval.barred):  # guard: requester-decides-nothing
        return f"{by!r} has asked for it, and may not decide on it; somebody else has to"
    if approval.approvers and not _may(approval, by, groups):
        return f"{by!r} is none of those who may decide: {', '.join(approval.approvers)}"
    # Who has approved it may still stop it.
    has_approved = any(_is_same(by, each.by) for each in approval.given)
    if has_approved and not is_denial:  # guard: one-person-one-approval
        more = approval.quorum - len(approval.given)
        others = "somebody else has to" if more == 1 else f"{more} others have to"
        return f"{by!r} has approved it already; {others} as well"
    if is_edited and not approval.editable:  # guard: edited-plan-where-looked-at
        return "its plan cannot be changed: it does not look at what it becomes; deny it instead"
    return problem_of_time(approval, at=at)  # guard: decision-after-expiry-late


def problem_of_command(
    approval: Approval, command: Decide | DecideStep, *, at: datetime
) -> str | None:
    """Return why `command` cannot decide the pending `approval`, for people; None: it can."""
    # guard: edited-plan-checked-by-node
    plan_hash, by, is_edited = command.plan_hash, command.by, bool(command.edited_hash)
    return problem_of_decision(
        approval,
        plan_hash=plan_hash,
        by=by,
        at=at,
        groups=command.groups,
        is_edited=is_edited,
        is_denial=command.verdict is Verdict.DENY,
    )


def _may(approval: Approval, by: str, groups: Collection[str]) -> bool:
    # guard: group-may-decide
    return by in approval.approvers or any(
        f"{GROUP}{each}" in approval.approvers for each in groups
    )


def _is_same(by: str, other: str) -> bool:
    """Return whether two names are one person's: no two differ by case alone."""
    return by.strip().casefold() == other.strip().casefold()


def problem_of_changes(approval: Approval, plan: object) -> str | None:
    """Return why what is asked for in `approval` cannot become `plan`; None: it can."""
    if approval.calls is None:
        return None
    return problem_of_edit(approval.calls, unraw(approval.plan), plan) or None


def problem_of_time(terms: Approval | Wait, *, at: datetime) -> str | None:
    """Return that an answer of the time `at` is late, for people; None: it is not."""
    if terms.expires_at is not None and at > terms.expires_at:
        return f"it expired at {terms.expires_at:%Y-%m-%d %H:%M:%S} UTC"
    return None


def end_in_words(
    outcome: str, *, by: str = "", at: datetime | None = None, reason: str = ""
) -> str:
    """Return how a request ended, by whom, when and why."""
    who = f" by {by}" if by else ""
    when = f" at {at:%Y-%m-%d %H:%M:%S} UTC" if at else ""
    return f"{outcome}{who}{when}{f' ({reason})' if reason else ''}"


def denial_in_words(*, by: str, reason: str) -> str:
    """Return who denied a request, and why; for an expiry, nobody."""
    return ": ".join(each for each in (f"by {by}" if by else "", reason) if each)
