"""What a call is made with stays what it was asked with, and a result that is no JSON fails it."""

from __future__ import annotations

import asyncio
import math

import pytest

from engine.app.function_tool import tool
from engine.app.strategy import ConvergeResult
from engine.errors import CallFailed
from streams.json import unraw
from streams.model.events import EndStatus, EpisodeStarted, StepAnnounced, StepRecorded
from tests.engine.functions.stage import app_of, middle, play, resume


async def test_a_call_is_made_with_what_it_was_asked_with_whatever_another_branch_does_meanwhile():
    seen = []

    @tool(rate_per_s=20)
    async def read(paths: list[str]) -> list[str]:
        seen.append(list(paths))
        return paths

    async def check(ctx, trigger):
        paths = ["/"]

        async def adds():
            paths.append("/var")
            await ctx.observe("added")

        await ctx.gather(ctx.call(read, paths=[]), ctx.call(read, paths=paths), adds())
        return ConvergeResult(summary=f"{paths}")

    life = await play(check, tools=[read])
    recorded = {step.path: unraw(step.args) for step in life.of(StepRecorded) if step.tool_name}

    assert seen == [[], ["/"]]
    assert recorded["1.2.1"] == {"paths": ["/"]}
    past = middle(life)
    for end in range(len(past)):
        again = await resume(app_of(check, tools=[read]), past[:end])
        assert again.end.status is EndStatus.DONE, again.end.error_detail


async def test_what_a_tool_does_to_its_arguments_the_function_does_not_see():
    @tool
    async def take_first(names: list[str]) -> str:
        return names.pop(0)

    async def check(ctx, trigger):
        names = ["ann", "bob"]
        await ctx.call(take_first, names=names)
        await ctx.observe(names)
        return ConvergeResult(summary=f"{names}")

    life = await play(check, tools=[take_first])

    assert life.episode.converged.summary == "['ann', 'bob']"
    resumed = await resume(app_of(check, tools=[take_first]), middle(life)[:1])
    assert resumed.end.status is EndStatus.DONE, resumed.end.error_detail


class Thing:
    """What JSON knows nothing of."""


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (Thing(), "at $: an instance of Thing"),
        ({"rows": [1, {2: "two"}]}, "at $.rows[1]: a key that is no text: 2"),
        ({"load": math.nan}, "at $.load: nan, a number that is not finite"),
        ({"at": [1j]}, "at $.at[0]: an instance of complex"),
    ],
)
@pytest.mark.parametrize("side_effect", [False, True])
async def test_a_result_that_is_no_json_fails_its_call_and_the_function_can_go_on(
    result, told, side_effect
):
    @tool(side_effect=side_effect)
    async def bring():
        return result

    async def check(ctx, trigger):
        try:
            await ctx.call(bring)
        except CallFailed as failed:
            return ConvergeResult(summary=f"{failed}")

    life = await play(check, tools=[bring])

    assert life.episode.converged is not None, life.end.error_detail
    said = life.episode.converged.summary
    assert said.startswith("unencodable: result of bring.call: JSON has no such value")
    assert said.endswith(told)
    assert not life.episode.announced
    assert len(life.of(StepAnnounced)) == side_effect


async def test_a_tool_that_awaits_nothing_is_told_what_it_forgot():
    async def fetch():
        return 1

    @tool
    async def bring():
        return fetch()

    async def check(ctx, trigger):
        await ctx.call(bring)

    life = await play(check, tools=[bring])
    assert life.end.error_class == "unencodable"
    assert "bring.call returned a coroutine" in life.end.error_detail
    assert "write `await` before it" in life.end.error_detail


async def test_an_answer_that_is_no_json_fails_the_synthesis():
    async def answers(prompt, transient, ctx):
        return Thing()

    async def check(ctx, trigger):
        await ctx.synthesize("why?")

    life = await play(check, synthesizer=answers)
    assert life.end.error_class == "unencodable"
    assert "result of the synthesizer" in life.end.error_detail


async def rows(ctx):
    """Yield what two calls bring, and make another one at the end."""
    try:
        yield await ctx.call("disk.read", n=1)
        yield await ctx.call("disk.read", n=2)
    finally:
        await ctx.call("disk.close")


@pytest.mark.parametrize("goes_on", [False, True])
async def test_a_call_at_the_end_of_a_generator_that_was_left_fails_the_episode(goes_on):
    async def check(ctx, trigger):
        async for _ in rows(ctx):
            break
        if goes_on:
            await ctx.observe("more")
        return ConvergeResult(summary="done")

    life = await play(check, tools={"disk": dict.fromkeys(["read", "close"], nothing)})

    assert (life.end.status, life.end.error_class) == (EndStatus.FAILED, "invalid_action")
    assert "contextlib.aclosing" in life.end.error_detail
    assert len(life.of(EpisodeStarted)) == 1


async def test_a_generator_that_was_left_and_calls_nothing_harms_nothing():
    async def numbers():
        yield 1
        yield 2

    async def check(ctx, trigger):
        async for _ in numbers():
            break
        return ConvergeResult(summary="done")

    assert (await play(check)).end.status is EndStatus.DONE


async def nothing(args, ctx):
    return None


async def test_a_call_in_a_task_of_its_own_fails_the_episode_though_nobody_awaits_the_task():
    async def check(ctx, trigger):
        async def beside():
            await ctx.call("disk.read")

        task = asyncio.create_task(beside())
        await ctx.observe(1)
        await asyncio.wait({task})
        task.exception()
        return ConvergeResult(summary="done")

    life = await play(check, tools={"disk": {"read": nothing}})
    assert (life.end.status, life.end.error_class) == (EndStatus.FAILED, "invalid_action")
