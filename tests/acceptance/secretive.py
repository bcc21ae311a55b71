"""An app that is full of secrets, and of code that quotes them where it should not.

Each secret is `MARK` and what it is: `<mark>-argument`, and so on. A test looks for them.
"""

from __future__ import annotations

import os
from typing import Final
from urllib.parse import urlsplit

from vigil import (
    Actor,
    App,
    Budget,
    CallFailed,
    ConvergeResult,
    Failure,
    Strategy,
    ToolFailed,
    converge,
    event,
    propose_output,
    raise_finding,
    synthesize,
    tool,
    tool_call,
)
from vigil.adapters import Webhook
from vigil.tools import http_request

MARK: Final = os.environ.get("SECRETIVE_MARK", "no-mark")

RECEIVER: Final = os.environ.get("SECRETIVE_URL", "http://127.0.0.1:1/hook")
"""Answers with what it was asked, as a failure where the path says so."""

FORMS: Final = ("function", "class")

STRATEGIES: Final = ("none", "summary_only", "timeline", "full_debug")


def secret(what: str) -> str:
    """Return a secret that a test can look for."""
    return f"{MARK}-{what}"


@tool(redact=("password", "session"))
async def log_in(user: str, password: str, _token: str) -> dict[str, object]:
    """Return a result with a secret of its own, and with those that it was given."""
    kept = {"password": password, "of": [{"session": secret("result")}]}
    return {"user": user, "told": f"{password} {_token}", "session": secret("result"), "kept": kept}


@tool(redact=("password",), side_effect=True, idempotent=True)
async def refuse(user: str, password: str, _token: str) -> str:
    """Quote what it was given, in the class as well."""
    raise ToolFailed(f"refused_{password}", f"{user}: no entry with {password} and {_token}")


@tool(redact=("password",))
async def crash(user: str, password: str, _token: str) -> str:
    """Crash with what it was given, in the cause as well."""
    try:
        return {}[_token]
    except KeyError as error:
        raise ValueError(f"{user}: {password!r}") from error


@tool(redact=("session",), cache_ttl_s=60, cache_scope="node")
async def look_up(user: str) -> dict[str, str]:
    """Return a secret that the node remembers."""
    return {"user": user, "session": secret("result")}


async def think(prompt: object, transient: object, ctx: object) -> object:
    """Answer, or fail with all that it was asked."""
    if "fail" in str(prompt):
        raise RuntimeError(f"{prompt} {transient}")
    return {"answer": f"as {transient}"}


HOST: Final = urlsplit(RECEIVER).netloc

web = http_request(
    hosts=[HOST],
    networks=["127.0.0.0/8"],
    headers={"Authorization": lambda: f"Bearer {secret('header')}"},
)

GIVEN: Final = {"user": "ann", "password": secret("argument"), "_token": secret("transient")}

PROMPT: Final = {"system": secret("prompt"), "messages": [{"content": secret("prompt")}], "n": 1}

SHOWN: Final = {"system": "as all may see", "messages": [], "n": 1}
"""A prompt of episodes under `full_debug`, which shows it."""


def steps(strategy):
    """Return the steps of an episode."""
    prompt = SHOWN if strategy == "full_debug" else PROMPT
    return (
        *STEPS,
        synthesize(prompt, transient={"key": secret("transient")}),
        synthesize({**prompt, "user": "fail"}, transient={"key": secret("transient")}),
    )


STEPS: Final = (
    tool_call(log_in, **GIVEN),
    tool_call(refuse, **GIVEN),
    tool_call(crash, **GIVEN),
    tool_call(look_up, user="ann"),
    tool_call("nobody", "knows", {"_token": secret("transient")}),
    tool_call(log_in, user="ann", password=7, _token=secret("transient")),
    tool_call(web, url=f"{RECEIVER}/echo", _headers={"X-Key": secret("header")}),
    tool_call(web, url=f"{RECEIVER}/fail", _headers={"X-Key": secret("header")}),
)


class ByClass(Strategy[dict[str, object]]):
    """Takes all steps, then gives up with what it was told."""

    def init(self, episode, trigger):
        """Begin without anything."""
        return {**trigger.payload, "session": ""}

    def next_step(self, state, ctx):
        """Take the next step."""
        planned = steps(state["strategy"])
        if ctx.turn <= len(planned):
            return planned[ctx.turn - 1]
        if state["fails"]:
            raise RuntimeError(f"gave up with {state['session']}")
        return converge()

    def handle_result(self, state, step, result):
        """Keep the secret of the first step."""
        if isinstance(result, Failure) or not isinstance(result, dict):
            return state
        return {**state, "session": result.get("session", state["session"])}

    def converge(self, state, ctx):
        """Tell what is no secret."""
        return told()


async def by_function(ctx, trigger):
    """Take all steps, half of them at the same time, then give up with what it was told."""
    first = await ctx.call(log_in, **GIVEN)
    await ctx.gather(*(attempted(ctx, step) for step in STEPS[1:5]))
    for step in STEPS[5:8]:
        await attempted(ctx, step)
    for step in steps(trigger.payload["strategy"])[8:]:
        try:
            await ctx.synthesize(step.prompt, transient=step.transient)
        except CallFailed:
            ctx.log("no answer")
    await ctx.checkpoint(first)
    if trigger.payload["fails"]:
        raise RuntimeError(f"gave up with {first['session']}")
    return told()


async def attempted(ctx, step):
    """Call what may fail."""
    try:
        return await ctx.call(f"{step.capability}.{step.action}", **step.args)
    except CallFailed as failed:
        return failed.error_class


def told():
    """Return what is known in the end, and have it delivered with more secrets."""
    finding = raise_finding("door:ann", class_="door", severity="low", subject=("user", "ann"))
    output = propose_output("pager", {"user": "ann"})
    return ConvergeResult(summary="ann was let in", findings=[finding], outputs=[output])


doors = Actor("doors", tools=[log_in, refuse, crash, look_up, web])
for strategy in STRATEGIES:
    for form, made in zip(FORMS, (by_function, ByClass), strict=True):
        doors.expect(
            f"{form}_{strategy}",
            made,
            on=event("door.knocked", filter={"form": form, "strategy": strategy}),
            log_strategy=strategy,
            budget=Budget(turns=40),
        )

pager = Webhook(
    f"{RECEIVER}/{secret('url')}/fail",
    headers={"Authorization": lambda: f"Bearer {secret('header')}"},
)
app = App(actors=[doors], outputs={"pager": pager}, synthesizer=think)
