"""Whether what is to be defined can run: with some app, whichever it is, or with a certain one.

Without a certain one, an app is made up that has whatever definitions name of an app. What a node
with that would refuse, every node refuses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from engine.app.actions import Action, converge
from engine.app.app import App
from engine.app.context import Context, EpisodeView
from engine.app.outputs import OutputView
from engine.app.strategy import ConvergeResult, Strategy
from engine.app.tools import CallContext, check_name
from engine.cluster.nodes import NodeInfo
from engine.definitions import AgentDefinition, agent_of
from engine.definitions.agent import StrategyDefinition
from engine.definitions.make import cast, make
from engine.node.stacks import on_stack
from engine.templates import BUILT_IN
from streams.json import JsonObject, unraw
from streams.model.definitions import ID_KINDS, Edition, definition_id
from streams.model.events.definitions import DefinitionKind
from streams.model.triggers import Trigger
from vigil.drafts import Draft
from vigil.editions import in_code
from vigil.errors import Mistake, Trouble
from vigil.needing import around

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
    app: App | None, stack: str, drafts: Sequence[Draft], editions: Iterable[Edition]
) -> None:
    """Refuse drafts that a node could not run.

    Args:
        app: what nodes run; None: nobody knows.
        stack: the name of the one that they run in.
        drafts: what is to be defined.
        editions: what is defined already; workflows may run actors and workflows of these.

    Raises:
        Mistake: names the file and what is wrong in it.
    """
    for draft in drafts:
        _require_stack(draft, stack)
    there = planned(drafts, editions)
    if app is None:
        _require_workable(drafts, there)
    else:
        _require_all_named(app, stack, drafts, there)


def planned(drafts: Iterable[Draft], editions: Iterable[Edition]) -> list[Edition]:
    """Return what would be defined if `drafts` were applied."""
    there = {definition_id(each.kind, each.id): each for each in editions}
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


def _require_workable(drafts: Sequence[Draft], there: Sequence[Edition]) -> None:
    app = _app_with({name for each in drafts for name in _named(each)})
    for draft in drafts:
        if problem := make(_edition(draft), app).problem:
            raise Mistake(f"{draft.file}: {problem}")
    way = around(there)
    for draft in drafts:
        if draft.kind is DefinitionKind.WORKFLOW and draft.id in way.split(" → "):
            raise Mistake(f"{draft.file}: workflow {draft.id!r} runs itself: {way}")


def _require_all_named(
    app: App, stack: str, drafts: Sequence[Draft], there: Sequence[Edition]
) -> None:
    here = on_stack(app, stack)
    made = [make(each, here) for each in there]
    problems = cast(here, made, stack=stack).problems
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
    """Yield what a draft names of an app, as far as an app can have it."""
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
    """Yield the outputs that a configuration names, as far as it is one."""
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


def _edition(draft: Draft) -> Edition:
    """Return a draft as if it were the first revision of it."""
    return Edition(kind=draft.kind, id=draft.id, revision=1, seq=0, body=draft.body)
