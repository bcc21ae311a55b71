"""Tools that are functions are answered by a test as others are; arguments are checked."""

from __future__ import annotations

import pytest

from tests.engine.stage import HAPPENED, Scripted
from vigil import Actor, App, event, tool, tool_call
from vigil.testing import Unstubbed, crash_everywhere, run


@tool
async def fetch(url: str) -> dict[str, str]:
    return {"real": url}


@tool
def count(number: int) -> int:
    return number


@tool(side_effect=True, idempotent=True)
async def restart(service: str, *, ctx) -> str:
    return f"{service} {bool(ctx.idempotency_key)}"


PLAN = (
    tool_call(fetch, url="u"),
    tool_call(count, number=3),
    tool_call(restart, service="web"),
    tool_call(fetch, url=1),
)


def app() -> App:
    actor = Actor("worker", tools=[fetch, count, restart])
    actor.expect("thing", Scripted(*PLAN), on=event(HAPPENED))
    return App(actors=[actor])


async def happens(vigil):
    await vigil.publish(HAPPENED)
    await vigil.run_until_idle()


async def seen(**given):
    async with run(app(), **given) as vigil:
        await happens(vigil)
        return vigil.episode().classification["seen"]


async def test_a_test_answers_for_functions_whose_arguments_fit():
    tools = {"fetch.*": {"s": 1}, "count.*": lambda args: args["number"] + 1, "restart.call": "ok"}
    assert await seen(tools=tools) == [{"s": 1}, 4, "ok", "invalid_arguments"]


async def test_functions_that_a_test_allows_are_called():
    assert await seen(allow=["*"]) == [{"real": "u"}, 3, "web True", "invalid_arguments"]


async def test_a_function_without_an_answer_fails_the_test():
    with pytest.raises(Unstubbed, match=r"fetch\.call"):
        await seen()


async def test_a_function_is_answered_wherever_the_node_dies():
    assert await crash_everywhere(lambda: run(app(), tools={"*.*": 1}), happens) > 0
