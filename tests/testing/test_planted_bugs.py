"""Bugs that a function can have in a replay, each planted in a small app, and what finds it.

The guide of the kit has the same table. What is found is told with the line and what to write.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import time as clock
from typing import Any

import pytest

from engine.app.strategy import Function
from engine.functions.source import unreplayable_in
from tests.docs.pages import ROOT
from tests.engine.stage import HAPPENED
from vigil import Actor, App, CallFailed, event, raise_finding, tool
from vigil.testing import OutsideCall, check_tool, crash_everywhere, run

NAMES = [f"host-{number}" for number in range(8)]
"""So many that a set of them hardly has the same order in two processes."""

SOON = 1_893_456_000 + 1_800
"""Half an hour after the time at which a test begins."""

LINE = r"test_planted_bugs\.py:\d+"


@tool
async def look(given: Any = None) -> dict[str, Any]:
    return {"n": 1}


@tool
async def fail() -> None:
    raise ConnectionError("busy")


@tool
async def hang() -> None:
    await asyncio.Event().wait()


class Ledger:
    """A client that a module keeps, and what a module knows from before."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seen: dict[str, Any] = {}
        self.paid: list[str] = []

    def note(self, what: str) -> None:
        with self.path.open("a") as file:
            file.write(what)

    def tell(self) -> None:
        socket.create_connection(("127.0.0.1", 9))


LEDGER = Ledger(Path("/nowhere/ledger"))


@tool(side_effect=True, idempotent=True)
async def pay_anew(*, ctx) -> str:
    LEDGER.paid.append(ctx.idempotency_key)
    return f"receipt {len(LEDGER.paid)}"


@tool(side_effect=True, idempotent=True)
async def pay_again(*, ctx) -> str:
    LEDGER.paid.append(ctx.idempotency_key)
    return "paid"


async def writes_a_file(ctx, trigger):
    LEDGER.note("done")


async def opens_a_socket(ctx, trigger):
    with suppress(OSError, AssertionError):
        LEDGER.tell()


async def starts_a_process(ctx, trigger):
    await asyncio.create_subprocess_exec("true")


async def counts_in_a_global(ctx, trigger):
    LEDGER.seen["count"] = LEDGER.seen.get("count", 0) + 1
    await ctx.call(look, given=LEDGER.seen["count"])


async def decides_by_the_time(ctx, trigger):
    await ctx.call(look, given=time.time() < SOON)


async def decides_by_an_imported_clock(ctx, trigger):
    if clock() < SOON:
        await ctx.call(look)


async def follows_a_set(ctx, trigger):
    for name in tuple({*NAMES}):
        await ctx.call(look, given=name)


async def asks_for_a_hash(ctx, trigger):
    await ctx.call(look, given=hash("web-1"))


async def asks_for_its_pid(ctx, trigger):
    await ctx.call(look, given=os.getpid())


async def asks_its_environment(ctx, trigger):
    await ctx.call(look, given=os.environ.get("PATH"))


async def changes_a_kept_result(ctx, trigger):
    kept = LEDGER.seen.setdefault("result", await ctx.call(look))
    kept["n"] += 1
    await ctx.call(look, given=kept["n"])


async def retries_for_ever(ctx, trigger):
    number = 0
    while True:
        number += 1
        try:
            await ctx.call(fail)
        except CallFailed:
            await ctx.call(look, given=number)


async def waits_for_ever(ctx, trigger):
    await ctx.call(look)
    await ctx.call(hang)


async def pays_anew(ctx, trigger):
    await ctx.call(pay_anew)


async def calls_by_chance(ctx, trigger):
    await ctx.call(look, given=random.random())


async def finds_by_the_time(ctx, trigger):
    await ctx.call(look)
    return raise_finding(f"seen:{time.time()}", class_="seen", severity="low")


