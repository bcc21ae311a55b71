"""The projector's metrics, through OpenTelemetry's API: silent without an SDK."""

from __future__ import annotations

from typing import Final

from opentelemetry import metrics, trace

tracer: Final = trace.get_tracer("vigil.projections")
_meter: Final = metrics.get_meter("vigil.projections")

batch_duration: Final = _meter.create_histogram(
    "vigil.projection.batch.duration",
    unit="s",
    description="From changes to rows: one transaction.",
)
rows_deleted: Final = _meter.create_counter(
    "vigil.projection.rows.deleted",
    unit="{row}",
    description="Rows that were old enough to leave, by table.",
)
bytes_given_back: Final = _meter.create_counter(
    "vigil.projection.bytes.given_back",
    unit="By",
    description="Room of rows that have left which the disk has again, by table.",
)
lag: Final = _meter.create_gauge(
    "vigil.projection.lag",
    unit="{message}",
    description="Messages on the log that the rows do not show yet.",
)
events: Final = _meter.create_counter(
    "vigil.projection.events", unit="{event}", description="Events that became rows."
)
