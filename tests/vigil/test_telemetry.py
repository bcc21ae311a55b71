"""What running programs tell, and to whom."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import structlog

from vigil.serving import telemetry


@contextmanager
def logging_as(form: str) -> Iterator[io.StringIO]:
    """Log to a text for the time of one test, and put everything back."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    stream = io.StringIO()
    telemetry.log_to(stream, form=form, level="info", node="n1")
    yield stream
    logging.captureWarnings(False)
    root.handlers[:] = before
    root.setLevel(level)


@pytest.fixture
def lines():
    """Log lines as JSON, for the time of one test."""
    with logging_as("json") as stream:
        yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_log_line_says_when_who_and_what_and_carries_the_episode(lines):
    with structlog.contextvars.bound_contextvars(episode_id="e1"):
        structlog.get_logger("vigil.test").info("seen", host="a")

    (line,) = lines()
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "level": "info", "logger": "vigil.test", "node": "n1", "event": "seen", "host": "a",
        "episode_id": "e1",
    }  # fmt: skip


def test_the_standard_librarys_lines_and_warnings_come_along(lines):
    logging.getLogger("someone").warning("from %s", "afar")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("careful", stacklevel=1)

    first, second = lines()
    assert (first["logger"], first["event"]) == ("someone", "from afar")
    assert (second["logger"], "careful" in second["event"]) == ("py.warnings", True)


def test_what_is_below_the_level_is_not_said(lines):
    structlog.get_logger("vigil.test").debug("whisper")

    assert lines() == []


def test_an_error_brings_its_traceback(lines):
    try:
        int("no number")
    except ValueError:
        structlog.get_logger("vigil.test").exception("failed")

    assert "ValueError: invalid literal" in lines()[0]["exception"]


def look_up(word: str) -> None:
    password = f"{word}-word"
    raise ValueError(len(password))


@pytest.mark.parametrize("form", ["console", "json"])
def test_a_traceback_shows_no_value_of_a_variable(form):
    with logging_as(form) as stream:
        try:
            look_up("pass")
        except ValueError:
            structlog.get_logger("vigil.test").exception("failed")

    assert "ValueError: 9" in stream.getvalue()
    assert "pass-word" not in stream.getvalue()


@pytest.mark.parametrize(
    ("environ", "names"),
    [
        ({}, []),
        ({"OTEL_TRACES_EXPORTER": "none"}, []),
        ({"OTEL_TRACES_EXPORTER": "console"}, ["console"]),
        ({"OTEL_TRACES_EXPORTER": "otlp, console"}, ["otlp_proto_http", "console"]),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://here"}, ["otlp_proto_http"]),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://here"}, []),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            ["otlp_proto_grpc"],
        ),
    ],
)
def test_traces_are_exported_when_the_standard_variables_ask_for_it(environ, names):
    assert telemetry.exporter_names("traces", environ) == names


def test_a_disabled_sdk_stays_off():
    telemetry.export(
        {"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "no_such_exporter"}, node="n1"
    )


EXPORTS = """
import json, sys
from engine.telemetry import agents_told
from vigil.serving import telemetry
telemetry.export(json.loads(sys.argv[1]), node="n1")
print(agents_told())
"""


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({}, "None"),
        ({"OTEL_TRACES_EXPORTER": "console"}, "AgentTelemetry(has_content=False)"),
        (
            {"OTEL_TRACES_EXPORTER": "console", telemetry.CONTENT: "TRUE"},
            "AgentTelemetry(has_content=True)",
        ),
        ({telemetry.CONTENT: "true"}, "None"),
    ],
)
def test_agents_are_told_where_telemetry_is_exported_and_texts_on_demand(environ, told):
    """In a process of its own: a provider is installed for good."""
    words = [sys.executable, "-c", EXPORTS, json.dumps(environ)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == told, done.stderr