async def locks(ctx, trigger):
    lock = asyncio.Lock()

    async def part(number):
        async with lock:
            await ctx.call(look, given=number)
            await ctx.call(look, given=number)

    await ctx.gather(part(1), part(2), part(3))


async def swallows(ctx, trigger):
    try:
        await ctx.call(look)
    except BaseException:  # noqa: BLE001 - as users write
        ctx.log("never mind")


async def makes_a_task(ctx, trigger):
    task = asyncio.create_task(asyncio.sleep(0))
    await ctx.call(look)
    task.cancel()


async def forgets_to_await(ctx, trigger):
    ctx.call(look)


TOOLS = [look, fail, hang, pay_anew, pay_again]


def anew(function: Callable[..., Any]):
    LEDGER.paid.clear()
    actor = Actor("worker", tools=TOOLS)
    actor.expect("thing", function, on=event(HAPPENED))
    return run(App(actors=[actor]), allow=["*"])


async def happens(vigil):
    await vigil.publish(HAPPENED)
    await vigil.run_until_idle()


async def by_run(function):
    async with anew(function) as vigil:
        await happens(vigil)


async def by_crash_everywhere(function):
    await crash_everywhere(lambda: anew(function), happens)


async def by_check_replay(function):
    async with anew(function) as vigil:
        await happens(vigil)
        await vigil.check_replay()


async def by_vigil_check(function):
    found = [
        f"{each.place}: {each.found}: {each.instead}"
        for each in unreplayable_in(Function(function))
    ]
    assert not found, "\n".join(found)


@dataclass(frozen=True)
class Planted:
    """A bug, what finds it, and what that says."""

    bug: str
    """As the guide calls it."""
    function: Callable[..., Any]
    by: Callable[..., Any]
    says: str

    def __str__(self) -> str:
        return f"{self.function.__name__} {self.by.__name__}"


SIDE_EFFECT = "a side effect outside a tool"
IN_A_TOOL = r"itself, .*; put it in a tool, await ctx\.call"
NOT_THE_SAME = r"not the same each time, even without a crash: a replay differs"
NOTHING_CHANGED = "nothing was changed here"
ELSEWHERE = "in another process, with another hash seed"

