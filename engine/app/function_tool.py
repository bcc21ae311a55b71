"""`tool`: makes a tool of a plain function, async or not.

The function's signature says what it is asked: each call's arguments are checked against it before
anything happens, and models get it as a JSON schema. A function that is not async is called in a
thread of its own, so it may block.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import (
    Any,
    Concatenate,
    Final,
    Generic,
    Never,
    NoReturn,
    Protocol,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

import msgspec
from typing_extensions import ParamSpec, TypeVar

from engine.app.actions import Retries, problem_of_retries
from engine.app.strategy import IN_STRATEGY
from engine.app.tools import (
    OF_THE_ENGINE,
    RISKS,
    CacheScope,
    CallContext,
    Risk,
    Tool,
    ToolBreaker,
    ToolFailed,
    ToolLike,
    as_tool,
    check_name,
)
from engine.errors import BadTool, CallFailed, DeclarationError, InvalidAction
from engine.secrets import HIDDEN
from engine.validation import is_whole, near
from streams.json import JsonObject

P = ParamSpec("P")
Q = ParamSpec("Q", default=P)
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True, default=R_co)

Async: TypeAlias = Coroutine[Any, Any, T]

CALL: Final = "call"
"""The action of a function that names no capability."""

CONTEXT: Final = "ctx"
"""The parameter that receives the `CallContext`."""

INVALID_ARGUMENTS: Final = "invalid_arguments"
"""Error class of a call whose arguments do not fit the signature."""

INVALID_RETURN: Final = "invalid_return"
"""Error class of a call whose result is not what the signature says that it returns."""

TIMEOUT_S_MAX: Final = 3_600.0
"""Longest time limit of a call, in seconds: what takes longer is a wait for a signal."""

CACHE_TTL_S_MAX: Final = 86_400.0
"""Longest time that a result is kept, in seconds: a day."""

OPEN_S_MAX: Final = 3_600.0
"""Longest time that a breaker may stay open, in seconds."""

THRESHOLD_MAX: Final = 1_000
"""Most failures that a breaker may wait for."""

RATE_MAX: Final = 1_000.0
"""Highest rate of a tool, in calls per second."""

_SPREAD: Final = frozenset(
    {
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
        inspect.Parameter.POSITIONAL_ONLY,
    }
)

_AWAITABLE: Final = frozenset({Awaitable, Coroutine})

_NOTHING: Final = (Never, NoReturn)


class ContextFirst(Protocol[P, R_co]):
    """A function that takes the `CallContext` first; type checkers know its other parameters."""

    def __call__(self, ctx: CallContext, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Do what the tool does."""


class _ContextLast(Protocol[R_co]):
    """As pyright has it: any function with a keyword-only `ctx`."""

    def __call__(self, *args: Any, ctx: CallContext, **kwargs: Any) -> R_co: ...


class _ContextAlone(Protocol[R_co]):
    """As mypy has it, which wants the other parameters counted; one that lacks a default each."""

    def __call__(self, *, ctx: CallContext) -> R_co: ...


class _ContextAfter1(Protocol[R_co]):
    def __call__(self, a: Any, /, *, ctx: CallContext) -> R_co: ...


class _ContextAfter2(Protocol[R_co]):
    def __call__(self, a: Any, b: Any, /, *, ctx: CallContext) -> R_co: ...


class _ContextAfter3(Protocol[R_co]):
    def __call__(self, a: Any, b: Any, c: Any, /, *, ctx: CallContext) -> R_co: ...


class _ContextAfter4(Protocol[R_co]):
    def __call__(self, a: Any, b: Any, c: Any, d: Any, /, *, ctx: CallContext) -> R_co: ...


ContextByName: TypeAlias = (
    _ContextLast[R]
    | _ContextAlone[R]
    | _ContextAfter1[R]
    | _ContextAfter2[R]
    | _ContextAfter3[R]
    | _ContextAfter4[R]
)
"""A function with a keyword-only `ctx`. No type can say "the same without `ctx`", so type checkers
know what it returns, and not what else it takes."""


