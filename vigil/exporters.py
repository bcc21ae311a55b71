"""Where traces and metrics go: OpenTelemetry's SDK, with exporters found by their names.

An exporter is any package that registers itself under `opentelemetry_traces_exporter` or
`opentelemetry_metrics_exporter`; what its constructor needs it reads from `OTEL_*`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any, Final

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from vigil.errors import Mistake

SERVICE: Final = "vigil"
"""`service.name`, unless `OTEL_SERVICE_NAME` is another."""


def install(names: Mapping[str, Sequence[str]], *, node: str) -> None:
    """Send each signal, `traces` and `metrics`, through the exporters called `names`.

    Raises:
        Mistake: one of them is not installed.
    """
    made = {signal: [_made(signal, name) for name in names[signal]] for signal in names}
    resource = Resource.create({"service.name": SERVICE, "service.instance.id": node})
    if made["traces"]:
        tracing = TracerProvider(resource=resource)
        for exporter in made["traces"]:
            tracing.add_span_processor(BatchSpanProcessor(exporter))
        trace.set_tracer_provider(tracing)
    if made["metrics"]:
        readers = [_reader(exporter) for exporter in made["metrics"]]
        metrics.set_meter_provider(MeterProvider(metric_readers=readers, resource=resource))


def _made(signal: str, name: str) -> Any:  # noqa: ANN401 - each package has its own class
    for found in entry_points(group=f"opentelemetry_{signal}_exporter", name=name):
        return found.load()()
    extra = "the extra `otlp`" if name == "otlp_proto_http" else "the package that has it"
    raise Mistake(f"OTEL_*: no exporter {name!r} for {signal}; install {extra}, or say none")


def _reader(exporter: Any) -> MetricReader:  # noqa: ANN401 - either sort of class registers
    is_reader = isinstance(exporter, MetricReader)
    return exporter if is_reader else PeriodicExportingMetricReader(exporter)
