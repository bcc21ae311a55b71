"""What a function may do, return and raise, and what the journal says of it."""

from __future__ import annotations

import asyncio
import re
from functools import partial

import msgspec
import pytest

from engine.app.actor import Actor
from engine.app.app import App
from engine.app.findings import clear_finding, raise_finding
from engine.app.function_tool import tool
from engine.app.outputs import propose_output
from engine.app.strategy import ConvergeResult
from engine.app.tools import overrides
from engine.app.triggers import event
from engine.errors import CallFailed, DeclarationError, InvalidAction, StrategyError, cause_line
from engine.waits.requests import resolve
from engine.waits.signals import References
from streams.clock import SystemClock
from streams.json import unraw
from streams.memory import memory_ports
from streams.model.events import (
    EndStatus,
    EpisodeBlocked,
    EpisodeConverged,
    StepAnnounced,
    StepRecorded,
)
from streams.model.triggers import Budget, Mode
from tests.engine.functions.stage import Ledger, app_of, play, resume
from tests.engine.stage import (
    CLOCK,
    HAPPENED,
    ask_start,
    decide,
    eventually,
    life,
    lived,
    open_episode,
    opening,
    ports_in_memory,
    running,
    write,
)
from tests.simulation.time import SimClock, simulate

TOOLS = {"disk": Ledger(), "mail": Ledger(side_effect=True)}


def steps_of(life) -> list[tuple[str, str, str]]:
    return [(step.path, step.kind.value, step.tool_name) for step in life.of(StepRecorded)]


async def test_each_call_is_a_step_with_a_path():
    async def check(ctx, trigger):
        read = await ctx.call("disk.read", at="/")
        return ConvergeResult(classification={"read": read, "seen": await ctx.observe([1])})

    life = await play(check, tools=TOOLS)
    assert steps_of(life) == [("1", "tool_call", "disk.read"), ("2", "observation", "")]
    converged = life.of(EpisodeConverged)[0]
    assert unraw(converged.classification) == {"read": {"did": "read", "at": "/"}, "seen": [1]}


async def test_the_last_line_of_a_crashed_call_says_what_was_raised_and_where_it_was_called():
    class Empty(Ledger):
        async def call(self, action, args, ctx):
            return args["n"]

    async def check(ctx, trigger):
        await ctx.call("disk.read")

    life = await play(check, tools={"disk": Empty()})
    said = life.end.error_detail.splitlines()[-1]
    assert said.startswith("KeyError: 'n' (test_functions.py:")
    assert said.endswith(", in check)")


async def test_a_failure_without_a_detail_says_where_it_was_raised():
    async def check(ctx, trigger):
        raise CallFailed("no_room")

    life = await play(check)
    assert re.fullmatch(r"\(test_functions\.py:\d+, in check\)", life.end.error_detail)


class NoStock(StrategyError):
    error_class = "no_stock"


async def test_an_error_of_the_user_without_a_text_has_its_class_and_its_line():
    async def check(ctx, trigger):
        raise NoStock

    end = (await play(check)).end
    assert end.error_class == "no_stock"
    assert re.fullmatch(r"\(test_functions\.py:\d+, in check\)", end.error_detail)


async def test_a_tool_of_one_word_is_called_by_it():
    async def fetch(args, ctx):
        return args["url"]

    async def check(ctx, trigger):
        assert await ctx.call("fetch", url="x") == "x"

    life = await play(check, tools={"fetch": {"call": fetch}})
    assert steps_of(life) == [("1", "tool_call", "fetch.call")]
    assert life.end.status is EndStatus.DONE


async def test_a_function_with_the_decorator_is_called_as_it_is():
    @tool
    async def read(at: str) -> dict:
        return {"at": at}

    async def check(ctx, trigger):
        return ConvergeResult(summary=(await ctx.call(read, at="/"))["at"])

    life = await play(check, tools=[read])
    assert steps_of(life) == [("1", "tool_call", "read.call")]
    assert life.of(EpisodeConverged)[0].summary == "/"


async def test_a_side_effect_is_announced_with_its_path():
    async def check(ctx, trigger):
        await ctx.observe(1)
        await ctx.call("mail.send")

    life = await play(check, tools={"mail": Ledger(side_effect=True)})
    announced = life.of(StepAnnounced)
    assert [(each.path, each.tool_name) for each in announced] == [("2", "mail.send")]
    assert f":2:{announced[0].fingerprint[:16]}" in announced[0].idempotency_key


FINDING = raise_finding("k", class_="c", summary="it is")

DISK = raise_finding("disk", class_="full", subject=("host", "web-1"), summary="it is full")


