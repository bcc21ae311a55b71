"""What cannot work in the source of a strategy, such as names that do not exist. Pure.

Only names that are literals are found: `ctx.call("disk.largest")`, `propose_output("mail", …)`,
`severity="high"`. A computed name that does not exist fails when it is used. Calls of what `vigil`
has, and of `ctx`, are held to the arguments that there are.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from inspect import Parameter, signature
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from engine.agents.model import Model
from engine.agents.unit import LIMIT_THE_ANSWER, LIMITED_AGENT, LIMITED_MODEL
from engine.app.actions import synthesize, tool_call
from engine.app.actor import Actor, Expectation
from engine.app.app import App
from engine.app.findings import raise_finding, update_finding
from engine.app.function_tool import CALL, FunctionTool, ToolGroup
from engine.app.outputs import output, propose_output
from engine.app.strategy import Function, Needs
from engine.app.tools import OF_THE_ENGINE, Tool
from engine.functions.agents import declared_agent, problem_of_provider
from engine.functions.context import FunctionContext
from engine.functions.source import (
    FunctionSource,
    SourceProblem,
    StrategyPlace,
    assigned_in,
    first_argument,
    first_places,
    functions_of,
    sources_of,
    value_of,
)
from engine.spending.prices import Prices, are_listed, nobody_knows
from engine.validation import near
from streams.model.findings import Severity
from streams.public_events import PUBLIC_EVENTS

if TYPE_CHECKING:  # The extra may not be there.
    from engine.agents.spec import DeclaredAgent

SEVERITIES: Final = tuple(each.value for each in Severity)

LIKE_MIN: Final = 0.8
"""How much a word must be like one of a public event to be taken for it, from 0 to 1."""

_RAISING: Final[frozenset[Callable[..., object]]] = frozenset({raise_finding, update_finding})

_PROPOSING: Final[frozenset[Callable[..., object]]] = frozenset({output, propose_output})


_OURS: Final = frozenset({"engine", "streams", "vigil"})
"""The packages whose functions are held to their arguments."""

_Unknown: TypeAlias = tuple[str, str]
"""A name that does not exist, and those that do."""


def unknown_names(app: App) -> dict[SourceProblem, StrategyPlace]:
    """Return each name in the strategies of `app` that does not exist → where it is first used."""
    return first_places(app, partial(unknown_names_in, app))


def unknown_names_in(app: App, actor: Actor, strategy: object) -> list[SourceProblem]:
    """Return the names in the source of a strategy that `actor` does not have, in order."""
    found = [
        source.problem(call, found=name, instead=instead)
        for source, call, ctx in _calls(strategy)
        for name, instead in _unknown(app, actor, source, call, ctx=ctx)
    ]
    return list(dict.fromkeys(found))


def _calls(strategy: object) -> Iterator[tuple[FunctionSource, ast.Call, tuple[str, ...]]]:
    """Yield the calls in the source of a strategy, and in the tools of its agents, in order.

    Each comes with what the context is called there.
    """
    functions = functions_of(strategy)
    # What a method of a class gets first is the strategy itself.
    # guard: self-call-not-of-ctx
    ctx = first_argument(functions[0]) if isinstance(strategy, Function) and functions else ()
    seen, waiting = {*functions}, deque([(functions, ctx)])
    while waiting:
        functions, ctx = waiting.popleft()
        for source in sources_of(functions):
            calls = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call)]
            for call in sorted(calls, key=lambda each: (each.lineno, each.col_offset)):
                yield source, call, ctx
                agent = _agent_of(source, call, ctx)
                # guard: check-looks-into-agents
                steps = [each for each in agent.steps if each not in seen] if agent else []
                seen.update(steps)
                waiting.extend(([each], first_argument(each)) for each in steps)


def _agent_of(source: FunctionSource, call: ast.Call, ctx: tuple[str, ...]) -> DeclaredAgent | None:
    """Return what is declared of the agent that a call of `ctx.agent` runs; None: not known."""
    given = call.args[0] if call.args else _keyword(call, "agent")
    if given is None or _method(call.func, ctx) != "agent":
        return None
    return declared_agent(_known(given, source))


def _known(node: ast.expr, source: FunctionSource) -> object:
    """Return what `node` means in the module of `source`; None: nothing that is known there."""
    is_inner = isinstance(node, ast.Name) and node.id in source.function.__code__.co_freevars
    return None if is_inner else value_of(node, source.function)


def equal_agents(app: App) -> dict[SourceProblem, StrategyPlace]:
    """Return each agent with the name of another one of the app → where it is first run."""
    known: dict[str, object] = {}

    def look(_: Actor, strategy: object) -> Iterator[SourceProblem]:
        for source, call, ctx in _calls(strategy):
            agent = _agent_of(source, call, ctx)
            # guard: equal-agents-told
            if (
                agent
                and agent.name
                and known.setdefault(agent.name, agent.agent) is not agent.agent
            ):
                instead = "another agent has this name; steps and costs do not tell them apart"
                yield source.problem(call, found=f"agent {agent.name!r}", instead=instead)

    return first_places(app, look)


def unlimited_answers(app: App) -> dict[SourceProblem, StrategyPlace]:
    """Return each request to a model that is never made, as it may cost anything → where it is.

    Where a limit in dollars applies, answers need one, too.
    """

    def look(actor: Actor, strategy: object) -> Iterator[SourceProblem]:
        for each in _asked_within_limits(app, actor, strategy):
            if not each.answers_limited:  # guard: unlimited-answer-told
                instead = f"{LIMIT_THE_ANSWER}: {each.limit}"
                yield SourceProblem(place=each.place, found=each.found, instead=instead)

    return first_places(app, look)


def unpriced_models(app: App) -> dict[SourceProblem, StrategyPlace]:
    """Return each model that is never asked, as nobody knows its price → where it would be.

    That is where a limit in dollars applies, and the app does not say `unpriced="zero"`. Models
    that are known only at run time are left out.
    """
    if app.unpriced != "refuse":  # guard: unpriced-told-where-refused
        return {}
    if not are_listed():  # guard: unpriced-told-by-list
        return {}
    prices = Prices(app.prices)

    def look(actor: Actor, strategy: object) -> Iterator[SourceProblem]:
        for each in _asked_within_limits(app, actor, strategy):
            for model in each.models:
                if not prices.is_priced(model):  # guard: unpriced-model-told
                    told = nobody_knows(model)
                    yield SourceProblem(place=each.place, found=each.found, instead=told)

    return first_places(app, look)


class _Asked(NamedTuple):
    """Who asks a model where a limit in dollars applies."""

    place: str
    found: str
    models: Sequence[str]
    """The names of those that it may ask in turn, as their requests have them, if known."""
    answers_limited: bool
    limit: str
    """How to limit its answers."""


def _asked_within_limits(app: App, actor: Actor, strategy: object) -> Iterator[_Asked]:
    of_all, of_steps = bool(app.spending or actor.spending), _steps_within_budgets(app)
    declared = [each for each in actor.expectations.values() if each.strategy is strategy]
    limited = [
        each for each in declared if of_all or each.budget.usd or (actor.id, each.name) in of_steps
    ]
    is_limited = bool(limited) or (of_all and not declared)  # Definitions may name it.
    if not is_limited:  # guard: told-where-dollars-limited
        return
    asked = [app.synthesizer_of(actor, each) for each in limited] or [app.synthesizer]
    models = [each for each in asked if isinstance(each, Model)]
    needs = getattr(strategy, "needs", Needs())
    for each in limited:  # Of a template there is no line.
        place = f"{actor.id}.{each.name}"
        if needs.model:  # guard: template-agent-looked-at
            found, limit = f"agent {needs.model!r}", "agent: model_settings: max_tokens"
            yield _Asked(place, found, [needs.model], needs.answers_limited, limit)
        if needs.synthesizer:  # guard: template-synthesizer-looked-at
            yield from (_of_model(place, model) for model in models)
    for source, call, ctx in _calls(strategy):
        place = source.place(call)
        if agent := _agent_of(source, call, ctx):  # guard: agent-looked-at
            found, known = f"agent {agent.name!r}", _models_of(agent, source, call)
            yield _Asked(place, found, known, agent.answers_limited, LIMITED_AGENT)
        # guard: synthesizer-looked-at
        if _method(call.func, ctx) == "synthesize" or (
            value_of(call.func, source.function) is synthesize
        ):
            yield from (_of_model(place, model) for model in models)


def _of_model(place: str, model: Model) -> _Asked:
    return _Asked(place, f"{model!r}", model.names, model.answers_limited, LIMITED_MODEL)


def _models_of(agent: DeclaredAgent, source: FunctionSource, call: ast.Call) -> list[str]:
    """Return the name of the model that a call of `ctx.agent` asks; none: it is not known."""
    given = _keyword(call, "model")
    if given is None:
        is_spread = any(each.arg is None for each in call.keywords)
        return [agent.asks] if agent.asks and not is_spread else []  # guard: spread-model-unknown
    named = _text(given) or _known(given, source)
    return [named] if isinstance(named, str) else []


def _steps_within_budgets(app: App) -> set[tuple[str, str]]:
    """Return the actors and expectations that workflows with a budget in dollars run."""
    limited = {name for name, each in app.workflows.items() if each.budget_usd}
    left = list(limited)
    while left:  # guard: nested-step-within-budget
        nested = {step.workflow for step in app.workflows[left.pop()].steps.values()} - {""}
        left += nested - limited
        limited |= nested
    steps = [step for name in limited for step in app.workflows[name].steps.values()]
    undone = (step.compensate for step in steps if step.compensate is not None)
    return {(step.actor, step.expectation) for step in steps} | {*undone}


def _unknown(
    app: App, actor: Actor, source: FunctionSource, call: ast.Call, *, ctx: tuple[str, ...]
) -> Iterator[_Unknown]:
    called = value_of(call.func, source.function)
    method = _method(call.func, ctx)
    if method and not hasattr(FunctionContext, method):  # guard: method-of-ctx-exists
        instead = FunctionContext.INSTEAD.get(method)
        yield ast.unparse(call.func), instead or near(method, _public(FunctionContext))
    elif misfit := _misfit(call, called, method):  # guard: arguments-of-ours-exist
        yield f"{ast.unparse(call.func)}(…)", misfit
    elif called in _RAISING:
        severity = _text(_keyword(call, "severity"))
        if severity is not None and severity not in SEVERITIES:  # guard: severity-exists
            yield _told("severity", severity, SEVERITIES)
    elif called in _PROPOSING or method == "output":
        adapter = _text(call.args[0] if call.args else _keyword(call, "adapter"))
        if adapter is not None and adapter not in app.outputs:  # guard: output-exists
            yield _told("output", adapter, sorted(app.outputs))
    elif method == "agent":
        yield from _unknown_of_agent(app, actor, source, call, ctx)
        if read := _unkept(source, call, ctx):  # guard: unkept-messages-told
            yield f"{read}.messages", "ctx.agent(…, keep_messages=True)"
    elif method == "episode":
        yield from _unknown_child(app, call)
    elif method == "call" or called is tool_call:
        yield from _unknown_tool(app, actor, source, call, is_split=called is tool_call)


def _unknown_of_agent(
    app: App, actor: Actor, source: FunctionSource, call: ast.Call, ctx: tuple[str, ...]
) -> Iterator[_Unknown]:
    """Yield what an agent lacks, as far as it can be known before it runs."""
    agent = _agent_of(source, call, ctx)
    if agent is None:
        return
    if not agent.name:  # guard: agent-without-name-told
        yield "agent without a name", 'Agent(…, name="triage")'
    for tool in agent.tools:
        if not _has_tool(app, actor, tool.capability, tool.action):  # guard: agents-tool-exists
            name = f"{tool.capability}.{tool.action}"
            yield _told(f"tool of agent {agent.name!r}", name, _tools_of(app, actor))
    model = _text(_keyword(call, "model")) or agent.model
    if model and (problem := problem_of_provider(model)):  # guard: agents-provider-exists
        yield f"model {model!r}", problem


def _unkept(source: FunctionSource, call: ast.Call, ctx: tuple[str, ...]) -> str:
    """Return what a conversation is read of that a run of an agent has not kept; empty: none is."""

    def lacks(made: ast.AST) -> bool:
        match made:
            case ast.Await(value=ast.Call(func=func, keywords=given)):
                # None: what is spread may have it.
                is_said = any(each.arg in {"keep_messages", None} for each in given)
                return _method(func, ctx) == "agent" and not is_said
            case _:
                return False

    assigned = assigned_in(source.tree)
    for node in ast.walk(source.tree):
        match node:
            case ast.Attribute(value=ast.Await(value=made) as value, attr="messages"):
                if made is call and lacks(value):
                    return "ctx.agent(…)"
            case ast.Attribute(value=ast.Name(id=name), attr="messages"):
                values = assigned.get(name, [])
                is_of_call = any(isinstance(e, ast.Await) and e.value is call for e in values)
                if is_of_call and all(map(lacks, values)):
                    return name
            case _:
                pass
    return ""


def _unknown_child(app: App, call: ast.Call) -> Iterator[_Unknown]:
    """Yield the expectation of an actor of `app` that it does not have; others may be defined."""
    actor, expectation = _child_of(call)
    known = app.actors.get(actor) if actor is not None else None
    # guard: expectation-of-child-exists
    if known is not None and expectation is not None and expectation not in known.expectations:
        yield _told(f"expectation of {actor}", expectation, sorted(known.expectations))


def _child_of(call: ast.Call) -> tuple[str | None, str | None]:
    """Return the actor and the expectation that a call of `ctx.episode` names; None: computed."""
    given = dict(zip(("actor", "expectation"), call.args, strict=False))
    named = {name: given.get(name, _keyword(call, name)) for name in ("actor", "expectation")}
    return _text(named["actor"]), _text(named["expectation"])


def misspelt_names(app: App) -> dict[SourceProblem, StrategyPlace]:
    """Return each name that may be meant otherwise → where it is first used.

    That is an event that differs in little from one that the engine publishes, and an actor that
    `ctx.episode` starts and that differs in little from one of `app`. Both may exist elsewhere.
    """
    found = first_places(app, partial(_misspelt_children, app))
    for actor in app.actors.values():
        for expectation in actor.expectations.values():
            for each in _misspelt_events(expectation):
                found.setdefault(each, StrategyPlace(actor.id, expectation.name))
    return found


def _misspelt_children(app: App, _: Actor, strategy: object) -> Iterator[SourceProblem]:
    functions = functions_of(strategy)
    ctx = first_argument(functions[0]) if isinstance(strategy, Function) and functions else ()
    for source in sources_of(functions):
        for call in ast.walk(source.tree):
            if isinstance(call, ast.Call) and _method(call.func, ctx) == "episode":
                actor, _expectation = _child_of(call)
                like = get_close_matches(actor or "", app.actors, n=1)
                # guard: misspelt-child-told
                if actor is not None and actor not in app.actors and like:
                    instead = f"did you mean {like[0]}? This app has no other"
                    yield source.problem(call, found=f"actor {actor!r}", instead=instead)


def _misspelt_events(expectation: Expectation) -> Iterator[SourceProblem]:
    functions = functions_of(expectation.strategy)
    for name in sorted(expectation.event_names) if functions else ():
        if like := _public_event_like(name):
            code = functions[0].__code__
            place = f"{Path(code.co_filename).name}:{code.co_firstlineno}"
            instead = f"did you mean {like}, which the engine publishes?"
            yield SourceProblem(place=place, found=f"event {name!r}", instead=instead)


def _public_event_like(name: str) -> str:
    """Return the public event of which one word is spelt otherwise in `name`; empty: none is."""
    words = name.split(".")
    for each in sorted(PUBLIC_EVENTS):
        others = each.split(".")
        pairs = zip(words, others, strict=False) if len(words) == len(others) else ()
        strays = [(word, other) for word, other in pairs if word != other]
        # guard: misspelt-event-told
        if len(strays) == 1 and get_close_matches(strays[0][0], strays[0][1:], cutoff=LIKE_MIN):
            return each
    return ""


def _misfit(call: ast.Call, called: object, method: str) -> str:
    """Return why the arguments of a call of ours do not fit; empty: they may."""
    ours = getattr(FunctionContext, method) if method else called
    if not isinstance(ours, FunctionType | type) or ours.__module__.partition(".")[0] not in _OURS:
        return ""
    is_spread = any(isinstance(each, ast.Starred) for each in call.args)
    if is_spread or any(each.arg is None for each in call.keywords):
        return ""
    given: list[None] = [None] * (len(call.args) + bool(method))
    named = [str(each.arg) for each in call.keywords]
    taken = signature(ours).parameters
    is_open = any(each.kind is Parameter.VAR_KEYWORD for each in taken.values())
    stray = next((each for each in named if each not in taken and not is_open), "")
    if stray:
        return "; ".join(filter(None, (f"there is no argument {stray!r}", near(stray, taken))))
    try:
        signature(ours).bind(*given, **dict.fromkeys(named))
    except TypeError as error:
        return str(error)
    return ""


def _public(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_")]


def _unknown_tool(
    app: App, actor: Actor, source: FunctionSource, call: ast.Call, *, is_split: bool
) -> Iterator[_Unknown]:
    given = call.args[0] if call.args else None
    named = value_of(given, source.function) if given is not None else None
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
    if not _has_tool(app, actor, capability, action or CALL):
        name = f"{capability}.{action}" if action else capability
        yield _told("tool", name, _tools_of(app, actor))


def _has_tool(app: App, actor: Actor, capability: str, action: str) -> bool:
    # guard: tool-within-capabilities
    return actor.may_call(capability) and app.tool(actor, capability, action) is not None


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


def _told(what: str, name: str, known: Sequence[str]) -> _Unknown:
    return f"{what} {name!r}", f"one of {', '.join(known)}" if known else "there is none"


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
