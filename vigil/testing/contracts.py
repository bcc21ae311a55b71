"""Tests the contracts of what users write: tools, adapters, synthesizers, migrations, workflows.

    await check_adapter(Pager(url), {"to": "ann"})
    await check_tool(fetch, {"url": "http://127.0.0.1:8080/a"})
    await check_synthesizer(ask_the_model, {"ask": "what now?"})
    check_migrations(desk.expectations["close"], {1: [{"asked": True}]})
    check_workflow(review, {"client": "ann"}, results={"screen": [{"hit": True}]})

Each calls the real part, which the test may connect to a local server, and raises an
`AssertionError` for anything that a node could not work with. What the part raises is raised.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from engine import validation
from engine.app.actor import Expectation
from engine.app.context import migrate
from engine.app.function_tool import CALL, FunctionTool
from engine.app.outputs import AdapterLike, OutputAdapter, OutputView, as_adapter
from engine.app.strategy import Function
from engine.app.tools import (
    RESULT_BYTES_MAX,
    CallContext,
    Synthesis,
    Synthesizer,
    Tool,
    ToolLike,
    as_tool,
)
from engine.app.workflow import Prior, Workflow, WorkflowStep, ancestors
from engine.errors import BadInput, Unencodable
from engine.workflows.steps import inputs_of
from streams.clock import SystemClock
from streams.json import JsonObject, raw, unraw
from streams.memory import memory_ports
from streams.model.triggers import ManualTrigger
from streams.model.workflows import Remedy
from vigil.testing.stubs import place_of

CALLS: Final = 2
"""How often a function is called that must return the same each time."""

AT_ONCE: Final = 4
"""Concurrent deliveries to an adapter."""

_CTX: Final = CallContext(
    actor_id="actor",
    expectation_id="expectation",
    episode_id="episode",
    step_no=1,
    idempotency_key="episode:1:0123456789abcdef",
)


async def check_adapter(
    adapter: AdapterLike, *payloads: object, recognizes_keys: bool = True
) -> None:
    """Deliver each of `payloads` twice under the same key, and then some of them concurrently.

    `recognizes_keys`: whether the receiver recognizes a repeated output, as after a crash, by its
    `idempotency_key`; then both deliveries must return the same reference.
    """
    made = as_adapter(adapter)
    await made.open(memory_ports(clock=SystemClock()))
    try:
        for number, payload in enumerate(payloads):
            output = _output(payload, number)
            first = await _delivered(made, output)
            again = await _delivered(made, replace(_output(payload, number), attempt=2))
            if recognizes_keys and first != again:  # guard: adapter-given-again
                _fail(
                    f"deliver() returned {first!r}, and {again!r} for the same output again; pass"
                    " its idempotency_key to the receiver, or set recognizes_keys=False"
                )
        numbers = range(len(payloads), len(payloads) + AT_ONCE)
        beside = [_output(payloads[number % len(payloads)], number) for number in numbers]
        # guard: adapter-given-several
        await asyncio.gather(*(_delivered(made, each) for each in beside))
    finally:
        await made.close()


async def check_tool(
    tool: ToolLike,
    *calls: JsonObject,
    action: str = CALL,
    effects: Callable[[], object | Awaitable[object]] = lambda: None,
) -> None:
    """Call a tool with each of the arguments in `calls`, as a node does.

    An idempotent side effect is called twice under one key: it must return the same result, and the
    second call must change nothing that `effects` returns, such as the rows of a table.
    `action` names one of the actions of a tool that has several.
    """
    made = as_tool(tool)
    for args in calls:
        kept = unraw(_json(args, "arguments", validation.KEPT_BYTES_MAX))
        if isinstance(made, FunctionTool) and (problem := made.problem_of(args)):
            _fail(problem)
        result = _awaited(await made.call(action, {**kept}, _CTX), f"{action}()")
        first = _json(result, "result", RESULT_BYTES_MAX)
        _json(made.redact(unraw(raw(kept))), "redacted arguments", validation.KEPT_BYTES_MAX)
        _json(made.redact_result(unraw(first)), "redacted result", RESULT_BYTES_MAX)
        if made.side_effect and made.idempotent:
            before = deepcopy(await _seen(effects))
            again = raw(await made.call(action, {**kept}, _CTX))
            after = await _seen(effects)
            if before != after:  # guard: kit-repeated-effect-told
                _fail(
                    f"a call was made again under the same ctx.idempotency_key, and it changed"
                    f" {before!r} to {after!r}; pass the key on, or remove idempotent=True"
                    f"{_at(made)}"
                )
            if again != first:  # guard: idempotent-called-again
                _fail(
                    f"a call returned {unraw(first)!r}, and {unraw(again)!r} again under the same"
                    " ctx.idempotency_key; pass the key on, or remove idempotent=True"
                    f"{_at(made)}"
                )


async def _seen(effects: Callable[[], object | Awaitable[object]]) -> object:
    seen = effects()
    return await seen if inspect.isawaitable(seen) else seen


def _at(tool: Tool) -> str:
    place = place_of(tool)
    return f" ({place})" if place else ""


async def check_synthesizer(synthesizer: Synthesizer, *prompts: object) -> None:
    """Ask a synthesizer each of `prompts`: a journal must be able to store its answers."""
    for prompt in prompts:
        kept = unraw(_json(prompt, "prompt", validation.KEPT_BYTES_MAX))
        said = _awaited(await synthesizer(kept, {}, _CTX), "the synthesizer")
        content = said.content if isinstance(said, Synthesis) else said
        _json(content, "content", validation.KEPT_BYTES_MAX)


def check_migrations(expectation: Expectation, states: Mapping[int, Sequence[object]]) -> None:
    """Migrate recorded states of every older version to the current version.

    `states`: version → states as JSON, as a journal of that version has them. The current strategy
    must be able to decode each result, and two migrations of one state must return the same.
    """
    schema = expectation.state_schema
    # guard: older-states-given
    if left_out := [each for each in range(1, schema.version) if not states.get(each)]:
        _fail(f"there are no states of version {left_out[0]}; give at least one")
    given = [(version, each) for version, several in states.items() for each in several]
    for version, each in given:
        what = f"a state of version {version}"
        first = migrate(raw(each), schema, version=version)
        if first != migrate(raw(each), schema, version=version):  # guard: migration-is-stable
            _fail(f"{what} is not migrated to the same state each time")
        if isinstance(expectation.strategy, Function):
            continue
        try:
            state = validation.decode(first, type_=expectation.state_type, what=what)
            validation.encode(state, what=what)
        except Unencodable as error:
            _fail(str(error))


def check_workflow(
    workflow: Workflow,
    *payloads: JsonObject,
    results: Mapping[str, Sequence[object]] | None = None,
) -> None:
    """Call `when`, `input` and `for_each` of all steps with what a run can bring them.

    That is, for each of `payloads` (by default `{}`) and each step before theirs, each of its
    `results`, as JSON: step → the results that it may have, a list each if it fans out. A step that
    has a `when`, or whose failure the workflow goes on after, also has None: that is where most
    inputs fail, in the middle of an instance. Results of other steps are the first ones meanwhile.

    Two calls with the same values must return the same.
    """
    given = {step: list(each) for step, each in (results or {}).items()}
    if strays := sorted(given.keys() - workflow.steps.keys()):
        _fail(f"results: there is no step {strays[0]!r}; there are {', '.join(workflow.steps)}")
    graph = workflow.graph()
    for name, step in workflow.steps.items():
        before = sorted(ancestors(graph, name)) if step.functions else []
        # guard: results-of-steps-before-given
        if lacking := [each for each in before if not given.get(each)]:
            _fail(f"{name}: there are no results of {lacking[0]!r} before it; give at least one")
        possible = {each: _results(workflow.steps[each], given[each]) for each in before}
        for payload in payloads or ({},):
            trigger = ManualTrigger(requested_by="test", payload=payload)
            for prior in _priors(possible) if step.functions else ():
                _check_inputs(step, trigger, prior)


def _results(step: WorkflowStep, given: Sequence[object]) -> Sequence[object]:
    goes_on = step.on_failure.then is Remedy.CONTINUE
    # A paused step may be skipped by whoever looks at it.
    may_lack = step.when is not None or goes_on or step.on_failure.then is Remedy.PAUSE
    of_item = [[None]] if step.for_each is not None and goes_on else []
    return [*given, *of_item, *([None] if may_lack else [])]


def _priors(possible: Mapping[str, Sequence[object]]) -> Iterator[Prior]:
    """Yield the first results together, each other one beside them, and all the last together."""
    first = {step: each[0] for step, each in possible.items()}
    yield first
    for step, several in possible.items():
        for each in several[1:]:
            yield {**first, step: each}
    yield {step: each[-1] for step, each in possible.items()}


def _check_inputs(step: WorkflowStep, trigger: ManualTrigger, prior: Prior) -> None:
    said = f"{step.name}: with {trigger.payload} and {prior}"
    try:
        first, second = (
            inputs_of(step, trigger, prior, direct=step.depends_on) for _ in range(CALLS)
        )
    except BadInput as error:
        _fail(f"{said}: {error}")
    if first != second:  # guard: step-inputs-stable
        _fail(f"{said}: it returns something else each time")


def _output(payload: object, number: int) -> OutputView:
    return OutputView(
        payload=unraw(_json(payload, "payload", validation.KEPT_BYTES_MAX)),
        output_key=f"output-{number}",
        idempotency_key=f"{number:064x}",
    )


async def _delivered(adapter: OutputAdapter, output: OutputView) -> str | None:
    ref: object = _awaited(await adapter.deliver(output), "deliver()")
    if ref is not None and not isinstance(ref, str):
        _fail(f"deliver() returned {ref!r}; return the receiver's reference, a text, or None")
    return None if ref is None else str(ref)


def _awaited(value: Any, of: str) -> Any:  # noqa: ANN401 - the user's
    if inspect.iscoroutine(value):
        value.close()
        _fail(f"{of} returned a coroutine; write `await` before it")
    return value


def _json(value: object, what: str, bytes_max: int) -> msgspec.Raw:
    try:
        return validation.encode(value, what=what, bytes_max=bytes_max)
    except Unencodable as error:
        raise AssertionError(str(error)) from error


def _fail(problem: str) -> None:
    __tracebackhide__ = True
    raise AssertionError(problem)
