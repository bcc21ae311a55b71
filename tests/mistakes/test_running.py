"""Mistakes in the code of a strategy: found before it runs, or told in the log as it runs."""

from __future__ import annotations

import asyncio
import sys
import threading
from types import SimpleNamespace

import pytest
import structlog
from structlog.testing import capture_logs

from tests.mistakes.mine import BEGIN, as_lines, found_in, id_of, load, text_of
from tests.mistakes.mistake import Mistake
from vigil.serving.app import tell_found
from vigil.serving.loop_watch import BLOCKED, watched_loop
from vigil.testing import run

FIRST = BEGIN.count("\n") + 3
"""The line of the body of the function."""


def line(number: int = 1, *, of: str = "e") -> str:
    """Return how the line `number` of a body is told."""
    return f"mine.py:{FIRST + number - 1}, in {of}"


STRAY = (
    "a call in a task or a thread of its own, such as the end of an async generator that was"
    " left, cannot be replayed; use ctx.gather(…), or contextlib.aclosing(…)"
)

RAISED = f"mine.py:{BEGIN[: BEGIN.index('raise')].count(chr(10)) + 1}, in breaks"
"""Where the tool `breaks` does."""

CLASS = """\
class S(Strategy):
    def init(self, episode, trigger):
        {init}
    def next_step(self, state, ctx):
        {next_step}
    def handle_result(self, state, step, result):
        {handle_result}
    def converge(self, state, ctx):
        {converge}
a.expect("e", S(), on=manual())
"""


def strategy(
    *,
    init: str = "return {}",
    next_step: str = "return converge() if state else tool_call(add, x=1)",
    handle_result: str = "return {'seen': result}",
    converge: str = "return ConvergeResult()",
) -> str:
    """Return a class with one method that is wrong."""
    return CLASS.format(
        init=init, next_step=next_step, handle_result=handle_result, converge=converge
    )


def tool(returns: str, *, head: str = "async def t()") -> str:
    """Return a tool `t`, and a function that calls it."""
    made = f"@tool\n{head}:\n    {returns}\n\na = Actor('a', tools=[t])\n"
    return f"{made}@a.expectation(on=manual())\nasync def e(ctx, trigger):\n    await ctx.call(t)"


CALLED_AT = f"(mine.py:{BEGIN.count(chr(10)) + 8}, in e)"
"""Where the function of `tool` calls it."""


def within(**budget: int) -> str:
    """Return a function that uses up its budget."""
    limits = ", ".join(f"{name}={most}" for name, most in budget.items())
    return (
        f"@a.expectation(on=manual(), budget=Budget({limits}))\nasync def e(ctx, trigger):\n"
        "    for n in range(9):\n        await ctx.call(add, x=n)\n        await asyncio.sleep(1)"
    )


