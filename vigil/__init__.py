"""Vigil: an event-sourced engine for autonomous actors. Apps import from here, and nowhere else.

    from vigil import Actor, App, event                 what an app declares, and what it calls
    from vigil.adapters import Webhook, env             outputs as requests, mails, messages
    from vigil.templates import dispatch                strategies made from a configuration
    from vigil.testing import FakeLeases                what tests need

Each name is imported when it is first used, so that `import vigil` costs next to nothing, and the
parts of the command line that need no engine do not load one:

    __main__ ──▶ commands ──▶ asking (requests and questions)   ──▶ engine | projections ──▶ streams
                         ├──▶ serving (nodes, projectors, servers)
                         └──▶ printing (tables, JSON)

| exit code | means |
| --- | --- |
| 0 | done |
| 1 | the surroundings: a server is away, nothing has that id or name, a check failed |
| 2 | the command line or the settings: it cannot work as it was typed |
| 3 | `node`, `up`: stopped, but some episode was left to its lease |
| 130, 143 | a second SIGINT or SIGTERM ended the program before it had stopped in order |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from vigil.public import public

if TYPE_CHECKING:
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

_HOMES: Final = {
    "engine.actions": (
        "Action Step approval checkpoint converge done observe synthesize tool_call wait"
    ),
    "engine.actor": "Actor",
    "engine.adapter": "DeliveryFailed OutputAdapter OutputView",
    "engine.aging": "Escalation escalate",
    "engine.app": "App Orphan",
    "engine.breaker": "Breaker",
    "engine.budget": "Budget",
    "engine.convergence": "ConvergeResult",
    "engine.dedupe": "Window by_event by_payload by_value",
    "engine.enrichment": "Enriched enriched",
    "engine.errors": (
        "BadAdapter BadDefinition BadRequest BadWorkflow DeclarationError EngineError "
        "InvalidAction InvalidFinding InvalidOutput Refused StrategyError"
    ),
    "engine.expectation": "Expectation",
    "engine.filters": "all_of between exists ge gt in_ le lt missing ne",
    "engine.finding": "clear_finding raise_finding update_finding",
    "engine.hearing": "Unheard",
    "engine.overrides": "overrides",
    "engine.proposal": "output propose_output",
    "engine.reading": "Findings",
    "engine.route": "Outputs Retries Route",
    "engine.runtime.finder": "findings_of",
    "engine.runtime.inquirer": "why_output_unheard why_unheard",
    "engine.runtime.output_requests": "approve_output cancel_output reject_output retry_output",
    "engine.runtime.reconciler": "reconcile",
    "engine.runtime.requester": "cancel cancel_related fire",
    "engine.runtime.responder": "approve deny resolve",
    "engine.runtime.workflow_requests": (
        "Beginning cancel_workflow decide_step read_beginning resume_workflow start_workflow"
    ),
    "engine.schedule": "cron every",
    "engine.schema": "StateSchema",
    "engine.strategy": "Context EpisodeView StepTaken Strategy abort retry",
    "engine.tools": "CallContext Failure Synthesis Synthesizer Tool ToolFailed",
    "engine.trigger": "event manual workflow",
    "engine.workflows.failure": "retrying",
    "engine.workflows.workflow": "Workflow",
    "streams.errors": "Unavailable UnknownOutcome",
    "streams.events": "StepKind",
    "streams.findings": "Finding FindingIntent",
    "streams.json": "JsonObject",
    "streams.outputs": "OutputIntent",
    "streams.triggers": (
        "CloudEvent EventTrigger ManualTrigger Mode Overrides ScheduleTrigger Trigger "
        "WorkflowTrigger"
    ),
    "streams.world": "DomainEvent",
}
"""Module → the public names that it has."""

if not TYPE_CHECKING:
    __getattr__, __dir__ = public(__name__, _HOMES)
