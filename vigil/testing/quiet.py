"""What the engine logs in a test: warnings and errors, unless the test captures the log lines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import structlog
from structlog.typing import EventDict

PLAIN: Final = (
    structlog.contextvars.merge_contextvars,
    structlog.processors.add_log_level,
    structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
)
"""How lines are shown unless the user configured structlog: without the time, which is not the one
of the test; and without the variables of a traceback, which may take minutes to be drawn."""

SHOWN: Final = frozenset({"warn", "warning", "error", "err", "exception", "critical", "fatal"})
"""The methods of a logger whose lines are shown."""


@contextmanager
def quiet() -> Iterator[None]:
    """Drop log lines below a warning while the context lasts.

    `structlog.testing.capture_logs`, before or within it, captures all of them.
    """
    processors = structlog.get_config()["processors"]
    # guard: captured-logs-complete
    if any(isinstance(each, structlog.testing.LogCapture) for each in processors):
        yield
        return
    # In place, as structlog's own `capture_logs` does it: loggers refer to this very list.
    before = list(processors)
    # guard: chosen-log-lines-kept
    processors[:] = (_only_warnings, *(before if structlog.is_configured() else PLAIN))
    try:
        yield
    finally:
        processors[:] = before


def _only_warnings(_logger: object, method: str, event: EventDict) -> EventDict:
    if method not in SHOWN:  # guard: no-line-below-warning
        raise structlog.DropEvent
    return event
