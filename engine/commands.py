"""What can be put to an episode, as data: the commands of the aggregate."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from streams.blocks import Approval, Wait
from streams.events import (
    BlockReason,
    EpisodeConverged,
    EpisodeDeferred,
    EpisodeOpened,
    Resolution,
    StepKind,
)
from streams.findings import FindingOutcome
from streams.json import NOTHING
from streams.outputs import OutputOutcome


class Performed(msgspec.Struct, frozen=True, kw_only=True):
    """A step that was done and what it brought back; the fields are `StepRecorded`'s."""

    kind: StepKind
    fingerprint: str
    tool_name: str = ""
    args: msgspec.Raw = NOTHING
    result: msgspec.Raw = NOTHING
    result_shown: msgspec.Raw = NOTHING
    error_class: str = ""
    error_detail: str = ""
    cost_tokens: int = 0
    cost_ms: int = 0
    model: str = ""


class Begin(msgspec.Struct, frozen=True, kw_only=True):
    """A node begins, or takes over."""

    node: str
    claim_revision: int = 0
    fresh: bool = False


class Leave(msgspec.Struct, frozen=True, kw_only=True):
    """The node is going down."""

    node: str


class Announce(msgspec.Struct, frozen=True, kw_only=True):
    """A side effect is about to happen."""

    fingerprint: str
    tool_name: str
    idempotency_key: str
    output_key: str = ""


class Save(msgspec.Struct, frozen=True, kw_only=True):
    """The state is to be kept."""

    phase: str
    state: msgspec.Raw
    schema_version: int = 1


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """It has to wait for someone outside."""

    reason: BlockReason
    fingerprint: str
    approval: Approval | None = None
    wait: Wait | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """It need not wait any more; what it gets as the result has just been recorded as its step."""

    resolution: Resolution
    by: str = ""
    reason: str = ""
    decision_id: str = ""


class Finish(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided has been carried out, or nothing was to be."""

    findings: tuple[FindingOutcome, ...] = ()
    outputs: tuple[OutputOutcome, ...] = ()


class Fail(msgspec.Struct, frozen=True, kw_only=True):
    """It cannot go on."""

    error_class: str
    error_detail: str = ""
    outputs: tuple[OutputOutcome, ...] = ()


class Cancel(msgspec.Struct, frozen=True, kw_only=True):
    """It is not wanted any more. What had been carried out of what it decided stays so."""

    error_class: str
    error_detail: str = ""
    findings: tuple[FindingOutcome, ...] = ()
    outputs: tuple[OutputOutcome, ...] = ()


Command: TypeAlias = (
    EpisodeOpened
    | Begin
    | Leave
    | Announce
    | Performed
    | Save
    | Block
    | Answer
    | EpisodeConverged
    | EpisodeDeferred
    | Finish
    | Fail
    | Cancel
)
"""Opening, convergence and what is left for later are decided elsewhere, and come as they are."""