@pytest.mark.parametrize(
    ("returned", "findings", "outputs"),
    [
        (FINDING, 1, 0),
        ([FINDING, clear_finding("other")], 2, 0),
        ((FINDING, propose_output("pager", "x")), 1, 1),
        (ConvergeResult(findings=[FINDING]), 1, 0),
        (propose_output("pager", "x"), 0, 1),
    ],
)
async def test_a_function_returns_what_is_true(returned, findings, outputs):
    async def check(ctx, trigger):
        return returned

    async def pager(view):
        return "delivered"

    life = await play(check, outputs={"pager": pager})
    assert (len(life.end.findings), len(life.end.outputs)) == (findings, outputs)


async def test_a_function_that_returns_nothing_is_done():
    async def check(ctx, trigger):
        pass

    life = await play(check)
    assert (life.end.status, life.of(EpisodeConverged)) == (EndStatus.DONE, [])


@pytest.mark.parametrize("nonsense", [{"a": 1}, "done", [1], True])
async def test_a_function_that_returns_nonsense_fails_in_words(nonsense):
    async def check(ctx, trigger):
        return nonsense

    life = await play(check)
    assert life.end.error_class == "invalid_result"
    assert "return a ConvergeResult, findings, outputs, or nothing" in life.end.error_detail


async def test_a_call_that_fails_raises_where_it_is_awaited():
    async def check(ctx, trigger):
        try:
            await ctx.call("disk.fail")
        except CallFailed as failed:
            return ConvergeResult(summary=f"{failed.error_class}, {failed.detail}")

    life = await play(check, tools=TOOLS)
    assert life.of(EpisodeConverged)[0].summary == "busy, try later"


async def test_a_failed_call_that_nobody_catches_ends_the_episode_at_the_users_line():
    async def check(ctx, trigger):
        await ctx.call("disk.fail")

    life = await play(check, tools=TOOLS)
    assert (life.end.status, life.end.error_class) == (EndStatus.FAILED, "busy")
    assert life.end.error_detail.startswith("try later (test_functions.py:")
    assert life.end.error_detail.endswith(", in check)")


async def test_an_exception_shows_the_users_own_lines_and_none_of_ours():
    def inner():
        raise KeyError("boom")

    async def check(ctx, trigger):
        inner()

    life = await play(check)
    assert life.end.error_class == "crash"
    assert "in inner" in life.end.error_detail
    assert "KeyError: 'boom'" in life.end.error_detail
    assert not any(ours in life.end.error_detail for ours in ("usercode.py", "run.py"))


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, RecursionError, MemoryError])
async def test_no_exception_of_a_function_ends_its_node(error):
    async def check(ctx, trigger):
        raise error

    ports = ports_in_memory()
    app = app_of(check)
    async with running(app, ports):
        first = await lived(ports, await open_episode(ports, app, id_="x1"))
        second = await lived(ports, await open_episode(ports, app, id_="x2"))
    assert {first.end.error_class, second.end.error_class} == {"crash"}


async def test_what_cannot_be_an_action_is_told_at_the_users_line():
    async def check(ctx, trigger):
        await ctx.sleep(-1)

    life = await play(check)
    assert life.end.error_class == "invalid_action"
    assert "seconds: -1 is not from 0" in life.end.error_detail
    assert "test_functions.py:" in life.end.error_detail


async def test_the_engine_cannot_be_caught():
    tries = []

    async def check(ctx, trigger):
        while len(tries) < 10:
            try:
                await ctx.observe(len(tries))
            except Exception:  # noqa: BLE001 - as users write
                return
            finally:
                tries.append(1)

    life = await play(check, budget=Budget(turns=3))
    assert (life.end.error_class, len(tries)) == ("budget_exceeded", 4)


async def test_an_answer_of_people_is_true_or_false():
    async def check(ctx, trigger):
        answer = await ctx.approval({"restart": "web"}, approvers=["ann", "bob"])
        return ConvergeResult(summary=f"{bool(answer)} {answer.by} {answer.reason}")

    for verdict, said in (("approve", "True ann fine"), ("deny", "False  by ann: fine")):
        ports = ports_in_memory()
        app = app_of(check)
        async with running(app, ports):
            episode_id = await open_episode(ports, app)
            await lived(ports, episode_id, lambda so_far: so_far.of(EpisodeBlocked))
            await decide(ports, episode_id, verdict, by="ann", reason="fine")
            life = await lived(ports, episode_id)
        assert life.of(EpisodeConverged)[0].summary == said
        assert steps_of(life) == [("1", "approval", "")]


