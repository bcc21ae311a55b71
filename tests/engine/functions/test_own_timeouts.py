"""A function cuts its own calls off, with `asyncio.timeout`: each is recorded, and replayed so."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import anyio
import pytest

from engine.app.findings import raise_finding
from engine.app.strategy import ConvergeResult
from engine.errors import CallFailed
from engine.execution.report import FindingReports
from engine.findings.store import FindingReader
from streams.memory import memory_ports
from streams.model.events import EndStatus, EpisodeStarted, StepAnnounced, StepRecorded
from streams.model.triggers import Budget
from tests.engine.functions.stage import Ledger, app_of, middle, play, resume
from tests.engine.stage import CLOCK, Counter

TIMEOUT_S = 0.4


async def hang(args, ctx):
    await asyncio.Event().wait()


def result_of(life):
    converged = life.episode.converged
    assert converged is not None, life.end.error_detail
    return converged.summary


async def unlimited(ctx, trigger):
    """Observe two things at a time, without a timeout."""
    await ctx.gather(ctx.observe(1), ctx.observe(2))
    await ctx.observe(3)


async def gives_up(ctx, trigger):
    """Wait for a call for a while, and make another one then."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await ctx.call("slow.read")
    except TimeoutError:
        await ctx.call("disk.read")
        return ConvergeResult(summary="read the other one")


async def test_a_call_that_is_cut_off_is_a_timeout_and_the_function_goes_on():
    disk = Ledger()
    life = await play(gives_up, tools={"slow": hang, "disk": disk})

    assert result_of(life) == "read the other one"
    assert [(step.path, step.error_class) for step in life.of(StepRecorded)] == [
        ("1", "call_timeout"),
        ("2", ""),
    ]


async def test_a_replay_fails_the_call_at_once_without_waiting_for_the_timeout_again():
    async def waits_long(ctx, trigger):
        try:
            async with asyncio.timeout(3_600):
                await ctx.call("slow.read")
        except TimeoutError:
            await ctx.call("disk.read")
            return ConvergeResult(summary="read the other one")

    disk = Ledger()
    tools = {"slow": hang, "disk": disk}
    past = middle(await play(gives_up, tools=tools))[:1]
    life = await resume(app_of(waits_long, tools=tools), past)

    assert result_of(life) == "read the other one"
    assert disk.calls == ["read", "read"]


async def test_it_is_a_failed_call_too_with_what_cut_it_off():
    async def check(ctx, trigger):
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await ctx.call("slow.read")
        except CallFailed as failed:
            return ConvergeResult(summary=f"{failed}")

    life = await play(check, tools={"slow": hang})
    assert result_of(life) == "call_timeout: the function's own timeout was over before the call"


@pytest.mark.parametrize("idempotent", [False, True])
async def test_a_side_effect_that_is_cut_off_is_never_taken_for_done(idempotent):
    """To call again after a timeout would be another call, under another key."""

    async def check(ctx, trigger):
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await ctx.call("mail.send")
        except TimeoutError:
            await ctx.call("mail.send")

    mail = Counter(side_effect=True, idempotent=idempotent, open_=False)
    life = await play(check, tools={"mail": mail})

    assert (life.end.status, life.end.error_class) == (EndStatus.FAILED, "outcome_unknown")
    assert "timeout_s" in life.end.error_detail
    assert (len(mail.calls), len(life.of(StepAnnounced))) == (1, 1)


async def test_branches_that_are_cut_off_together_are_recorded_each():
    async def check(ctx, trigger):
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await ctx.gather(ctx.call("slow.a"), ctx.call("disk.b"), ctx.call("slow.c"))
        except TimeoutError:
            return ConvergeResult(summary="went on")

    tools = {"slow": hang, "disk": Ledger()}
    life = await play(check, tools=tools)

    assert result_of(life) == "went on"
    recorded = {step.path: step.error_class for step in life.of(StepRecorded)}
    assert recorded == {"1.1.1": "call_timeout", "1.2.1": "", "1.3.1": "call_timeout"}
    past = middle(life)
    for end in range(len(past)):
        again = await resume(app_of(check, tools=tools), past[:end])
        assert result_of(again) == "went on"


