"""Names in the source of a strategy that its app does not have: tools, outputs, severities. Pure.

Only names that are literals are found: `ctx.call("disk.largest")`, `propose_output("mail", …)`,
`severity="high"`. A computed name that does not exist fails when it is used.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping
from inspect import isfunction
from types import FunctionType
from typing import Final, NamedTuple

import msgspec

from engine.app.actions import tool_call
from engine.app.actor import Actor
from engine.app.app import App
from engine.app.findings import raise_finding, update_finding
from engine.app.function_tool import CALL, FunctionTool, ToolGroup
from engine.app.outputs import output, propose_output
from engine.app.strategy import Function
from engine.app.tools import OF_THE_ENGINE, Tool
from engine.functions.source import called_in, first_argument, place_of, tree_of, value_of
from streams.model.findings import Severity

FUNCTIONS_MAX: Final = 1_000
"""Most functions that are checked for one strategy."""

SEVERITIES: Final = tuple(each.value for each in Severity)

_OURS: Final = __name__.partition(".")[0]
"""The package of the engine's own strategies."""

_RAISING: Final[frozenset[Callable[..., object]]] = frozenset({raise_finding, update_finding})

_PROPOSING: Final[frozenset[Callable[..., object]]] = frozenset({output, propose_output})


class UnknownName(msgspec.Struct, frozen=True, kw_only=True):
    """A name that does not exist."""

    place: str
    """`checks.py:12`."""
    found: str
    """`severity 'hgh'`."""
    instead: str
    """The names that exist."""


class Place(NamedTuple):
    """An expectation, or a strategy that definitions may name: then without an actor."""

    actor_id: str
    name: str


def unknown_names(app: App) -> dict[UnknownName, Place]:
    """Return each name in the strategies of `app` that does not exist → where it is first used."""
    any_ = Actor("any")
    strategies = [
        *(
            (actor, Place(actor.id, expectation.name), expectation.strategy)
            for actor in app.actors.values()
            for expectation in actor.expectations.values()
        ),
        *(
            (any_, Place("", name), Function(each) if isfunction(each) else each)
            for name, each in app.strategies.items()
        ),
    ]
    found: dict[UnknownName, Place] = {}
    for actor, place, strategy in strategies:
        for each in unknown_names_in(app, actor, strategy):
            found.setdefault(each, place)
    return found


def unknown_names_in(app: App, actor: Actor, strategy: object) -> list[UnknownName]:
    """Return the names in the source of a strategy that `actor` does not have, in order."""
    found: list[UnknownName] = []
    waiting = list(_functions_of(strategy))
    # The first argument of a method is the strategy itself.
    ctx = first_argument(waiting[0]) if isinstance(strategy, Function) and waiting else ()
    seen = set(waiting)
    while waiting and len(seen) < FUNCTIONS_MAX:
        looked_at = waiting.pop(0)
        tree, first_line = tree_of(looked_at)
        if tree is None:
            continue
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        for call in sorted(calls, key=lambda each: (each.lineno, each.col_offset)):
            place = place_of(call, looked_at, first_line)
            found += _unknown(app, actor, call, looked_at, place, ctx=ctx)
        new = [each for each in called_in(tree, looked_at) if each not in seen]
        seen.update(new)
        waiting += new
    return list(dict.fromkeys(found))


def _functions_of(strategy: object) -> Iterator[FunctionType]:
    """Yield the user's functions that a strategy is made of."""
    if isinstance(strategy, Function):
        run = inspect.unwrap(strategy.run)
        yield from [run] if isinstance(run, FunctionType) else []
        return
    for kind in type(strategy).__mro__:
        if kind.__module__.partition(".")[0] == _OURS:
            return
        yield from (each for each in vars(kind).values() if isinstance(each, FunctionType))


def _unknown(
    app: App,
    actor: Actor,
    call: ast.Call,
    function: FunctionType,
    place: str,
    *,
    ctx: tuple[str, ...],
) -> Iterator[UnknownName]:
    called = value_of(call.func, function)
    method = _method(call.func, ctx)
    if called in _RAISING:
        severity = _text(_keyword(call, "severity"))
        if severity is not None and severity not in SEVERITIES:
            yield _told(place, "severity", severity, SEVERITIES)
    elif called in _PROPOSING or method == "output":
        adapter = _text(call.args[0] if call.args else _keyword(call, "adapter"))
        if adapter is not None and adapter not in app.outputs:
            yield _told(place, "output", adapter, sorted(app.outputs))
    elif method == "call" or called is tool_call:
        yield from _unknown_tool(app, actor, call, function, place, is_split=called is tool_call)


def _unknown_tool(
    app: App,
    actor: Actor,
    call: ast.Call,
    function: FunctionType,
    place: str,
    *,
    is_split: bool,
) -> Iterator[UnknownName]:
    given = call.args[0] if call.args else None
    named = value_of(given, function) if given is not None else None
    text = _text(given)
    if isinstance(named, FunctionTool):
        capability, action = named.capability, named.action
    elif text is None:
        return
    elif is_split:
        second = _text(call.args[1]) if len(call.args) > 1 else None
        if second is None:
            return
        capability, action = text, second
    else:
        capability, _, action = text.partition(".")
    if capability in OF_THE_ENGINE:
        return
    if not actor.may_call(capability) or app.tool(actor, capability, action or CALL) is None:
        name = f"{capability}.{action}" if action else capability
        yield _told(place, "tool", name, _tools_of(app, actor))


def _tools_of(app: App, actor: Actor) -> list[str]:
    """Return what `actor` may call; of a tool whose actions are not known, `name.…`."""
    tools: Mapping[str, Tool] = {**app.tools, **actor.tools}
    names = [
        f"{capability}.{action}"
        for capability, each in tools.items()
        if actor.may_call(capability) and capability not in OF_THE_ENGINE
        for action in (each.functions if isinstance(each, ToolGroup) else ["…"])
    ]
    return sorted(names)


def _told(place: str, what: str, name: str, known: object) -> UnknownName:
    names = ", ".join(known) if isinstance(known, list | tuple) else ""
    instead = f"one of {names}" if names else "there is none"
    return UnknownName(place=place, found=f"{what} {name!r}", instead=instead)


def _method(node: ast.expr, ctx: tuple[str, ...]) -> str:
    """Return the method of `ctx` that a function calls; empty: it calls something else."""
    match node:
        case ast.Attribute(value=ast.Name(id=owner), attr=attr):
            return attr if owner in ctx else ""
        case _:
            return ""


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((each.value for each in call.keywords if each.arg == name), None)


def _text(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
