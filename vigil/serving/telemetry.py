"""What a running program reports: log lines always, traces and metrics when asked for.

OpenTelemetry's SDK is set up only when one of its own variables asks for it; it reads the others
itself (https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any, Final, TextIO

import structlog
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from structlog.typing import EventDict, Processor

from engine.telemetry import tell_of_agents
from vigil.errors import Mistake

_OTLP_ENDPOINTS: Final = {
    "traces": "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "metrics": "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
}

_OTLP_BY_PROTOCOL: Final = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}
"""How the exporters' packages call themselves, by the value of `OTEL_EXPORTER_OTLP_PROTOCOL`."""

CONTENT: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""Asks for the texts of what agents ask, answer and call; OpenTelemetry's own instrumentations
follow this variable, too."""

CONTENT_ASKED: Final = frozenset({"true", "span_only", "span_and_event"})
"""Its values that ask for texts in spans."""

_SHARED: Final = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)


def log_to(stream: TextIO, *, form: str, level: str, node: str) -> None:
    """Write log lines to `stream`: `form` is `json` or `console`; nothing below `level`."""

    def sign(_logger: object, _method: str, event: EventDict) -> EventDict:
        event.setdefault("node", node)
        return event

    shared: list[Processor] = [*_SHARED, sign]
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_last_steps(form, colors=stream.isatty()),
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    logging.captureWarnings(capture=True)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def _last_steps(form: str, *, colors: bool) -> list[Processor]:
    if form == "console":
        # The renderer's own choice shows every local variable: secrets, and seconds of work.
        plain = structlog.dev.plain_traceback
        renderer = structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain)
        return [renderer]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]


def export(environ: Mapping[str, str], *, node: str) -> None:
    """Send traces and metrics where `environ` names an exporter; else do nothing.

    Raises `Mistake` if one is asked for that is not installed.
    """
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return
    asked = {signal: exporter_names(signal, environ) for signal in _OTLP_ENDPOINTS}
    if any(asked.values()):
        install(asked, node=node)
        tell_of_agents(has_content=environ.get(CONTENT, "").lower() in CONTENT_ASKED)


def exporter_names(signal: str, environ: Mapping[str, str]) -> list[str]:
    """Return the exporters asked for, as their packages call themselves."""
    asked = environ.get(f"OTEL_{signal.upper()}_EXPORTER", "")
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", _OTLP_ENDPOINTS[signal])
    if not asked and any(environ.get(each) for each in endpoints):
        asked = "otlp"
    protocol = environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") or "http/protobuf"
    otlp = _OTLP_BY_PROTOCOL.get(protocol, protocol)
    names = (name.strip() for name in asked.split(","))
    return [otlp if name == "otlp" else name for name in names if name not in {"", "none"}]


SERVICE: Final = "vigil"
"""`service.name`, unless `OTEL_SERVICE_NAME` is another."""


def install(names: Mapping[str, Sequence[str]], *, node: str) -> None:
    """Send each signal, `traces` and `metrics`, through the exporters called `names`.

    Raises `Mistake` if one of them is not installed.
    """
    made = {signal: [_made(signal, name) for name in names[signal]] for signal in names}
    resource = Resource.create({"service.name": SERVICE, "service.instance.id": node})
    if made["traces"]:
        tracing = TracerProvider(resource=resource)
        for exporter in made["traces"]:
            tracing.add_span_processor(BatchSpanProcessor(exporter))
        trace.set_tracer_provider(tracing)
    if made["metrics"]:
        readers = [
            each if isinstance(each, MetricReader) else PeriodicExportingMetricReader(each)
            for each in made["metrics"]  # Either sort of class registers.
        ]
        metrics.set_meter_provider(MeterProvider(metric_readers=readers, resource=resource))


def _made(signal: str, name: str) -> Any:  # noqa: ANN401 - each package has its own class
    for found in entry_points(group=f"opentelemetry_{signal}_exporter", name=name):
        return found.load()()
    extra = "the extra `otlp`" if name == "otlp_proto_http" else "the package that has it"
    raise Mistake(f"OTEL_*: no exporter {name!r} for {signal}; install {extra}, or say none")