MISTAKES: list[Mistake] = [
    Mistake(
        29,
        "a severity that is computed, and does not exist",
        "return raise_finding('k', class_='c', severity='hi' + 'hg')",
        f"severity 'hihg': must be one of low, medium, high, critical ({line()})",
        "log",
    ),
    Mistake(
        30,
        "chance in an argument",
        "await ctx.call(add, x=random.randint(0, 9))",
        f"a replay cannot repeat this at=mine.py:{FIRST} expectation=a.e found=random.randint()"
        " instead=ctx.random()",
        "start",
    ),
    Mistake(
        31,
        "the clock in a summary",
        "return ConvergeResult(summary=str(time.time()))",
        f"at=mine.py:{FIRST} expectation=a.e found=time.time() instead=ctx.now()",
        "start",
    ),
    Mistake(
        31,
        "the clock in a summary, as a date",
        "return ConvergeResult(summary=str(datetime.now()))",
        f"at=mine.py:{FIRST} expectation=a.e found=datetime.datetime.now() instead=ctx.now()",
        "start",
    ),
    Mistake(
        31,
        "a UUID in a summary",
        "return ConvergeResult(summary=str(uuid.uuid4()))",
        f"at=mine.py:{FIRST} expectation=a.e found=uuid.uuid4() instead=ctx.uuid()",
        "start",
    ),
    Mistake(
        32,
        "a client for HTTP in a function",
        "httpx.get('http://127.0.0.1:1/')",
        f"at=mine.py:{FIRST} expectation=a.e found=httpx.get() instead='await ctx.call(…) of a"
        " tool'",
        "start",
    ),
    Mistake(
        33,
        "a file that is read in a function",
        "Path('/etc/hostname').read_text()",
        f"at=mine.py:{FIRST} expectation=a.e found=….read_text() instead='await ctx.call(…) of a"
        " tool'",
        "start",
    ),
    Mistake(
        33,
        "a file that is opened in a function",
        "open('/etc/hostname')",
        "found=io.open() instead='await ctx.call(…) of a tool'",
        "start",
    ),
    Mistake(
        34,
        "chance in the length of a sleep",
        "await ctx.sleep(6 + random.random())",
        f"at=mine.py:{FIRST} expectation=a.e found=random.random() instead=ctx.random()",
        "start",
    ),
    Mistake(
        35,
        "time.sleep in a function",
        "time.sleep(3)",
        f"at=mine.py:{FIRST} expectation=a.e found=time.sleep() instead='await ctx.sleep(…)'",
        "start",
    ),
    Mistake(
        36,
        "time.sleep in an async tool",
        tool("time.sleep(3)"),
        "the event loop is blocked: code waits without `await`; use async, or a function with @tool"
        f" that is not async at='mine.py:{FIRST}, in t'",
        "log",
    ),
    Mistake(
        37,
        "asyncio.sleep in a function",
        "await asyncio.sleep(1)",
        f"at=mine.py:{FIRST} expectation=a.e found=asyncio.sleep() instead='await ctx.sleep(…)'",
        "start",
    ),
    Mistake(
        38,
        "asyncio.gather of calls",
        "await asyncio.gather(ctx.call(add, x=1), ctx.call(add, x=2))",
        f"{STRAY} ({line()})",
        "log",
    ),
    Mistake(
        38,
        "a call in a task of its own",
        "await asyncio.create_task(ctx.call(add, x=1))",
        f"{STRAY} ({line()})",
        "log",
    ),
    Mistake(
        38,
        "a call in a task of its own",
        "await asyncio.create_task(ctx.call(add, x=1))",
        f"at=mine.py:{FIRST} expectation=a.e found=asyncio.create_task() instead='await"
        " ctx.gather(…)'",
        "start",
    ),
    Mistake(
        39,
        "a task that makes a call after its function has returned",
        "async def later():\n    await asyncio.sleep(1)\n    await ctx.call(add, x=1)\n"
        "asyncio.create_task(later())",
        "a call after the end of its function, in a task of its own, which ends here"
        f" at='{line(3, of='later')}'",
        "log",
    ),
    Mistake(
        40,
        "a call in a thread",
        "def work():\n    ctx.now()\nawait asyncio.to_thread(work)",
        f"{STRAY} ({line(2, of='work')})",
        "log",
    ),
    Mistake(
        40,
        "a thread",
        "def work():\n    ctx.now()\nawait asyncio.to_thread(work)",
        "found=asyncio.to_thread() instead='await ctx.call(…) of a tool: one that is not async runs"
        " in a thread'",
        "start",
    ),
    Mistake(
        41,
        "the ctx of an episode that has ended",
        "kept.append(ctx)\nawait kept[0].call(add, x=1)",
        "this ctx is of another run, of an episode that has ended or that another call runs; use"
        " the ctx that the function is called with, and keep it in no object that outlives the call"
        f" ({line(2)})",
        "log",
    ),
    Mistake(
        42,
        "a forgotten await",
        "ctx.call(add, x=1)",
        f"ctx.call(…) is not awaited; write await ctx.call(…) ({line()})",
        "log",
    ),
    Mistake(
        42,
        "a forgotten await",
        "ctx.call(add, x=1)",
        f"at=mine.py:{FIRST} expectation=a.e found='ctx.call(…) without `await`' instead='await"
        " ctx.call(…)'",
        "start",
    ),
    Mistake(
        43,
        "a forgotten await in a condition",
        "if ctx.approval({'x': 1}):\n    pass",
        f"ctx.approval(…) is not awaited; write await ctx.approval(…) ({line()})",
        "log",
    ),
    Mistake(
        44,
        "a forgotten await, and a sum",
        "found = ctx.call(add, x=1)\nreturn ConvergeResult(summary=str(found + 1))",
        f"ctx.call(…) is not awaited; write await ctx.call(…) ({line()})",
        "log",
    ),
    Mistake(
        45,
        "a forgotten await in a tool",
        tool("return asyncio.sleep(1)"),
        f"t.call returned a coroutine, sleep(…); write `await` before it {CALLED_AT}",
        "log",
    ),
    Mistake(
        46,
        "an await of what is there at once",
        "await ctx.now()",
        f"at='{line()}' detail=\"TypeError: object datetime.datetime can't be used in 'await'"
        ' expression; leave out `await`: the value is there at once"',
        "log",
    ),
    Mistake(
        47,
        "a tool that is called directly",
        "await add(1)",
        "add(…) called directly; await ctx.call(add, …), or return tool_call(add, …) from next_step"
        f" ({line()})",
        "log",
    ),
    Mistake(
        47,
        "a tool that is called directly",
        "await add(1)",
        "found='add(…) called directly' instead='await ctx.call(add, …)'",
        "start",
    ),
    Mistake(
        48,
        "a wrong name of an argument",
        "await ctx.call(add, xx=1)",
        f"add(): there is no argument 'xx'; did you mean x? ({line()})",
        "log",
    ),
    Mistake(
        49,
        "a wrong type of an argument",
        "await ctx.call(add, x='1')",
        f"add(): Expected `int`, got `str` - at `$.x` ({line()})",
        "log",
    ),
    Mistake(
        50,
        "an argument without its name",
        "await ctx.call(add, 1)",
        f"add(…) takes its arguments by name: await ctx.call(add, x=…) ({line()})",
        "log",
    ),
    Mistake(
        51,
        "a tool that there is not",
        "await ctx.call('ad', x=1)",
        f"no tool is registered as 'ad' for 'call'; known: add, breaks ({line()})",
        "log",
    ),
    Mistake(
        51,
        "a tool that there is not",
        "await ctx.call('ad', x=1)",
        f"this cannot work at=mine.py:{FIRST} expectation=a.e found=\"tool 'ad'\" instead='one of"
        " add.call, breaks.call'",
        "start",
    ),
    Mistake(
        52,
        "a tool that returns a datetime, and does not say so",
        tool("return datetime.now()"),
        "a result is another value as JSON: say what the tool returns, to get that"
        " instead='-> datetime'",
        "log",
    ),
    Mistake(
        52,
        "a tool that returns a set, and does not say so",
        tool("return {1, 2}"),
        "say what the tool returns, to get that instead='-> set'",
        "log",
    ),
    Mistake(
        52,
        "a tool that returns a tuple, and does not say so",
        tool("return 1, 2"),
        "say what the tool returns, to get that instead='-> tuple'",
        "log",
    ),
    Mistake(
        53,
        "a result of 20 MB",
        tool("return 'x' * 20_000_000"),
        f"20,000,002 bytes, the limit is 16,777,216; ask for less {CALLED_AT}",
        "log",
    ),
    Mistake(
        54,
        "arguments of 400 kB",
        "await ctx.call('add', x='y' * 400_000)",
        "arguments: 400,008 bytes, the limit is 262,144; keep it elsewhere and hand on a reference"
        f" ({line()})",
        "log",
    ),
    Mistake(
        54,
        "an output of 2 MB",
        "return propose_output('hook', {'x': 'y' * 2_000_000})",
        "payload: 2,000,008 bytes, the limit is 262,144; keep it elsewhere and hand on a reference"
        f" ({line()})",
        "log",
    ),
    Mistake(
        54,
        "an argument that JSON cannot say",
        "await ctx.call('add', x=object())",
        f"ToolCall: JSON has no such value at $.args.x: an instance of object ({line()})",
        "log",
    ),
    Mistake(
        55,
        "an exception in a tool",
        "await ctx.call(breaks)",
        f"at='{RAISED}' detail='ValueError: the disk is on fire ({line()})'",
        "log",
    ),
    Mistake(
        56,
        "a key that the payload has not",
        "trigger.payload['host']",
        f"at='{line()}' detail=\"KeyError: 'host'\"",
        "log",
    ),
    Mistake(
        56,
        "a text that is no JSON, which Python's library tells",
        "json.loads('{')",
        f"at='{line()}' detail='json.decoder.JSONDecodeError: Expecting property name enclosed",
        "log",
    ),
    Mistake(
        57,
        "a loop",
        "while True:\n    await ctx.call(add, x=1)",
        "detail='1 step(s) over and over: add.call({\"x\":1}) (call 3)'",
        "log",
        "fair",
    ),
    Mistake(
        58,
        "a budget of turns that is used up",
        within(turns=3),
        "detail='turns: 3 used of 3'",
        "log",
        "fair",
    ),
    Mistake(
        58,
        "a budget of seconds that is used up",
        within(wall_s=2),
        "detail='wall_s: all 2 used'",
        "log",
        "fair",
    ),
    Mistake(
        59,
        "a call that fails in a gather within a gather",
        "async def two():\n    return await ctx.gather(ctx.call(add, x=1), ctx.call(breaks))\n"
        "await ctx.gather(two(), ctx.call(add, x=2))",
        f"at='{RAISED}' detail='ValueError: the disk is on fire ({line(2, of='two')})'",
        "log",
    ),
    Mistake(
        60,
        "a gather of a list",
        "await ctx.gather([ctx.call(add, x=1)])",
        f"gather: a list cannot be awaited; give it ctx.call(…) ({line()})",
        "log",
    ),
    Mistake(
        60,
        "a gather of 17 branches",
        "await ctx.gather(*[ctx.call(add, x=n) for n in range(17)])",
        f"gather: 17 branches, the limit is 16; gather fewer at a time ({line()})",
        "log",
    ),
    Mistake(61, "a function that returns nothing", "return None", "done", "run"),
    Mistake(
        62,
        "a function that returns a dict",
        "return {}",
        "the function returned a dict; return a ConvergeResult, findings, outputs, or nothing",
        "log",
    ),
    Mistake(
        62,
        "a function that returns a text",
        "return 'full'",
        "the function returned a str; return a ConvergeResult, findings, outputs, or nothing",
        "log",
    ),
    Mistake(
        62,
        "a function that returns a list with nothing in it",
        "return [None]",
        "the function returned a list with a NoneType; return a ConvergeResult, findings, outputs,"
        " or nothing",
        "log",
    ),
    Mistake(
        62,
        "a text as a finding",
        "return ConvergeResult(findings=['full'])",
        "findings must be made with raise_finding(…), not a str",
        "log",
    ),
    Mistake(
        63,
        "a text as a subject",
        "return raise_finding('k', class_='c', severity='high', subject='web-1')",
        f"subject 'web-1': must be a pair of kind and id, both text ({line()})",
        "log",
    ),
    Mistake(
        64,
        "an output that there is not",
        "return propose_output('hok', {})",
        "found=\"output 'hok'\" instead='one of hook'",
        "start",
    ),
    Mistake(
        64,
        "an output that there is not",
        "return propose_output('hok', {})",
        "not delivered; tried again adapter=hok attempt=0 detail=\"the app has no output 'hok';"
        ' write one of its own, or add it to App(outputs=…)"',
        "log",
    ),
    Mistake(
        65,
        "a finding that is raised by ctx",
        "ctx.raise_finding('k')",
        f"at='{line()}' detail=\"AttributeError: 'FunctionContext' object has no attribute"
        " 'raise_finding'; write await ctx.report(raise_finding(…)), or return raise_finding(…)\"",
        "log",
    ),
    Mistake(
        65,
        "a finding that is raised by ctx",
        "ctx.raise_finding('k')",
        f"mine.py:{FIRST} ctx.raise_finding → await ctx.report(raise_finding(…)), or return"
        " raise_finding(…)",
        "check",
    ),
    Mistake(
        65,
        "a method that ctx has not",
        "ctx.aproval({})",
        f"mine.py:{FIRST} ctx.aproval → did you mean approval?",
        "check",
    ),
    Mistake(
        65,
        "an argument that wait has not",
        "await ctx.wait('r', expires=3)",
        f"at='{line()}' detail=\"TypeError: FunctionContext.wait() got an unexpected keyword"
        " argument 'expires'; did you mean expires_s?\"",
        "log",
    ),
    Mistake(
        65,
        "an argument that wait has not",
        "await ctx.wait('r', expires=3)",
        "ctx.wait(…) → there is no argument 'expires'; did you mean expires_s?",
        "check",
    ),
    Mistake(
        65,
        "an argument that approval has not",
        "await ctx.approval({'x': 1}, approver='ann')",
        f"at='{line()}' detail=\"TypeError: FunctionContext.approval() got an unexpected keyword"
        " argument 'approver'; did you mean approvers?\"",
        "log",
    ),
    Mistake(
        65,
        "a wait for nothing",
        "await ctx.wait()",
        "ctx.wait(…) → missing a required argument: 'ref'",
        "check",
    ),
    Mistake(
        65,
        "an argument too many",
        "await ctx.sleep(1, 2)",
        "ctx.sleep(…) → too many positional arguments",
        "check",
    ),
    Mistake(
        66,
        "a sleep of less than nothing",
        "await ctx.sleep(-1)",
        f"seconds: -1 is not from 0 to 315,360,000 seconds ({line()})",
        "log",
    ),
    Mistake(
        66,
        "a sleep of a text",
        "await ctx.sleep('20s')",
        f"seconds must be a number of seconds, not a str ({line()})",
        "log",
    ),
    Mistake(
        67,
        "handle_result without return",
        strategy(handle_result="pass"),
        "handle_result() returned None; return the state",
        "log",
    ),
    Mistake(
        67,
        "converge that returns a dict",
        strategy(converge="return {}"),
        "converge() returned a dict; it must return a ConvergeResult",
        "log",
    ),
    Mistake(
        67,
        "next_step that returns nothing",
        strategy(next_step="return None"),
        "next_step() returned a NoneType; return converge(), done(), tool_call(…), …",
        "log",
    ),
    Mistake(
        67,
        "a first state that JSON cannot say, which is never stored",
        strategy(init="return {'o': object()}", next_step="return converge()"),
        "state: JSON has no such value at $.o: an instance of object; S.init() returned it",
        "log",
    ),
    Mistake(
        67,
        "a state that JSON cannot say",
        strategy(handle_result="return {'o': object()}"),
        "state: JSON has no such value at $.o: an instance of object; S.handle_result() returned"
        " it",
        "log",
    ),
]