PLANTED = [
    Planted(SIDE_EFFECT, writes_a_file, by_run, rf"{LINE}, in note: opens the file .*{IN_A_TOOL}"),
    Planted(SIDE_EFFECT, writes_a_file, by_crash_everywhere, rf"{LINE}, in note: .*{IN_A_TOOL}"),
    Planted(SIDE_EFFECT, opens_a_socket, by_run,
            rf"{LINE}, in tell: opens the socket .*{IN_A_TOOL}"),
    Planted(SIDE_EFFECT, starts_a_process, by_run,
            rf"{LINE}, in starts_a_process: opens the process true {IN_A_TOOL}"),
    Planted("state in a global of a module", counts_in_a_global, by_crash_everywhere,
            rf'{NOT_THE_SAME}.*{{"given":1}}; .* {{"given":2}} at {LINE}.*such as a global'),
    Planted("a decision by `time.time()`", decides_by_the_time, by_crash_everywhere,
            rf"{NOT_THE_SAME}.*{LINE}.*names {LINE}: time\.time\(\), write ctx\.now\(\)"),
    Planted("a decision by `time.time()`", decides_by_an_imported_clock, by_check_replay,
            rf"hours later: .*`vigil check` names {LINE}: time\.time\(\), write ctx\.now\(\)"),
    Planted("a decision by `time.time()`", decides_by_the_time, by_vigil_check,
            rf"{LINE}: time\.time\(\): ctx\.now\(\)"),
    Planted("the order of a set", follows_a_set, by_check_replay,
            rf"{ELSEWHERE}.*at {LINE}.*{NOTHING_CHANGED}.*order of a set"),
    Planted("`hash()`, `os.getpid()`, `os.environ`", asks_for_a_hash, by_check_replay,
            rf"{ELSEWHERE}.*names {LINE}: builtins\.hash\(\), write hashlib"),
    Planted("`hash()`, `os.getpid()`, `os.environ`", asks_for_its_pid, by_check_replay,
            rf"{ELSEWHERE}.*names {LINE}: os\.getpid\(\), write await ctx\.call"),
    Planted("`hash()`, `os.getpid()`, `os.environ`", asks_its_environment, by_check_replay,
            rf"{ELSEWHERE}.*names {LINE}: os\.environ, write a constant"),
    Planted("a result that is changed and kept", changes_a_kept_result, by_crash_everywhere,
            rf'{NOT_THE_SAME}.*{{"given":2}}; .* {{"given":3}} at {LINE}.*such as a global'),
    Planted("a retry without a limit", retries_for_ever, by_crash_everywhere,
            rf"without a crash, .* budget_exceeded: turns.*at {LINE}.*bound what it repeats"),
    Planted("a tool without a time limit", waits_for_ever, by_crash_everywhere,
            rf"budget_exceeded: wall_s.*it was at {LINE}, in waits_for_ever; .*timeout_s"),
    Planted("`idempotent=True` that is not true", pays_anew, by_crash_everywhere,
            rf"pay_anew\.call \({LINE}\) is idempotent=True; it returned .*pass the key on"),
    Planted("random values", calls_by_chance, by_crash_everywhere,
            rf"{NOT_THE_SAME}.*at {LINE}.*random\(\), write ctx\.random\(\)"),
    Planted("a finding's key by the time", finds_by_the_time, by_crash_everywhere,
            rf"died at moment .*findings, instead: seen:.*{LINE}: time\.time\(\), write ctx\.now"),
    Planted("a lock between branches", locks, by_check_replay,
            rf"does not end, after 120 s of its time: {LINE}, in part waits for .*calls of ctx"),
    Planted("a lock between branches", locks, by_crash_everywhere,
            rf"{NOT_THE_SAME}.*the replay does not end, .*{LINE}, in part waits"),
    Planted("`except BaseException` without `raise`", swallows, by_vigil_check,
            rf"{LINE}: except BaseException: `Exception`, or raise"),
    Planted("a task of one's own", makes_a_task, by_vigil_check,
            rf"{LINE}: asyncio\.create_task\(\)"),
    Planted("a forgotten `await`", forgets_to_await, by_crash_everywhere,
            rf"invalid_action: .*write await ctx\.call\(…\) \({LINE}"),
    Planted("a forgotten `await`", forgets_to_await, by_vigil_check,
            rf"{LINE}: ctx\.call\(…\) without `await`: await ctx\.call"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def ledger(tmp_path):
    LEDGER.__init__(tmp_path / "ledger")
    return LEDGER


@pytest.mark.parametrize("planted", PLANTED, ids=str)
async def test_a_planted_bug_is_found_with_its_line_and_what_to_write(planted):
    with pytest.raises(AssertionError, match=f"(?s){planted.says}"):
        await planted.by(planted.function)


async def test_an_effect_of_a_second_call_under_the_same_key_is_found(ledger):
    with pytest.raises(AssertionError, match=rf"pass the key on, .* \({LINE}\)"):
        await check_tool(pay_again, {}, effects=lambda: ledger.paid)


async def test_what_is_refused_has_not_happened(ledger):
    with pytest.raises(OutsideCall):
        await by_run(writes_a_file)
    assert not ledger.path.exists()


def test_the_guide_has_all_of_them():
    guide = (ROOT / "docs/guides/testing.md").read_text()
    rows = [line for line in guide.splitlines() if line.startswith("| ")]
    for planted in PLANTED:
        row = next((each for each in rows if each.startswith(f"| {planted.bug} |")), "")
        finder = planted.by.__name__.removeprefix("by_").replace("vigil_check", "vigil check")
        assert f"`{finder}`" in row, planted.bug
