"""What it takes to watch a service and to test that: how many lines, and how much time."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterable
from pathlib import Path

from tests.docs.pages import blocks
from tests.testing import health
from tests.testing.health import app
from vigil import Actor, App, event, every
from vigil.testing import run

DOWN = {"http.fetch": ConnectionError("refused"), "ops.restart": "restarted"}

LINES_MAX = 60
LINES_OF_TEST_MAX = 8
LINES_OF_EXAMPLE_MAX = 15
DAY_S_MAX = 0.2
DAYS = 5


async def test_a_service_that_is_down_is_restarted_once_that_is_approved():
    async with run(app, tools=DOWN) as vigil:
        await vigil.publish("service.check", {"service": "shop"})
        await vigil.advance(seconds=30)
        await vigil.approve(by="ann")
        await vigil.run_until_idle()
        assert vigil.finding("service:down:shop").severity == "medium"
        assert "approved by ann" in vigil.deliveries("hook")[0].payload["text"]


def net(lines: Iterable[str]) -> int:
    """Return how many lines are neither empty nor comments."""
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in lines)


def test_the_app_and_its_test_are_short():
    text = Path(health.__file__).read_text().removeprefix(f'"""{health.__doc__}"""')
    assert net(text.splitlines()) <= LINES_MAX
    test = test_a_service_that_is_down_is_restarted_once_that_is_approved
    assert net(inspect.getsource(test).splitlines()) <= LINES_OF_TEST_MAX


def test_the_first_example_of_all_is_a_function_of_a_few_lines():
    example = next(each.text for each in blocks("README.md", "python"))
    assert "async def " in example
    assert "class " not in example.replace("class_=", "")
    assert net(example.splitlines()) <= LINES_OF_EXAMPLE_MAX


async def test_a_service_that_stays_down_gets_worse():
    async with run(app, tools=DOWN) as vigil:
        await vigil.publish("service.check", {"service": "shop"})
        await vigil.advance(seconds=10)
        await vigil.deny(by="bob")
        await vigil.advance(seconds=15)
        assert vigil.finding("service:down:shop").severity == "high"
        assert vigil.calls("ops.restart") == []


async def test_schedules_check_each_service_as_a_subject_of_its_own():
    async with run(app, tools={"http.fetch": 200}) as vigil:
        await vigil.advance(minutes=3)
        assert [each.subject for each in vigil.episodes()] == 3 * ["shop"]


# How much time a day takes.

shop = Actor("shop")


@shop.expectation(on=event("order.placed"))
async def order_is_approved(ctx, trigger):
    await ctx.sleep(3600)
    await ctx.approval({"ship": trigger.payload["order"]}, expires_s=8 * 3600)


@shop.expectation(on=every("2h", payload={"page": "front"}), subject_key="page")
async def page_is_fresh(ctx, trigger):
    await ctx.sleep(60)


async def day() -> float:
    """Return how long a day of ticks, sleeps and an approval that expires takes, in seconds."""
    begun_s = time.process_time()
    async with run(App(actors=[shop])) as vigil:
        await vigil.publish("order.placed", {"order": "o-1"})
        await vigil.advance(hours=24)
        assert len(vigil.episodes(expectation="page_is_fresh", status="done")) == 11
        (order,) = vigil.episodes(expectation="order_is_approved")
        assert [step.error_class for step in order.steps] == ["", "denied"]
    return time.process_time() - begun_s


async def test_a_day_of_ticks_sleeps_and_an_approval_that_expires_takes_a_moment():
    # The quickest: a process that has run many tests may stop to collect what they left.
    assert min([await day() for _ in range(DAYS)]) < DAY_S_MAX
