"""`App`: the actors of a node, and the tools, outputs and templates that all of them share. Pure.

An app is checked as a whole when it is declared. `on_stack` then leaves out the actors that name
other stacks, and any workflow whose steps need one of those, directly or not: its instances could
never end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from inspect import isfunction
from typing import Any, Final, Literal, TypeAlias, TypeVar, get_args

import msgspec

from engine.app.actions import problem_of_declared
from engine.app.actor import QUEUE_MAX, Actor, Expectation, Policy, StrategyLike
from engine.app.checks import Check, checked_callback, problem_of_prices, problem_of_spending
from engine.app.function_tool import ToolGroup, Tools, checked_tools
from engine.app.outputs import Outputs, Route, checked_routes
from engine.app.strategy import (
    Function,
    Needs,
    Strategy,
    StrategyFunction,
    Template,
    checked_templates,
)
from engine.app.tools import (
    GATHER,
    OF_THE_ENGINE,
    Gatherer,
    Gathering,
    Synthesizer,
    Tool,
    checked_gatherers,
    named_tools,
    retries_of,
)
from engine.app.workflow import Workflow, ancestors
from engine.app.workflow_plan import checked_workflows, problem_of_id, starter_id, starters_of
from engine.errors import DeclarationError
from engine.validation import near
from streams.model.money import Price, Spending
from streams.model.triggers import Overrides

R = TypeVar("R")
"""What an app keeps under names."""


ALL: Final = "(all)"
"""The actor's name in an error that concerns every actor."""


Unpriced: TypeAlias = Literal["refuse", "zero"]
"""What becomes of a request to a model whose price nobody knows; see `App`."""

NodeName: TypeAlias = Callable[[], str]


class Orphan(msgspec.Struct, frozen=True, kw_only=True):
    """An episode whose node crashed, for `resolve_policy`."""

    episode_id: str
    actor_id: str
    expectation_id: str
    node: str
    """The one that crashed."""
    crashes: int
    """This one included."""
    steps_recorded: int


ResolvePolicy: TypeAlias = Callable[[Orphan], Policy | None]