async def test_a_branch_that_catches_its_timeout_goes_on_beside_the_others():
    async def patient(ctx):
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await ctx.call("slow.a")
        except TimeoutError:
            return await ctx.call("disk.b")

    async def check(ctx, trigger):
        found = await ctx.gather(patient(ctx), ctx.sleep(2 * TIMEOUT_S))
        return ConvergeResult(summary=found[0]["did"])

    assert result_of(await play(check, tools={"slow": hang, "disk": Ledger()})) == "b"


async def test_a_sleep_can_be_cut_off():
    async def check(ctx, trigger):
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await ctx.sleep(4)
        except TimeoutError:
            return ConvergeResult(summary="woke")

    life = await play(check)
    assert result_of(life) == "woke"
    assert result_of(await resume(app_of(check), middle(life))) == "woke"


async def test_what_was_recorded_stays_when_the_timeout_comes_during_its_replay():
    """A replay may be slower than the first run was."""

    async def check(ctx, trigger):
        async with asyncio.timeout(0):
            found = await ctx.gather(ctx.observe(1), ctx.observe(2))
        return ConvergeResult(summary=f"{found}")

    past = middle(await play(unlimited))[:2]
    assert result_of(await resume(app_of(check), past)) == "(1, 2)"


async def test_it_stays_too_if_its_branch_still_waits_for_its_turn():
    async def late(ctx):
        for _ in range(5):  # The second branch has asked by now, and its timeout is over.
            await asyncio.sleep(0)
        return await ctx.observe(1)

    async def timed(ctx):
        async with asyncio.timeout(0):
            return await ctx.observe(2)

    async def check(ctx, trigger):
        return ConvergeResult(summary=f"{await ctx.gather(late(ctx), timed(ctx))}")

    past = middle(await play(unlimited))[:2]
    assert result_of(await resume(app_of(check), past)) == "(1, 2)"


async def test_branches_that_are_cut_off_before_they_begin_are_recorded_each():
    async def check(ctx, trigger):
        try:
            async with asyncio.timeout(0):
                await ctx.gather(ctx.call("slow.a"), ctx.call("slow.b"))
        except TimeoutError:
            found = await ctx.call("disk.read")
            return ConvergeResult(summary=found["did"])

    tools = {"slow": hang, "disk": Ledger()}
    life = await play(check, tools=tools)

    assert [step.error_class for step in life.of(StepRecorded)] == ["call_timeout"] * 2 + [""]
    assert result_of(await resume(app_of(check, tools=tools), middle(life))) == "read"


class SlowLog:
    """A log whose appends of a step take longer than a timeout."""

    def __init__(self, log):
        self._log = log

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def append(self, subject, commit, *, after):
        version = await self._log.append(subject, commit, after=after)
        if any(isinstance(each, StepRecorded) for each in commit.events):
            await asyncio.sleep(2 * TIMEOUT_S)
        return version


async def test_a_timeout_that_comes_while_the_result_is_written_comes_too_late():
    async def check(ctx, trigger):
        async with asyncio.timeout(TIMEOUT_S):
            found = await ctx.call("disk.read")
        return ConvergeResult(summary=found["did"])

    ports = memory_ports(clock=CLOCK)
    ports = replace(ports, log=SlowLog(ports.log))
    life = await play(check, tools={"disk": Ledger()}, ports=ports, durability="strict")

    assert result_of(life) == "read"
    assert len(life.of(EpisodeStarted)) == 1


async def test_a_timeout_that_does_not_fire_changes_nothing():
    async def check(ctx, trigger):
        async with asyncio.timeout(3_600):
            return ConvergeResult(summary=(await ctx.call("disk.read"))["did"])

    life = await play(check, tools={"disk": Ledger()}, durability="strict")
    assert result_of(life) == "read"


async def test_findings_that_are_looked_for_too_long_are_a_timeout_too(monkeypatch):
    async def never(self, key):
        await asyncio.Event().wait()

    monkeypatch.setattr(FindingReader, "get", never)

    async def check(ctx, trigger):
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await ctx.findings.get("web-1")
        except TimeoutError:
            return ConvergeResult(summary="went on")

    life = await play(check)
    assert result_of(life) == "went on"
    assert len(life.of(EpisodeStarted)) == 1


