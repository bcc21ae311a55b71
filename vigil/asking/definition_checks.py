"""Whether what is to be defined can run: with some app, whichever it is, or with a certain one.

Without a certain one, an app is made up that has whatever definitions name of an app. What a node
with that would refuse, every node refuses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from engine.app.actions import Action, converge
from engine.app.app import App, on_stack
from engine.app.context import Context, EpisodeView
from engine.app.outputs import OutputView
from engine.app.strategy import ConvergeResult, Strategy
from engine.app.tools import CallContext, check_name
from engine.app.triggers import Cron, Every, spec_of
from engine.app.workflow import cycle
from engine.app.workflow_plan import START_EXPECTATION
from engine.cluster.nodes import NodeInfo, known
from engine.definitions import AgentDefinition, agent_of, workflow_of
from engine.definitions.agent import SourceDefinition, StrategyDefinition
from engine.definitions.make import catalog_of, make
from engine.definitions.steps import StepDefinition
from engine.errors import BadDefinition
from engine.templates import BUILT_IN
from streams.json import NOTHING, JsonObject, unraw
from streams.model.definitions import ID_KINDS, RegisteredDefinition, definition_id
from streams.model.events.definitions import DefinitionKind
from streams.model.triggers import Trigger
from vigil.asking.drafts import Draft
from vigil.asking.stack import defined_by, in_code
from vigil.errors import Mistake, Trouble

STRATEGY: Final = "strategy"
TEMPLATE: Final = "template"
GATHERER: Final = "gatherer"
OUTPUT: Final = "output"
"""What definitions name of an app."""


def require_undeclared(nodes: Iterable[NodeInfo], drafts: Sequence[Draft]) -> None:
    """Refuse drafts of what a node declares in code, for that goes before a definition there.

    Raises:
        Trouble: names the file and the nodes.
    """
    there = list(nodes)
    for draft in drafts:
        if names := in_code(there, draft.kind, draft.id):
            what = f"{ID_KINDS[draft.kind]} {draft.id!r} is declared in code on {', '.join(names)}"
            raise Trouble(f"{draft.file}: {what}; take it out of the app there first")


def require_fitting(
    app: App | None,
    stack: str,
    drafts: Sequence[Draft],
    definitions: Iterable[RegisteredDefinition],
) -> None:
    """Refuse drafts that a node could not run.

    Args:
        app: what nodes run; None: nobody knows.
        stack: the name of the one that they run in.
        drafts: what is to be defined.
        definitions: what is defined already; workflows may run actors and workflows of these.

    Raises:
        Mistake: names the file and what is wrong in it.
    """
    for draft in drafts:
        _require_stack(draft, stack)
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


def unchecked(drafts: Iterable[Draft]) -> list[str]:
    """Return what drafts name of an app, as `gatherer 'disks'`, each once."""
    found = (f"{what} {name!r}" for each in drafts for what, name in _named(each))
    return sorted(dict.fromkeys(found))


def _require_stack(draft: Draft, stack: str) -> None:
    agent = _agent(draft)
    if agent is not None and agent.stacks is not None and stack not in agent.stacks:
        raise Mistake(
            f"{draft.file}: it is for {', '.join(agent.stacks)}, and this stack is {stack}"
        )


def _require_workable(drafts: Sequence[Draft], there: Sequence[RegisteredDefinition]) -> None:
    app = _app_with({name for each in drafts for name in _named(each)})
    for draft in drafts:
        if problem := make(_edition(draft), app).problem:
            raise Mistake(f"{draft.file}: {problem}")
    way = around(there)
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
    names: dict[str, list[str]] = {STRATEGY: [], TEMPLATE: [], GATHERER: [], OUTPUT: []}
    for what, name in named:
        names[what].append(name)
    return App(
        strategies=dict.fromkeys(names[STRATEGY], _AnyStrategy),
        templates=dict.fromkeys(names[TEMPLATE], _any_template),
        gatherers=dict.fromkeys(names[GATHERER], _no_facts),
        outputs=dict.fromkeys(names[OUTPUT], _no_delivery),
        synthesizer=_no_answer,
    )


class _AnyStrategy(Strategy[None]):
    """Stands for one that an app may have. It never runs."""

    def init(self, episode: EpisodeView, trigger: Trigger) -> None:
        del episode, trigger

    def next_step(self, state: None, ctx: Context) -> Action:
        del state, ctx
        return converge()

    def converge(self, state: None, ctx: Context) -> ConvergeResult:
        del state, ctx
        return ConvergeResult()


def _any_template(config: JsonObject) -> Strategy[Any]:
    del config
    return _AnyStrategy()


async def _no_facts(payload: JsonObject, options: JsonObject) -> object:
    del payload, options
    return {}


async def _no_answer(prompt: object, transient: JsonObject, ctx: CallContext) -> object:
    del prompt, transient, ctx
    return {}


async def _no_delivery(output: OutputView) -> str | None:
    del output
    return None


def _named(draft: Draft) -> Iterator[tuple[str, str]]:
    agent = _agent(draft)
    if agent is not None:
        for each in agent.expectations.values():
            yield from _named_by(each.strategy)


def _named_by(strategy: StrategyDefinition) -> Iterator[tuple[str, str]]:
    if strategy.ref:
        yield STRATEGY, strategy.ref
    elif strategy.template not in BUILT_IN:
        yield from _if_name(TEMPLATE, strategy.template)
    else:
        yield from _if_name(GATHERER, strategy.config.get("gatherer"))
        yield from _outputs(strategy.config.get("outputs"))


def _outputs(said: object) -> Iterator[tuple[str, str]]:
    for each in said if isinstance(said, list) else ():
        yield from _if_name(OUTPUT, each.get("adapter") if isinstance(each, dict) else None)


def _if_name(what: str, name: object) -> Iterator[tuple[str, str]]:
    """Yield a name that an app can have something under; of another, who looks at it says why."""
    try:
        check_name(name, of=f"a {what}")
    except ValueError:
        return
    yield what, str(name)


def _agent(draft: Draft) -> AgentDefinition | None:
    """Return the actor that a draft defines; None: it defines none."""
    return agent_of(unraw(draft.body)) if draft.kind is DefinitionKind.AGENT else None


def _edition(draft: Draft) -> RegisteredDefinition:
    return RegisteredDefinition(kind=draft.kind, id=draft.id, revision=1, seq=0, body=draft.body)


Name: TypeAlias = tuple[DefinitionKind, str]
"""An actor or a workflow."""

There: TypeAlias = Mapping[Name, Collection[str] | None]
"""What there is, with its expectations; None: nobody says which."""

_NO_EXPECTATIONS: Final[Collection[str]] = ()


class StepReference(msgspec.Struct, frozen=True):
    """What one step of a workflow names."""

    workflow: str
    step: str
    named: Name
    expectation: str = ""
    """Of the actor; a workflow has none."""


def step_references(definitions: Iterable[RegisteredDefinition]) -> Iterator[StepReference]:
    """Yield what the steps of the workflows among `definitions` name, as far as they hold."""
    for registered in definitions:
        if registered.holds and registered.kind is DefinitionKind.WORKFLOW:
            yield from _needs_of(registered)


def needed_by(
    definitions: Iterable[RegisteredDefinition], named: Name, *, only: Collection[str] | None = None
) -> dict[str, list[str]]:
    """Return workflow → its steps that name an actor or a workflow.

    Args:
        definitions: all that is defined.
        named: what the steps name.
        only: these expectations of it; None: any.
    """
    found: defaultdict[str, list[str]] = defaultdict(list)
    for each in step_references(definitions):
        if each.named == named and (only is None or each.expectation in only):
            steps = found[each.workflow]
            steps += [each.step] if each.step not in steps else []
    return dict(found)


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

    Args:
        nodes: those that are up. If there are none nobody can say what is in their code.
        definitions: all that is defined, or is to be, the workflow too.
        workflow: its name.
    """
    if not nodes:
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
    for name, step in steps.items():
        for named, expectation in _named_in(step):
            yield StepReference(registered.id, name, named, expectation)