@dataclass(frozen=True, init=False)
class App:
    """The work of a node. Any of its nodes runs any actor."""

    actors: Mapping[str, Actor]
    tools: Mapping[str, Tool]
    outputs: Mapping[str, Route]
    synthesizer: Synthesizer | None = field(default=None)
    resolve_policy: ResolvePolicy | None = field(default=None)
    node_name: NodeName | None = field(default=None)
    gatherers: Mapping[str, Gatherer] = field(default_factory=dict)
    templates: Mapping[str, Template] = field(default_factory=dict)
    strategies: Mapping[str, Strategy[Any] | StrategyFunction | Function] = field(
        default_factory=dict
    )
    workflows: Mapping[str, Workflow] = field(default_factory=dict)
    spending: tuple[Spending, ...] = ()
    prices: Mapping[str, Price] = field(default_factory=dict)
    unpriced: Unpriced = "refuse"

    def __init__(
        self,
        *,
        actors: Sequence[Actor] = (),
        tools: Tools | None = None,
        outputs: Outputs | None = None,
        synthesizer: Synthesizer | None = None,
        resolve_policy: ResolvePolicy | None = None,
        node_name: NodeName | None = None,
        gatherers: Mapping[str, Gatherer] | None = None,
        templates: Mapping[str, Template] | None = None,
        strategies: Mapping[str, StrategyLike] | None = None,
        workflows: Sequence[Workflow] = (),
        spending: Sequence[Spending] = (),
        prices: Mapping[str, Price] | None = None,
        unpriced: Unpriced = "refuse",
    ) -> None:
        """Declare an app.

        Args:
            actors: those declared in code, each with a unique id and at least one expectation.
                Nodes load others from definitions while they run. None: only those.
            tools: functions with `@tool`, or capability → tool, for actors without a tool of
                that name.
            outputs: name → adapter, or a `Route` to one.
            synthesizer: for actors without one.
            resolve_policy: asked after a crash for the episode's recovery policy; None: the
                expectation's.
            node_name: called once when a node without a name starts; returns the name. It must be
                unique in the stack: 1 to 64 of A-Z a-z 0-9 _ -
            gatherers: name → function that templates ask for facts; see `engine.app.tools`.
            templates: name → function that makes a strategy from a configuration, in addition to
                the built-in ones; see `engine.templates`.
            strategies: name → function or strategy that definitions may name, such as
                `"checks:check_disk"`.
            workflows: `actors` must include every actor that a step names, also if other nodes
                run it. The triggers of each are queued as `workflow-<name>`.
            spending: most that requests of all episodes of the stack to models may cost in a
                window, such as `[Spending(usd="50", per="month")]`, beside what actors say. Every
                node must say the same. Default: no limit.
            prices: model → `Price(…)`, such as `{"openai:my-model": Price(…)}`, for models that
                the package genai-prices does not know, or that cost you something else. A model
                whose name may be written in several ways has one price.
            unpriced: what becomes of a request to a model whose price nobody knows, where a limit
                in dollars applies. `"refuse"`: its episode fails as `unpriced_model` before it is
                made. `"zero"`: it is made, and counts for nothing.

        Raises `DeclarationError`, for a workflow `BadWorkflow`, if a value cannot work; the message
        names it.
        """
        synthesizer = checked_callback(synthesizer, actor=ALL, field="synthesizer")
        resolve_policy = checked_callback(resolve_policy, actor=ALL, field="resolve_policy")
        object.__setattr__(self, "actors", _by_id(actors))
        object.__setattr__(self, "tools", checked_tools(tools or {}, actor=ALL))
        object.__setattr__(self, "outputs", _routes(outputs))
        object.__setattr__(self, "synthesizer", synthesizer)
        object.__setattr__(self, "resolve_policy", resolve_policy)
        node_name = checked_callback(node_name, actor=ALL, field="node_name")
        object.__setattr__(self, "node_name", node_name)
        known = _registered("gatherers", gatherers, checked_gatherers)
        object.__setattr__(self, "gatherers", known)
        object.__setattr__(self, "tools", {**self.tools, GATHER: Gathering(known)})
        object.__setattr__(
            self, "templates", _registered("templates", templates, checked_templates)
        )
        object.__setattr__(self, "strategies", _strategies(strategies or {}))
        check = Check(ALL)
        limits = tuple(check.sound("spending", spending, problem_of_spending))
        object.__setattr__(self, "spending", limits)
        known_prices = dict(check.sound("prices", prices or {}, problem_of_prices))
        object.__setattr__(self, "prices", known_prices)
        object.__setattr__(self, "unpriced", check.choice("unpriced", unpriced, get_args(Unpriced)))
        known_workflows = checked_workflows(workflows, self.actors)
        starters = starters_of(known_workflows, self.actors)
        object.__setattr__(self, "workflows", known_workflows)
        object.__setattr__(self, "actors", {**self.actors, **starters})
        for actor in self.actors.values():
            self.check(actor)

    def check(self, actor: Actor) -> None:
        """Raise `DeclarationError` unless `actor` could be one of this app's."""
        if not actor.expectations:
            raise Check(actor.id).refuse("expectations", "none; use actor.expect(…)")
        if problem := problem_of_id(actor):
            raise Check(actor.id).refuse("id", problem)
        if absent := sorted((actor.capabilities or set()) - {*actor.tools, *self.tools}):
            known = ", ".join(sorted({*actor.tools, *self.tools} - OF_THE_ENGINE)) or "none"
            problem = f"no tool is called {absent[0]!r}; there are: {known}"
            raise Check(actor.id).refuse("capabilities", problem)
        if problem := _problem_of_queue(actor):  # guard: queue-bound-without-queue
            raise Check(actor.id).refuse("queue_max", problem)
        if problem := _problem_of_breakers(actor):
            raise Check(actor.id).refuse("breaker", problem)
        for expectation in actor.expectations.values():
            check, strategy = Check(actor.id, expectation.name), expectation.strategy
            needs = getattr(strategy, "needs", Needs())
            self._check_named(check, needs)
            self._check_tools(check, actor, needs)
            # guard: declared-override-of-a-tool
            if expectation.dry_run and (problem := self.problem_of_overrides(expectation.dry_run)):
                raise check.refuse("dry_run", problem)
            retries = retries_of(self.synthesizer_of(actor, expectation))
            # guard: synthesizer-with-impossible-retries
            if problem := problem_of_declared(retries):
                raise check.refuse("synthesizer", problem)
            # guard: app-has-asked-synthesizer
            if needs.synthesizer and self.synthesizer_of(actor, expectation) is None:
                raise check.refuse("strategy", "there is no synthesizer to ask; App(synthesizer=…)")

    def replaced(
        self,
        *,
        strategies: Mapping[str, StrategyLike] | None = None,
        synthesizers: Mapping[str, Synthesizer] | None = None,
    ) -> App:
        """Return this app with other strategies or synthesizers, for staging or an experiment.

            staging = app.replaced(strategies={"monitor.disk_has_room": cautious})

        Args:
            strategies: `"actor.expectation"` → what `actor.expect` takes. Open episodes of that
                expectation are replayed with it.
            synthesizers: `"actor.expectation"` → what it asks, before the actor's and the app's.

        Raises `DeclarationError` if there is no such expectation, or a value cannot work.
        """
        actors = dict(self.actors)
        chosen, asked = strategies or {}, synthesizers or {}
        for place in sorted({*chosen, *asked}):
            id_, _, name = place.rpartition(".")
            # guard: replaced-in-app-must-exist
            if id_ not in actors or name not in actors[id_].expectations:
                raise Check(ALL).refuse("replaced", _no_such_expectation(place, actors))
            strategy, synthesizer = chosen.get(place), asked.get(place)
            actors[id_] = actors[id_].replaced(name, strategy=strategy, synthesizer=synthesizer)
        made = copy(self)
        object.__setattr__(made, "actors", actors)
        for actor in actors.values():
            made.check(actor)
        return made

    def supplied(self, tools: Mapping[str, Tool]) -> App:
        """Return this app with tools that the engine supplies, beside its own."""
        made = copy(self)
        object.__setattr__(made, "tools", {**self.tools, **tools})
        return made

    def tool(self, actor: Actor, capability: str, action: str) -> Tool | None:
        """Return the tool of `actor` for `action` of `capability`, or None."""
        for tools in (actor.tools, self.tools):
            found = tools.get(capability)
            if isinstance(found, ToolGroup):
                found = found.functions.get(action)
            if found is not None:
                return found
        return None

    def problem_of_overrides(self, given: Overrides) -> str | None:
        """Return which override is for a tool that no actor of this app has, or None."""
        for name in named_tools(given):
            capability, _, action = name.partition(".")
            names = self._tool_names(action)
            if name not in names and capability not in OF_THE_ENGINE:
                what = f"an override is for {name!r}, and no tool is called that"
                return "; ".join(filter(None, (what, near(name, sorted(names)))))
        return None

    def _tool_names(self, action: str) -> set[str]:
        """Return the names of all tools; one that takes any action is named with `action`."""
        groups = [self.tools, *(actor.tools for actor in self.actors.values())]
        names = set[str]()
        for capability, tool in (each for tools in groups for each in tools.items()):
            actions = tool.functions if isinstance(tool, ToolGroup) else (action,)
            names.update(f"{capability}.{each}" for each in actions)
        return {name for name in names if name.partition(".")[0] not in OF_THE_ENGINE}

    def synthesizer_of(self, actor: Actor, expectation: Expectation) -> Synthesizer | None:
        """Return the nearest synthesizer: the expectation's, the actor's or the app's."""
        return expectation.synthesizer or actor.synthesizer or self.synthesizer

    def _check_named(self, check: Check, needs: Needs) -> None:
        """Refuse a strategy that names what the app does not have."""
        if needs.gatherer and needs.gatherer not in self.gatherers:
            known = ", ".join(sorted(self.gatherers)) or "nothing"
            problem = f"no gatherer is called {needs.gatherer!r}; App(gatherers=…) has {known}"
            raise check.refuse("strategy", problem)
        for index, adapter in enumerate(needs.outputs):
            if adapter not in self.outputs:  # guard: app-has-named-adapters
                known = ", ".join(sorted(self.outputs)) or "nothing"
                problem = f"no output is called {adapter!r}; App(outputs=…) has {known}"
                raise check.refuse(f"strategy.config.outputs.{index}.adapter", problem)

    def _check_tools(self, check: Check, actor: Actor, needs: Needs) -> None:
        """Refuse a strategy whose agent could not call the tools that it is offered."""
        for index, name in enumerate(needs.tools):
            capability, _, action = name.partition(".")
            at = f"strategy.config.tools.{index}"
            if self.tool(actor, capability, action) is None:  # guard: agent-tools-of-app
                problem = f"no tool is called {name!r}; give it to the app or the actor: tools=[…]"
                raise check.refuse(at, problem)
            # guard: agent-tools-within-capabilities
            if actor.capabilities is not None and capability not in actor.capabilities:
                raise check.refuse(at, f"the capabilities of the actor lack {capability!r}")