(BLOCKING,) = [each for each in MISTAKES if each.number == 36]


def at(*where: str) -> list[Mistake]:
    """Return those that are told there."""
    return [each for each in MISTAKES if each.where in where and each is not BLOCKING]


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Load an app of a user."""
    return lambda mistake: load(text_of(mistake.done), tmp_path, monkeypatch)


@pytest.mark.parametrize("mistake", at("log"), ids=id_of)
async def test_a_mistake_in_a_strategy_is_a_line_of_the_log(mine, mistake):
    with capture_logs() as logged:
        async with run(mine(mistake), allow=["*"], allow_io=["*"]) as vigil:
            for _ in range(2):  # What is kept from an episode is there in the next one.
                await vigil.fire("a", "e")
                await vigil.run_until_idle()
            await asyncio.sleep(2)  # Virtual: tasks that were left go on.
    warnings = as_lines(each for each in logged if each["log_level"] == "warning")
    assert [each for each in warnings if mistake.said in each], warnings
    assert not [each for each in warnings if "\n" in each]


@pytest.mark.parametrize("mistake", at("run"), ids=id_of)
async def test_what_is_no_mistake_is_done(mine, mistake):
    async with run(mine(mistake)) as vigil:
        await vigil.fire("a", "e")
        await vigil.run_until_idle()
        assert vigil.episode().status == mistake.said


@pytest.mark.parametrize("mistake", at("start"), ids=id_of)
def test_a_node_that_starts_tells_what_will_go_wrong(mine, mistake):
    app_ = mine(mistake)
    with capture_logs() as logged:
        tell_found(app_)
    assert [each for each in as_lines(logged) if mistake.said in each], as_lines(logged)
    assert found_in(app_), "`vigil check` finds it, too"


@pytest.mark.parametrize("mistake", at("check"), ids=id_of)
def test_a_mistake_in_a_function_is_found_before_it_runs(mine, mistake):
    found = found_in(mine(mistake))
    assert [each for each in found if mistake.said in each], found


async def test_code_that_blocks_is_named_while_it_does(mine, monkeypatch):
    mine(BLOCKING)
    told = threading.Event()
    monkeypatch.setattr("mine.time", SimpleNamespace(sleep=told.wait))  # As long as it must.

    def tell(_logger, _method, line):
        if line["event"] == BLOCKED:
            told.set()
        return line

    with capture_logs() as logged:
        structlog.get_config()["processors"].insert(0, tell)
        async with watched_loop(blocked_s=0.05):
            await asyncio.sleep(0)
            await sys.modules["mine"].t.function()
    assert [each for each in as_lines(logged) if BLOCKING.said in each], logged
