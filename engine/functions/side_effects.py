"""Side effects that one approval may have more than once: behind it, where episodes overlap. Pure.

Only calls whose tool is named in the source are found, in functions and classes alike.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from engine.app.actions import approval, tool_call
from engine.app.actor import Expectation
from engine.app.app import App
from engine.app.function_tool import FunctionTool
from engine.app.strategy import Function
from engine.functions.source import (
    FunctionSource,
    SourceProblem,
    StrategyPlace,
    first_argument,
    functions_of,
    sources_of,
    value_of,
)

REMEDY: Final = (
    'per_episode=True in the request, or overlap="skip" on the expectation, where one episode of a'
    " subject at a time will do"
)


def overlapping(app: App) -> dict[SourceProblem, StrategyPlace]:
    """Return each side effect behind an approval of overlapping episodes → where it is first."""
    found: dict[SourceProblem, StrategyPlace] = {}
    for actor in app.actors.values():
        for expectation in actor.expectations.values():
            for each in overlapping_in(expectation):
                found.setdefault(each, StrategyPlace(actor.id, expectation.name))
    return found


def overlapping_in(expectation: Expectation) -> list[SourceProblem]:
    """Return the side effects behind an approval in `expectation`, if its episodes overlap."""
    is_fired = expectation.hears or bool(expectation.schedules)
    if not is_fired or expectation.overlap != "allow":  # guard: side-effects-without-overlap
        return []
    functions = functions_of(expectation.strategy)
    is_function = isinstance(expectation.strategy, Function) and bool(functions)
    ctx = first_argument(functions[0]) if is_function else ()
    sources = list(sources_of(functions))
    asked = [call for source in sources for call in _calls(source) if _asks(source, call, ctx)]
    # guard: side-effects-meant-for-each
    if not asked or all(_is_per_episode(call) for call in asked):
        return []
    return [
        problem for source in sources for problem in _behind(source, ctx, is_function=is_function)
    ]


def _behind(
    source: FunctionSource, ctx: tuple[str, ...], *, is_function: bool
) -> Iterator[SourceProblem]:
    calls = _calls(source)
    asked = [call.lineno for call in calls if _asks(source, call, ctx)]
    # A class asks in one turn and acts in another, and a function may act in one that it calls.
    first = min(asked, default=0) if is_function else 0
    for call in calls:
        tool = _tool_of(source, call, ctx)
        if tool is not None and tool.side_effect and call.lineno >= first:
            found = f"{tool.capability}.{tool.action} behind an approval of overlapping episodes"
            yield source.problem(call, found=found, instead=REMEDY)


def _calls(source: FunctionSource) -> list[ast.Call]:
    calls = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call)]
    return sorted(calls, key=lambda each: (each.lineno, each.col_offset))


def _asks(source: FunctionSource, call: ast.Call, ctx: tuple[str, ...]) -> bool:
    return _is_of(call, "approval", ctx) or value_of(call.func, source.function) is approval


def _tool_of(
    source: FunctionSource, call: ast.Call, ctx: tuple[str, ...]
) -> FunctionTool[..., object] | None:
    calls_one = _is_of(call, "call", ctx) or value_of(call.func, source.function) is tool_call
    named = value_of(call.args[0], source.function) if calls_one and call.args else None
    return named if isinstance(named, FunctionTool) else None


def _is_per_episode(call: ast.Call) -> bool:
    """Return whether each decision is about one episode, as far as the source says."""
    given = {each.arg: each.value for each in call.keywords if each.arg}
    truths = {name: _truth(value) for name, value in given.items()}
    return truths.get("per_episode", False) is not False or truths.get("shared", True) is not True


def _truth(value: ast.expr) -> bool | None:
    """Return whether a constant is true; None: nobody knows."""
    return bool(value.value) if isinstance(value, ast.Constant) else None


def _is_of(call: ast.Call, method: str, ctx: tuple[str, ...]) -> bool:
    match call.func:
        case ast.Attribute(value=ast.Name(id=owner), attr=attr):
            return owner in ctx and attr == method
        case _:
            return False
