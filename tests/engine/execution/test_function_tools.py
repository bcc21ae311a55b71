"""Steps that call functions: what they leave on the journal, and where they run."""

from __future__ import annotations

import asyncio
import threading

import pytest

from engine.app.actions import tool_call
from engine.app.actor import Actor
from engine.app.app import App
from engine.app.function_tool import tool
from engine.app.tools import Announcement, CallContext, Tool, ToolFailed, publish
from engine.app.triggers import event
from streams.json import raw
from streams.model.events import StepAnnounced, StepRecorded
from tests.engine.stage import (
    HAPPENED,
    Scripted,
    app_of,
    lived,
    open_episode,
    play,
    ports_in_memory,
    running,
)


@tool
async def measure(mount: str) -> dict[str, object]:
    return {"mount": mount, "thread": threading.current_thread() is threading.main_thread()}


async def test_an_async_function_is_called_on_the_event_loop():
    life = await play(Scripted(tool_call(measure, mount="/")), tools=[measure])

    (step,) = life.of(StepRecorded)
    assert (step.tool_name, step.args) == ("measure.call", raw({"mount": "/"}))
    assert life.seen == [{"mount": "/", "thread": True}]


async def test_a_function_that_is_not_async_may_block_while_the_node_goes_on():
    loop, let_go = asyncio.get_running_loop(), threading.Event()

    @tool
    def wait_for(mount: str) -> str:
        # Only the event loop lets it go: so it must run meanwhile.
        loop.call_soon_threadsafe(let_go.set)
        assert let_go.wait(timeout=30)
        return mount

    life = await play(Scripted(tool_call(wait_for, mount="/")), tools=[wait_for])

    assert life.seen == ["/"]


@pytest.mark.parametrize(
    ("raised", "error_class"),
    [
        (ToolFailed("quota", "tomorrow"), "quota"),
        (ConnectionError(), "tool_unavailable"),
        (ValueError("boom"), "crash"),
        (SystemExit(3), "crash"),
        (StopIteration(), "crash"),
    ],
)
async def test_what_it_raises_in_its_thread_is_the_result(raised, error_class):
    @tool
    def read() -> None:
        raise raised

    life = await play(Scripted(tool_call(read)), tools=[read])

    assert life.seen == [error_class]


async def test_arguments_that_do_not_fit_fail_the_call_before_anything_happens():
    called: list[str] = []

    @tool(side_effect=True)
    async def page(who: str) -> None:
        called.append(who)

    life = await play(Scripted(tool_call(page, who=7)), tools=[page])

    (step,) = life.of(StepRecorded)
    assert step.error_class == "invalid_arguments"
    assert step.error_detail == "page(): Expected `str`, got `int` - at `$.who`"
    assert (called, life.of(StepAnnounced)) == ([], [])


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_side_effect_of_a_function_is_announced_under_its_name(is_async):
    keys: list[str] = []

    async def page_async(who: str, *, ctx: CallContext) -> None:
        keys.append(ctx.idempotency_key)

    def page(who: str, *, ctx: CallContext) -> None:
        keys.append(ctx.idempotency_key)

    paging = tool(side_effect=True, capability="pager")(page_async if is_async else page)
    life = await play(Scripted(tool_call(paging, who="ann")), tools=[paging])

    (announced,) = life.of(StepAnnounced)
    assert announced.tool_name == f"pager.{paging.action}"
    assert keys == [announced.idempotency_key]


async def test_an_action_that_no_function_does_is_a_failed_step():
    life = await play(Scripted(tool_call("measure", "weigh")), tools=[measure])

    (step,) = life.of(StepRecorded)
    assert step.error_class == "no_tool_for_capability"
    problem = "no tool is registered as 'measure' for 'weigh'"
    assert step.error_detail == f"{problem}; known: measure"


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_call_that_takes_too_long_fails_and_the_episode_goes_on(is_async):
    let_go = threading.Event()

    async def wait_async() -> None:
        await asyncio.Event().wait()

    def wait() -> None:
        let_go.wait(30)

    waiting = tool(timeout_s=0.01)(wait_async if is_async else wait)
    life = await play(
        Scripted(tool_call(waiting), tool_call(measure, mount="/")), tools=[waiting, measure]
    )
    let_go.set()

    first, second = life.of(StepRecorded)
    assert (first.error_class, first.error_detail) == ("tool_timeout", "no result within 0.01 s")
    assert not second.error_class


