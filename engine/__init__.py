"""Vigil's engine: actors that own expectations, and the nodes that run them.

This is what an app imports. Rules live in the modules of this package and wait for
nothing; `engine.runtime` holds the doers that carry them out.
"""

from engine.actions import Action, Step, checkpoint, converge, done, observe, synthesize, tool_call
from engine.actor import Actor, Expectation
from engine.app import App, Orphan
from engine.budget import Budget
from engine.convergence import ConvergeResult
from engine.errors import DeclarationError, EngineError, InvalidFinding, StrategyError
from engine.finding import clear_finding, raise_finding, update_finding
from engine.schema import StateSchema
from engine.strategy import Context, EpisodeView, StepTaken, Strategy, abort, retry
from engine.tools import CallContext, Failure, Synthesis, Synthesizer, Tool, ToolFailed
from engine.trigger import event
from streams.events import EventTrigger, FindingIntent, ManualTrigger, StepKind, Trigger
from streams.json import JsonObject

__all__ = [
    "Action",
    "Actor",
    "App",
    "Budget",
    "CallContext",
    "Context",
    "ConvergeResult",
    "DeclarationError",
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
    "abort",
    "checkpoint",
    "clear_finding",
    "converge",
    "done",
    "event",
    "observe",
    "raise_finding",
    "retry",
    "synthesize",
    "tool_call",
    "update_finding",
]
