"""The rulings as operators count them: the engine's own instrument, with a reader behind it."""

from __future__ import annotations

from collections import Counter
from typing import Final

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from engine import telemetry

NAME: Final = "vigil.gate.rulings"


class Tally:
    """Counts every ruling of the process from now on."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        meter = MeterProvider([self._reader]).get_meter("tests")
        self._before = telemetry.gate_rulings
        telemetry.gate_rulings = meter.create_counter(NAME)

    def close(self) -> None:
        telemetry.gate_rulings = self._before

    def of(self, actor: str) -> Counter[str]:
        """Return how often each reason has been given for `actor`."""
        data = self._reader.get_metrics_data()
        points = (
            point
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in metric.data.data_points
        )
        return Counter(
            {p.attributes["reason"]: p.value for p in points if p.attributes["actor"] == actor}
        )
