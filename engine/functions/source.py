"""What in the source of a function cannot be replayed: clocks, chance, sleeps, tasks, I/O.

A function runs again from the top, so it must ask `ctx` for everything that may be different then.
The usual ways round are found by name in its source, and in that of the functions of its module
that it calls. What is not found may still be there. `names.py` reads sources with this, too.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import inspect
import os
import re
import textwrap
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from inspect import isfunction
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Final, NamedTuple

import msgspec

from engine.app.actor import Actor
from engine.app.app import App
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
            r"|os\.(system|popen|getenv|getpid|listdir|stat|walk)|(builtins|io)\.(open|input)"
            r"|…\.(read_text|read_bytes|write_text|write_bytes|iterdir|rglob)"
        ),
        "await ctx.call(…) of a tool",
    ),
    (r"builtins\.hash", "hashlib: hash() of a text is another one in each process"),
)
"""What names begin as → what to write for it. Regular expressions of whole names."""

_TABLE: Final = tuple((re.compile(names), instead) for names, instead in OTHERWISE)

ENVIRONMENT: Final = "a constant that the module reads as it is imported"

IN_ORDER: Final = "sorted(…): the order of a set is another one in each process"

ONLY_EXCEPTIONS: Final = "`Exception`, or raise again: a function is ended through this, too"

AWAITED: Final = frozenset(
    {
        "call",
        "gather",
        "sleep",
        "wait",
        "approval",
        "output",
        "report",
        "observe",
        "synthesize",
        "checkpoint",
    }
)
"""Methods of `ctx` that do nothing until they are awaited."""

OF_FINDINGS: Final = frozenset({"get", "recent", "active"})
"""Methods of `ctx.findings` that do nothing until they are awaited."""

FUNCTIONS_MAX: Final = 1_000
"""Most functions that are looked at for one strategy."""

_OURS: Final = __name__.partition(".")[0]
"""The package of strategies that users have not written."""


class SourceProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Something in the source of a strategy that goes wrong when it runs, or is replayed."""

    place: str
    """`checks.py:12`."""
    found: str
    """`time.time()`, or `severity 'hgh'`."""
    instead: str
    """What to write, or the names that exist."""


class StrategyPlace(NamedTuple):
    """An expectation, or a strategy that definitions may name: then without an actor."""

    actor_id: str
    name: str


@dataclass(frozen=True)
class FunctionSource:
    """A function with its syntax."""

    function: FunctionType
    tree: ast.AST
    first_line: int

    def problem(self, node: ast.AST, *, found: str, instead: str) -> SourceProblem:
        """Return a problem at the line of `node`."""
        return SourceProblem(place=self.place(node), found=found, instead=instead)

    def place(self, node: ast.AST) -> str:
        """Return where `node` is, such as `checks.py:12`."""
        line = self.first_line + getattr(node, "lineno", 1) - 1
        return f"{Path(self.function.__code__.co_filename).name}:{line}"


def unreplayable(app: App) -> dict[SourceProblem, StrategyPlace]:
    """Return what in the functions of `app` cannot be replayed → where it is first used."""
    return first_places(
        app, lambda _, each: unreplayable_in(each) if isinstance(each, Function) else ()
    )


def unreplayable_in(function: Function) -> list[SourceProblem]:
    """Return what in the source of `function` cannot be replayed, in order."""
    sources = sources_of(functions_of(function))
    return [problem for source in sources for problem in _problems(source)]


def first_places(
    app: App, look: Callable[[Actor, object], Iterable[SourceProblem]]
) -> dict[SourceProblem, StrategyPlace]:
    """Return what `look` finds in the strategies of `app`, each with its actor → where first."""
    any_ = Actor("any")
    strategies = [
        *(
            (StrategyPlace(actor.id, expectation.name), actor, expectation.strategy)
            for actor in app.actors.values()
            for expectation in actor.expectations.values()
        ),
        *(
            (StrategyPlace("", name), any_, Function(each) if isfunction(each) else each)
            for name, each in app.strategies.items()
        ),
    ]
    found: dict[SourceProblem, StrategyPlace] = {}
    for place, actor, strategy in strategies:
        for each in look(actor, strategy):
            found.setdefault(each, place)
    return found


def functions_of(strategy: object) -> list[FunctionType]:
    """Return the user's functions that a strategy is made of."""
    if isinstance(strategy, Function):
        run = inspect.unwrap(strategy.run)
        return [run] if isinstance(run, FunctionType) else []
    found: list[FunctionType] = []
    for kind in type(strategy).__mro__:
        if kind.__module__.partition(".")[0] == _OURS:
            break
        found += (each for each in vars(kind).values() if isinstance(each, FunctionType))
    return found


def sources_of(functions: Sequence[FunctionType]) -> Iterator[FunctionSource]:
    """Yield the sources of `functions`, and of those of their modules that they call."""
    seen, waiting = set(functions), deque(functions)
    while waiting and len(seen) < FUNCTIONS_MAX:
        source = _source_of(waiting.popleft())
        if source is None:
            continue
        yield source
        for called in _called_in(source):
            if called not in seen:
                seen.add(called)
                waiting.append(called)


