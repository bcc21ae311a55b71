"""What in the source of a function cannot be replayed: clocks, chance, sleeps, tasks, I/O. Pure.

A function runs again from the top, so it must ask `ctx` for everything that may be different then.
The usual ways round are found by name in its source, and in that of the functions of its module
that it calls. What is not found may still be there.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Final

import msgspec

from engine.app.function_tool import FunctionTool
from engine.app.strategy import Function

OTHERWISE: Final = (
    (
        (
            r"time\.(time|monotonic|perf_counter|process_time)(_ns)?|time\.(gmtime|localtime)"
            r"|datetime\.(datetime\.(now|utcnow|today)|date\.today)"
        ),
        "ctx.now()",
    ),
    (r"random\..+|secrets\..+|os\.urandom", "ctx.random()"),
    (r"uuid\.uuid[14]", "ctx.uuid()"),
    (r"(asyncio(\.tasks)?|time|anyio|trio)\.sleep", "await ctx.sleep(…)"),
    (
        (
            r"asyncio(\.\w+)?\.(create_task|ensure_future|gather|wait|wait_for|as_completed|TaskGroup)"
            r"|anyio\.create_task_group"
        ),
        "await ctx.gather(…)",
    ),
    (
        r"asyncio(\.\w+)?\.(Semaphore|BoundedSemaphore|Lock|Event|Condition|Barrier|\w*Queue)",
        "values that branches return: what one waits for in another, a replay waits for in vain",
    ),
    (
        r"asyncio(\.\w+)?\.(timeout|timeout_at)",
        "@tool(timeout_s=…), or Budget(wall_s=…)",
    ),
    (
        r"asyncio(\.threads)?\.to_thread|threading\..+|multiprocessing\..+|concurrent\.futures\..+",
        "await ctx.call(…) of a tool: one that is not async runs in a thread",
    ),
    (
        (
            r"(requests|httpx|aiohttp|urllib|socket|subprocess|sqlite3|psycopg2?|asyncpg|boto3)\b.*"
            r"|os\.(system|popen|getenv|listdir|stat|walk)|(builtins|io)\.(open|input)"
        ),
        "await ctx.call(…) of a tool",
    ),
)
"""What names begin as → what to write for it. Regular expressions of whole names."""

_TABLE: Final = tuple((re.compile(names), instead) for names, instead in OTHERWISE)

AWAITED: Final = frozenset(
    {"call", "gather", "sleep", "wait", "approval", "output", "observe", "synthesize", "checkpoint"}
)
"""Methods of `ctx` that do nothing until they are awaited."""

OF_FINDINGS: Final = frozenset({"get", "recent", "active"})
"""Methods of `ctx.findings` that do nothing until they are awaited."""

FUNCTIONS_MAX: Final = 1_000
"""Most functions that are looked at for one expectation."""


class Unreplayable(msgspec.Struct, frozen=True, kw_only=True):
    """Something in a function's source that a replay does otherwise."""

    place: str
    """`checks.py:12`."""
    found: str
    instead: str


def unreplayable_in(function: Function) -> list[Unreplayable]:
    """Return what in the source of `function` cannot be replayed, in order."""
    run = inspect.unwrap(function.run)
    if not isinstance(run, FunctionType):
        return []
    found: list[Unreplayable] = []
    seen, waiting = {run}, [run]
    while waiting and len(seen) < FUNCTIONS_MAX:
        looked_at = waiting.pop(0)
        tree, first_line = tree_of(looked_at)
        if tree is None:
            continue
        found += _problems(tree, looked_at, first_line)
        for called in called_in(tree, looked_at):
            if called not in seen:
                seen.add(called)
                waiting.append(called)
    return found


def tree_of(function: FunctionType) -> tuple[ast.AST | None, int]:
    """Return the syntax of a function, and the line where it begins; None: its source is away."""
    try:
        lines, first_line = inspect.getsourcelines(function)
        return ast.parse(textwrap.dedent("".join(lines))), first_line
    except (OSError, SyntaxError, TypeError):
        return None, 0


def _problems(tree: ast.AST, function: FunctionType, first_line: int) -> Iterator[Unreplayable]:
    forgotten = _forgotten(tree, first_argument(function))
    for node in ast.walk(tree):
        place = place_of(node, function, first_line)
        if method := forgotten.get(node):
            found = f"{method}(…) without `await`"
            yield Unreplayable(place=place, found=found, instead=f"await {method}(…)")
        if isinstance(node, ast.Call):
            if isinstance(value_of(node.func, function), FunctionTool):
                name = ast.unparse(node.func)
                instead = f"await ctx.call({name}, …)"
                yield Unreplayable(place=place, found=f"{name}(…) called directly", instead=instead)
            names = _names(node.func, function)
            matches = ((names, instead) for pattern, instead in _TABLE if _any(pattern, names))
            for matched, instead in list(matches)[:1]:
                yield Unreplayable(place=place, found=f"{matched[0]}()", instead=instead)


