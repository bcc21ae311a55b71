"""Vigil: operational checks that survive crashes. Apps import from here, and nowhere else.

    from vigil import Actor, App, event                 what an app declares, and what it calls
    from vigil.adapters import Webhook, env             outputs as requests, mails, messages
    from vigil.tools import http_request                tools: requests over HTTP, queries in SQL
    from vigil.templates import dispatch                strategies made from a configuration
    from vigil.definitions import read, to_actor        actors and workflows defined as data
    from vigil.histories import load, replay            journals of episodes, replayed in a test
    from vigil import Client                            what the commands do, as calls
    from vigil.queries import episodes, timeline        the tables, from a program
    from vigil.testing import memory_ports              what tests need

Each name is imported when it is first used, so that `import vigil` costs next to nothing, and the
parts of the command line that need no engine do not load one:

    __main__ ──▶ commands ──▶ client ──▶ asking (requests, questions) ──▶ engine | projections
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
    from engine.app.actions import (
        Action,
        Retries,
        Step,
        approval,
        checkpoint,
        converge,
        done,
        observe,
        sleep,
        synthesize,
        tool_call,
        wait,
    )
    from engine.app.actor import Actor, Expectation
    from engine.app.app import App, Orphan
    from engine.app.checks import Breaker
    from engine.app.conditions import all_of, between, exists, ge, gt, in_, le, lt, missing, ne
    from engine.app.context import Context, EpisodeView, Exhausted, Findings, StateSchema
    from engine.app.dedupe import Window, by_event, by_payload, by_value
    from engine.app.findings import (
        Enriched,
        Escalation,
        clear_finding,
        enriched,
        escalate,
        raise_finding,
        update_finding,
    )
    from engine.app.function_tool import FunctionTool, tool
    from engine.app.outputs import (
        DeliveryFailed,
        OutputAdapter,
        Outputs,
        OutputView,
        Route,
        bucket,
        output,
        propose_output,
    )
    from engine.app.strategy import ConvergeResult, StepTaken, Strategy, abort, report, retry
    from engine.app.tools import (
        CallContext,
        Failure,
        Synthesis,
        Synthesizer,
        Tool,
        ToolBreaker,
        ToolFailed,
        overrides,
    )
    from engine.app.triggers import cron, event, every, manual, workflow
    from engine.app.workflow import Workflow, retrying
    from engine.episodes.cancel import cancel
    from engine.episodes.fire import fire
    from engine.episodes.fork import fork
    from engine.errors import (
        BadAdapter,
        BadDefinition,
        BadRequest,
        BadTool,
        BadWorkflow,
        CallFailed,
        CallTimeout,
        DeclarationError,
        EngineError,
        InvalidAction,
        InvalidFinding,
        InvalidOutput,
        Refused,
        StrategyError,
    )
    from engine.findings.store import findings_of
    from engine.functions.context import ApprovalAnswer, FunctionContext
    from engine.node.node import Node
    from engine.operations.census import cancel_related
    from engine.operations.decide_request import ApprovalTarget, decide_request
    from engine.operations.reconcile import reconcile
    from engine.operations.settle import settle
    from engine.operations.why_unheard import Unheard, why_output_unheard, why_unheard
    from engine.outputs.requests import cancel_output, retry_output
    from engine.waits.requests import resolve
    from engine.workflows.requests import (
        Beginning,
        cancel_workflow,
        read_beginning,
        resume_workflow,
        start_workflow,
    )
    from streams.errors import Unavailable, UnknownOutcome
    from streams.jetstream import connect
    from streams.json import JsonObject
    from streams.layout import Kind
    from streams.model.children import EpisodeResult
    from streams.model.events import StepKind
    from streams.model.findings import Finding, FindingIntent, FindingOutcome
    from streams.model.outputs import OutputIntent
    from streams.model.service_levels import ServiceLevel
    from streams.model.triggers import (
        AdaptiveBudget,
        Budget,
        CloudEvent,
        EpisodeTrigger,
        EventTrigger,
        ManualTrigger,
        Mode,
        Overrides,
        ScheduleTrigger,
        Trigger,
        WorkflowTrigger,
    )
    from streams.ports.all import Ports
    from streams.ports.domain_events import DomainEvent
    from streams.subjects import Stack
    from vigil.client.client import Client
    from vigil.client.events import PublishReceipt
    from vigil.client.page import Page
    from vigil.client.sync import SyncClient
    from vigil.errors import (
        EventsMissed,
        Mistake,
        NotFound,
        PastLost,
        ServerAway,
        Trouble,
        VigilError,
    )

__all__ = [
    "Action", "Actor", "AdaptiveBudget", "App", "ApprovalAnswer", "ApprovalTarget", "BadAdapter",
    "BadDefinition", "BadRequest", "BadTool", "BadWorkflow", "Beginning", "Breaker", "Budget",
    "CallContext", "CallFailed", "CallTimeout", "Client", "CloudEvent", "Context", "ConvergeResult",
    "DeclarationError", "DeliveryFailed", "DomainEvent", "EngineError", "Enriched", "EpisodeResult",
    "EpisodeTrigger", "EpisodeView", "Escalation", "EventTrigger", "EventsMissed", "Exhausted",
    "Expectation", "Failure", "Finding", "FindingIntent", "FindingOutcome", "Findings",
    "FunctionContext", "FunctionTool", "InvalidAction", "InvalidFinding", "InvalidOutput",
    "JsonObject", "Kind", "ManualTrigger", "Mistake", "Mode", "Node", "NotFound", "Orphan",
    "OutputAdapter", "OutputIntent", "OutputView", "Outputs", "Overrides", "Page", "PastLost",
    "Ports", "PublishReceipt", "Refused", "Retries", "Route", "ScheduleTrigger", "ServerAway",
    "ServiceLevel", "Stack", "StateSchema", "Step", "StepKind", "StepTaken", "Strategy",
    "StrategyError", "SyncClient", "Synthesis", "Synthesizer", "Tool", "ToolBreaker", "ToolFailed",
    "Trigger", "Trouble", "Unavailable", "Unheard", "UnknownOutcome", "VigilError", "Window",
    "Workflow", "WorkflowTrigger", "abort", "all_of", "approval", "between", "bucket", "by_event",
    "by_payload", "by_value", "cancel", "cancel_output", "cancel_related", "cancel_workflow",
    "checkpoint", "clear_finding", "connect", "converge", "cron", "decide_request", "done",
    "enriched", "escalate", "event", "every", "exists", "findings_of", "fire", "fork", "ge", "gt",
    "in_", "le", "lt", "manual", "missing", "ne", "observe", "output", "overrides",
    "propose_output", "raise_finding", "read_beginning", "reconcile", "report", "resolve",
    "resume_workflow", "retry", "retry_output", "retrying", "settle", "sleep", "start_workflow",
    "synthesize", "tool", "tool_call", "update_finding", "wait", "why_output_unheard",
    "why_unheard", "workflow",
]  # fmt: skip

_HOMES: Final = {
    "engine.app.actions": (
        "Action Retries Step approval checkpoint converge done observe sleep synthesize tool_call"
        " wait"
    ),
    "engine.app.actor": "Actor Expectation",
    "engine.app.app": "App Orphan",
    "engine.app.checks": "Breaker",
    "engine.app.conditions": "all_of between exists ge gt in_ le lt missing ne",
    "engine.app.context": "Context EpisodeView Exhausted Findings StateSchema",
    "engine.app.dedupe": "Window by_event by_payload by_value",
    "engine.app.findings": (
        "Enriched Escalation clear_finding enriched escalate raise_finding update_finding"
    ),
    "engine.app.function_tool": "FunctionTool tool",
    "engine.app.outputs": (
        "DeliveryFailed OutputAdapter OutputView Outputs Route bucket output propose_output"
    ),
    "engine.app.strategy": "ConvergeResult StepTaken Strategy abort report retry",
    "engine.app.tools": (
        "CallContext Failure Synthesis Synthesizer Tool ToolBreaker ToolFailed overrides"
    ),
    "engine.app.triggers": "cron event every manual workflow",
    "engine.app.workflow": "Workflow retrying",
    "engine.episodes.cancel": "cancel",
    "engine.episodes.fire": "fire",
    "engine.episodes.fork": "fork",
    "engine.errors": (
        "BadAdapter BadDefinition BadRequest BadTool BadWorkflow CallFailed CallTimeout "
        "DeclarationError EngineError InvalidAction InvalidFinding InvalidOutput Refused "
        "StrategyError"
    ),
    "engine.findings.store": "findings_of",
    "engine.functions.context": "ApprovalAnswer FunctionContext",
    "engine.operations.census": "cancel_related",
    "engine.operations.decide_request": "ApprovalTarget decide_request",
    "engine.operations.reconcile": "reconcile",
    "engine.operations.settle": "settle",
    "engine.operations.why_unheard": "Unheard why_output_unheard why_unheard",
    "engine.outputs.requests": "cancel_output retry_output",
    "engine.waits.requests": "resolve",
    "engine.workflows.requests": (
        "Beginning cancel_workflow read_beginning resume_workflow start_workflow"
    ),
    "engine.node.node": "Node",
    "streams.jetstream": "connect",
    "streams.ports.all": "Ports",
    "streams.layout": "Kind",
    "streams.subjects": "Stack",
    "streams.errors": "Unavailable UnknownOutcome",
    "streams.json": "JsonObject",
    "streams.model.children": "EpisodeResult",
    "streams.model.events": "StepKind",
    "streams.model.findings": "Finding FindingIntent FindingOutcome",
    "streams.model.outputs": "OutputIntent",
    "streams.model.service_levels": "ServiceLevel",
    "streams.model.triggers": (
        "AdaptiveBudget Budget CloudEvent EpisodeTrigger EventTrigger ManualTrigger Mode "
        "Overrides ScheduleTrigger Trigger WorkflowTrigger"
    ),
    "streams.ports.domain_events": "DomainEvent",
    "vigil.client.client": "Client",
    "vigil.client.events": "PublishReceipt",
    "vigil.client.page": "Page",
    "vigil.client.sync": "SyncClient",
    "vigil.errors": "EventsMissed Mistake NotFound PastLost ServerAway Trouble VigilError",
}
"""Module → the public names that it has."""

if not TYPE_CHECKING:
    __getattr__, __dir__ = public(__name__, _HOMES)
