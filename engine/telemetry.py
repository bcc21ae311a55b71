"""The spans and instruments of the engine, by name; and what its clients must not log.

Only the OpenTelemetry API is used: without an SDK in the process nothing is recorded. Measurements
of episodes, steps and workflow instances have the label `mode`: `live` or `dry_run`.
"""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Final, NamedTuple

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.trace import Status, StatusCode

_tracer: Final = trace.get_tracer("vigil.engine")

_NO_SPAN: Final[AbstractContextManager[object]] = nullcontext()

_meter: Final = metrics.get_meter("vigil.engine")


gate_rulings: Final = _meter.create_counter(
    "vigil.gate.rulings", unit="{ruling}", description="Rulings of the gate, by actor and reason"
)

refusals_dropped: Final = _meter.create_counter(
    "vigil.refusals.dropped",
    unit="{refusal}",
    description="Refusals that were counted and are not kept: full (more than there is room for),"
    " not_stored",
)

episodes_ended: Final = _meter.create_counter(
    "vigil.episodes", unit="{episode}", description="Episodes that ended, by actor, mode and status"
)

service_levels: Final = _meter.create_counter(
    "vigil.service_levels",
    unit="{episode}",
    description="Ended episodes with a service level, by actor, expectation and outcome: met,"
    " late_start, failed, late_end",
)

episodes_running: Final = _meter.create_up_down_counter(
    "vigil.episodes.running",
    unit="{episode}",
    description="Episodes running on this node, by actor and mode",
)

episode_duration: Final = _meter.create_histogram(
    "vigil.episode.duration",
    unit="s",
    description="Time from start to end on one node, by actor and mode",
)

step_duration: Final = _meter.create_histogram(
    "vigil.step.duration",
    unit="s",
    description="Time that one action took, by actor, mode and kind",
)

step_tokens: Final = _meter.create_counter(
    "vigil.step.tokens",
    unit="{token}",
    description="Model tokens used, by actor, mode, model and kind",
)

backlog: Final = _meter.create_gauge(
    "vigil.backlog", unit="{message}", description="Messages waiting, by actor and queue"
)

streams_lost: Final = _meter.create_gauge(
    "vigil.streams.lost",
    unit="{stream}",
    description="Streams of the stack that have lost their past, as this process sees it",
)

reactor_lag: Final = _meter.create_gauge(
    "vigil.reactor.lag",
    unit="{message}",
    description="Commits that are still to be followed up here, by stream",
)

reactor_effects: Final = _meter.create_counter(
    "vigil.reactor.effects",
    unit="{effect}",
    description="Public events and commands that followed from commits",
)

lane: Final = _meter.create_gauge(
    "vigil.lane",
    unit="{episode}",
    description="Episodes that take turns, where this node dispatches: waiting, admitted",
)

leases: Final = _meter.create_counter(
    "vigil.leases", unit="{lease}", description="Lease operations, by what came of them"
)

lease_acquire_duration: Final = _meter.create_histogram(
    "vigil.lease.acquire.duration",
    unit="s",
    description="Time until the server answered an acquire, by what came of it",
)

dead_letters: Final = _meter.create_counter(
    "vigil.dead_letters", unit="{message}", description="Messages given up on, by reason"
)

breaker_changes: Final = _meter.create_counter(
    "vigil.breaker.changes",
    unit="{change}",
    description="Changes of circuit breakers: opened, half_opened (a probe), closed",
)

finding_ages: Final = _meter.create_counter(
    "vigil.finding.ages",
    unit="{finding}",
    description="Findings that their age has ended or made worse: expired, escalated",
)

enrichments: Final = _meter.create_counter(
    "vigil.finding.enrichments",
    unit="{finding}",
    description="Enrichments of findings, by actor and what came of them: added, nothing, failed",
)

instances_started: Final = _meter.create_counter(
    "vigil.instances.started",
    unit="{instance}",
    description="Instances that began, by workflow and mode",
)

instances_ended: Final = _meter.create_counter(
    "vigil.instances.ended",
    unit="{instance}",
    description="Instances that ended, by workflow, mode and status",
)

instances_skipped: Final = _meter.create_counter(
    "vigil.instances.skipped",
    unit="{instance}",
    description="Instances that did not begin, for another one was busy with the subject, by"
    " workflow and mode",
)

workflow_steps: Final = _meter.create_counter(
    "vigil.workflow.steps",
    unit="{item}",
    description="Items of steps, by workflow, mode and what came of them: done, failed, canceled,"
    " reused, skipped, paused; retried: another attempt began",
)

output_attempts: Final = _meter.create_counter(
    "vigil.output.attempts",
    unit="{attempt}",
    description="Attempts at deliveries, by adapter and what came of them: delivered, postponed,"
    " failed",
)

output_duration: Final = _meter.create_histogram(
    "vigil.output.duration",
    unit="s",
    description="Time that one attempt at a delivery took, by adapter and what came of it",
)

outputs: Final = _meter.create_counter(
    "vigil.outputs", unit="{output}", description="Outputs that were settled, by adapter, outcome"
)


retention_gone: Final = _meter.create_counter(
    "vigil.retention.gone",
    unit="{thing}",
    description="Old things that were let go, by step and what they are",
)

retention_failures: Final = _meter.create_counter(
    "vigil.retention.failures",
    unit="{step}",
    description="Steps of runs that could not let go all that is old, by step",
)

retention_duration: Final = _meter.create_histogram(
    "vigil.retention.duration", unit="s", description="Time that a run of retention took"
)


class _Tracing:
    """Whether tracing is set up. Asking OpenTelemetry costs more than a step of an episode does."""

    is_on = False


class AgentTelemetry(NamedTuple):
    """What is told of agents."""

    has_content: bool
    """Whether prompts, answers, arguments and results are told, too."""


class _Agents:
    told: AgentTelemetry | None = None


def tell_of_agents(*, has_content: bool) -> None:
    """Have agents in this process told to whatever receives its traces and metrics."""
    _Agents.told = AgentTelemetry(has_content)


def agents_told() -> AgentTelemetry | None:
    """Return what is told of agents; None: nothing, since nobody has asked for it."""
    return _Agents.told


def detect_tracing() -> None:
    """Look whether this process traces. Tracing must be set up before a node runs."""
    _Tracing.is_on = not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def span(name: str, parent: Context | None = None) -> AbstractContextManager[object]:
    """Return a span to enter; it costs nothing unless this process traces or `parent` is given."""
    if parent is None and not _Tracing.is_on:
        return _NO_SPAN
    return _Span(name, parent)


class _Span(AbstractContextManager[object]):
    """A span that tells the kind of an error, and not its text, which may quote a secret."""

    def __init__(self, name: str, parent: Context | None) -> None:
        # guard: trace-has-no-error-text
        self._entered = _tracer.start_as_current_span(
            name, parent, record_exception=False, set_status_on_exception=False
        )

    def __enter__(self) -> object:
        self._span = self._entered.__enter__()
        return self._span

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace_: TracebackType | None,
    ) -> bool | None:
        if kind is not None and issubclass(kind, Exception):
            self._span.set_status(Status(StatusCode.ERROR, kind.__name__))
        return self._entered.__exit__(kind, error, trace_)


def keep_urls_out_of_logs() -> None:
    """Keep httpx from logging requests: for some receivers, the address is the password."""
    for name in ("httpx", "httpcore"):
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:  # guard: no-address-logged
            logger.setLevel(logging.WARNING)
