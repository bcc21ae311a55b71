"""Trace context across messages: one W3C `traceparent` header, in and out.

The API alone is used here; it does nothing until a process installs an SDK.
"""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_propagator = TraceContextTextMapPropagator()


def traceparent() -> str:
    """Return the current span as a `traceparent`; empty when nobody traces."""
    if not trace.get_current_span().get_span_context().is_valid:
        return ""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier)
    return carrier.get("traceparent", "")


def context_of(parent: str) -> Context | None:
    """Return the context that `parent` names, or None when it names none."""
    return _propagator.extract({"traceparent": parent}) if parent else None