@dataclass(frozen=True, eq=False, kw_only=True)
class FunctionTool(Tool, Generic[P, R_co, Q, T_co]):
    """A function that strategies can call; see `tool`. Called directly, it is the function.

    To type checkers, it takes `P` and returns `R_co` itself; a strategy gives it `Q`, and gets
    `T_co`.
    """

    function: Callable[P, R_co]
    capability: str
    action: str
    """What strategies, overrides and the journal call it: `<capability>.<action>`."""
    description: str
    """The first paragraph of its docstring, for models."""
    side_effect: bool
    risk: Risk
    """What a call may do outside; only `read` is no side effect."""
    idempotent: bool
    timeout_s: float | None
    cache_ttl_s: float
    cache_scope: CacheScope
    rate_per_s: float | None
    breaker: ToolBreaker | None
    retries: Retries | None
    """How often a failed call is repeated, and after which pauses; None: never."""
    hidden: frozenset[str]
    """Keys whose values nobody sees, in arguments and results."""
    is_async: bool
    arguments: type[msgspec.Struct] = field(repr=False)
    """Its parameters as a type, without `ctx`."""
    returns: Any = field(repr=False)
    """What it says that it returns, as a type."""
    takes_context: bool = field(repr=False)
    secrets: Callable[[], Iterable[str]] = field(default=tuple, repr=False)
    """Returns what it knows itself and nobody may see in results and errors."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function as if it were no tool; `InvalidAction`: in the code of a strategy."""
        if IN_STRATEGY.get():  # guard: no-tool-past-journal
            name = self.arguments.__name__
            raise InvalidAction(
                f"{name}(…) called directly; await ctx.call({name}, …), or return"
                f" tool_call({name}, …) from next_step"
            )
        return self.function(*args, **kwargs)

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of its arguments; those that are never stored (`_…`) are left out."""
        _, parts = msgspec.json.schema_components(
            [self.arguments], ref_template="#/$defs/{name}", schema_hook=_schema_of
        )
        own = parts.pop(self.arguments.__name__)
        properties = own["properties"]
        shown = {name: each for name, each in properties.items() if not name.startswith("_")}
        required = [name for name in own["required"] if name in shown]
        made = {"type": "object", "properties": shown, "required": required}
        return {**made, "additionalProperties": False, **({"$defs": parts} if parts else {})}

    def problem_of(self, args: JsonObject) -> str | None:
        """Return in one line why `args` do not fit the signature, or None."""
        known = self.arguments.__struct_fields__
        # guard: no-unknown-arguments
        if stray := next((each for each in args if each not in known), ""):
            told = f"{self.arguments.__name__}(): there is no argument {stray!r}"
            return "; ".join(filter(None, (told, near(stray, known))))  # guard: stray-argument-told
        try:
            self._given(args)
        except msgspec.ValidationError as error:
            return f"{self.arguments.__name__}(): {error}"
        return None

    def redact(self, args: JsonObject) -> object:
        """Return `args` without the values of what is hidden."""
        return without_values(args, self.hidden)

    def redact_result(self, result: object) -> object:
        """Return `result` without the values of what is hidden."""
        return without_values(result, self.hidden)

    @property
    def hides(self) -> bool:
        """Whether anything is hidden."""
        return bool(self.hidden)

    def bound(self, args: JsonObject, ctx: CallContext) -> Callable[[], object]:
        """Return the call with `args`, which fit; a function that is not async may then block."""
        given = self._given(args)
        if self.takes_context:
            given[CONTEXT] = ctx
        function: Callable[..., object] = self.function
        return lambda: function(**given)

    async def call(self, action: str, args: JsonObject, ctx: CallContext) -> object:
        """Call the function here and now; a node calls one that is not async in a thread."""
        del action
        if problem := self.problem_of(args):
            raise ToolFailed(INVALID_ARGUMENTS, problem)
        returned = self.bound(args, ctx)()
        return await returned if inspect.isawaitable(returned) else returned

    def returned(self, recorded: object) -> Any:
        """Return `recorded`, which is JSON, as what the function says that it returns.

        Raises `CallFailed` if it is something else.
        """
        try:
            return msgspec.convert(recorded, self.returns)  # guard: tool-result-type
        except msgspec.ValidationError as error:
            problem = f"the result of {self.arguments.__name__}() does not fit its type: {error}"
            raise CallFailed(INVALID_RETURN, problem) from error

    def _given(self, args: JsonObject) -> dict[str, object]:
        """Return those of `args` that are given, converted to the declared types."""
        converted = msgspec.convert(dict(args), self.arguments)
        return {name: getattr(converted, name) for name in args}


class ToolGroup(Tool):
    """Tools of one capability: functions, or those of one server."""

    def __init__(self, functions: Mapping[str, Tool]) -> None:
        """Serve each action by its tool."""
        self.functions = functions

    @property
    def known_actions(self) -> frozenset[str]:
        """Return the actions that it has."""
        return frozenset(self.functions)


class ToolDecorator(Protocol):
    """What `tool(…)` returns: it makes a tool of the function below it."""

    @overload
    def __call__(  # type: ignore[overload-overlap] # No function has two `ctx`.
        self, function: ContextFirst[Q, Async[T]], /
    ) -> FunctionTool[Concatenate[CallContext, Q], Async[T], Q, T]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap] # No function has two `ctx`.
        self, function: ContextFirst[Q, T], /
    ) -> FunctionTool[Concatenate[CallContext, Q], T, Q, T]: ...
    @overload
    def __call__(
        self, function: ContextByName[Async[T]], /
    ) -> FunctionTool[..., Async[T], ..., T]: ...
    @overload
    def __call__(self, function: ContextByName[T], /) -> FunctionTool[..., T, ..., T]: ...
    @overload
    def __call__(self, function: Callable[P, Async[T]], /) -> FunctionTool[P, Async[T], P, T]: ...
    @overload
    def __call__(self, function: Callable[P, T], /) -> FunctionTool[P, T, P, T]: ...


@overload
def tool(  # type: ignore[overload-overlap] # No function has two `ctx`.
    function: ContextFirst[Q, Async[T]], /
) -> FunctionTool[Concatenate[CallContext, Q], Async[T], Q, T]: ...
@overload
def tool(  # type: ignore[overload-overlap] # No function has two `ctx`.
    function: ContextFirst[Q, T], /
) -> FunctionTool[Concatenate[CallContext, Q], T, Q, T]: ...
@overload
def tool(function: ContextByName[Async[T]], /) -> FunctionTool[..., Async[T], ..., T]: ...
@overload
def tool(function: ContextByName[T], /) -> FunctionTool[..., T, ..., T]: ...
@overload
def tool(function: Callable[P, Async[T]], /) -> FunctionTool[P, Async[T], P, T]: ...
@overload
def tool(function: Callable[P, T], /) -> FunctionTool[P, T, P, T]: ...
@overload
def tool(
    *,
    side_effect: bool = False,
    risk: Risk | None = None,
    idempotent: bool = False,
    timeout_s: float | None = None,
    cache_ttl_s: float | None = None,
    cache_scope: CacheScope = "node",
    rate_per_s: float | None = None,
    breaker: ToolBreaker | None = None,
    retries: Retries | None = None,
    redact: Sequence[str] = (),
    capability: str = "",
) -> ToolDecorator: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    side_effect: bool = False,
    risk: Risk | None = None,
    idempotent: bool = False,
    timeout_s: float | None = None,
    cache_ttl_s: float | None = None,
    cache_scope: CacheScope = "node",
    rate_per_s: float | None = None,
    breaker: ToolBreaker | None = None,
    retries: Retries | None = None,
    redact: Sequence[str] = (),
    capability: str = "",
) -> FunctionTool[..., Any] | Callable[[Callable[..., Any]], FunctionTool[..., Any]]:
    """Return a function as a tool: `@tool`, or `@tool(side_effect=True)`.

    Arguments are given by name, and must fit the annotations of the parameters: built-in types,
    dataclasses and `msgspec.Struct`s, and what is made of them. A parameter without annotation
    takes any JSON value. A parameter `ctx`, the first one or after `*`, receives the `CallContext`;
    type checkers know the others only if it is the first. An argument whose name starts with `_` is
    stored nowhere. The result is any JSON value, or what can be made of it by the annotation; a
    failure is an exception, such as `ToolFailed`. A call that does not fit fails as
    `invalid_arguments`, and the function is not called.

    Args:
        side_effect: whether a call changes the outside; then the journal announces it before.
        risk: what a call may do: `read` changes nothing, `change` can be undone, `destroy` cannot.
            The latter two are side effects, and need not say so. An agent's `toolset` may ask
            people from a risk on. Default: `change` for a side effect, else `read`.
        idempotent: whether calls with one `ctx.idempotency_key` have one effect: then it is
            repeated after a crash in the middle of it.
        timeout_s: longest that a call may take, up to an hour; then it fails as `tool_timeout`. The
            thread of a function that is not async goes on. None: as long as the episode may.
        cache_ttl_s: how long the result of a call stands for calls with the same arguments, up to
            a day. Not for side effects; calls with `_…` arguments are always made. None: each call
            is made.
        cache_scope: who shares it: the episodes of one actor on one `node`, or on all of the
            `stack`, where results over 64 KiB are not kept.
        rate_per_s: calls that may begin in a second, on each node, up to 1,000. A call waits for
            its turn for up to 5 s, else it fails as `tool_rate_limited`. None: no limit.
        breaker: after how many failures in a row calls fail at once as `tool_breaker_open`, and
            when one is made again. None: never.
        retries: how often, and after which pauses, a call is repeated that failed as
            `tool_timeout`, `tool_unavailable`, `crash`, `tool_rate_limited` or
            `tool_breaker_open`. During a pause over 5 s no node runs the episode. All attempts
            have the same `ctx.idempotency_key`. With `side_effect` only if `idempotent`. None:
            never.
        redact: names, such as `("password", "token")`. In arguments and results, at any depth,
            people see `***` in the place of what these keys have.
        capability: what it is called by: `<capability>.<function>`. Default: `<function>.call`.

    Raises `BadTool` if the function cannot be a tool; the message names its file and line.
    """

    def made(function: Callable[..., Any]) -> FunctionTool[..., Any]:
        check = _Check(function)
        has_effect, risky = check.risk(risk, side_effect=side_effect)
        name = check.name("name", getattr(function, "__name__", ""))
        named = check.name("capability", capability) if capability else ""
        return FunctionTool(
            function=function,
            capability=named or name,
            action=name if named else CALL,
            description=" ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split()),
            side_effect=has_effect,
            risk=risky,
            idempotent=check.switch("idempotent", idempotent),
            timeout_s=check.number("timeout_s", timeout_s, most=TIMEOUT_S_MAX),
            cache_ttl_s=check.cache(cache_ttl_s, cache_scope, side_effect=has_effect),
            cache_scope=cache_scope,
            rate_per_s=check.number("rate_per_s", rate_per_s, most=RATE_MAX),
            breaker=check.breaker(breaker),
            retries=check.retries(retries, may_repeat=idempotent or not has_effect),
            hidden=check.names("redact", redact),
            is_async=inspect.iscoroutinefunction(function),
            arguments=check.arguments(name),
            returns=check.returned(),
            takes_context=CONTEXT in inspect.signature(function).parameters,
        )

    return made if function is None else made(function)


def problem_of_number(value: object, *, most: float) -> str | None:
    """Return why `value` is no number over 0 and up to `most`, or None; None is no problem."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is None or (is_number and isinstance(value, int | float) and 0 < value <= most):
        return None
    return f"{value!r} is not a number over 0, up to {most:,g}"


