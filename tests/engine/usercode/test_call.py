"""Whatever user code does, it comes out as something the engine knows."""

from __future__ import annotations

import asyncio
import gc
import sys

import pytest
from structlog.testing import capture_logs

from engine.app.findings import raise_finding
from engine.app.outputs import DeliveryFailed
from engine.app.tools import ToolFailed
from engine.errors import EpisodeFailed, InvalidFinding, cause_line
from engine.usercode import call as usercode
from engine.usercode.call import RAISED_CHARS_MAX, attempt, call, delivery
from streams.errors import LeaseLost
from vigil import Budget


async def test_a_callback_may_be_plain_or_async():
    async def later(n):
        return n + 1

    assert await call(lambda n: n + 1, 1) == 2
    assert await call(later, 1) == 2


async def test_a_callback_that_raises_is_a_crash_with_its_traceback():
    def explode():
        raise KeyError("boom")

    with pytest.raises(EpisodeFailed) as failed:
        await call(explode)
    assert failed.value.error_class == "crash"
    assert "in explode" in failed.value.detail
    assert "KeyError: 'boom'" in failed.value.detail


async def test_a_traceback_is_cut_to_its_end():
    def explode():
        raise ValueError("x" * 100_000 + "the end")

    with pytest.raises(EpisodeFailed) as failed:
        await call(explode)
    assert len(failed.value.detail) == RAISED_CHARS_MAX
    assert failed.value.detail.endswith("the end\n")


async def test_a_call_with_an_argument_that_there_is_not_says_which_was_meant():
    def misspells():
        Budget(turn=5)

    with pytest.raises(EpisodeFailed) as failed:
        await call(misspells)
    line = "TypeError: Unexpected keyword argument 'turn'; did you mean turns?"
    assert cause_line(failed.value.detail) == line


class Speechless(TypeError):
    def __str__(self):
        raise ValueError("no words")


class Nameless:
    def __dir__(self):
        raise RuntimeError("no names")


@pytest.mark.parametrize("kind", [Speechless, lambda: Nameless().host])
async def test_what_cannot_be_looked_at_is_a_crash_like_any_other(kind):
    def raises():
        raise kind()

    with pytest.raises(EpisodeFailed) as failed:
        await call(raises)
    assert failed.value.error_class == "crash"
    assert "in raises" in failed.value.detail


async def test_a_broken_contract_keeps_its_class():
    with pytest.raises(EpisodeFailed) as failed:
        await call(raise_finding, "", class_="c")
    assert failed.value.error_class == InvalidFinding.error_class
    assert failed.value.detail.startswith("finding key: not a key")


async def awaits_what_was_cancelled():
    task = asyncio.create_task(asyncio.Event().wait())
    task.cancel()
    await task


async def test_a_callback_that_awaits_what_was_cancelled_is_a_crash():
    with pytest.raises(EpisodeFailed) as failed:
        await call(awaits_what_was_cancelled)
    assert failed.value.error_class == "crash"
    assert "awaits_what_was_cancelled" in failed.value.detail


async def test_a_callback_that_is_itself_cancelled_says_so():
    task = asyncio.create_task(call(asyncio.Event().wait))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_callback_that_is_cut_off_by_a_deadline_is_no_crash():
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await call(asyncio.Event().wait)


@pytest.mark.parametrize(
    ("raised", "error_class"),
    [
        (ToolFailed("quota", "tomorrow"), "quota"),
        (TimeoutError("slow"), "tool_timeout"),
        (PermissionError("no"), "tool_auth_failed"),
        (ConnectionRefusedError("gone"), "tool_unavailable"),
        (ConnectionResetError("gone"), "tool_unavailable"),
        (FileNotFoundError("where"), "tool_not_found"),
        (ValueError("boom"), "crash"),
        (asyncio.CancelledError(), "crash"),
    ],
)
async def test_a_tools_exception_says_what_went_wrong(raised, error_class):
    async def work():
        raise raised

    with pytest.raises(ToolFailed) as failed:
        await attempt(work())
    assert failed.value.error_class == error_class


