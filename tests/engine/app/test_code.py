"""The digest of the code that an expectation runs."""

from __future__ import annotations

import os
import subprocess
import sys

from engine.app.strategy import Function, Strategy, code_of
from engine.app.tools import Tool
from tests.docs.pages import ROOT
from tests.engine.functions.stage import app_of
from vigil import tool

LIMIT = 5


async def watch(ctx, trigger):
    return helper(LIMIT)


def helper(limit):
    return limit in {"a", "b", "c", "d", "e"}


@tool(capability="disk")
async def read(at: int) -> int:
    return at


@tool(capability="disk")
async def measure(at: int) -> int:
    return at


class Watching(Strategy):
    def next_step(self, state, ctx):
        return helper(LIMIT)


class WatchingElse(Watching):
    def next_step(self, state, ctx):
        return helper(LIMIT + 1)


def made(source, **known):
    """Return the digest of `async def f(ctx, trigger)` in `source`."""
    names = {"__name__": __name__, **known}
    exec(source, names)  # noqa: S102 - the test's own
    return code_of(Function(names["f"]))


F = "async def f(ctx, trigger):\n"


def test_equal_code_has_one_digest_wherever_it_stands():
    assert made(f"{F}    return 1") == made(f"\n\n# A remark.\n{F}\n    return 1")


def test_other_code_has_another_one():
    assert made(f"{F}    return 1") != made(f"{F}    return 2")
    assert made(f"{F}    await ctx.call('a')") != made(f"{F}    await ctx.call('b')")


def test_what_it_calls_is_its_code():
    source = f"def g(): return {{0}}\n{F}    return g()"
    assert made(source.format(1)) == made(source.format(1))
    assert made(source.format(1)) != made(source.format(2))


def test_the_tools_that_it_names_are_its_code():
    source = f"{F}    return await ctx.call(look, at=1)"
    assert made(source, look=read) == made(source, look=read)
    assert made(source, look=read) != made(source, look=measure)


def test_constants_are_its_code_and_what_may_change_meanwhile_is_not():
    assert made(f"{F}    return MOST", MOST=1) != made(f"{F}    return MOST", MOST=2)
    assert made(f"{F}    return seen", seen=1) == made(f"{F}    return seen", seen=2)


def test_a_class_has_the_digest_of_its_methods_and_settings():
    one, other = Watching(), Watching()
    assert code_of(one) == code_of(other)
    other.limit = 3
    assert len({code_of(each) for each in (one, other, WatchingElse())}) == 3


def test_another_process_has_the_same():
    ask = "from tests.engine.app.test_code import *; print(code_of(Function(watch)))"
    ask += "; print(code_of(Watching()))"
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", ask], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [code_of(Function(watch)), code_of(Watching())]


class Disk(Tool):
    async def call(self, action, args, ctx):
        return action


def test_the_digest_is_found_once():
    expectation = app_of(watch, tools={"disk": Disk()}).actors["worker"].expectations["thing"]
    assert expectation.code is expectation.code