async def test_a_signal_brings_its_result():
    async def check(ctx, trigger):
        return ConvergeResult(summary=str(await ctx.wait("payment:42")))

    ports = ports_in_memory()
    app = app_of(check)
    async with running(app, ports):
        episode_id = await open_episode(ports, app)
        await eventually(partial(References(ports, CLOCK).waiting, "payment:42"))
        await resolve(ports, "payment:42", {"paid": 7}, by="bank", episode_id=episode_id)
        life = await lived(ports, episode_id)
    assert life.of(EpisodeConverged)[0].summary == "{'paid': 7}"


async def test_a_wait_that_expires_fails_at_the_call():
    async def check(ctx, trigger):
        try:
            await ctx.wait("payment:42", expires_s=0.01)
        except CallFailed as failed:
            return ConvergeResult(summary=failed.error_class)

    assert (await play(check)).of(EpisodeConverged)[0].summary == "wait_expired"


async def test_a_short_sleep_stays_on_its_node_and_a_long_one_leaves_it():
    async def check(ctx, trigger):
        await ctx.sleep(0.01)
        await ctx.sleep(3_600)

    life = await play(check, reached=lambda so_far: so_far.of(EpisodeBlocked))
    assert steps_of(life) == [("1", "wait", "")]
    block = life.of(EpisodeBlocked)[0]
    assert (block.path, block.wait.ref, block.wait.expires_at is not None) == ("2", "", True)


async def test_polling_with_sleeps_is_no_loop():
    async def check(ctx, trigger):
        for _ in range(8):
            await ctx.call("disk.read")
            await ctx.sleep(0.001)

    life = await play(check, tools=TOOLS, budget=Budget(turns=100))
    assert life.end.status is EndStatus.DONE


async def test_a_function_that_goes_in_circles_is_ended():
    async def check(ctx, trigger):
        while True:
            await ctx.call("disk.read")

    life = await play(check, tools=TOOLS, budget=Budget(turns=100))
    assert life.end.error_class == "loop_detected"
    assert life.end.error_detail == "1 step(s) over and over: disk.read({}) (call 3)"


async def test_an_output_is_delivered_at_the_call():
    async def check(ctx, trigger):
        sent = await ctx.output("pager", {"text": "x"})
        return ConvergeResult(summary=sent.status)

    async def pager(view):
        return "delivered"

    life = await play(check, outputs={"pager": pager})
    assert life.of(EpisodeConverged)[0].summary == "delivered"


async def test_a_synthesis_is_asked_for_with_what_stays_secret():
    asked = []

    async def model(prompt, transient, ctx):
        asked.append((prompt, transient))
        return "calm"

    async def check(ctx, trigger):
        said = await ctx.synthesize({"q": 1}, transient={"key": "s3cret"})
        return ConvergeResult(summary=said)

    life = await play(check, synthesizer=model)
    assert (life.of(EpisodeConverged)[0].summary, asked) == (
        "calm",
        [({"q": 1}, {"key": "s3cret"})],
    )


async def test_what_a_function_reads_of_findings_is_recorded():
    async def check(ctx, trigger):
        before = await ctx.findings.get("k")
        recent = await ctx.findings.recent("k", "1h")
        return ConvergeResult(
            summary=f"{before.summary if before else None} {recent is not None}", findings=[FINDING]
        )

    ports = ports_in_memory()
    app = app_of(check)
    async with running(app, ports):
        first = await lived(ports, await open_episode(ports, app, id_="x1"))
        second = await lived(ports, await open_episode(ports, app, id_="x2"))
    summaries = [life.of(EpisodeConverged)[0].summary for life in (first, second)]
    assert summaries == ["None False", "it is True"]
    assert steps_of(second)[0] == ("1", "observation", "findings.get")


def test_what_a_function_reads_of_active_findings_is_recorded_and_replayed():
    seen = []

    async def check(ctx, trigger):
        known = await ctx.findings.active(subject=("host", "web-1"), class_="full", limit=5)
        seen.append([each.finding_key for each in known])
        await ctx.sleep(60)
        return ConvergeResult(summary=known[0].summary if known else "nothing", findings=[DISK])

    async def work():
        clock = SimClock()
        ports, app = memory_ports(clock=clock), app_of(check)
        async with running(app, ports, clock=clock):
            first = await open_episode(ports, app, id_="x1")
            await clock.sleep(90)
            second = await open_episode(ports, app, id_="x2")
            await clock.sleep(90)
        return await life(ports, first), await life(ports, second)

    first, second = simulate(work())
    assert seen == [[], [], ["disk"], ["disk"]]
    assert steps_of(second)[0] == ("1", "observation", "findings.active")
    assert [each.of(EpisodeConverged)[0].summary for each in (first, second)] == [
        "nothing",
        "it is full",
    ]
    assert unraw(second.of(StepRecorded)[0].args) == {
        "subject": ["host", "web-1"],
        "class_": "full",
        "limit": 5,
    }