def problem_of_breaker(value: object) -> str | None:
    """Return why the breaker of a tool cannot work, or None; None is no problem."""
    if value is None:
        return None
    if not isinstance(value, ToolBreaker):
        return f"{value!r} is not a ToolBreaker(threshold=…)"
    if not is_whole(value.threshold) or not 1 <= value.threshold <= THRESHOLD_MAX:
        problem = f"{value.threshold!r} is not a whole number from 1 to {THRESHOLD_MAX}"
        return f"threshold: {problem}"
    open_s = problem_of_number(value.half_open_after_s, most=OPEN_S_MAX)
    return f"half_open_after_s: {open_s}" if open_s else None


class _Check:
    """Checks one function, and what it is declared with."""

    def __init__(self, function: object) -> None:
        if not inspect.isfunction(function):
            raise BadTool(repr(function), "is no function; write @tool above a `def`")
        self._function = function
        try:
            self._hints = get_type_hints(function)
        except (NameError, TypeError) as error:
            raise self.refuse(f"its annotations: {error}") from error

    def refuse(self, problem: str) -> BadTool:
        code = self._function.__code__
        where = f"{code.co_filename}:{code.co_firstlineno}"
        return BadTool(f"{self._function.__qualname__} ({where})", problem)

    def name(self, field_: str, value: object) -> str:
        try:
            check_name(value, of="a tool")
        except ValueError as error:
            raise self.refuse(f"{field_}: {error}") from error
        return str(value)

    def switch(self, field_: str, value: object) -> bool:
        if not isinstance(value, bool):
            raise self.refuse(f"{field_}: {value!r} is not True or False")
        return value

    def risk(self, value: object, *, side_effect: object) -> tuple[bool, Risk]:
        """Return whether a call is a side effect, and what it may do."""
        declared = self.switch("side_effect", side_effect)
        if value is None:
            return declared, "change" if declared else "read"
        for known in RISKS:
            if value == known:
                if declared and known == "read":  # guard: side-effect-is-a-risk
                    raise self.refuse("risk: a side effect is no 'read'; write 'change'")
                return known != "read", known  # guard: declared-risk-is-side-effect
        raise self.refuse(f"risk: {value!r} is not one of {', '.join(RISKS)}")

    def number(self, field_: str, value: object, *, most: float) -> float | None:
        if problem := problem_of_number(value, most=most):
            raise self.refuse(f"{field_}: {problem}")
        assert value is None or isinstance(value, int | float), "it is no problem"
        return value

    def cache(self, ttl_s: object, scope: object, *, side_effect: bool) -> float:
        if scope not in get_args(CacheScope):
            known = ", ".join(get_args(CacheScope))
            raise self.refuse(f"cache_scope: {scope!r} is not one of {known}")
        checked = self.number("cache_ttl_s", ttl_s, most=CACHE_TTL_S_MAX)
        if checked and side_effect:  # guard: side-effect-at-each-call
            raise self.refuse("cache_ttl_s: a side effect is to happen at each call")
        return checked or 0.0

    def breaker(self, value: ToolBreaker | None) -> ToolBreaker | None:
        if problem := problem_of_breaker(value):
            raise self.refuse(f"breaker: {problem}")
        return value

    def retries(self, value: Retries | None, *, may_repeat: bool) -> Retries | None:
        if value is None:
            return None
        if not isinstance(value, Retries):
            raise self.refuse(f"retries: {value!r} is not Retries(attempts_max=…)")
        if problem := problem_of_retries(value):  # guard: impossible-retries-refused
            raise self.refuse(f"retries: {problem}")
        if not may_repeat:  # guard: only-idempotent-retried
            raise self.refuse("retries: a side effect is repeated only with idempotent=True")
        return value

    def names(self, field_: str, value: object) -> frozenset[str]:
        if not isinstance(value, list | tuple | set | frozenset):
            raise self.refuse(f"{field_}: {value!r} is not a list of names")
        if strays := [each for each in value if not isinstance(each, str)]:
            raise self.refuse(f"{field_}: {strays[0]!r} is no name")
        return frozenset(value)

    def arguments(self, name: str) -> type[msgspec.Struct]:
        """Return the parameters as a type; each that has a default may be left out."""
        fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        for place, each in enumerate(inspect.signature(self._function).parameters.values()):
            if each.kind in _SPREAD:
                problem = "arguments are given by name; name each of them"
                raise self.refuse(f"parameter {each.name}: {problem}")
            if each.name == CONTEXT:
                # guard: tool-ctx-place
                if place and each.kind is not inspect.Parameter.KEYWORD_ONLY:
                    raise self.refuse(f"parameter {CONTEXT}: write it first, or after `*`")
                continue
            fields.append(self._field(each, self._hints.get(each.name, Any)))
        return msgspec.defstruct(name, fields, kw_only=True)

    def returned(self) -> object:
        """Return the type of what it returns, once awaited."""
        type_: object = self._hints.get("return", Any)
        if get_origin(type_) in _AWAITABLE:
            type_ = get_args(type_)[-1]
        if type_ in _NOTHING:  # It raises; a stub may return anything.
            return Any
        self._check_type("what it returns", type_)  # guard: tool-result-from-json
        return type_

    def _field(
        self, parameter: inspect.Parameter, type_: object
    ) -> tuple[str, Any] | tuple[str, Any, Any]:
        self._check_type(f"parameter {parameter.name}", type_)
        if parameter.default is inspect.Parameter.empty:
            return parameter.name, type_
        return parameter.name, Union[type_, msgspec.UnsetType], msgspec.UNSET  # noqa: UP007 - of values

    def _check_type(self, what: str, type_: object) -> None:
        try:
            msgspec.json.schema(type_, schema_hook=_schema_of)
        except TypeError as error:
            name = type_.__name__ if inspect.isclass(type_) else type_
            problem = (
                f"values of {name} cannot be checked; use built-in types, dataclasses or"
                " msgspec.Struct"
            )
            raise self.refuse(f"{what}: {problem}") from error