def _no_such_expectation(place: str, actors: Mapping[str, Actor]) -> str:
    known = ", ".join(
        f"{id_}.{name}" for id_ in sorted(actors) for name in actors[id_].expectations
    )
    return f"there is no expectation {place!r}; there are: {known or 'none'}"


def _routes(outputs: Outputs | None) -> Mapping[str, Route]:
    try:
        return checked_routes({} if outputs is None else outputs)
    except (TypeError, ValueError) as error:
        raise DeclarationError(actor=ALL, field="outputs", problem=str(error)) from error


def _by_id(actors: Sequence[Actor]) -> Mapping[str, Actor]:
    by_id: dict[str, Actor] = {}
    given: object = actors
    if not isinstance(given, Sequence):
        raise DeclarationError(actor=repr(given), field="actors", problem="is not a list")
    for actor in actors:
        if not isinstance(actor, Actor):
            raise DeclarationError(actor=repr(actor), field="actors", problem="is not an Actor")
        if actor.id in by_id:
            raise DeclarationError(actor=actor.id, field="id", problem="declared twice")
        by_id[actor.id] = actor
    return by_id


def _registered(
    field_: str, given: object, check: Callable[[object], Mapping[str, R]]
) -> Mapping[str, R]:
    try:
        return check({} if given is None else given)
    except (TypeError, ValueError) as error:
        raise DeclarationError(actor=ALL, field=field_, problem=str(error)) from error


