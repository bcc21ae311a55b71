"""The public events of outputs, as data: at least once, with stable ids, none in dry runs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

from engine.outputs.output import Output
from engine.runtime.publish import PublicEvent
from streams.json import JsonObject
from streams.model.events import (
    EpisodeOpened,
    OutputApproved,
    OutputCanceled,
    OutputDelivered,
    OutputEvent,
    OutputFailed,
    OutputProposed,
    OutputRejected,
)

_WHAT: Final[Mapping[type[OutputEvent], str]] = {
    OutputProposed: "proposed",
    OutputApproved: "approved",
    OutputRejected: "rejected",
    OutputDelivered: "delivered",
    OutputFailed: "failed",
    OutputCanceled: "canceled",
}
"""Event → the name of its public event. Attempts have none."""

_MARK_BYTES: Final = 16
"""Length of the hash of an output's key in an id: long enough that two never collide."""


def output_event(
    opened: EpisodeOpened, proposed: OutputProposed, event: OutputEvent, *, retries: int, seq: int
) -> PublicEvent | None:
    """Return the public event of one `event` after `retries` of the proposal; None: it has none."""
    what = _WHAT.get(type(event))
    if what is None:
        return None
    # It fails once for each time that it is tried; all else happens once.
    suffix = f"{what}.{retries}" if isinstance(event, OutputFailed) and retries else what
    payload = {**_said(proposed), **_more(event), "journal_seq": seq}
    return _event(opened, proposed, what, suffix, payload)


def output_reminder(opened: EpisodeOpened, output: Output, *, number: int, seq: int) -> PublicEvent:
    """Return `output.reminder`: it still waits for approval. Each reminder has its own id."""
    proposed = output.proposed
    assert proposed is not None, "what people are reminded of was proposed"
    payload = {**_said(proposed), **_asked(proposed), "number": number, "journal_seq": seq}
    # Who has it tried again after the time ran out has people asked, and reminded, once more.
    times = f"{output.retries}.{number}" if output.retries else f"{number}"
    return _event(opened, proposed, "reminder", f"reminder.{times}", payload)


def _more(event: OutputEvent) -> JsonObject:
    match event:
        case OutputProposed():
            return _asked(event)
        case OutputApproved(by=by, reason=reason):
            return {"by": by, "reason": reason}
        case OutputRejected(by=by, reason=reason, is_expiry=is_expiry):
            return {"by": by, "reason": reason, "is_expiry": is_expiry}
        case OutputDelivered(attempt=attempt, delivered_ref=ref):
            return {"attempts": attempt, "delivered_ref": ref}
        case OutputFailed(attempt=attempt, error_class=error_class):
            # Its detail quotes the receiver, which may quote credentials: not for everybody.
            return {"attempts": attempt, "error_class": error_class}
        case OutputCanceled(by=by, reason=reason):
            return {"by": by, "reason": reason}
        case _:
            return {}


def _asked(proposed: OutputProposed) -> JsonObject:
    approval = proposed.approval
    if approval is None:
        return {"requires_approval": False}
    expires_at = approval.expires_at.isoformat() if approval.expires_at else None
    return {
        "requires_approval": True,
        "payload_hash": approval.plan_hash,
        "summary": approval.summary,
        "approvers": list(approval.approvers),
        "expires_at": expires_at,
    }


def _said(proposed: OutputProposed) -> JsonObject:
    return {
        "episode_id": proposed.episode_id,
        "actor_id": proposed.actor_id,
        "expectation_id": proposed.expectation_id,
        "output_key": proposed.output_key,
        "adapter": proposed.adapter,
        "proposal_no": proposed.proposal_no,
    }


def _event(
    opened: EpisodeOpened, proposed: OutputProposed, what: str, suffix: str, payload: JsonObject
) -> PublicEvent:
    mark = blake2b(proposed.output_key.encode(), digest_size=_MARK_BYTES).hexdigest()
    return PublicEvent(
        name=f"output.{what}",
        id=f"output.{mark}.{proposed.proposal_no}.{suffix}",
        payload=payload,
        hops=opened.trigger.hops + 1,
    )
