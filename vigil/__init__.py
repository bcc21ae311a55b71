"""Vigil: operational checks that survive crashes. Apps import from here, and nowhere else.

    from vigil import Actor, App, event                 what an app declares, and what it calls
    from vigil.adapters import Webhook, env             outputs as requests, mails, messages
    from vigil.tools import http_request                tools: HTTP, SQL, MCP servers
    from vigil.agents import toolset                    agents of pydantic-ai, run by `ctx.agent`
    from vigil.templates import dispatch                strategies made from a configuration
    from vigil.definitions import read, to_actor        actors and workflows defined as data
    from vigil.histories import load, replay            journals of episodes, replayed in a test
    from vigil.client import Client                     what the commands do, as calls
    from vigil.ports import connect, fire, Node         the log, from a program; nodes within one
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
    from engine.agents.model import Model
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
        SynthesisFailed,
        Synthesizer,
        Tool,
        ToolBreaker,
        ToolFailed,
        overrides,
    )
    from engine.app.triggers import cron, event, every, manual, workflow
    from engine.app.workflow import Workflow, retrying
    from engine.errors import (
        BadAdapter,
        BadDefinition,
        BadModel,
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
    from engine.functions.context import ApprovalAnswer, FunctionContext
    from streams.errors import Unavailable, UnknownOutcome
    from streams.json import JsonObject
    from streams.model.children import EpisodeResult
    from streams.model.events import StepKind
    from streams.model.findings import Finding, FindingIntent, FindingOutcome
    from streams.model.money import Price, Spending
    from streams.model.outputs import OutputIntent
    from streams.model.retention import Retention
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

__all__ = [
    "Action", "Actor", "AdaptiveBudget", "App", "ApprovalAnswer", "BadAdapter", "BadDefinition",
    "BadModel", "BadRequest", "BadTool", "BadWorkflow", "Breaker", "Budget", "CallContext",
    "CallFailed", "CallTimeout", "CloudEvent", "Context", "ConvergeResult", "DeclarationError",
    "DeliveryFailed", "EngineError", "Enriched", "EpisodeResult", "EpisodeTrigger", "EpisodeView",
    "Escalation", "EventTrigger", "Exhausted", "Expectation", "Failure", "Finding", "FindingIntent",
    "FindingOutcome", "Findings", "FunctionContext", "FunctionTool", "InvalidAction",
    "InvalidFinding", "InvalidOutput", "JsonObject", "ManualTrigger", "Mode", "Model", "Orphan",
    "OutputAdapter", "OutputIntent", "OutputView", "Outputs", "Overrides", "Price", "Refused",
    "Retention", "Retries", "Route", "ScheduleTrigger", "ServiceLevel", "Spending", "StateSchema",
    "Step", "StepKind", "StepTaken", "Strategy", "StrategyError", "Synthesis", "SynthesisFailed",
    "Synthesizer", "Tool", "ToolBreaker", "ToolFailed", "Trigger", "Unavailable", "UnknownOutcome",
    "Window", "Workflow", "WorkflowTrigger", "abort", "all_of", "approval", "between", "bucket",
    "by_event", "by_payload", "by_value", "checkpoint", "clear_finding", "converge", "cron", "done",
    "enriched", "escalate", "event", "every", "exists", "ge", "gt", "in_", "le", "lt", "manual",
    "missing", "ne", "observe", "output", "overrides", "propose_output", "raise_finding", "report",
    "retry", "retrying", "sleep", "synthesize", "tool", "tool_call", "update_finding", "wait",
    "workflow",
]  # fmt: skip

_HOMES: Final = {
    "engine.agents.model": "Model",
    "engine.app.actions": (
        "Action Retries Step approval checkpoint converge done observe sleep synthesize "
        "tool_call wait"
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
        "CallContext Failure Synthesis SynthesisFailed Synthesizer Tool ToolBreaker "
        "ToolFailed overrides"
    ),
    "engine.app.triggers": "cron event every manual workflow",
    "engine.app.workflow": "Workflow retrying",
    "engine.errors": (
        "BadAdapter BadDefinition BadModel BadRequest BadTool BadWorkflow CallFailed CallTimeout "
        "DeclarationError EngineError InvalidAction InvalidFinding InvalidOutput Refused "
        "StrategyError"
    ),
    "engine.functions.context": "ApprovalAnswer FunctionContext",
    "streams.errors": "Unavailable UnknownOutcome",
    "streams.json": "JsonObject",
    "streams.model.children": "EpisodeResult",
    "streams.model.events": "StepKind",
    "streams.model.findings": "Finding FindingIntent FindingOutcome",
    "streams.model.money": "Price Spending",
    "streams.model.outputs": "OutputIntent",
    "streams.model.retention": "Retention",
    "streams.model.service_levels": "ServiceLevel",
    "streams.model.triggers": (
        "AdaptiveBudget Budget CloudEvent EpisodeTrigger EventTrigger ManualTrigger Mode "
        "Overrides ScheduleTrigger Trigger WorkflowTrigger"
    ),
}
"""Module → the public names that it has."""

if not TYPE_CHECKING:
    __getattr__, __dir__ = public(__name__, _HOMES)
