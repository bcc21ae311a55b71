"""What can be put to an instance, as data: the commands of the aggregate."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from streams.commands import Advance, CancelWorkflow, DecideStep, ResumeWorkflow
from streams.json import NOTHING
from streams.workflows import StepOutcome


class AttemptEnded(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt is over, as the journal of its episode says, or that of its instance.

    Whoever gets a `StepDone` reads that and puts this.
    """

    step: str
    item: int
    attempt: int
    episode_id: str
    outcome: StepOutcome
    error_class: str = ""
    error_detail: str = ""
    result: msgspec.Raw = NOTHING
    is_compensation: bool = False
    is_called_off: bool = False
    """Whether what it was to run had not begun and never will: see `start.called_off`."""


class Recalled(msgspec.Struct, frozen=True, kw_only=True):
    """It was looked whether a result of earlier work may stand for an item's: see `reuse`.

    Whoever follows a commit that leaves an item prepared puts this.
    """

    step: str
    item: int
    episode_id: str = ""
    """Whose result it is; empty: there is none, so the item begins."""
    result: msgspec.Raw = NOTHING


InstanceCommand: TypeAlias = (
    Advance | AttemptEnded | Recalled | ResumeWorkflow | CancelWorkflow | DecideStep
)
