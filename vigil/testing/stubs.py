"""What stands in for the outside of an app: tools, gatherers, synthesizers and adapters.

A test calls nothing real that it does not allow. Each call gets the answer that the test gives for
its name; without an answer it is refused. Names are `capability.action`, `gather.<gatherer>`,
`output.<adapter>` and `synthesizer`; a `*` stands for anything.

    tools={"disk.largest": {"path": "/var"}}                   this result, as often as it is asked
    tools={"http.fetch": in_turn(ToolFailed("tool_timeout"), {"ok": True})}
    tools={"mail.send": lambda args: {"to": args["to"]}}       what a function returns, async or not
    allow=["disk.*"]                                           the real ones
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, TypeAlias

from msgspec import UNSET

from engine.agents.unit import RequestSize
from engine.app.actions import Retries
from engine.app.actor import Actor
from engine.app.app import App
from engine.app.function_tool import CALL, CONTEXT, FunctionTool, ToolGroup
from engine.app.outputs import OutputAdapter, OutputView, as_adapter
from engine.app.strategy import ConvergeResult, Function, Strategy
from engine.app.tools import (
    OF_THE_ENGINE,
    CallContext,
    Failure,
    Synthesizer,
    Tool,
    ToolFailed,
    retries_of,
)
from engine.errors import CallFailed
from engine.functions.context import FunctionContext
from streams.json import JsonObject
from streams.model.triggers import Trigger
from vigil.errors import near_hint

SYNTHESIZER: Final = "synthesizer"
"""The name of all synthesizers."""

OUTPUT: Final = "output"
"""First part of the names of adapters."""

REFUSED: Final = "unstubbed"
"""Error class of a refused call, for the strategy; the test fails, too."""

Answer: TypeAlias = object
"""A result; an exception, which is raised; a `Failure`; `in_turn(…)`; or a function, async or not,
of the arguments, or of the arguments and the `CallContext`."""


class Unstubbed(AssertionError):
    """An app called something that its test neither answers nor allows."""


@dataclass
class InTurn:
    """Answers that are used up one after the other; see `in_turn`."""

    answers: Sequence[Answer]
    used: int = 0
    _known: dict[str, Answer] = field(default_factory=dict)

    def next(self, key: str) -> Answer:
        """Return the next answer; for a call that succeeded before, by its `key`, the same one.

        Raises `Unstubbed` when they are used up.
        """
        if key in self._known:
            return self._known[key]
        if self.used == len(self.answers):
            raise Unstubbed(f"in_turn(…) has {self.used} answers, and this is one more call")
        answer = self.answers[self.used]
        self.used += 1
        if not isinstance(answer, Exception | Failure):
            self._known[key] = answer
        return answer


def in_turn(*answers: Answer) -> InTurn:
    """Return an answer of a stub that gives each of `answers` once, in order.

    A call that is repeated after a crash, under its idempotency key, gets the same answer again,
    unless that was a failure.
    """
    return InTurn(answers)


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call that a test has answered, or allowed."""

    name: str
    """Such as `disk.largest`, or `synthesizer`."""
    args: object
    """As the tool gets them; of a synthesizer, the prompt."""
    idempotency_key: str
    side_effect: bool = False
    idempotent: bool = False
    result: object = UNSET
    """What it returned; `msgspec.UNSET`: nothing, it failed, or the node died before."""
    place: str = ""
    """The line of the tool's function; empty: the tool is none."""


class FakeAdapter(OutputAdapter):
    """An adapter that keeps the outputs instead of delivering them."""

    def __init__(self, answer: Answer = None) -> None:
        """Return `answer` as the receiver's reference: a text, None, or see `Answer`."""
        self._answer = answer
        self.attempts: list[OutputView] = []
        """Every attempt, failed ones included."""
        self.deliveries: list[OutputView] = []
        """What was delivered, in order, repeated deliveries included."""

    async def deliver(self, output: OutputView) -> str | None:
        """Keep `output`, and return the reference or raise the exception of the test."""
        self.attempts.append(output)
        ref = await _said(self._answer, output.idempotency_key, output)
        self.deliveries.append(output)
        return None if ref is None else str(ref)


