"""Vigil's engine: actors that own expectations, and the nodes that run them.

This is what an app imports. Rules live in the modules of this package and wait for
nothing; `engine.runtime` holds the doers that carry them out.
"""

from engine.actions import (
    Action,
    Step,
    approval,
    checkpoint,
    converge,
    done,
    observe,
    synthesize,
    tool_call,
    wait,
)
from engine.actor import Actor
from engine.adapter import DeliveryFailed, OutputAdapter, OutputView
from engine.aging import Escalation, escalate
from engine.app import App, Orphan
from engine.breaker import Breaker
from engine.budget import Budget
from engine.convergence import ConvergeResult
from engine.dedupe import Window, by_event, by_payload, by_value
from engine.enrichment import Enriched, enriched
from engine.errors import (
    BadAdapter,
    BadDefinition,
    BadRequest,
    BadWorkflow,
    DeclarationError,
    EngineError,
    InvalidAction,
    InvalidFinding,
    InvalidOutput,
    Refused,
    StrategyError,
)
from engine.expectation import Expectation
from engine.filters import all_of, between, exists, ge, gt, in_, le, lt, missing, ne
from engine.finding import clear_finding, raise_finding, update_finding
from engine.hearing import Unheard

# A module is called `output`, too: loaded after this function, it would take the function's place.
from engine.output import Output as _Output  # noqa: F401 - only to be loaded
from engine.overrides import overrides
from engine.proposal import output, propose_output
from engine.reading import Findings
from engine.route import Outputs, Retries, Route
from engine.runtime.finder import findings_of
from engine.runtime.inquirer import why_output_unheard, why_unheard
from engine.runtime.output_requests import (
    approve_output,
    cancel_output,
    reject_output,
    retry_output,
)
from engine.runtime.reconciler import reconcile
from engine.runtime.requester import cancel, cancel_related, fire
from engine.runtime.responder import approve, deny, resolve
from engine.runtime.workflow_requests import (
    Beginning,
    cancel_workflow,
    decide_step,
    read_beginning,
    resume_workflow,
    start_workflow,
)
from engine.schedule import cron, every
from engine.schema import StateSchema
from engine.strategy import Context, EpisodeView, StepTaken, Strategy, abort, retry
from engine.tools import CallContext, Failure, Synthesis, Synthesizer, Tool, ToolFailed
from engine.trigger import event, manual, workflow
from engine.workflows.failure import retrying
from engine.workflows.workflow import Workflow
from streams.errors import Unavailable, UnknownOutcome
from streams.events import StepKind
from streams.findings import Finding, FindingIntent
from streams.json import JsonObject
from streams.outputs import OutputIntent
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
    "BadAdapter",
    "BadDefinition",
    "BadRequest",
    "BadWorkflow",
    "Beginning",
    "Breaker",
    "Budget",
    "CallContext",
    "CloudEvent",
    "Context",
    "ConvergeResult",
    "DeclarationError",
    "DeliveryFailed",
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
    "InvalidAction",
    "InvalidFinding",
    "InvalidOutput",
    "JsonObject",
    "ManualTrigger",
    "Mode",
    "Orphan",
    "OutputAdapter",
    "OutputIntent",
    "OutputView",
    "Outputs",
    "Overrides",
    "Refused",
    "Retries",
    "Route",
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
    "Unheard",
    "UnknownOutcome",
    "Window",
    "Workflow",
    "WorkflowTrigger",
    "abort",
    "all_of",
    "approval",
    "approve",
    "approve_output",
    "between",
    "by_event",
    "by_payload",
    "by_value",
    "cancel",
    "cancel_output",
    "cancel_related",
    "cancel_workflow",
    "checkpoint",
    "clear_finding",
    "converge",
    "cron",
    "decide_step",
    "deny",
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
    "output",
    "overrides",
    "propose_output",
    "raise_finding",
    "read_beginning",
    "reconcile",
    "reject_output",
    "resolve",
    "resume_workflow",
    "retry",
    "retry_output",
    "retrying",
    "start_workflow",
    "synthesize",
    "tool_call",
    "update_finding",
    "wait",
    "why_output_unheard",
    "why_unheard",
    "workflow",
]