def _schema_of(type_: type) -> dict[str, Any]:
    """Return the schema of a type that msgspec does not know, or raise `NotImplementedError`."""
    if type_ is object:
        return {"description": "any JSON value"}
    raise NotImplementedError


def without_values(value: object, hidden: frozenset[str]) -> object:
    """Return JSON with `***` in the place of the values of the keys `hidden`, at any depth."""
    match value:
        case dict():
            return {
                key: HIDDEN if key in hidden else without_values(each, hidden)
                for key, each in value.items()
            }
        case list():
            return [without_values(each, hidden) for each in value]  # guard: hidden-in-lists
        case _:
            return value


def _named(tools: object) -> Mapping[str, Tool]:
    """Return functions in a list as capability → tool; `TypeError`, `ValueError`: one is none."""
    if isinstance(tools, str) or not isinstance(tools, (list, tuple)):
        raise TypeError(f"{tools!r} is not a list of functions with @tool, nor a dict")
    groups: dict[str, dict[str, FunctionTool[..., Any]]] = {}
    for each in tools:
        if not isinstance(each, FunctionTool):
            raise TypeError(f"{each!r} is no function with @tool; such tools need a name: a dict")
        group = groups.setdefault(each.capability, {})
        if group.setdefault(each.action, each) is not each:  # guard: tool-names-unique
            raise ValueError(f"two functions are called {each.capability}.{each.action}")
    return {capability: ToolGroup(functions) for capability, functions in groups.items()}