class FakeSynthesizer:
    """A synthesizer that gives the answer of a test, and keeps the prompts."""

    def __init__(self, answer: Answer) -> None:
        """Answer each prompt with `answer`: see `Answer`. A function gets the prompt."""
        self._answer = answer
        self.prompts: list[object] = []

    async def __call__(self, prompt: object, transient: JsonObject, ctx: CallContext) -> object:
        """Return the answer to `prompt`."""
        del transient
        self.prompts.append(prompt)
        return await _said(self._answer, ctx.idempotency_key, prompt, ctx)


async def _said(answer: Answer, key: str, *given: object) -> object:
    """Return what `answer` says to a call with `given`, or raise it."""
    if isinstance(answer, InTurn):
        answer = answer.next(key)
    match answer:
        case Exception():
            raise answer
        case Failure(error_class=error_class, detail=detail):
            raise ToolFailed(error_class, detail)
        case _ if callable(answer):
            said: object = answer(*given[: _arity(answer)])
            return await said if isinstance(said, Awaitable) else said
        case _:
            return answer


def _arity(function: Callable[..., object]) -> int:
    kinds = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    return sum(each.kind in kinds for each in inspect.signature(function).parameters.values())


class Stubs:
    """What answers the calls of one app, and what was called."""

    def __init__(
        self,
        *,
        tools: Mapping[str, Answer],
        outputs: Mapping[str, Answer | OutputAdapter],
        synthesizer: Answer | None,
        allow: Sequence[str],
        episodes: Mapping[str, Answer] | None = None,
    ) -> None:
        """Answer with these; `allow`: patterns of the names of what may be real."""
        self._tools, self._allow = tools, allow
        self._episodes = episodes or {}
        self._outputs, self.synthesizer = outputs, synthesizer
        self.calls: list[Call] = []
        """All calls of tools and synthesizers, in order."""
        self.refused: list[str] = []
        """Why a call had no answer, until it is told."""
        self.adapters: dict[str, FakeAdapter] = {}
        """By name, those that deliver to nobody."""

    def allows(self, name: str) -> bool:
        """Return whether what has this name may be real."""
        return any(fnmatchcase(name, pattern) for pattern in self._allow)

    def tell(self) -> None:
        """Raise `Unstubbed` once for all calls that were refused since the last time."""
        if not self.refused:
            return
        problems, self.refused = dict.fromkeys(self.refused), []
        raise Unstubbed("\n".join(problems))

    async def call(self, name: str, tool: Tool, args: JsonObject, ctx: CallContext) -> object:
        """Return the answer to a call of the action `name` of `tool`."""
        number = len(self.calls)
        call = Call(
            name=name,
            args=args,
            idempotency_key=ctx.idempotency_key,
            side_effect=tool.side_effect,
            idempotent=tool.idempotent,
            place=place_of(tool),
        )
        self.calls.append(call)
        result = await self._answer(name, tool, args, ctx)
        self.calls[number] = replace(call, result=result)
        return result

    async def _answer(self, name: str, tool: Tool, args: JsonObject, ctx: CallContext) -> object:
        pattern = next((each for each in self._tools if fnmatchcase(name, each)), None)
        if pattern is not None:
            return await self._told(name, self._tools[pattern], ctx.idempotency_key, args, ctx)
        if self.allows(name):
            return await tool.call(name.partition(".")[2], args, ctx)
        return self._refuse(name)

    @property
    def asks_real(self) -> bool:
        """Whether a prompt goes to the real synthesizer, if there is one."""
        return self.synthesizer is None and self.allows(SYNTHESIZER)

    async def synthesize(
        self, real: Synthesizer | None, prompt: object, transient: JsonObject, ctx: CallContext
    ) -> object:
        """Return the answer to a prompt."""
        key = ctx.idempotency_key
        self.calls.append(Call(name=SYNTHESIZER, args=prompt, idempotency_key=key))
        if self.synthesizer is not None:
            return await self._told(
                SYNTHESIZER, self.synthesizer, ctx.idempotency_key, prompt, transient, ctx
            )
        if real is not None and self.asks_real:
            return await real(prompt, transient, ctx)
        return self._refuse(SYNTHESIZER)

    def adapter(self, name: str, real: OutputAdapter) -> OutputAdapter:
        """Return what delivers the outputs of the adapter `name`."""
        given = self._outputs.get(name)
        if isinstance(given, OutputAdapter):
            made = given
        elif given is None and self.allows(f"{OUTPUT}.{name}"):
            made = real
        else:
            made = FakeAdapter(given)
        if isinstance(made, FakeAdapter):
            self.adapters[name] = made
        return made

    def is_stubbed(self, name: str) -> bool:
        """Return whether something stands in for the strategy of `actor.expectation`."""
        return any(fnmatchcase(name, pattern) for pattern in self._episodes)

    def strategy(self, name: str, real: Function | Strategy[Any]) -> Function | Strategy[Any]:
        """Return what runs the episodes of the expectation `name`, an `actor.expectation`."""
        pattern = next((each for each in self._episodes if fnmatchcase(name, each)), None)
        if pattern is None:
            return real
        answer = self._episodes[pattern]

        async def stub(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
            try:
                said = await self._told(name, answer, ctx.episode_id, trigger.payload)
            except ToolFailed as failed:
                raise CallFailed(failed.error_class, failed.detail) from failed
            return said if isinstance(said, ConvergeResult) else ConvergeResult(result=said)

        return Function(stub)

    def check(self, app: App) -> None:
        """Raise `ValueError` if a stub is for something that `app` has not."""
        for name in self._tools:
            self._check_tool(app, name)
        runs = [f"{id_}.{name}" for id_, each in app.actors.items() for name in each.expectations]
        for name in self._episodes:
            if not any(fnmatchcase(each, name) for each in runs):
                told = ", ".join(sorted(runs)) or "none"
                raise ValueError(f"episodes: the app has no expectation {name!r}; it has {told}")
        for name in self._outputs:
            if name not in app.outputs:
                known = ", ".join(sorted(app.outputs)) or "none"
                raise ValueError(f"outputs: the app has no output {name!r}; it has {known}")

    def _check_tool(self, app: App, name: str) -> None:
        groups = [app.tools, *(each.tools for each in app.actors.values())]
        tools = [each for group in groups for each in group.items()]
        capability, dot, action = name.partition(".")
        meant = [tool for each, tool in tools if fnmatchcase(each, capability)]
        if not dot:
            is_function = bool(meant) and all(
                list(each.known_actions or ()) == [CALL] for each in meant
            )
            whole = f"'{name}.{CALL}'" if is_function else f"'capability.action', or '{name}.*'"
            raise ValueError(f"tools: {name!r}: write {whole}")
        if not meant:
            # guard: stub-told-app-tools
            known = sorted({each for each, _ in tools} - OF_THE_ENGINE)
            said = ", ".join(known) or "none"
            raise ValueError(f"tools: the app has no tool {name!r}; it has {said}")
        actions = [each.known_actions for each in meant]
        there = sorted({action for each in actions if each is not None for action in each})
        # guard: stub-of-known-action
        if None not in actions and not any(fnmatchcase(each, action) for each in there):
            said = f"{capability} has {', '.join(there)}"
            said = "; ".join(filter(None, (said, near_hint(action, there))))
            raise ValueError(f"tools: the app has no tool {name!r}; {said}")

    async def _told(self, name: str, answer: Answer, key: str, *given: object) -> object:
        try:
            return await _said(answer, key, *given)
        except Unstubbed as error:
            return self._refuse(name, str(error))

    def _refuse(self, name: str, why: str = "") -> object:
        problem = why or f"the test has no answer; run(app, {_how(name)})"
        self.refused.append(f"the app called {name!r}: {problem}")  # guard: unanswered-call-told
        raise ToolFailed(REFUSED, problem)


def place_of(tool: Tool) -> str:
    """Return the line of a tool's function, such as `tools.py:12`; empty: the tool is none."""
    if not isinstance(tool, FunctionTool):
        return ""
    code = getattr(inspect.unwrap(tool.function), "__code__", None)
    return "" if code is None else f"{Path(code.co_filename).name}:{code.co_firstlineno}"


def _how(name: str) -> str:
    if name == SYNTHESIZER:
        return "synthesizer=…"
    return f"tools={{{name!r}: …}}"


@dataclass(frozen=True)
class StubbedSynthesizer:
    """A synthesizer of an app whose prompts a test answers."""

    real: Synthesizer | None
    stubs: Stubs

    @property
    def retries(self) -> Retries | None:
        """Return those of the real one."""
        return retries_of(self.real)  # guard: stub-has-retries-of-real

    @property
    def estimate_tokens(self) -> Callable[[object, object], int] | None:
        """Return that of the real one."""
        found: Callable[[object, object], int] | None = getattr(self.real, "estimate_tokens", None)
        return found

    @property
    def request_sizes(self) -> Callable[[object], Sequence[RequestSize]] | None:
        """Return that of the real one, if the test has that asked: its own answers cost nothing."""
        if not self.stubs.asks_real:
            return None
        found: Callable[[object], Sequence[RequestSize]] | None
        found = getattr(self.real, "request_sizes", None)
        return found

    async def __call__(self, prompt: object, transient: JsonObject, ctx: CallContext) -> object:
        """Return or raise what the test says."""
        return await self.stubs.synthesize(self.real, prompt, transient, ctx)


def stubbed(app: App, stubs: Stubs) -> App:
    """Return `app` with nothing real but what `stubs` allows."""
    stubs.check(app)
    made = copy(app)
    changed = {
        "tools": _tools(app.tools, stubs),
        "outputs": {
            name: replace(route, adapter=stubs.adapter(name, as_adapter(route.adapter)))
            for name, route in app.outputs.items()
        },
        "synthesizer": _synthesizer(app.synthesizer, stubs, is_given=stubs.synthesizer is not None),
        "actors": {id_: _actor(actor, stubs) for id_, actor in app.actors.items()},
    }
    for name, value in changed.items():
        object.__setattr__(made, name, value)
    return made


def _actor(actor: Actor, stubs: Stubs) -> Actor:
    made = copy(actor)
    expectations = {
        name: replace(
            each,
            synthesizer=_synthesizer(each.synthesizer, stubs),
            strategy=stubs.strategy(f"{actor.id}.{name}", each.strategy),
        )
        for name, each in actor.expectations.items()
    }
    changed = {
        "tools": _tools(actor.tools, stubs),
        "synthesizer": _synthesizer(actor.synthesizer, stubs),
        "expectations": expectations,
    }
    for name, value in changed.items():
        object.__setattr__(made, name, value)
    return made


def _tools(tools: Mapping[str, Tool], stubs: Stubs) -> dict[str, Tool]:
    return {capability: _tool(capability, real, stubs) for capability, real in tools.items()}


def _tool(capability: str, real: Tool, stubs: Stubs) -> Tool:
    """Return a copy of `real`, with all that it declares, whose calls a test answers."""
    if isinstance(real, ToolGroup):
        return ToolGroup(
            {action: _tool(capability, each, stubs) for action, each in real.functions.items()}
        )
    if isinstance(real, FunctionTool):
        return _function(real, stubs)

    async def call(action: str, args: JsonObject, ctx: CallContext) -> object:
        return await stubs.call(f"{capability}.{action}", real, args, ctx)

    made = copy(real)
    vars(made).update(call=call, server=None)
    return made


def _synthesizer(
    real: Synthesizer | None, stubs: Stubs, *, is_given: bool = False
) -> Synthesizer | None:
    return StubbedSynthesizer(real, stubs) if real is not None or is_given else None


def _function(real: FunctionTool[..., Any], stubs: Stubs) -> FunctionTool[..., Any]:
    """Return a copy of `real` that a test answers, whose arguments are checked as ever."""
    name = f"{real.capability}.{real.action}"

    async def answered(**given: object) -> object:
        ctx = given.pop(CONTEXT)
        assert isinstance(ctx, CallContext), "it takes the context"
        return await stubs.call(name, real, given, ctx)

    return replace(real, function=answered, is_async=True, takes_context=True)
