"""The life of an output: proposed → approved or rejected → attempted … → delivered or failed."""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

import msgspec

from streams.json import NOTHING
from streams.model.struct import Event
from streams.model.waits import Approval


class OutputProposed(Event, frozen=True, kw_only=True, tag="output.proposed@1"):
    """An episode wants something delivered. The first of a key is; later ones are duplicates."""

    output_key: str
    adapter: str
    """Who delivers it: a name in `App.outputs`."""
    payload: msgspec.Raw
    episode_id: str
    """Whose it is. All that is done about the output goes through this episode's inbox."""
    actor_id: str
    expectation_id: str
    proposal_no: int = 1
    """+1 when the key is proposed anew, after it failed or was canceled, or nobody approved it in
    time."""
    approval: Approval | None = None
    """What people are asked first; None: it needs no approval. `plan_hash` is the payload's."""


class OutputApproved(Event, frozen=True, kw_only=True, tag="output.approved@1"):
    """It may be delivered."""

    by: str
    """Who decided; empty: nobody in time, which means approval by the request's own terms."""
    reason: str = ""
    decision_id: str = ""
    edited_hash: str = ""
    """SHA-256 of `edited_payload`; empty: the payload is delivered as it was proposed."""
    edited_payload: msgspec.Raw = NOTHING
    """What is delivered in its place."""


class OutputApprovalGiven(Event, frozen=True, kw_only=True, tag="output.approval_given@1"):
    """Somebody has approved it, and others have to as well."""

    by: str
    reason: str = ""
    decision_id: str = ""
    approval: Approval
    """What people are asked from now on, with all approvals so far."""


class OutputRejected(Event, frozen=True, kw_only=True, tag="output.rejected@1"):
    """It is not to be delivered."""

    by: str
    """As in `OutputApproved`."""
    reason: str = ""
    decision_id: str = ""
    is_expiry: bool = False
    """Whether nobody has decided in time."""


class OutputAttempted(Event, frozen=True, kw_only=True, tag="output.attempted@1"):
    """The adapter is about to be called. Until one of the next events, nobody knows if it was."""

    attempt: int
    """1-based over all attempts at this proposal."""
    node: str = ""


class OutputPostponed(Event, frozen=True, kw_only=True, tag="output.postponed@1"):
    """An attempt failed for now; another one will be made."""

    attempt: int
    error_class: str
    error_detail: str = ""
    retry_at: datetime
    """Not before then."""
    lacked: bool = False
    """Whether no attempt was made, because the node's app lacks the adapter."""


class OutputDelivered(Event, frozen=True, kw_only=True, tag="output.delivered@1"):
    """The outside has it."""

    attempt: int
    delivered_ref: str = ""
    """What the receiver calls it."""


class OutputFailed(Event, frozen=True, kw_only=True, tag="output.failed@1"):
    """It cannot be delivered, or not with as many attempts as there are: it is a dead letter."""

    attempt: int
    """The last one; 0: none was made."""
    error_class: str
    error_detail: str = ""


class OutputRetried(Event, frozen=True, kw_only=True, tag="output.retried@1"):
    """A person has it tried again.

    After it failed, attempts are counted anew towards the most. One that was only put off is tried
    now, and its attempts count on.
    """

    by: str
    reason: str = ""
    retry_id: str = ""
    approval: Approval | None = None
    """What people are asked first, once more; None: nothing."""


class OutputCanceled(Event, frozen=True, kw_only=True, tag="output.canceled@1"):
    """It is not wanted any more, before it was delivered: by itself, or with its episode."""

    reason: str = ""
    by: str = ""
    """Who canceled it alone; empty: its episode was canceled."""
    cancel_id: str = ""
    """Of the request that did; empty as `by`."""


class OutputForgone(Event, frozen=True, kw_only=True, tag="output.forgone@1"):
    """An episode that might have proposed it will not any more; the output stays as it is.

    A writer that stood still just before it proposed for that episode finds this, and does not.
    """

    episode_id: str


OutputEvent: TypeAlias = (
    OutputProposed
    | OutputApproved
    | OutputApprovalGiven
    | OutputRejected
    | OutputAttempted
    | OutputPostponed
    | OutputDelivered
    | OutputFailed
    | OutputRetried
    | OutputCanceled
    | OutputForgone
)