async def test_any_tool_may_have_a_time_limit():
    class Slow(Tool):
        timeout_s = 0.01

        async def call(self, action, args, ctx):
            await asyncio.Event().wait()

    life = await play(Scripted(tool_call("slow", "wait")), tools={"slow": Slow()})

    assert life.seen == ["tool_timeout"]


@tool(redact=("password", "key"))
async def log_in(user: str, password: str, more: list[object]) -> object:
    return {"user": user, "keys": [{"key": password, "id": 7}]}


async def test_what_a_function_hides_is_hidden_at_any_depth(ports):
    call = tool_call(log_in, user="ann", password="p4ss", more=[{"key": "p4ss"}])
    life = await play(Scripted(call), ports=ports, tools=[log_in])

    (step,) = life.of(StepRecorded)
    assert step.args == raw({"user": "ann", "password": "***", "more": [{"key": "***"}]})
    assert step.result_shown == raw({"user": "ann", "keys": [{"key": "***", "id": 7}]})
    assert life.seen == [{"user": "ann", "keys": [{"key": "p4ss", "id": 7}]}]


async def test_an_actor_calls_no_more_than_its_capabilities_allow():
    called: list[str] = []

    @tool(side_effect=True)
    async def page(who: str) -> None:
        called.append(who)

    actor = Actor("worker", tools=[measure], capabilities=["measure"])
    actor.expect(
        "thing",
        Scripted(tool_call(page, who="ann"), tool_call(measure, mount="/")),
        on=event(HAPPENED),
    )
    app, ports = App(actors=[actor], tools=[page]), ports_in_memory()
    async with running(app, ports):
        life = await lived(ports, await open_episode(ports, app))

    first, second = life.of(StepRecorded)
    assert first.error_class == "capability_not_allowed"
    assert first.error_detail == "'page' is none of the actor's capabilities: measure"
    assert not second.error_class
    assert (called, life.of(StepAnnounced)) == ([], [])


async def test_an_actor_may_always_publish():
    actor = Actor("worker", capabilities=[])
    told = publish("disk.seen", [Announcement("d1", {})])
    actor.expect("thing", Scripted(told), on=event(HAPPENED))
    app, ports = App(actors=[actor]), ports_in_memory()
    async with running(app, ports):
        life = await lived(ports, await open_episode(ports, app))

    assert life.seen == [{"published": 1}]


class Calls:
    """A function that counts its calls."""

    def __init__(self, **options):
        self.asked: list[str] = []

        async def look(what: str, _token: str = "") -> dict[str, int]:
            self.asked.append(what)
            return {"call": len(self.asked)}

        self.tool = tool(**options)(look)


async def two_nodes(calls: Calls, *actions) -> list[list[object]]:
    """Return what an episode of each of two nodes saw, one after the other."""
    app, ports = app_of(Scripted(*actions), tools=[calls.tool]), ports_in_memory()
    seen = []
    for number in (1, 2):
        async with running(app, ports, f"n{number}"):
            life = await lived(ports, await open_episode(ports, app, id_=f"x{number}"))
        seen.append(life.seen)
    return seen


async def test_a_result_is_kept_for_equal_calls_on_the_node():
    calls = Calls(cache_ttl_s=600)
    same, other = tool_call(calls.tool, what="a"), tool_call(calls.tool, what="b")

    assert await two_nodes(calls, same, other, same) == [
        [{"call": 1}, {"call": 2}, {"call": 1}],
        [{"call": 3}, {"call": 4}, {"call": 3}],
    ]


async def test_a_result_is_kept_for_all_nodes_of_the_stack():
    calls = Calls(cache_ttl_s=600, cache_scope="stack")
    same = tool_call(calls.tool, what="a")

    assert await two_nodes(calls, same, same) == [[{"call": 1}] * 2] * 2


async def test_a_call_with_what_is_stored_nowhere_is_always_made():
    calls = Calls(cache_ttl_s=600)
    secret = tool_call(calls.tool, what="a", _token="t0ken")

    life = await play(Scripted(secret, secret), tools=[calls.tool])

    assert life.seen == [{"call": 1}, {"call": 2}]