# All four are named: Python 3.13.0 cannot fill in what stands for the last two.
Tools: TypeAlias = Mapping[str, ToolLike] | Sequence[FunctionTool[..., Any, ..., Any]]
"""What actors and apps take as tools: capability → tool, or functions with `@tool`."""


def checked_tools(tools: Tools, *, actor: str) -> Mapping[str, Tool]:
    """Return `tools` as capability → tool, or raise `DeclarationError`."""
    try:
        found = dict(tools) if isinstance(tools, Mapping) else _named(tools)
    except (TypeError, ValueError) as error:
        raise DeclarationError(actor=actor, field="tools", problem=str(error)) from error
    checked = {}
    for capability, candidate in found.items():
        given: object = capability
        if not isinstance(given, str) or not given or "." in given:
            raise DeclarationError(
                actor=actor, field="tools", problem=f"{capability!r}: a name without dots, please"
            )
        if capability in OF_THE_ENGINE:
            raise DeclarationError(
                actor=actor, field="tools", problem=f"{capability!r}: the engine has that name"
            )
        if isinstance(candidate, FunctionTool):
            problem = f"{capability!r}: a function with @tool has its own name; write tools=[…]"
            raise DeclarationError(actor=actor, field="tools", problem=problem)
        try:
            checked[capability] = as_tool(candidate)
        except TypeError as error:
            raise DeclarationError(
                actor=actor, field="tools", problem=f"{capability!r}: {error}"
            ) from error
    return checked


def tool_texts(tools: Mapping[str, Tool]) -> tuple[str, ...]:
    """Return what strategies know `tools` by: their names, and those of their arguments."""
    texts: list[str] = []
    for capability, each in sorted(tools.items()):
        if isinstance(each, ToolGroup):
            named = sorted(each.functions.items())
            texts += (_tool_text(f"{capability}.{action}", one) for action, one in named)
        elif isinstance(each, FunctionTool):
            texts.append(_tool_text(f"{capability}.{each.action}", each))
        else:
            texts.append(_tool_text(capability, each))
    return tuple(texts)


def _tool_text(name: str, tool: Tool) -> str:
    if isinstance(tool, FunctionTool):
        return f"{name}({', '.join(tool.arguments.__struct_fields__)})"
    return f"{name} {type(tool).__qualname__}"