@asynccontextmanager
async def cut_off_once():
    """Cut off what is within, as a library does that has a timeout of its own."""
    task = asyncio.current_task()
    timer = asyncio.get_running_loop().call_later(TIMEOUT_S, task.cancel)
    try:
        yield
    finally:
        timer.cancel()


async def test_whatever_cancels_the_functions_own_task_cuts_its_call_off():
    async def check(ctx, trigger):
        try:
            async with cut_off_once():
                await ctx.call("slow.read")
        except TimeoutError:
            found = await ctx.call("disk.read")
            return ConvergeResult(summary=found["did"])

    assert result_of(await play(check, tools={"slow": hang, "disk": Ledger()})) == "read"


async def test_a_function_that_cancels_itself_and_waits_fails_at_once():
    async def check(ctx, trigger):
        asyncio.current_task().cancel()
        await asyncio.sleep(0)

    life = await play(check)
    assert (life.end.error_class, len(life.of(EpisodeStarted))) == ("crash", 1)


async def test_what_the_engine_waits_for_and_is_canceled_is_no_timeout_and_not_tried_again(
    monkeypatch,
):
    """The writer of a node that ends is canceled whenever it is asked: nothing else could run."""
    apply, canceled = FindingReports.apply, []

    async def once(self, announced, *, is_new):
        if not canceled:
            canceled.append(announced)
            raise asyncio.CancelledError
        return await apply(self, announced, is_new=is_new)

    monkeypatch.setattr(FindingReports, "apply", once)

    async def check(ctx, trigger):
        await ctx.report(raise_finding("disk:web-1", class_="disk_full"))

    life = await play(check)
    assert (life.end.error_class, len(life.of(StepRecorded))) == ("crash", 1)


async def test_what_the_engine_waits_for_and_is_canceled_after_a_timeout_is_none_either(
    monkeypatch,
):
    patience, apply, tries = asyncio.timeout(None), FindingReports.apply, []

    async def canceled(self, announced, *, is_new):
        tries.append(announced)
        if len(tries) == 1:
            patience.reschedule(asyncio.get_running_loop().time())
            await asyncio.Event().wait()
        if len(tries) == 2:
            raise asyncio.CancelledError
        return await apply(self, announced, is_new=is_new)

    monkeypatch.setattr(FindingReports, "apply", canceled)

    async def check(ctx, trigger):
        with suppress(TimeoutError):
            async with patience:
                await ctx.report(raise_finding("disk:web-1", class_="disk_full"))

    life = await play(check)
    assert [each.error_class for each in life.of(StepRecorded)] == [""]
    assert life.end.error_class == "crash"


async def test_a_report_ends_though_anyio_cuts_it_off_at_each_turn_of_the_event_loop(monkeypatch):
    apply, scope = FindingReports.apply, anyio.CancelScope()

    async def slow(self, announced, *, is_new):
        scope.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        return await apply(self, announced, is_new=is_new)

    monkeypatch.setattr(FindingReports, "apply", slow)

    async def check(ctx, trigger):
        with scope:
            await ctx.report(raise_finding("disk:web-1", class_="disk_full"))
        return ConvergeResult(summary="went on")

    life = await play(check)
    assert result_of(life) == "went on"
    assert [each.error_class for each in life.of(StepRecorded)] == [""]


async def test_a_record_that_is_given_out_while_its_branch_is_being_canceled_is_its_answer():
    is_slow = []

    async def first(ctx):
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3_600 if is_slow else 0.02)  # Work of its own beside its calls.
        return await ctx.observe("b")

    async def check(ctx, trigger):
        async with asyncio.timeout(0.2):
            found = await ctx.gather(first(ctx), ctx.observe("a"))
        return ConvergeResult(summary=f"{found}")

    whole = await play(check)
    is_slow.append(True)
    life = await resume(app_of(check, budget=Budget(wall_s=3)), middle(whole)[:2])
    assert result_of(life) == result_of(whole)