async def test_the_wall_budget_cuts_a_function_off():
    async def hang(args, ctx):
        await asyncio.Event().wait()

    async def check(ctx, trigger):
        await ctx.call("hang.on")

    life = await play(check, tools={"hang": hang}, budget=Budget(wall_s=0.05))
    assert life.end.error_class == "budget_exceeded"


@pytest.mark.parametrize("durability", ["pipelined", "strict"])
async def test_a_function_is_as_durable_as_its_expectation(durability):
    async def check(ctx, trigger):
        for number in range(5):
            await ctx.observe(number)

    life = await play(check, durability=durability)
    commits = sum(any(isinstance(e, StepRecorded) for e in r.commit.events) for r in life.records)
    assert commits == (5 if durability == "strict" else 1)


def test_a_function_is_declared_under_its_own_name():
    actor = Actor("worker")

    @actor.expectation(on=event(HAPPENED), subject_key="host", budget=Budget(turns=3))
    async def disk_has_room(ctx, trigger):
        """Check it."""

    declared = actor.expectations["disk_has_room"]
    assert (declared.subject_key, declared.budget.turns) == ("host", 3)
    assert disk_has_room.__doc__ == "Check it."
    App(actors=[actor])


def _plain(ctx, trigger): ...
async def _alone(ctx): ...


@pytest.mark.parametrize(
    ("function", "problem"),
    [(_plain, "is not `async def name(ctx, trigger)`"), (_alone, "must take (ctx, trigger)")],
)
def test_what_is_no_such_function_is_refused(function, problem):
    actor = Actor("worker")
    with pytest.raises(DeclarationError, match="strategy") as refused:
        actor.expectation(on=event(HAPPENED))(function)
    assert problem in str(refused.value)


async def test_a_dry_run_asks_nobody_and_sleeps_not():
    async def check(ctx, trigger):
        await ctx.sleep(3_600)
        answer = await ctx.approval({"x": 1})
        return ConvergeResult(summary=f"{answer.by} {await ctx.wait('r')} {ctx.mode}")

    ports = ports_in_memory()
    app = app_of(check)
    async with running(app, ports):
        opened = msgspec.structs.replace(opening(app), mode=Mode.DRY_RUN, overrides=overrides())
        await write(ports, opened.episode_id, opened)
        await ask_start(ports, opened.episode_id)
        life = await lived(ports, opened.episode_id)
    assert life.of(EpisodeConverged)[0].summary == "dry_run None dry_run"


async def test_a_call_from_a_task_of_its_own_is_refused():
    async def check(ctx, trigger):
        await asyncio.create_task(ctx.observe(1))

    life = await play(check)
    assert life.end.error_class == "invalid_action"
    assert "use ctx.gather" in life.end.error_detail


async def _tested(ctx):
    if ctx.approval({"pay": 3}):
        await ctx.call("mail.pay")


async def _negated(ctx):
    if not ctx.approval({"pay": 3}):
        return
    await ctx.call("mail.pay")


async def _named(ctx):
    approved = ctx.approval({"pay": 3})
    if approved:
        await ctx.call("mail.pay")


@pytest.mark.parametrize("asks", [_tested, _negated, _named])
async def test_an_approval_that_is_not_awaited_is_neither_true_nor_false(asks):
    async def check(ctx, trigger):
        await asks(ctx)

    mail = Ledger(side_effect=True)
    life = await play(check, tools={"mail": mail})
    assert (life.end.error_class, mail.calls) == ("invalid_action", [])
    said = "ctx.approval(…) is not awaited; write await ctx.approval(…) (test_functions.py:"
    assert life.end.error_detail.startswith(said)


@pytest.mark.parametrize(
    "uses",
    [
        lambda asked: asked + 1,
        lambda asked: asked["at"],
        list,
        lambda asked: asked > 3,
        lambda asked: asked.status,
    ],
    ids=["sum", "item", "list", "order", "attribute"],
)
async def test_a_call_that_is_not_awaited_has_no_value(uses):
    async def check(ctx, trigger):
        uses(ctx.call("disk.read"))

    life = await play(check, tools=TOOLS)
    said = "ctx.call(…) is not awaited; write await ctx.call(…) (test_functions.py:"
    assert said in cause_line(life.end.error_detail)