def _named_in(step: StepDefinition) -> Iterator[tuple[Name, str]]:
    if step.workflow:
        yield (DefinitionKind.WORKFLOW, step.workflow), ""
    else:
        yield (DefinitionKind.AGENT, step.actor), step.expectation
    if step.compensate is not None:
        yield (DefinitionKind.AGENT, step.compensate.actor), step.compensate.expectation


def _there(nodes: Collection[NodeInfo], definitions: Iterable[RegisteredDefinition]) -> There:
    """Return what there is: what nodes have, and what holds, though no node may run it yet."""
    actors = {actor for node in nodes for actor in node.actors}
    # A node that has much to say of itself leaves the expectations out.
    there: dict[Name, Collection[str] | None] = {
        defined_by(actor): known(nodes, actor) or None for actor in actors
    }
    coded = {
        defined_by(actor) for node in nodes for actor, info in node.actors.items()
        if not info.revision
    }  # fmt: skip
    for each in definitions:
        if (each.kind, each.id) in coded:
            continue
        there.pop((each.kind, each.id), None)
        if each.holds:
            there[each.kind, each.id] = _expectations_of(each)
    return there


def _expectations_of(registered: RegisteredDefinition) -> Collection[str] | None:
    if registered.kind is DefinitionKind.WORKFLOW:
        return _NO_EXPECTATIONS
    try:
        return agent_of(unraw(registered.body)).expectations
    except BadDefinition:  # A newer version has applied it.
        return None


def _lack(need: StepReference, there: There) -> str:
    """Return what is not there of a need, in words; empty: it is."""
    kind, id_ = need.named
    if need.named not in there:
        return f"step {need.step}: there is no {ID_KINDS[kind]} {id_!r}"
    expectations = there[need.named]
    if not need.expectation or expectations is None or need.expectation in expectations:
        return ""
    return f"step {need.step}: {ID_KINDS[kind]} {id_!r} has no expectation {need.expectation!r}"


Sources: TypeAlias = Mapping[str, Iterable[SourceDefinition]]
"""Expectation → what fires it."""


def removed(kind: DefinitionKind, before: msgspec.Raw, after: msgspec.Raw) -> list[str]:
    """Return the expectations and the schedules that are gone, by name.

    Args:
        before: what was applied last, in its canonical form; `NOTHING`: nothing ever was.

    Returns:
        None at all, too, if this version cannot read one of them.
    """
    try:
        had, has = _sources(kind, before), _sources(kind, after)
    except BadDefinition:
        return []
    return [text for name in sorted(had) for text in _removed_of(name, had, has)]


def _removed_of(name: str, had: Sources, has: Sources) -> Iterator[str]:
    if name not in has:
        yield name
        return
    for spec in sorted(_schedules(had[name]) - _schedules(has[name])):
        yield f"{name} {spec}"


def _sources(kind: DefinitionKind, body: msgspec.Raw) -> Sources:
    if body == NOTHING:
        return {}
    match kind:
        case DefinitionKind.AGENT:
            return {name: each.on for name, each in agent_of(unraw(body)).expectations.items()}
        case DefinitionKind.WORKFLOW:
            return {START_EXPECTATION: workflow_of(unraw(body)).on}


def _schedules(sources: Iterable[SourceDefinition]) -> set[str]:
    made = (each.made() for each in sources)
    return {spec_of(each) for each in made if isinstance(each, Every | Cron)}
