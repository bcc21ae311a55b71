"""Vigil's engine: actors that own expectations, and the nodes that run them.

This is what an app imports. Rules live in the modules of this package and wait for
nothing; `engine.runtime` holds the doers that carry them out.
"""

from engine.actions import Action, Step, checkpoint, converge, done, observe, synthesize, tool_call
from engine.actor import Actor
from engine.aging import Escalation, escalate
from engine.app import App, Orphan
from engine.breaker import Breaker
from engine.budget import Budget
from engine.convergence import ConvergeResult
from engine.dedupe import Window, by_event, by_payload, by_value
from engine.enrichment import Enriched, enriched
from engine.errors import BadRequest, DeclarationError, EngineError, InvalidFinding, StrategyError
from engine.expectation import Expectation
from engine.filters import all_of, between, exists, ge, gt, in_, le, lt, missing, ne
from engine.finding import clear_finding, raise_finding, update_finding
from engine.overrides import overrides
from engine.reading import Findings
from engine.runtime.finder import findings_of
from engine.runtime.requester import cancel, fire
from engine.schedule import cron, every
from engine.schema import StateSchema
from engine.strategy import Context, EpisodeView, StepTaken, Strategy, abort, retry
from engine.tools import CallContext, Failure, Synthesis, Synthesizer, Tool, ToolFailed
from engine.trigger import event, manual, workflow
from streams.errors import Unavailable, UnknownOutcome
from streams.events import StepKind
from streams.findings import Finding, FindingIntent
from streams.json import JsonObject
from streams.triggers import (
    CloudEvent,
    EventTrigger,
    ManualTrigger,
    Mode,
    Overrides,
    ScheduleTrigger,
    Trigger,
    WorkflowTrigger,
)
from streams.world import DomainEvent

__all__ = [
    "Action",
    "Actor",
    "App",
    "BadRequest",
    "Breaker",
    "Budget",
    "CallContext",
    "CloudEvent",
    "Context",
    "ConvergeResult",
    "DeclarationError",
    "DomainEvent",
    "EngineError",
    "Enriched",
    "EpisodeView",
    "Escalation",
    "EventTrigger",
    "Expectation",
    "Failure",
    "Finding",
    "FindingIntent",
    "Findings",
    "InvalidFinding",
    "JsonObject",
    "ManualTrigger",
    "Mode",
    "Orphan",
    "Overrides",
    "ScheduleTrigger",
    "StateSchema",
    "Step",
    "StepKind",
    "StepTaken",
    "Strategy",
    "StrategyError",
    "Synthesis",
    "Synthesizer",
    "Tool",
    "ToolFailed",
    "Trigger",
    "Unavailable",
    "UnknownOutcome",
    "Window",
    "WorkflowTrigger",
    "abort",
    "all_of",
    "between",
    "by_event",
    "by_payload",
    "by_value",
    "cancel",
    "checkpoint",
    "clear_finding",
    "converge",
    "cron",
    "done",
    "enriched",
    "escalate",
    "event",
    "every",
    "exists",
    "findings_of",
    "fire",
    "ge",
    "gt",
    "in_",
    "le",
    "lt",
    "manual",
    "missing",
    "ne",
    "observe",
    "overrides",
    "raise_finding",
    "retry",
    "synthesize",
    "tool_call",
    "update_finding",
    "workflow",
]
