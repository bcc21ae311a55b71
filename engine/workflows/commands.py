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


InstanceCommand: TypeAlias = Advance | AttemptEnded | ResumeWorkflow | CancelWorkflow | DecideStep