async def test_a_tools_crash_keeps_its_traceback():
    async def work():
        raise ValueError("boom")

    with pytest.raises(ToolFailed) as failed:
        await attempt(work())
    assert "in work" in failed.value.detail


def delivers_plainly():
    return "r-1"


def raises_plainly():
    raise ValueError("boom")


@pytest.mark.parametrize(
    ("method", "error_class", "is_permanent"),
    [(delivers_plainly, "bad_adapter", True), (raises_plainly, "crash", False)],
)
async def test_an_adapter_that_is_not_async_is_a_delivery_that_failed(
    method, error_class, is_permanent
):
    with pytest.raises(DeliveryFailed) as failed:
        await delivery(method)
    assert (failed.value.error_class, failed.value.permanent) == (error_class, is_permanent)


async def test_the_frames_of_an_adapter_are_kept_with_those_of_the_cause_and_no_message():
    async def deliver():
        try:
            {}["token-1"]
        except KeyError as error:
            raise ConnectionError("https://token-2@example.com") from error

    with pytest.raises(DeliveryFailed) as failed:
        await delivery(deliver)
    detail = failed.value.detail
    assert failed.value.error_class == "receiver_unavailable"
    assert "KeyError\n" in detail
    assert detail.endswith("\nConnectionError")
    assert [line for line in detail.splitlines() if line.startswith(("KeyError", "Conn"))] == [
        "KeyError",
        "ConnectionError",
    ]


async def test_a_tool_that_will_not_stop_does_not_hold_us():
    let_go, ended = asyncio.Event(), asyncio.Event()

    async def stubborn():
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        ended.set()
        raise ValueError("nobody is told")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await attempt(stubborn())
    let_go.set()
    await ended.wait()


async def test_a_callback_that_is_closed_with_its_task_has_not_crashed():
    called = call(asyncio.Event().wait)
    task = asyncio.create_task(called)
    await asyncio.sleep(0)
    called.close()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class Panic(BaseException):
    """As a library in Rust raises it."""


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), Panic()])
async def test_what_would_end_the_process_ends_a_callback_a_tool_and_a_delivery(raised):
    def callback():
        raise raised

    async def work():
        raise raised

    for called, failure in (
        (call(callback), EpisodeFailed),
        (attempt(work()), ToolFailed),
        (delivery(work), DeliveryFailed),
    ):
        with pytest.raises(failure) as failed:
            await called
        assert failed.value.error_class == "crash"
        assert type(raised).__name__ in failed.value.detail


async def test_what_must_not_begin_does_not_and_nobody_takes_that_for_a_crash():
    begun = []

    async def work():
        begun.append("begun")

    def begin():
        raise LeaseLost("episode.a.e1", revision=1)

    async def step():
        await attempt(work(), begin=begin)

    with pytest.raises(LeaseLost):
        await call(step)
    assert begun == []


ROUNDS_MAX = 50_000
"""How often code goes on that does not end: for ever, were it not for this."""


async def test_a_tool_that_catches_whatever_ends_it_is_left_and_named(monkeypatch):
    monkeypatch.setattr(usercode, "CLEANUP_S", 0.05)
    # Python tells of a coroutine that does not end when it is deleted.
    monkeypatch.setattr(sys, "unraisablehook", lambda told: None)
    rounds = 0

    async def stays():
        nonlocal rounds
        while rounds < ROUNDS_MAX:
            try:
                await asyncio.sleep(0)
            except BaseException:  # noqa: BLE001, S112 - as users do
                continue
            rounds += 1

    with capture_logs() as lines:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await attempt(stays())
        while not lines:  # noqa: ASYNC110 - nothing else tells
            await asyncio.sleep(0.01)
    await asyncio.sleep(0)
    so_far = rounds
    await asyncio.sleep(0.01)

    assert rounds == so_far < ROUNDS_MAX
    assert lines[0]["at"].endswith(", in stays")
    gc.collect()
