"""Mistakes in tests of one's own: what is missing in the test kit's answer, or in the test."""

from __future__ import annotations

import random
from textwrap import indent

import pytest

from engine.errors import EngineError
from tests.mistakes.mistake import Mistake
from tests.testing.test_plugin import outcome_of
from vigil import Actor, App, event, tool
from vigil.testing import run


@tool
async def add(x: int) -> int:
    return x


desk = Actor("desk", tools=[add])


@desk.expectation(on=event("order.placed"))
async def count(ctx, trigger):
    await ctx.call(add, x=1)


@desk.expectation(on=event("dice.rolled"))
async def roll(ctx, trigger):
    await ctx.call(add, x=random.randint(1, 10**9))


@desk.expectation(on=event("order.large"))
async def ask(ctx, trigger):
    await ctx.approval({"x": 1}, approvers=("ann",))


app = App(actors=[desk])

WRITTEN = [
    Mistake(
        105,
        "a tool is called that the test has no answer for",
        "async with run(app) as vigil:\n"
        "    await vigil.publish('order.placed')\n"
        "    await vigil.run_until_idle()",
        "the app called 'add.call': the test has no answer; run(app, tools={'add.call': …})",
        "test",
    ),
    Mistake(
        105,
        "a stub is for a tool that the app does not have",
        "async with run(app, tools={'ad.call': 1}): pass",
        "tools: the app has no tool 'ad.call'; it has add",
        "test",
    ),
    Mistake(
        106,
        "an approval, and nothing waits",
        "async with run(app) as vigil:\n    await vigil.approve()",
        "no approval that waits; there is none at all",
        "test",
    ),
    Mistake(
        106,
        "an approval by somebody who may not decide",
        "async with run(app) as vigil:\n"
        "    await vigil.publish('order.large')\n"
        "    await vigil.run_until_idle()\n"
        "    await vigil.approve(by='zoe')",
        "'zoe' is none of those who may decide: ann",
        "test",
    ),
    Mistake(
        107,
        "a function that decides by chance",
        "async with run(app, allow=['add.*']) as vigil:\n"
        "    await vigil.publish('dice.rolled')\n"
        "    await vigil.run_until_idle()\n"
        "    await vigil.check_replay()",
        "nothing was changed here, so the function is not the same each time; `vigil check` names",
        "test",
    ),
    Mistake(
        108,
        "the event has another name than the one that fires",
        "async with run(app) as vigil:\n"
        "    await vigil.publish('order.place')\n"
        "    await vigil.run_until_idle()\n"
        "    vigil.episode()",
        "no episode; nobody listens to 'order.place'; did you mean order.placed",
        "test",
    ),
    Mistake(
        108,
        "run_until_idle is forgotten",
        "async with run(app) as vigil:\n"
        "    await vigil.publish('order.placed')\n"
        "    vigil.finding('x')",
        "the app has not done all it has to: call `await run_until_idle()` first",
        "test",
    ),
    Mistake(
        108,
        "an expectation that there is not is fired",
        "async with run(app) as vigil:\n"
        "    await vigil.fire('desk', 'cuont')\n"
        "    await vigil.run_until_idle()\n"
        "    vigil.episode()",
        "no episode; actor 'desk' has no expectation 'cuont'; did you mean count; there is none",
        "test",
    ),
    Mistake(
        108,
        "an actor that there is not is fired",
        "async with run(app) as vigil:\n"
        "    await vigil.fire('dsek', 'count')\n"
        "    await vigil.run_until_idle()\n"
        "    vigil.episode()",
        "no episode; the app has no actor 'dsek'; did you mean desk; there is none",
        "test",
    ),
    Mistake(
        109,
        "`with` in the place of `async with`",
        "with run(app): pass",
        "write `async with run(app) as vigil:`, in an `async def` test",
        "test",
    ),
    Mistake(
        109,
        "`await` in the place of `async with`",
        "await run(app)",
        "write `async with run(app) as vigil:`, in an `async def` test",
        "test",
    ),
]

UNMARKED = Mistake(
    109,
    "the mark is forgotten",
    "from vigil.testing import run\n\nasync def test_it(): ...",
    "test_it: an async test without the mark: write `pytestmark = pytest.mark.vigil` at the top of"
    " the file",
    "test",
)


RUNS_ALL = """
import asyncio

def pytest_pyfunc_call(pyfuncitem):
    asyncio.run(pyfuncitem.obj())
    return True
"""

MISTAKES = [*WRITTEN, UNMARKED]


def written(mistake: Mistake):
    """Return the body of a test as a function."""
    names: dict[str, object] = {}
    exec(f"async def test():\n{indent(mistake.done, '    ')}", {"run": run, "app": app}, names)  # noqa: S102 - as it is written
    return names["test"]


@pytest.mark.parametrize("mistake", WRITTEN, ids=lambda each: each.made)
async def test_a_wrong_test_is_told_what_to_write(mistake):
    with pytest.raises((AssertionError, EngineError, TypeError, ValueError)) as caught:
        await written(mistake)()
    assert mistake.said in str(caught.value)


async def test_a_test_that_looks_for_too_much_is_told_of_no_mistake():
    async with run(app, allow=["add.*"]) as vigil:
        await vigil.publish("order.placed")
        await vigil.run_until_idle()
        with pytest.raises(
            AssertionError, match="no finding 'x' of status 'active'; there is none"
        ):
            vigil.finding("x")
    with pytest.raises(AssertionError, match="no finding 'x' of status 'active'; there is none"):
        vigil.finding("x")


def test_a_forgotten_mark_is_told(tmp_path):
    assert UNMARKED.said in outcome_of(tmp_path, UNMARKED.done)


def test_an_async_test_of_another_plugin_is_not_told_to_have_a_mark(tmp_path):
    (tmp_path / "conftest.py").write_text(RUNS_ALL)
    said = outcome_of(tmp_path, UNMARKED.done.replace("...", "assert False"))
    assert "1 failed" in said
    assert UNMARKED.said not in said