def _strategies(given: object) -> Mapping[str, Strategy[Any] | StrategyFunction | Function]:
    if not isinstance(given, Mapping):
        raise Check(ALL).refuse("strategies", f"{given!r} is not a dict of name to strategy")
    return {str(name): _strategy(each) for name, each in given.items()}


def _strategy(given: object) -> Strategy[Any] | StrategyFunction | Function:
    if isinstance(given, Function):
        return given
    check = Check(ALL)
    # guard: expectation-function-nameable
    return check.strategy_function(given).run if isfunction(given) else check.strategy(given)


def _problem_of_queue(actor: Actor) -> str | None:
    if actor.queue_max == QUEUE_MAX:
        return None
    if not actor.is_laned:
        return (
            "no episode waits for its turn; give max_concurrent_cluster or overflow,"
            " or an expectation concurrency_key or priority"
        )
    if actor.overflow == "drop":
        return 'nothing waits with overflow="drop"; leave it out'
    return None


def _problem_of_breakers(actor: Actor) -> str | None:
    if not actor.is_laned:
        return None
    for expectation in actor.expectations.values():
        # guard: no-node-breaker-in-lane
        if expectation.breaker is not None and expectation.breaker.scope == "node":
            return (
                f'scope="node" of expectation {expectation.name!r}: its episodes take turns, and'
                " one node opens those of all; leave scope out"
            )
    return None


class Absent(msgspec.Struct, frozen=True, kw_only=True):
    """What a stack lacks of an app, by name and in order."""

    actors: tuple[str, ...]
    """The declared ones; starters of absent workflows are not listed."""
    workflows: tuple[str, ...]


def on_stack(app: App, stack: str) -> App:
    """Return `app` without what the stack called `stack` lacks."""
    absent = absent_from(app, stack)
    gone = {*absent.actors, *map(starter_id, absent.workflows)}
    made = copy(app)
    object.__setattr__(
        made, "actors", {id_: each for id_, each in app.actors.items() if id_ not in gone}
    )
    object.__setattr__(
        made,
        "workflows",
        {name: each for name, each in app.workflows.items() if name not in absent.workflows},
    )
    return made


def absent_from(app: App, stack: str) -> Absent:
    """Return the parts of `app` that do not run on the stack called `stack`."""
    actors = {actor.id for actor in app.actors.values() if not actor.runs_on(stack)}
    lacking = {each.name for each in app.workflows.values() if _asks(each) & actors}
    within = {name: tuple(_inner(each)) for name, each in app.workflows.items()}
    # guard: workflow-with-its-inner
    workflows = {name for name in within if {name, *ancestors(within, name)} & lacking}
    return Absent(actors=tuple(sorted(actors)), workflows=tuple(sorted(workflows)))


def _asks(workflow: Workflow) -> set[str]:
    steps = workflow.steps.values()
    undoing = {step.compensate[0] for step in steps if step.compensate is not None}
    return {step.actor for step in steps if step.actor} | undoing


def _inner(workflow: Workflow) -> set[str]:
    return {step.workflow for step in workflow.steps.values() if step.workflow}
