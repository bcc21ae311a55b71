"""Commands to nodes. A command is a message, not a fact: it may be refused. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec

from streams.json import NOTHING
from streams.model.sealed import Sealed
from streams.model.workflows import ResumeHow


class _Tagged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    sealed: Sealed | None = None
    """The command with its contents, encrypted; None: it has all."""


class Start(_Tagged, frozen=True, kw_only=True, tag="start@1"):
    """Begin an episode that has been opened."""

    actor_id: str
    episode_id: str
    admitted: bool = False
    """Whether its turn has come, where episodes of the actor take turns. Only the scheduler sets
    it: any other start is a wish for a place."""
    answered_step: int = 0
    """The step to go on with, if it waited for one and has the published answer."""


class Recover(_Tagged, frozen=True, kw_only=True, tag="recover@1"):
    """Go on with an episode whose node is gone."""

    actor_id: str
    episode_id: str
    reason: str
    """`lapsed`, `handover` or `swept`."""
    lapse_revision: int = 0
    """Revision in its bucket of the marker that a claim has lapsed; 0: no claim of its own has."""
    holder: str = ""
    """The node whose claim has lapsed; empty: nobody knows, or none has."""


class Cancel(_Tagged, frozen=True, kw_only=True, tag="cancel@1"):
    """End an episode that is not wanted any more, whether or not a node has begun it."""

    actor_id: str
    episode_id: str
    by: str
    """For people."""
    reason: str = ""
    """For people."""


class Attend(_Tagged, frozen=True, kw_only=True, tag="attend@1"):
    """Look after an episode that waits: something about it may be due by now."""

    actor_id: str
    episode_id: str


class ChildEnded(_Tagged, frozen=True, kw_only=True, tag="child_ended@1"):
    """Look at a child that an episode waits for: it has ended."""

    actor_id: str
    episode_id: str
    """The parent."""
    child_id: str


class Verdict(StrEnum):
    """What somebody decides about a request for approval."""

    APPROVE = "approve"
    DENY = "deny"


class Decide(_Tagged, frozen=True, kw_only=True, tag="decide@1"):
    """Decide what an episode, or one of its outputs, asks people."""

    actor_id: str
    episode_id: str
    id: str
    """Of the decision: sent again, it is the same one."""
    verdict: Verdict
    plan_hash: str
    """Of the approved plan; the decision is about no other."""
    by: str
    reason: str = ""
    step_no: int = 0
    """Which of the episode's requests it answers; 0: the one of an output."""
    output_key: str = ""
    """Which output; empty: the episode itself asks."""
    round_no: int = 0
    """Which round of the output it is about (`Output.round_no`)."""
    edited_hash: str = ""
    """Of `edited_plan`; empty: the plan is approved as it is."""
    edited_plan: msgspec.Raw = NOTHING
    """What is approved in the place of the plan."""
    request_no: int = 0
    """The number of equal requests at the time of the decision, which applies to so many of them,
    oldest first. 0: it applies to this one alone."""
    acting_episode_id: str = ""
    """The episode with an equal request that was decided before, by the same decision; empty: this
    decision comes from who has made it."""
    groups: tuple[str, ...] = ()
    """The groups of who decides. The node that handles it says so: it asks the people."""


class ShareDecision(_Tagged, frozen=True, kw_only=True, tag="share_decision@1"):
    """Send the decision on an episode's request to the other episodes with an equal request."""

    actor_id: str
    episode_id: str
    step_no: int
    """The step that the decision became."""


class Resolve(_Tagged, frozen=True, kw_only=True, tag="resolve@1"):
    """Say that what an episode waits for has come about."""

    actor_id: str
    episode_id: str
    id: str
    ref: str
    by: str
    result: msgspec.Raw = NOTHING
    """Any JSON value, for the strategy."""


class RetryOutput(_Tagged, frozen=True, kw_only=True, tag="retry_output@1"):
    """Try again to deliver an output that has failed."""

    actor_id: str
    episode_id: str
    id: str
    output_key: str
    by: str
    reason: str = ""


class CancelOutput(_Tagged, frozen=True, kw_only=True, tag="cancel_output@1"):
    """Have an output not be delivered any more, by itself: its episode goes on."""

    actor_id: str
    episode_id: str
    id: str
    output_key: str
    by: str
    round_no: int
    """As in `Decide`."""
    reason: str = ""


class Carry(_Tagged, frozen=True, kw_only=True, tag="carry@1"):
    """Carry outputs of an episode: something about them has been decided, or is due."""

    actor_id: str
    episode_id: str


Attending: TypeAlias = (
    Attend | Cancel | CancelOutput | ChildEnded | Decide | Resolve | RetryOutput | ShareDecision
)
"""People's and time's commands to an episode. They are ruled on and written down, and nobody need
have room to run the episode for that."""

Command: TypeAlias = Attending | Carry | Recover | Start
"""The others call a node to run the episode."""


class Advance(_Tagged, frozen=True, kw_only=True, tag="advance@1"):
    """Go on with an instance: it has begun, or something about it may be due by now."""

    workflow: str
    instance_id: str


class StepDone(_Tagged, frozen=True, kw_only=True, tag="step_done@1"):
    """Look at an attempt at a step: its episode, or its instance, has ended."""

    workflow: str
    instance_id: str
    step: str
    item: int
    attempt: int
    episode_id: str
    """Of a step that is another workflow: the id of its instance."""
    is_compensation: bool = False
    """Whether it was to undo the item."""


class ResumeWorkflow(_Tagged, frozen=True, kw_only=True, tag="resume_workflow@1"):
    """Have the items of a step that are paused tried again, or skipped."""

    workflow: str
    instance_id: str
    id: str
    step: str
    how: ResumeHow
    by: str
    reason: str = ""


class CancelWorkflow(_Tagged, frozen=True, kw_only=True, tag="cancel_workflow@1"):
    """End an instance that is not wanted any more."""

    workflow: str
    instance_id: str
    by: str
    reason: str = ""


class DecideStep(_Tagged, frozen=True, kw_only=True, tag="decide_step@1"):
    """Decide whether a step may run."""

    workflow: str
    instance_id: str
    id: str
    step: str
    verdict: Verdict
    plan_hash: str
    by: str
    reason: str = ""
    edited_hash: str = ""
    """Of `edited_inputs`; empty: the inputs are approved as they are."""
    edited_inputs: tuple[msgspec.Raw, ...] = ()
    """The changed inputs: a JSON object for each item."""
    groups: tuple[str, ...] = ()
    """As in `Decide`."""


WorkflowCommand: TypeAlias = Advance | StepDone | ResumeWorkflow | CancelWorkflow | DecideStep
"""Commands to instances of workflows. They have inboxes of their own."""