def _source_of(function: FunctionType) -> FunctionSource | None:
    """Return a function with its syntax; None: its source is away."""
    try:
        lines, first_line = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError, TypeError):
        return None
    return FunctionSource(function, tree, first_line)


def _problems(source: FunctionSource) -> Iterator[SourceProblem]:
    function = source.function
    forgotten = _forgotten(source.tree, first_argument(function))
    unordered = set(_unordered(source.tree, function))
    for node in ast.walk(source.tree):
        yield from _other_than_calls(node, source, unordered)
        if method := forgotten.get(node):
            found = f"{method}(…) without `await`"
            yield source.problem(node, found=found, instead=f"await {method}(…)")
        if isinstance(node, ast.Call):
            # guard: check-finds-past-journal
            if isinstance(value_of(node.func, function), FunctionTool):
                name = ast.unparse(node.func)
                instead = f"await ctx.call({name}, …)"
                yield source.problem(node, found=f"{name}(…) called directly", instead=instead)
            names = _names(node.func, function)
            matches = ((names, instead) for pattern, instead in _TABLE if _any(pattern, names))
            for matched, instead in list(matches)[:1]:
                yield source.problem(node, found=f"{matched[0]}()", instead=instead)


def _other_than_calls(
    node: ast.AST, source: FunctionSource, unordered: set[ast.AST]
) -> Iterator[SourceProblem]:
    """Yield what at `node` is not the same in each process, or keeps a function from ending."""
    function = source.function
    match node:
        # guard: check-finds-environment
        case ast.Attribute() | ast.Name() if value_of(node, function) is os.environ:
            yield source.problem(node, found="os.environ", instead=ENVIRONMENT)
        # guard: check-finds-set-order
        case ast.For(iter=values) | ast.comprehension(iter=values) if values in unordered:
            found = f"for … in {ast.unparse(values)}"
            yield source.problem(values, found=found, instead=IN_ORDER)
        case ast.Try(body=body, handlers=handlers) if _awaits(body):
            for each in handlers:
                if _swallows(each, function):
                    caught = ast.unparse(each.type) if each.type else ""
                    found = f"except {caught}".strip()
                    yield source.problem(each, found=found, instead=ONLY_EXCEPTIONS)
        case _:
            pass


def first_argument(function: FunctionType) -> tuple[str, ...]:
    """Return the name of a function's first argument, such as `ctx`; nothing: it has none."""
    return function.__code__.co_varnames[: min(1, function.__code__.co_argcount)]


def _awaits(body: Iterable[ast.stmt]) -> bool:
    return any(isinstance(node, ast.Await) for each in body for node in ast.walk(each))


def _swallows(handler: ast.ExceptHandler, function: FunctionType) -> bool:
    """Return whether `handler` keeps what is to end a function, and not only what a call raises."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    caught = {BaseException if each is None else value_of(each, function) for each in kinds}
    raises = any(isinstance(node, ast.Raise) for each in handler.body for node in ast.walk(each))
    # guard: check-finds-endless
    return not raises and not caught.isdisjoint({BaseException, asyncio.CancelledError})


def _unordered(tree: ast.AST, function: FunctionType) -> Iterator[ast.AST]:
    """Yield the expressions that are sets, and the names that are always assigned one."""
    sets = {node for node in ast.walk(tree) if _is_set(node, function)}
    # guard: check-knows-assigned-sets
    names = {name for name, values in assigned_in(tree).items() if sets.issuperset(values)}
    yield from sets
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in names)


def _is_set(node: ast.AST, function: FunctionType) -> bool:
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Call(func=called):
            return value_of(called, function) in {set, frozenset}
        case _:
            return False


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
    for name, values in assigned_in(tree).items():
        methods = {value: _method(value, ctx) for value in values}
        if not all(methods.values()):
            continue
        loads = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
        ]
        used_in_tests = {each for each in loads if each in tested_names}
        if len(used_in_tests) == len(loads):  # guard: tested-name-not-awaited
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


def assigned_in(tree: ast.AST) -> dict[str, list[ast.AST]]:
    """Return each name → what is assigned to it, or where it gets something unknown."""
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
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                pass
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                pass
            case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                pass
            case _:
                continue
        found.setdefault(name, []).append(plain.get(node, node))
    return found


def _called_in(source: FunctionSource) -> Iterator[FunctionType]:
    """Yield the functions of the same module that a function calls."""
    function = source.function
    for node in ast.walk(source.tree):
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
    if isinstance(node, ast.Attribute) and value is None:
        # Of something that is made as the function runs; these names are only of files.
        names.append(f"….{node.attr}")  # guard: check-finds-files-read
    module = getattr(value, "__module__", None) or type(getattr(value, "__self__", None)).__module__
    module = "io" if module == "_io" else module  # What `open` says of itself from Python 3.13 on.
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