def place_of(node: ast.AST, function: FunctionType, first_line: int) -> str:
    """Return file and line of a node in the source of a function that begins at `first_line`."""
    line = first_line + getattr(node, "lineno", 1) - 1
    return f"{Path(function.__code__.co_filename).name}:{line}"


def first_argument(function: FunctionType) -> tuple[str, ...]:
    """Return the name of a function's first argument, such as `ctx`; nothing: it has none."""
    return function.__code__.co_varnames[: min(1, function.__code__.co_argcount)]


def _any(pattern: re.Pattern[str], names: list[str]) -> bool:
    return any(pattern.fullmatch(name) for name in names)


def _forgotten(tree: ast.AST, ctx: tuple[str, ...]) -> dict[ast.AST, str]:
    """Return where a call of `ctx` is not awaited → its method.

    That is a statement of its own, a test, and a name that is used for nothing but tests.
    """
    tested = list(_tested(tree))
    alone = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    found: dict[ast.AST, str] = {each: _method(each, ctx) for each in [*tested, *alone]}
    tested_names = {each for each in tested if isinstance(each, ast.Name)}
    for name, values in _assigned(tree).items():
        methods = {value: _method(value, ctx) for value in values}
        if not all(methods.values()):
            continue
        loads = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
        ]
        used_in_tests = {each for each in loads if each in tested_names}
        if len(used_in_tests) == len(loads):
            found |= methods
        else:
            found |= dict.fromkeys(used_in_tests, next(iter(methods.values())))
    return {node: method for node, method in found.items() if method}


def _method(value: ast.AST, ctx: tuple[str, ...]) -> str:
    """Return the method of `ctx` that `value` calls, if it must be awaited; else nothing."""
    if isinstance(value, ast.Call):
        match value.func:
            case ast.Attribute(value=ast.Name(id=owner), attr=attr):
                return f"{owner}.{attr}" if owner in ctx and attr in AWAITED else ""
            case ast.Attribute(
                value=ast.Attribute(value=ast.Name(id=owner), attr="findings"), attr=attr
            ):
                return f"{owner}.findings.{attr}" if owner in ctx and attr in OF_FINDINGS else ""
            case _:
                pass
    return ""


def _tested(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield what is asked whether it is true."""
    for node in ast.walk(tree):
        match node:
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                yield from _parts(test)
            case ast.Assert(test=test) | ast.UnaryOp(op=ast.Not(), operand=test):
                yield from _parts(test)
            case ast.comprehension(ifs=tests):
                yield from tests
            case ast.BoolOp(values=[*tests, _]):
                yield from tests
            case _:
                pass


def _parts(test: ast.expr) -> Iterator[ast.expr]:
    """Yield a test, and the last part of it, if it has parts; the others are tests of their own."""
    match test:
        case ast.BoolOp(values=[*_, last]):
            yield from _parts(last)
        case ast.NamedExpr(value=value):
            yield value
        case _:
            yield test


def _assigned(tree: ast.AST) -> dict[str, list[ast.AST]]:
    """Return each name → what is assigned to it, something unknown included."""
    plain: dict[ast.AST, ast.AST] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name() as target], value=value):
                plain[target] = value
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                plain[target] = value
            case ast.NamedExpr(target=target, value=value):
                plain[target] = value
            case _:
                pass
    found: dict[str, list[ast.AST]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.setdefault(node.id, []).append(plain.get(node, node))
    return found


def called_in(tree: ast.AST, function: FunctionType) -> Iterator[FunctionType]:
    """Yield the functions of the same module that `function` calls."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = value_of(node.func, function)
            if isinstance(called, FunctionType) and called.__module__ == function.__module__:
                yield called


def _names(node: ast.expr, function: FunctionType) -> list[str]:
    """Return what a called thing is called: as it is written, and where it comes from."""
    value, names = value_of(node, function), list[str]()
    if isinstance(node, ast.Attribute):
        owner = value_of(node.value, function)
        if isinstance(owner, ModuleType):
            names.append(f"{owner.__name__}.{node.attr}")
        elif isinstance(owner, type):
            names.append(f"{owner.__module__}.{owner.__qualname__}.{node.attr}")
    module = getattr(value, "__module__", None) or type(getattr(value, "__self__", None)).__module__
    name = getattr(value, "__qualname__", None)
    return [*names, f"{module}.{name}"] if name else names


def value_of(node: ast.expr, function: FunctionType) -> object:
    """Return what `node` means in the function's module; None: nothing that is known there."""
    match node:
        case ast.Name(id=name) if name not in function.__code__.co_varnames:
            return function.__globals__.get(name, getattr(builtins, name, None))
        case ast.Attribute(value=inner, attr=attr):
            owner = value_of(inner, function)
            is_static = isinstance(owner, ModuleType | type)
            return inspect.getattr_static(owner, attr, None) if is_static else None
        case _:
            return None
