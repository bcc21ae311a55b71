"""What a test sees of what the engine logs."""

from __future__ import annotations

import pytest
import structlog
from structlog.contextvars import merge_contextvars
from structlog.testing import LogCapture, capture_logs

from tests.engine.stage import HAPPENED
from tests.testing.apps import LOOKS, app_with, finds
from vigil.testing import run

DISK = {"disk.largest": {"path": "/var"}}


@pytest.fixture(autouse=True)
def defaults():
    """Whatever was configured is put aside."""
    structlog.reset_defaults()


async def happening():
    async with run(app_with(finds(LOOKS)), tools=DISK) as vigil:
        await vigil.publish(HAPPENED, {"host": "a"})
        await vigil.run_until_idle()


async def test_the_engine_says_nothing_while_nothing_is_wrong(capsys):
    await happening()

    assert capsys.readouterr().out == ""


async def test_a_warning_is_shown(capsys):
    async with run(app_with(finds())):
        structlog.get_logger("someone").warning("careful")

    assert "careful" in capsys.readouterr().out


async def test_a_line_has_no_real_date_and_its_traceback_no_variables(capsys):
    async with run(app_with(finds())):
        try:
            {}["host"]
        except KeyError:
            structlog.get_logger("someone").exception("careful")

    shown = capsys.readouterr().out
    assert shown.splitlines()[0].startswith("[")
    assert "Traceback (most recent call last)" in shown
    assert "locals" not in shown


async def test_lines_are_shown_as_the_user_has_chosen(capsys):
    structlog.configure(processors=[structlog.processors.JSONRenderer()])
    async with run(app_with(finds())):
        structlog.get_logger("someone").warning("careful", host="a")

    assert capsys.readouterr().out == '{"host": "a", "event": "careful"}\n'


async def test_log_lines_are_shown_again_afterwards(capsys):
    await happening()
    structlog.get_logger("someone").info("hello")

    assert "hello" in capsys.readouterr().out


async def test_a_test_may_capture_all_log_lines():
    with capture_logs() as lines:
        await happening()
    async with run(app_with(finds())) as vigil:
        with capture_logs() as within:
            await vigil.crash()

    assert "node up" in [line["event"] for line in lines]
    assert "node up" in [line["event"] for line in within]


async def test_a_node_that_takes_over_says_nothing_of_the_episode_that_the_dead_one_was_at():
    lines = LogCapture()
    structlog.configure(processors=[merge_contextvars, lines])
    async with run(app_with(finds(LOOKS)), tools=DISK) as vigil:
        vigil.crash_at(3)
        await vigil.publish(HAPPENED)
        await vigil.advance(minutes=1)

    (up,) = (
        line for line in lines.entries if line["event"] == "node up" and line["node"] == "node-2"
    )
    assert "episode_id" not in up


async def test_the_name_of_a_stack_is_not_shown_as_a_call_stack():
    with capture_logs() as lines:
        await happening()

    (up,) = (line for line in lines if line["event"] == "node up")
    assert (up["stack_name"], "stack" in up) == ("vigil", False)
