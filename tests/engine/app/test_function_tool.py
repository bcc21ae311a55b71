"""Functions as tools: their names, their arguments, and what cannot be one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Never, NoReturn

import msgspec
import pytest

from engine.app.actions import Retries, ToolCall, tool_call
from engine.app.actor import Actor
from engine.app.app import App
from engine.app.function_tool import FunctionTool, tool
from engine.app.tools import CallContext, ToolBreaker, ToolFailed
from engine.app.triggers import event
from engine.errors import BadTool, DeclarationError
from tests.engine.stage import Scripted

CTX = CallContext(
    actor_id="a", expectation_id="x", episode_id="e", step_no=1, idempotency_key="e:1"
)


class Window(msgspec.Struct):
    """Opening hours."""

    opens: int
    closes: int = 24


@dataclass
class Place:
    city: str


@tool
async def fetch(url: str, tries: int = 3) -> dict[str, object]:
    """Fetch a page,
    as it is now.

    More of this.
    """
    return {"url": url, "tries": tries}


@tool(side_effect=True, idempotent=True, capability="services")
def restart(service: str, *, ctx: CallContext) -> str:
    return f"{service} {ctx.idempotency_key}"


@tool
async def look(windows: list[Window], place: Place, anything, _token: str = "") -> object:
    return windows, place, anything, _token


def test_a_function_is_called_by_its_name():
    assert tool_call(fetch, url="u") == ToolCall("fetch", "call", {"url": "u"})


def test_a_function_with_a_capability_is_one_of_its_actions():
    assert tool_call(restart, service="web") == ToolCall("services", "restart", {"service": "web"})


async def test_called_directly_it_is_the_function():
    assert await fetch("u") == {"url": "u", "tries": 3}
    assert restart("web", ctx=CTX) == "web e:1"


def test_its_options_are_those_of_any_tool():
    assert (fetch.side_effect, fetch.idempotent) == (False, False)
    assert (restart.side_effect, restart.idempotent) == (True, True)


async def test_its_own_defaults_hold_for_what_is_not_given():
    assert await fetch.call("call", {"url": "u"}, CTX) == {"url": "u", "tries": 3}


async def test_the_context_comes_by_its_name():
    assert await restart.call("restart", {"service": "web"}, CTX) == "web e:1"


async def test_the_context_may_come_first():
    @tool
    async def page(ctx: CallContext, who: str) -> str:
        return f"{who} {ctx.idempotency_key}"

    assert page.schema["required"] == ["who"]
    assert await page.call("call", {"who": "ann"}, CTX) == "ann e:1"
    assert await page(CTX, "ann") == "ann e:1"


@pytest.mark.parametrize("says", [Never, NoReturn, Any, object, None])
def test_a_function_may_say_that_it_returns_nothing_or_anything(says):
    def end() -> None: ...

    end.__annotations__["return"] = says

    assert tool(end).returned(None) is None


async def test_arguments_come_as_the_types_of_the_signature():
    given = {"windows": [{"opens": 8}], "place": {"city": "Bern"}, "anything": [1], "_token": "t"}

    found = await look.call("call", given, CTX)

    assert found == ([Window(8)], Place("Bern"), [1], "t")


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({}, "fetch(): Object missing required field `url`"),
        ({"url": 7}, "fetch(): Expected `str`, got `int` - at `$.url`"),
        ({"url": "u", "tries": "3"}, "fetch(): Expected `int`, got `str` - at `$.tries`"),
        ({"url": "u", "hurry": True}, "fetch(): there is no argument 'hurry'; known: url, tries"),
        ({"url": "u", "ctx": {}}, "fetch(): there is no argument 'ctx'; known: url, tries"),
    ],
)
async def test_arguments_that_do_not_fit_are_named_in_one_line(args, problem):
    assert fetch.problem_of(args) == problem
    with pytest.raises(ToolFailed) as failed:
        await fetch.call("call", args, CTX)
    assert (failed.value.error_class, failed.value.detail) == ("invalid_arguments", problem)


def test_a_model_is_told_what_it_does_and_what_it_takes():
    assert fetch.description == "Fetch a page, as it is now."
    assert fetch.schema == {
        "type": "object",
        "properties": {"url": {"type": "string"}, "tries": {"type": "integer"}},
        "required": ["url"],
        "additionalProperties": False,
    }


def test_a_model_is_not_asked_for_what_is_stored_nowhere():
    assert sorted(look.schema["properties"]) == ["anything", "place", "windows"]
    assert sorted(look.schema["$defs"]) == ["Place", "Window"]


async def test_what_is_declared_as_an_object_takes_any_value():
    @tool
    async def keep(values: dict[str, object]) -> object:
        return values

    (values,) = keep.schema["properties"].values()
    assert values["additionalProperties"] == {"description": "any JSON value"}
    assert await keep.call("call", {"values": {"a": [1]}}, CTX) == {"a": [1]}


def declared(function, **options) -> str:
    with pytest.raises(BadTool) as refused:
        tool(**options)(function) if options else tool(function)
    return str(refused.value)


def everything(*args: int) -> None: ...


def named(**kwargs: int) -> None: ...


def placed(url: str, /) -> None: ...


def of_context(url: str, ctx: CallContext) -> None: ...


def of_what(value: Missing) -> None: ...  # type: ignore[name-defined] # noqa: F821 - the point


class Opaque:
    """No JSON value is one."""


def of_opaque(value: Opaque) -> None: ...


def of_opaques(value: list[Opaque]) -> None: ...


def returns_opaque() -> list[Opaque]: ...


def plain(url: str) -> None: ...


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (everything, "parameter args: arguments are given by name; name each of them"),
        (named, "parameter kwargs: arguments are given by name; name each of them"),
        (placed, "parameter url: arguments are given by name; name each of them"),
        (of_context, "parameter ctx: write it first, or after `*`"),
        (of_what, "its annotations: name 'Missing' is not defined"),
        (of_opaque, "parameter value: values of Opaque cannot be checked; use built-in types"),
        (
            of_opaques,
            "values of list[tests.engine.app.test_function_tool.Opaque] cannot be checked",
        ),
        (
            returns_opaque,
            "what it returns: values of list[tests.engine.app.test_function_tool.Opaque]",
        ),
        (lambda url: None, "name: '<lambda>' is no name of a tool"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_named_with_its_place(function, problem):
    said = declared(function)

    assert f"test_function_tool.py:{function.__code__.co_firstlineno}): " in said
    assert problem in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("declared", "side_effect", "risk"),
    [
        ({}, False, "read"),
        ({"side_effect": True}, True, "change"),
        ({"risk": "read"}, False, "read"),
        ({"risk": "change"}, True, "change"),
        ({"risk": "destroy"}, True, "destroy"),
        ({"risk": "destroy", "side_effect": True}, True, "destroy"),
    ],
)
def test_what_a_call_may_do_outside_is_its_risk(declared, side_effect, risk):
    @tool(**declared)
    async def act() -> None: ...

    assert (act.side_effect, act.risk) == (side_effect, risk)


@pytest.mark.parametrize("value", ["yes", 1, None])
@pytest.mark.parametrize("option", ["side_effect", "idempotent"])
def test_what_is_not_true_or_false_is_refused(option, value):
    assert f"{option}: {value!r} is not True or False" in declared(plain, **{option: value})


def test_a_capability_is_a_name():
    assert "capability: 'a.b' is no name of a tool" in declared(plain, capability="a.b")


@pytest.mark.parametrize("seconds", [0, -1, "5", True, 3_601])
def test_a_time_limit_is_a_number_of_seconds_up_to_an_hour(seconds):
    said = declared(plain, timeout_s=seconds)

    assert f"timeout_s: {seconds!r} is not a number over 0, up to 3,600" in said


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"cache_ttl_s": 86_401}, "cache_ttl_s: 86401 is not a number over 0, up to 86,400"),
        ({"cache_scope": "world"}, "cache_scope: 'world' is not one of node, stack"),
        ({"cache_ttl_s": 60, "side_effect": True}, "cache_ttl_s: a side effect is to happen at"),
        ({"cache_ttl_s": 60, "risk": "change"}, "cache_ttl_s: a side effect is to happen at"),
        ({"risk": "write"}, "risk: 'write' is not one of read, change, destroy"),
        ({"risk": ["read"]}, "risk: ['read'] is not one of read, change, destroy"),
        ({"risk": "read", "side_effect": True}, "risk: a side effect is no 'read'; write 'change'"),
        ({"rate_per_s": 0}, "rate_per_s: 0 is not a number over 0, up to 1,000"),
        ({"breaker": 5}, "breaker: 5 is not a ToolBreaker(threshold=…"),
        ({"breaker": ToolBreaker(threshold=0)}, "breaker: threshold: 0 is not a whole number"),
        (
            {"breaker": ToolBreaker(half_open_after_s=0)},
            "breaker: half_open_after_s: 0 is not a number over 0, up to 3,600",
        ),
        ({"retries": 5}, "retries: 5 is not Retries(attempts_max=…)"),
        (
            {"retries": Retries(attempts_max=0)},
            "retries: attempts_max: 0 is not a whole number from 1 to 100",
        ),
        (
            {"retries": Retries(), "side_effect": True},
            "retries: a side effect is repeated only with idempotent=True",
        ),
    ],
)
def test_limits_that_cannot_hold_are_refused(options, problem):
    assert problem in declared(plain, **options)


@pytest.mark.parametrize(
    ("hidden", "problem"),
    [("password", "'password' is not a list of names"), ([7], "7 is no name")],
)
def test_what_is_hidden_is_a_list_of_names(hidden, problem):
    assert f"redact: {problem}" in declared(plain, redact=hidden)


@pytest.mark.parametrize("thing", [len, Opaque, 7, "fetch"])
def test_only_a_function_can_be_one(thing):
    assert "is no function; write @tool above a `def`" in declared(thing)


def test_an_actor_takes_functions_as_a_list():
    actor = Actor("monitor", tools=[fetch, restart])
    app = App()

    assert app.tool(actor, "fetch", "call") is fetch
    assert app.tool(actor, "services", "restart") is restart
    assert app.tool(actor, "services", "stop") is None


def test_functions_of_the_app_serve_what_those_of_the_actor_do_not():
    @tool(capability="services")
    def stop(service: str) -> None: ...

    app = App(tools=[stop])

    assert app.tool(Actor("monitor", tools=[restart]), "services", "stop") is stop


@pytest.mark.parametrize(
    ("tools", "problem"),
    [
        ("fetch", "'fetch' is not a list of functions with @tool, nor a dict"),
        ([len], "<built-in function len> is no function with @tool; such tools need a name"),
        ([fetch, tool(fetch.function)], "two functions are called fetch.call"),
        ({"web": fetch}, "'web': a function with @tool has its own name; write tools=[…]"),
    ],
)
def test_other_lists_are_refused_and_the_message_says_why(tools, problem):
    with pytest.raises(DeclarationError) as refused:
        Actor("monitor", tools=tools)
    assert f"actor 'monitor': tools: {problem}" in str(refused.value)


def test_the_engine_keeps_its_own_names():
    @tool(capability="vigil")
    def publish() -> None: ...

    with pytest.raises(DeclarationError, match="'vigil': the engine has that name"):
        Actor("monitor", tools=[publish])


def test_a_function_twice_in_a_list_is_one_tool():
    assert isinstance(App(tools=[fetch, fetch]).tool(Actor("m"), "fetch", "call"), FunctionTool)


@pytest.mark.parametrize(
    ("capabilities", "problem"),
    [
        ("fetch", "capabilities: 'fetch' is not a list of names"),
        (["fetch", 7], "capabilities: 7 is no name"),
        (["services"], "tools: 'fetch' is none of its capabilities"),
    ],
)
def test_capabilities_that_cannot_hold_are_refused_with_the_actor(capabilities, problem):
    with pytest.raises(DeclarationError) as refused:
        Actor("monitor", tools=[fetch], capabilities=capabilities)
    assert str(refused.value) == f"actor 'monitor': {problem}"


def test_a_capability_that_no_tool_has_is_refused_with_the_app():
    actor = Actor("monitor", tools=[fetch], capabilities=["fetch", "pager"])
    actor.expect("thing", Scripted(), on=event("thing.happened"))

    with pytest.raises(DeclarationError, match="capabilities: no tool is called 'pager'"):
        App(actors=[actor])
