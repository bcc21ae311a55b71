"""Vigil's engine: actors that own expectations, and the nodes that run them.

This is what an app imports. Rules live in the modules of this package and wait for
nothing; `engine.runtime` holds the doers that carry them out.
"""

from engine.actions import Action, Step, checkpoint, converge, done, observe, synthesize, tool_call
from engine.actor import Actor, Expectation
from engine.app import App, Orphan
from engine.budget import Budget
from engine.convergence import ConvergeResult
from engine.dedupe import Window, by_event, by_payload, by_value
from engine.errors import DeclarationError, EngineError, InvalidFinding, StrategyError
from engine.filters import all_of, between, exists, ge, gt, in_, le, lt, missing, ne
from engine.finding import clear_finding, raise_finding, update_finding
from engine.schema import StateSchema
from engine.strategy import Context, EpisodeView, StepTaken, Strategy, abort, retry
from engine.tools import CallContext, Failure, Synthesis, Synthesizer, Tool, ToolFailed
from engine.trigger import event
from streams.events import EventTrigger, FindingIntent, ManualTrigger, StepKind, Trigger
from streams.json import JsonObject
from streams.world import DomainEvent

__all__ = [
    "Action",
    "Actor",
    "App",
    "Budget",
    "CallContext",
    "Context",
    "ConvergeResult",
    "DeclarationError",
    "DomainEvent",
    "EngineError",
    "EpisodeView",
    "EventTrigger",
    "Expectation",
    "Failure",
    "FindingIntent",
    "InvalidFinding",
    "JsonObject",
    "ManualTrigger",
    "Orphan",
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
    "Window",
    "abort",
    "all_of",
    "between",
    "by_event",
    "by_payload",
    "by_value",
    "checkpoint",
    "clear_finding",
    "converge",
    "done",
    "event",
    "exists",
    "ge",
    "gt",
    "in_",
    "le",
    "lt",
    "missing",
    "ne",
    "observe",
    "raise_finding",
    "retry",
    "synthesize",
    "tool_call",
    "update_finding",
]
