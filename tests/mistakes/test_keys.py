"""Mistakes about keys of a payload: a `subject_key` or `concurrency_key` that it does not have."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from engine.app.triggers import event
from engine.validation import NAMES_MAX
from tests.engine.stage import (
    HAPPENED,
    Scripted,
    all_answered,
    app_of,
    ports_in_memory,
    running,
)
from tests.engine.triggers.test_gate import watch
from tests.mistakes.mistake import Mistake

MISTAKES = [
    Mistake(
        69,
        "the payload has no key that is called like subject_key",
        "subject_key",
        "event lacks the key of subject_key; its episode has no subject",
        "log",
    ),
    Mistake(
        69,
        "the payload has no key that is called like concurrency_key",
        "concurrency_key",
        "event lacks the key of concurrency_key; no limit counts its episode",
        "log",
    ),
]


@pytest.fixture
def ports():
    return ports_in_memory()


async def lines_of(ports, *payloads, **expectation):
    """Return what is logged of keys while events with `payloads` are evaluated, on one node."""
    app = app_of(Scripted(), **expectation)
    await watch(ports, app)
    for number, payload in enumerate(payloads):
        await ports.domain_events.publish(HAPPENED, payload, id=f"x{number}")
    with capture_logs() as lines:
        async with running(app, ports):
            await all_answered(ports.domain_events)
    return [line for line in lines if "lacks the key of" in line["event"]]


@pytest.mark.parametrize("gate", [{}, {"cooldown_s": 60}], ids=["at once", "gated"])
@pytest.mark.parametrize("row", MISTAKES, ids=lambda row: row.done)
async def test_a_key_that_no_payload_has_is_warned_of_once(ports, row, gate):
    payloads = [{"host": f"web-{number}", "used": 1} for number in range(3)]
    (line,) = await lines_of(ports, *payloads, **{row.done: "hst"}, **gate)
    assert (line["event"], line["log_level"]) == (row.said, "warning")
    assert (line["actor"], line["expectation"], line["key"]) == ("worker", "thing", "hst")
    assert (line["hint"], line["event_id"]) == ("did you mean host?", "x0")


@pytest.mark.parametrize(
    ("payload", "path", "hint"),
    [
        ({"disk": {"mount": "/", "used": 1}}, "disk.mnt", "did you mean disk.mount?"),
        ({"a": 1, "b": {"c": 2}}, "host", "known: a, b"),
        ({"a": 1, "b": {"c": 2}}, "b.host", "known: b.c"),
        ({"a": 1}, "a.host", "known: a"),
        ({"a.b": 1}, "a.host", "known: a.b"),
        ({}, "host", "the payload has none there"),
        ({"disk": {}}, "disk.mount", "the payload has none there"),
        (
            {f"key-{number:02}": 1 for number in range(NAMES_MAX + 1)},
            "zzz",
            f"known: {', '.join(f'key-{number:02}' for number in range(NAMES_MAX))}, …",
        ),
    ],
)
async def test_the_warning_names_keys_that_there_are(ports, payload, path, hint):
    (line,) = await lines_of(ports, payload, subject_key=path)
    assert line["hint"] == hint


async def test_what_the_first_event_has_is_no_mistake(ports):
    assert await lines_of(ports, {"host": None}, {}, subject_key="host") == []


async def test_an_event_that_does_not_fit_is_not_looked_at(ports):
    fits = event(HAPPENED, filter={"used": 1})
    assert await lines_of(ports, {"used": 2}, subject_key="host", on=fits) == []
