"""The types of what the calls of a client return, for annotations.

Loads the engine: import it below `if TYPE_CHECKING`, unless that does not matter.
"""

from __future__ import annotations

from engine.agents.prompts.model_prompt import ModelPrompt
from engine.definitions.store import DefinitionChange
from engine.findings.store import FindingChange
from engine.operations.decide_request import ApprovalTarget
from engine.operations.events.why_event import EventVerdicts
from engine.operations.reconcile import Reconciled
from engine.operations.replay import Frame
from engine.orders.store import OrderDrift
from engine.retention.step import StepReport
from engine.retention.worker import RunReport
from engine.workflows.instance import Instance
from projections.postgres.prune import OldRows
from projections.postgres.query_result import Row, Table
from projections.records import (
    CostBy,
    CostSummary,
    DeadLetterRecord,
    DeadLetterSummary,
    DecisionSummary,
    EpisodeCause,
    EpisodeRecord,
    EpisodeSummary,
    FindingCause,
    FindingRecord,
    FindingSummary,
    InboxItem,
    OrderSummary,
    OutputRecord,
    OutputSummary,
    StepRow,
    TimelineEntry,
    WorkflowRecord,
    WorkflowSummary,
)
from streams.model.definitions import RegisteredDefinition
from streams.model.refusals import Refusal
from streams.model.triggers import LogStrategy, Overrides
from streams.ports.domain_events import DomainEvent
from vigil.asking.approval_requests import ApprovalRequest
from vigil.asking.definitions.changes import (
    AppliedDefinition,
    CurrentDefinition,
    DefinitionEntry,
    Withdrawal,
)
from vigil.asking.episode_diff import EpisodeDiff
from vigil.asking.repairs.diagnosis import DoctorCheck
from vigil.asking.repairs.losses import StackLosses
from vigil.asking.repairs.recovery import RecoverReport
from vigil.asking.requests import CommandOutcome
from vigil.asking.stack import Rollout
from vigil.asking.starting import StartedInstance
from vigil.asking.would import EventsReplayed, WouldVerdicts
from vigil.client.actors import ActorRecord, ActorSummary
from vigil.client.episodes import EpisodeLog, EpisodeReceipt, EpisodeToCancel, ForkEachOutcome
from vigil.client.events import PublishedEvent, PublishReceipt
from vigil.client.page import Page
from vigil.client.stack.costs import CostReport
from vigil.client.stack.nodes import NodesView, StreamPosition
from vigil.client.stack.orders import OrderOutcome
from vigil.client.stack.retention import KeptTime, RetentionHold, RetentionOutcome, RetentionView

__all__ = [
    "ActorRecord",
    "ActorSummary",
    "AppliedDefinition",
    "ApprovalRequest",
    "ApprovalTarget",
    "CommandOutcome",
    "CostBy",
    "CostReport",
    "CostSummary",
    "CurrentDefinition",
    "DeadLetterRecord",
    "DeadLetterSummary",
    "DecisionSummary",
    "DefinitionChange",
    "DefinitionEntry",
    "DoctorCheck",
    "DomainEvent",
    "EpisodeCause",
    "EpisodeDiff",
    "EpisodeLog",
    "EpisodeReceipt",
    "EpisodeRecord",
    "EpisodeSummary",
    "EpisodeToCancel",
    "EventVerdicts",
    "EventsReplayed",
    "FindingCause",
    "FindingChange",
    "FindingRecord",
    "FindingSummary",
    "ForkEachOutcome",
    "Frame",
    "InboxItem",
    "Instance",
    "KeptTime",
    "LogStrategy",
    "ModelPrompt",
    "NodesView",
    "OldRows",
    "OrderDrift",
    "OrderOutcome",
    "OrderSummary",
    "OutputRecord",
    "OutputSummary",
    "Overrides",
    "Page",
    "PublishReceipt",
    "PublishedEvent",
    "Reconciled",
    "RecoverReport",
    "Refusal",
    "RegisteredDefinition",
    "RetentionHold",
    "RetentionOutcome",
    "RetentionView",
    "Rollout",
    "Row",
    "RunReport",
    "StackLosses",
    "StartedInstance",
    "StepReport",
    "StepRow",
    "StreamPosition",
    "Table",
    "TimelineEntry",
    "Withdrawal",
    "WorkflowRecord",
    "WorkflowSummary",
    "WouldVerdicts",
]
