"""Whether what is to be defined can run: with a certain app, or with any.

Without one, an app is made up that has whatever the definitions name: what a node of that would
refuse, every node refuses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec

from engine.app.actions import Action, converge
from engine.app.actor import Actor
from engine.app.app import App, on_stack
from engine.app.strategy import ConvergeResult, Strategy
from engine.app.tools import check_name
from engine.app.triggers import Cron, Every, spec_of
from engine.app.workflow import cycle
from engine.app.workflow_plan import START_EXPECTATION
from engine.cluster.nodes import NodeInfo, known
from engine.definitions import AgentDefinition, agent_of, workflow_of
from engine.definitions.agent import SourceDefinition, StrategyDefinition
from engine.definitions.make import catalog_of, make
from engine.errors import BadDefinition
from engine.templates import BUILT_IN
from streams.json import NOTHING, JsonObject, unraw
from streams.model.definitions import ID_KINDS, RegisteredDefinition, definition_id
from streams.model.events.definitions import DefinitionKind
from vigil.asking.definitions.drafts import Draft
from vigil.asking.stack import defined_by, in_code
from vigil.errors import Mistake, Trouble

STRATEGY: Final = "strategy"
TEMPLATE: Final = "template"
GATHERER: Final = "gatherer"
OUTPUT: Final = "output"
TOOL: Final = "tool"
"""What definitions name of an app."""


def require_undeclared(nodes: Iterable[NodeInfo], drafts: Sequence[Draft]) -> None:
    """Refuse drafts of what a node declares in code, which goes before a definition there."""
    there = list(nodes)
    for draft in drafts:
        if names := in_code(there, draft.kind, draft.id):  # guard: code-is-not-defined
            what = f"{ID_KINDS[draft.kind]} {draft.id!r} is declared in code on {', '.join(names)}"
            raise Trouble(f"{draft.file}: {what}; take it out of the app there first")


def require_fitting(
    app: App | None,
    stack: str,
    drafts: Sequence[Draft],
    definitions: Iterable[RegisteredDefinition],
) -> None:
    """Refuse drafts that a node could not run: `Mistake` names the file and what is wrong in it.

    Args:
        app: what nodes run; None: nobody knows.
        stack: the name of the one that they run in.
        definitions: what is defined already; workflows may run actors and workflows of these.
    """
    for draft in drafts:
        agent = _agent(draft)
        # guard: other-stacks-definition-refused
        if agent is not None and agent.stacks is not None and stack not in agent.stacks:
            own = ", ".join(agent.stacks)
            raise Mistake(f"{draft.file}: it is for {own}, and this stack is {stack}")
    there = planned(drafts, definitions)
    if app is None:
        _require_workable(drafts, there)
    else:
        _require_all_named(app, stack, drafts, there)


def planned(
    drafts: Iterable[Draft], definitions: Iterable[RegisteredDefinition]
) -> list[RegisteredDefinition]:
    """Return what would be defined if `drafts` were applied."""
    there = {definition_id(each.kind, each.id): each for each in definitions}
    there |= {definition_id(each.kind, each.id): _edition(each) for each in drafts}
    return list(there.values())


def actors_of(drafts: Iterable[Draft]) -> list[Actor]:
    """Return the actors that `drafts` define, whose strategies do nothing: their rules are whole.

    Raises `Mistake`, which names the file and what is wrong in it.
    """
    drafts = list(drafts)
    app = _app_with({name for each in drafts for name in _named(each)})
    actors: list[Actor] = []
    for draft in drafts:
        made = make(_edition(draft), app, here=False)
        if made.problem or made.actor is None:
            raise Mistake(f"{draft.file}: {made.problem}")
        actors.append(made.actor)
    return actors


def unchecked(drafts: Iterable[Draft]) -> list[str]:
    """Return what drafts name of an app, as `gatherer 'disks'`, each once."""
    found = (f"{what} {name!r}" for each in drafts for what, name in _named(each))
    return sorted(dict.fromkeys(found))


def _require_workable(drafts: Sequence[Draft], there: Sequence[RegisteredDefinition]) -> None:
    app = _app_with({name for each in drafts for name in _named(each)})
    for draft in drafts:
        # guard: appless-definition-refused
        if problem := make(_edition(draft), app, here=False).problem:
            raise Mistake(f"{draft.file}: {problem}")
    way = around(there)  # guard: self-running-definition-refused
    for draft in drafts:
        if draft.kind is DefinitionKind.WORKFLOW and draft.id in way.split(" → "):
            raise Mistake(f"{draft.file}: workflow {draft.id!r} runs itself: {way}")


def _require_all_named(
    app: App, stack: str, drafts: Sequence[Draft], there: Sequence[RegisteredDefinition]
) -> None:
    here = on_stack(app, stack)
    made = [make(each, here) for each in there]
    problems = catalog_of(here, made, stack=stack).problems
    for draft in drafts:
        problem = problems.get(definition_id(draft.kind, draft.id))
        if problem is not None:
            raise Mistake(f"{draft.file}: {problem}")


def _app_with(named: Iterable[tuple[str, str]]) -> App:
    """Return an app that has what is `named`, and does nothing with it."""
    kinds = STRATEGY, TEMPLATE, GATHERER, OUTPUT, TOOL
    names: dict[str, list[str]] = {kind: [] for kind in kinds}
    for what, name in named:
        names[what].append(name)
    return App(
        strategies=dict.fromkeys(names[STRATEGY], _AnyStrategy),
        templates=dict.fromkeys(names[TEMPLATE], _any_template),
        gatherers=dict.fromkeys(names[GATHERER], _nothing),
        outputs=dict.fromkeys(names[OUTPUT], _nothing),
        synthesizer=_nothing,
    )


class _AnyStrategy(Strategy[None]):
    def init(self, *_: object) -> None:
        pass

    def next_step(self, *_: object) -> Action:
        return converge()

    def converge(self, *_: object) -> ConvergeResult:
        return ConvergeResult()


def _any_template(_config: JsonObject) -> Strategy[Any]:
    return _AnyStrategy()


async def _nothing(*_: object, **__: object) -> None:
    pass


def _named(draft: Draft) -> Iterator[tuple[str, str]]:
    agent = _agent(draft)
    for each in agent.expectations.values() if agent is not None else ():
        for what, name in _named_by(each.strategy):
            # Why an app can have nothing under a name, it is for others to tell.
            with suppress(ValueError):
                # They may also be a `module:Class`, and `capability.action`.
                if what not in {STRATEGY, TOOL}:
                    check_name(name, of=f"a {what}")
                yield what, str(name)


def _named_by(strategy: StrategyDefinition) -> Iterator[tuple[str, object]]:
    if strategy.ref:
        yield STRATEGY, strategy.ref
    elif strategy.template not in BUILT_IN:
        yield TEMPLATE, strategy.template
    else:
        yield GATHERER, strategy.config.get("gatherer")
        tools = strategy.config.get("tools")
        for each in tools if isinstance(tools, list) else ():
            yield TOOL, each
        outputs = strategy.config.get("outputs")
        for each in outputs if isinstance(outputs, list) else ():
            yield OUTPUT, each.get("adapter") if isinstance(each, dict) else None


def _agent(draft: Draft) -> AgentDefinition | None:
    return agent_of(unraw(draft.body)) if draft.kind is DefinitionKind.AGENT else None


def _edition(draft: Draft) -> RegisteredDefinition:
    return RegisteredDefinition(kind=draft.kind, id=draft.id, revision=1, seq=0, body=draft.body)


Name: TypeAlias = tuple[DefinitionKind, str]
"""An actor or a workflow."""

There: TypeAlias = Mapping[Name, Collection[str] | None]
"""What there is → its expectations; None: they are not known."""


class StepReference(msgspec.Struct, frozen=True):
    """What one step of a workflow names."""

    workflow: str
    step: str
    named: Name
    expectation: str = ""


def step_references(definitions: Iterable[RegisteredDefinition]) -> Iterator[StepReference]:
    """Yield what the steps of the workflows among `definitions` name, unless disabled."""
    for registered in definitions:
        if registered.holds and registered.kind is DefinitionKind.WORKFLOW:
            yield from _needs_of(registered)


def needed_by(
    definitions: Iterable[RegisteredDefinition], named: Name, *, only: Collection[str] | None = None
) -> dict[str, list[str]]:
    """Return workflow → its steps that name an actor or a workflow.

    `only`: these expectations of it; None: any.
    """
    found: defaultdict[str, list[str]] = defaultdict(list)
    for each in step_references(definitions):
        if each.named == named and (only is None or each.expectation in only):
            found[each.workflow].append(each.step)
    return {workflow: list(dict.fromkeys(steps)) for workflow, steps in found.items()}


def around(definitions: Iterable[RegisteredDefinition]) -> str:
    """Return how a workflow among `definitions` runs itself, as `a → b → a`; empty: none does."""
    graph: defaultdict[str, list[str]] = defaultdict(list)
    for each in step_references(definitions):
        kind, id_ = each.named
        if kind is DefinitionKind.WORKFLOW:
            graph[each.workflow].append(id_)
    return cycle(graph)


def lacks(
    nodes: Collection[NodeInfo], definitions: Collection[RegisteredDefinition], workflow: str
) -> list[str]:
    """Return what a workflow names that nobody has, in a line for each.

    Nothing without `nodes`: nobody knows what is in their code. `definitions` are all that there
    are to be, the workflow too.
    """
    if not nodes:  # guard: no-node-no-accusation
        return []
    there = _there(nodes, definitions)
    lines = [
        _lack(each, there) for each in step_references(definitions) if each.workflow == workflow
    ]
    return list(dict.fromkeys(filter(None, lines)))


def _needs_of(registered: RegisteredDefinition) -> Iterator[StepReference]:
    try:
        steps = workflow_of(unraw(registered.body)).steps
    except BadDefinition:  # A newer version has applied it.
        return
    of = partial(StepReference, registered.id)
    for name, step in steps.items():
        if step.workflow:
            yield of(name, (DefinitionKind.WORKFLOW, step.workflow))
        else:
            yield of(name, (DefinitionKind.AGENT, step.actor), step.expectation)
        if (undo := step.compensate) is not None:
            yield of(name, (DefinitionKind.AGENT, undo.actor), undo.expectation)


def _there(nodes: Collection[NodeInfo], definitions: Iterable[RegisteredDefinition]) -> There:
    """Return what nodes have, and what is defined, though no node may run it yet."""
    actors = {actor for node in nodes for actor in node.actors}
    # A node that has much to say of itself leaves the expectations out.
    # guard: silent-node-accuses-nobody
    there: dict[Name, Collection[str] | None] = {
        defined_by(actor): known(nodes, actor) or None for actor in actors
    }
    coded = {
        defined_by(actor) for node in nodes for actor, info in node.actors.items()
        if not info.revision
    }  # fmt: skip
    for each in definitions:
        if (each.kind, each.id) in coded:  # guard: code-before-definition
            continue
        there.pop((each.kind, each.id), None)
        if each.holds:
            there[each.kind, each.id] = _expectations_of(each)
    return there


def _expectations_of(registered: RegisteredDefinition) -> Collection[str] | None:
    if registered.kind is DefinitionKind.WORKFLOW:
        return ()
    try:
        return agent_of(unraw(registered.body)).expectations
    except BadDefinition:  # A newer version has applied it.
        return None


def _lack(need: StepReference, there: There) -> str:
    kind, id_ = need.named
    if need.named not in there:
        known = sorted(each for its_kind, each in there if its_kind is kind)
        has = f"; there are: {', '.join(known)}" if known else ""
        return f"step {need.step}: there is no {ID_KINDS[kind]} {id_!r}{has}"
    expectations = there[need.named]
    if not need.expectation or expectations is None or need.expectation in expectations:
        return ""
    lacks = f"has no expectation {need.expectation!r}; it has: {', '.join(sorted(expectations))}"
    return f"step {need.step}: {ID_KINDS[kind]} {id_!r} {lacks}"


Sources: TypeAlias = Mapping[str, Iterable[SourceDefinition]]
"""Expectation → what fires it."""


def removed(kind: DefinitionKind, before: msgspec.Raw, after: msgspec.Raw) -> list[str]:
    """Return the expectations and the schedules that are gone, by name.

    `before` is `NOTHING` if nothing was ever applied. None if this version cannot read one.
    """
    try:
        had, has = _sources(kind, before), _sources(kind, after)
    except BadDefinition:
        return []
    gone: list[str] = []
    for name in sorted(had):
        if name not in has:
            gone.append(name)
        else:
            # guard: lost-schedule-told
            specs = sorted(_schedules(had[name]) - _schedules(has[name]))
            gone += [f"{name} {spec}" for spec in specs]
    return gone


def _sources(kind: DefinitionKind, body: msgspec.Raw) -> Sources:
    if body == NOTHING:
        return {}
    if kind is DefinitionKind.WORKFLOW:
        return {START_EXPECTATION: workflow_of(unraw(body)).on}
    return {name: each.on for name, each in agent_of(unraw(body)).expectations.items()}


def _schedules(sources: Iterable[SourceDefinition]) -> set[str]:
    made = (each.made() for each in sources)
    return {spec_of(each) for each in made if isinstance(each, Every | Cron)}
