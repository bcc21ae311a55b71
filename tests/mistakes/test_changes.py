"""Mistakes in a deploy: what an open episode is told of code that takes another way."""

from __future__ import annotations

from textwrap import indent

import pytest
from structlog.testing import capture_logs

from tests.mistakes.mistake import Mistake
from vigil import App
from vigil.testing import run

HEAD = """
from vigil import Actor, App, event, tool

@tool
async def read(host: str) -> str:
    return host

@tool
async def fetch(host: str, path: str = "/") -> str:
    return host

@tool
async def get(host: str) -> str:
    return host

watcher = Actor("watcher", tools=[read, fetch, get])

@watcher.expectation(on=event("host.seen"), replay="strict")
async def check(ctx, trigger):
"""

BEFORE = """
await ctx.gather(ctx.call(read, host="web-3"), ctx.call(fetch, host="web-3"))
await ctx.sleep(20)
await ctx.call(read, host="web-3")
"""

LINE = HEAD.count("\n") + 2
REMEDY = (
    'if the code has changed, keep the old code for open episodes under `if not ctx.changed("…")`'
)

CHANGED = [
    Mistake(
        98,
        "an argument of a call is added",
        BEFORE.replace('(fetch, host="web-3"', '(fetch, host="web-3", path="health"'),
        'call 1.2.1 was tool_call fetch.call {"host":"web-3"}; the replay asks for tool_call'
        f' fetch.call {{"host":"web-3","path":"health"}} at watch.py:{LINE}, in check; {REMEDY}',
        "log",
    ),
    Mistake(
        99,
        "a tool is renamed",
        BEFORE.replace("(fetch,", "(get,"),
        "call 1.2.1 was tool_call fetch.call; the replay asks for tool_call get.call at"
        f" watch.py:{LINE}, in check; {REMEDY}",
        "log",
    ),
    Mistake(
        99,
        "a sleep is removed",
        BEFORE.replace("await ctx.sleep(20)\n", ""),
        "call 2 was sleep of 20 s; the replay asks for tool_call read.call at"
        f" watch.py:{LINE + 1}, in check; {REMEDY}",
        "log",
    ),
    Mistake(
        99,
        "the branches of a gather are swapped",
        BEFORE.replace(
            'ctx.call(read, host="web-3"), ctx.call(fetch, host="web-3")',
            'ctx.call(fetch, host="web-3"), ctx.call(read, host="web-3")',
        ),
        "call 1.1.1 was tool_call read.call; the replay asks for tool_call fetch.call at"
        f" watch.py:{LINE}, in check; {REMEDY}",
        "log",
    ),
    Mistake(
        100,
        "the time is asked for above a gather",
        f"\nctx.now(){BEFORE}",
        "call 1.1.1 was tool_call read.call; the replay asks as call 1 for observation at"
        f" watch.py:{LINE}, in check; {REMEDY}",
        "log",
    ),
    Mistake(
        101,
        "a sleep has another length",
        BEFORE.replace("20", "15"),
        "call 2 was sleep of 20 s; the replay asks for sleep of 15 s at"
        f" watch.py:{LINE + 1}, in check; {REMEDY}",
        "log",
    ),
]

RENAMED = Mistake(
    102,
    "an expectation is renamed",
    BEFORE,
    "the actor here has no expectation 'check'",
    "log",
)

MISTAKES = [*CHANGED, RENAMED]


def app_of(body: str, *, name: str = "check") -> App:
    """Return the app whose function has this body, as if it was in `watch.py`."""
    text = HEAD.replace("check", name) + indent(body, "    ") + "\napp = App(actors=[watcher])\n"
    names: dict[str, object] = {"__name__": "watch"}
    exec(compile(text, "watch.py", "exec"), names)  # noqa: S102 - as a user writes it
    app = names["app"]
    assert isinstance(app, App)
    return app


async def deployed(app: App) -> tuple[list[dict], list[str]]:
    """Return what is logged when `app` goes on with an episode that sleeps, and its steps."""
    async with run(app_of(BEFORE), allow=["*"]) as vigil:
        await vigil.publish("host.seen")
        await vigil.run_until_idle()
        with capture_logs() as logged:
            await vigil.deploy(app)
            await vigil.advance(minutes=1)
        return logged, [step.name for step in vigil.episode().steps]


@pytest.mark.parametrize("mistake", CHANGED, ids=lambda each: each.made)
async def test_an_open_episode_waits_and_the_first_line_that_differs_is_told(mistake):
    logged, steps = await deployed(app_of(mistake.done))
    (told,) = [each["how"] for each in logged if "episode parked" in each["event"]]
    assert told.startswith(mistake.said)
    assert steps == ["read.call", "fetch.call", "wait"]


async def test_an_open_episode_waits_for_its_expectation():
    logged, _ = await deployed(app_of(RENAMED.done, name="check_host"))
    told = {each["why"] for each in logged if each["event"] == "command handed back"}
    assert told == {RENAMED.said}