@pytest.mark.parametrize(
    ("asks", "name"),
    [
        (lambda ctx: ctx.call("disk.read"), "ctx.call"),
        (lambda ctx: ctx.findings.get("k"), "ctx.findings.get"),
        (lambda ctx: ctx.findings.active(class_="full"), "ctx.findings.active"),
        (lambda ctx: ctx.gather(ctx.call("disk.read")), "ctx.gather"),
    ],
)
async def test_a_function_that_returns_without_having_awaited_a_call_fails_with_its_line(
    asks, name
):
    async def check(ctx, trigger):
        asked = asks(ctx)
        await ctx.observe(1)
        del asked

    life = await play(check, tools=TOOLS)
    assert life.end.error_class == "invalid_action"
    said = f"{name}(…) is not awaited; write await {name}(…) (test_functions.py:"
    assert life.end.error_detail.startswith(said)


async def test_a_call_may_be_awaited_later():
    async def check(ctx, trigger):
        first, second = ctx.observe(1), ctx.observe(2)
        return ConvergeResult(summary=str([await second, *await ctx.gather(first, ctx.observe(3))]))

    assert (await play(check)).of(EpisodeConverged)[0].summary == "[2, 1, 3]"


@tool
async def pay(amount: int) -> int:
    return amount


@tool
def charge(amount: int) -> int:
    return amount


@pytest.mark.parametrize("paid", [lambda: pay(3), lambda: charge(3)])
@pytest.mark.parametrize("gathers", [False, True])
async def test_a_tool_that_a_function_calls_past_the_journal_is_not_called(paid, gathers):
    paid_in_full = []

    async def check(ctx, trigger):
        await ctx.observe(1)

        async def branch():
            paid_in_full.append(paid())

        await (ctx.gather(branch()) if gathers else branch())

    life = await play(check, tools=[pay, charge])
    assert (life.end.error_class, paid_in_full) == ("invalid_action", [])
    assert "(…) called directly; await ctx.call(" in life.end.error_detail


async def test_a_tool_may_call_another_one_directly():
    @tool
    async def settle(amount: int) -> int:
        return await pay(amount) + charge(amount)

    @tool
    def settle_in_a_thread(amount: int) -> int:
        return charge(amount)

    async def check(ctx, trigger):
        both = await ctx.gather(ctx.call(settle, amount=3), ctx.call(settle_in_a_thread, amount=4))
        return ConvergeResult(summary=str(both))

    life = await play(check, tools=[settle, settle_in_a_thread])
    assert life.of(EpisodeConverged)[0].summary == "(6, 4)"
    assert (await pay(3), charge(3)) == (3, 3)


BAD = {
    "plan": (lambda ctx: ctx.approval({"x": object()}), "unencodable"),
    "empty key": (lambda ctx: ctx.findings.get(""), "invalid_action"),
    "long key": (lambda ctx: ctx.findings.get("k" * 2_000), "invalid_action"),
    "key in no text": (lambda ctx: ctx.findings.get("a\ud800"), "unencodable"),
    "no subject": (lambda ctx: ctx.findings.active(subject="web-1"), "invalid_action"),
    "no duration": (lambda ctx: ctx.findings.recent("k", "5 parsecs"), "invalid_action"),
}


@pytest.mark.parametrize("what", BAD)
async def test_a_bad_value_fails_at_the_users_line_and_only_once(what):
    asked, error_class = BAD[what]

    async def check(ctx, trigger):
        await asked(ctx)

    life = await play(check)
    assert life.end.error_class == error_class, life.end.error_detail


async def test_a_function_that_catches_a_bad_key_goes_on_whenever_its_node_dies():
    async def check(ctx, trigger):
        with pytest.raises(InvalidAction):
            await ctx.findings.get("")
        await ctx.observe(1)

    steps = (await play(check)).of(StepRecorded)
    assert [each.error_class for each in steps] == ["invalid_action", ""]
    for cut in range(len(steps) + 1):
        life = await resume(app_of(check), steps[:cut])
        assert life.end.status is EndStatus.DONE, life.end.error_detail


class StoppedClock(SystemClock):
    """Shows the time at which it was made."""

    def __init__(self) -> None:
        self._shown = super().now()

    def now(self):
        return self._shown


async def test_the_time_may_be_asked_for_again_and_again_while_it_stands_still():
    async def check(ctx, trigger):
        for _ in range(4):
            ctx.now()
        await ctx.observe("after")

    ports, app = ports_in_memory(), app_of(check)
    async with running(app, ports, clock=StoppedClock()):
        life = await lived(ports, await open_episode(ports, app))
    assert life.end.status is EndStatus.DONE, life.end.error_detail
