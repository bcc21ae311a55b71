"""Changes of definitions: apply, disable, and wait until the nodes have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Final

import msgspec

from engine.app.app import App
from engine.cluster.members import live_nodes
from engine.cluster.nodes import NodeInfo, known, trigger_texts
from engine.definitions import difference, store, workflow_of
from engine.definitions.definition import UNDEFINED, Definition, evolve
from engine.errors import BadDefinition, BadRequest, Refused
from streams.clock import SystemClock
from streams.json import JsonObject, unraw
from streams.model.definitions import ID_KINDS, RegisteredDefinition
from streams.model.events import DefinitionApplied
from streams.model.events.definitions import DefinitionKind
from streams.ports.all import Ports
from vigil.asking import stack as stacks
from vigil.asking.definitions import checks
from vigil.asking.definitions.drafts import Draft
from vigil.errors import Mistake, NotFound, Trouble, hint
from vigil.printing.tables import Row

LOOK_S: Final = 0.1

_CLOCK: Final = SystemClock()


class AppliedDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A definition that was applied, or would be."""

    registered: RegisteredDefinition
    file: str
    happened: bool
    difference: Sequence[str]
    """What differs from the revision before, in lines for people."""
    removed: Sequence[str]
    """The expectations and schedules that what was applied last had, and this one has not."""
    needed_by: Mapping[str, Sequence[str]]
    """Workflow → its steps that name what is gone."""
    unchecked: Sequence[str]
    """What it names of an app, as `gatherer 'disks'`, if it was not checked with one."""
    lacks: Sequence[str]
    """What a workflow names that nobody has, in lines for people."""
    problems_before: Mapping[str, str]
    """Node → why it could not run what was applied earlier."""
    ran: Mapping[str, int]
    """Node → the earlier revision that it had until now."""

    @property
    def actor(self) -> str:
        """The actor that is defined, or the starter of the workflow."""
        return stacks.actor_of(self.registered.kind, self.registered.id)

    def as_row(self) -> Row:
        """Return it in columns, for programs."""
        return {
            "kind": self.registered.kind,
            "id": self.registered.id,
            "file": self.file,
            "revision": self.registered.revision,
            "changed": self.happened,
            "difference": self.difference,
            "gone": self.removed,
            "needed_by": self.needed_by,
            "lacks": self.lacks,
        }


class CurrentDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A definition as its journal has it."""

    definition: Definition
    needed_by: Mapping[str, Sequence[str]]


class DefinitionEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a definition, as the table `definition_history` has it."""

    kind: DefinitionKind
    definition_id: str
    journal_seq: int
    event_no: int
    change: str
    """`applied` or `disabled`."""
    revision: int
    definition: JsonObject | None
    """What was applied; None: it was disabled."""
    at: datetime
    person: str
    reason: str | None
    difference: Sequence[str]
    """What differs from what was in force before, in lines for people."""


class _Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    nodes: Sequence[NodeInfo]
    planned: Sequence[RegisteredDefinition]
    """All that is defined once the drafts are."""
    is_checked: bool
    """Whether an app was there that must have what they name."""


async def preview(
    ports: Ports, drafts: Sequence[Draft], *, app: App | None, seen: int | None
) -> list[AppliedDefinition]:
    """Return what applying `drafts` would change. Arguments and errors are as for `apply`."""
    scene = await _scene(ports, drafts, app)
    return [
        _planned(scene, each, await store.read_definition(ports, each.kind, each.id), seen=seen)
        for each in drafts
    ]


async def apply(
    ports: Ports,
    drafts: Sequence[Draft],
    *,
    app: App | None,
    by: str,
    reason: str,
    seen: int | None,
    say: Callable[[AppliedDefinition], None],
) -> list[AppliedDefinition]:
    """Apply `drafts`, in this order.

    Args:
        app: must have what they name; None: only what no app can have is refused.
        seen: the revision that this person has looked at; None: any.

    Raises `Mistake` for what cannot work, and `Trouble` for what a node has in code: nothing is
    applied then. `Trouble`, too, if others have changed one meanwhile; those before it are applied.
    """
    scene = await _scene(ports, drafts, app)
    found: list[AppliedDefinition] = []
    for draft in drafts:
        with _naming(draft.id):
            found.append(await _apply(ports, scene, draft, by=by, reason=reason, seen=seen))
        say(found[-1])
    return found


async def read_current(ports: Ports, kind: DefinitionKind, id_: str) -> CurrentDefinition:
    """Return a definition as its journal has it; raise `NotFound` if nobody ever defined it."""
    definition = await store.read_definition(ports, kind, id_)
    if not definition.revision:
        raise await unknown(ports, kind, id_)
    needed = checks.needed_by(await stacks.read_definitions(ports), (kind, id_))
    return CurrentDefinition(definition=definition, needed_by=needed)


async def disable(
    ports: Ports, kind: DefinitionKind, id_: str, *, by: str, reason: str, seen: int | None
) -> store.DefinitionChange:
    """Disable a definition; raise `Trouble` if others have changed it since `seen`."""
    with _naming(id_):
        return await store.disable_definition(
            ports, kind=kind, id_=id_, by=by, reason=reason, seen=seen
        )


async def unknown(ports: Ports, kind: DefinitionKind, id_: str) -> NotFound:
    """Return the error for what nobody has ever defined."""
    declaring = stacks.in_code(await live_nodes(ports.gates), kind, id_)
    if declaring:
        what = f"{ID_KINDS[kind]} {id_!r} is not defined as data"
        return NotFound(f"{what}: it is in the code of {', '.join(declaring)}")
    names = [each.id for each in await stacks.read_definitions(ports) if each.kind is kind]
    return NotFound(f"nobody has defined {ID_KINDS[kind]} {id_!r}; {hint(id_, names)}")


def holding(definition: Definition) -> JsonObject | None:
    """Return the content of a definition, or None if it is disabled."""
    held: JsonObject | None = unraw(definition.body) if definition.holds else None
    return held


async def _scene(ports: Ports, drafts: Sequence[Draft], app: App | None) -> _Surroundings:
    nodes, definitions = await live_nodes(ports.gates), await stacks.read_definitions(ports)
    checks.require_undeclared(nodes, drafts)
    checks.require_fitting(app, ports.stack.name, drafts, definitions)
    return _Surroundings(
        nodes=nodes, planned=checks.planned(drafts, definitions), is_checked=app is not None
    )


def _planned(
    scene: _Surroundings, draft: Draft, stands: Definition, *, seen: int | None
) -> AppliedDefinition:
    kind, id_, body = draft.kind, draft.id, draft.body
    if seen not in (None, stands.revision):  # guard: dry-run-of-seen-revision
        raise Trouble(f"{id_}: it is at revision {stands.revision} by now, not {seen}")
    happens = not stands.holds or stands.body != body
    revision = stands.revision + happens
    lost = checks.removed(kind, stands.body, body)
    had = stacks.revisions_of(scene.nodes, kind, id_)
    return AppliedDefinition(
        registered=RegisteredDefinition(kind=kind, id=id_, revision=revision, seq=0, body=body),
        file=draft.file,
        happened=happens,
        difference=difference(holding(stands), unraw(body)),
        removed=lost,  # guard: lost-parts-told
        needed_by=checks.needed_by(scene.planned, (kind, id_), only=lost) if lost else {},
        unchecked=[] if scene.is_checked else checks.unchecked([draft]),
        lacks=checks.lacks(scene.nodes, scene.planned, id_)
        if kind is DefinitionKind.WORKFLOW
        else [],
        problems_before=stacks.problems_of(scene.nodes, kind, id_) if happens else {},
        ran={name: each for name, each in had.items() if each < revision},
    )


async def _apply(
    ports: Ports, scene: _Surroundings, draft: Draft, *, by: str, reason: str, seen: int | None
) -> AppliedDefinition:
    """Apply `draft` to what is there now, so that the difference is what happens."""
    plan = _planned(
        scene, draft, await store.read_definition(ports, draft.kind, draft.id), seen=seen
    )
    looked_at = plan.registered.revision - plan.happened
    change = await store.apply_definition(
        ports, draft.kind, draft.id, draft.body, by=by, reason=reason, seen=looked_at
    )
    return msgspec.structs.replace(plan, registered=change.registered, happened=change.happened)


@contextmanager
def _naming(id_: str) -> Iterator[None]:
    try:
        yield
    except BadRequest as error:
        raise Mistake(f"{id_}: {error}") from error
    except Refused as error:
        raise Trouble(f"{id_}: {error}") from error


class Withdrawal(msgspec.Struct, frozen=True, kw_only=True):
    """What nodes make of a definition that was disabled."""

    waking: Sequence[str]
    events: object
    """How many wait for it; a text if that cannot be known."""


async def wait_rollout(
    ports: Ports, applied: Sequence[AppliedDefinition], *, timeout_s: float
) -> list[stacks.Rollout]:
    """Return what the nodes make of what was applied, once all of them have reported.

    One that has not after `timeout_s` is silent.
    """
    until_s = _CLOCK.monotonic_s() + timeout_s
    while True:
        nodes = await live_nodes(ports.gates)
        is_over = _CLOCK.monotonic_s() >= until_s
        found = [
            stacks.rollout_of(
                nodes, each.registered, before={} if is_over else each.problems_before
            )
            for each in applied
        ]
        if is_over or not any(each.silent for each in found):
            return found
        await _CLOCK.sleep(LOOK_S)


async def wait_withdrawal(
    ports: Ports, kind: DefinitionKind, id_: str, *, timeout_s: float
) -> Withdrawal:
    """Return which nodes still use what was disabled, once none does or the time is over."""
    actor = stacks.actor_of(kind, id_)
    until_s = _CLOCK.monotonic_s() + timeout_s
    nodes = await live_nodes(ports.gates)
    expectations = (known(nodes, actor) or {}).values()
    while (waking := _waking(nodes, actor)) and _CLOCK.monotonic_s() < until_s:
        await _CLOCK.sleep(LOOK_S)
        nodes = await live_nodes(ports.gates)
    left = await stacks.backlog_of(ports, actor, expectations)
    return Withdrawal(waking=waking, events=left["events"])


def _waking(nodes: Sequence[NodeInfo], actor: str) -> list[str]:
    """Return the nodes that wake an actor by a definition; their code is not ours to disable."""
    infos = [(node.name, node.actors[actor]) for node in nodes if actor in node.actors]
    # guard: holding-nodes-named
    return [name for name, info in infos if info.wakes and info.revision]


async def changes_of(ports: Ports, kind: DefinitionKind, id_: str) -> list[DefinitionEntry]:
    """Return each change of a definition, oldest first."""
    return list(_entries_of(await _chapters(ports, kind, id_)))


async def body_of(
    ports: Ports, kind: DefinitionKind, id_: str, *, revision: int | None
) -> JsonObject:
    """Return a definition, by default as it was applied last."""
    bodies = {
        chapter.event.revision: chapter.event.body
        for chapter in await _chapters(ports, kind, id_)
        if isinstance(chapter.event, DefinitionApplied)
    }
    newest = max(bodies)
    if revision not in {None, *bodies}:
        raise NotFound(f"{ID_KINDS[kind]} {id_!r} has no revision {revision}; the last is {newest}")
    found: JsonObject = unraw(bodies[newest if revision is None else revision])
    return found


async def list_workflows(ports: Ports) -> list[Row]:
    """Return a row for each workflow that a node has, or that was ever defined as data."""
    seen = await stacks.read_stack(ports)
    workflows = {info.workflow for node in seen.nodes for info in node.actors.values()} - {""}
    definitions = {
        each.id: each for each in seen.definitions if each.kind is DefinitionKind.WORKFLOW
    }
    names = sorted(workflows | definitions.keys())
    return [_workflow_row(seen, name, definitions.get(name)) for name in names]


async def _chapters(
    ports: Ports, kind: DefinitionKind, id_: str
) -> Sequence[store.DefinitionCommit]:
    chapters = await store.definition_history(ports, kind, id_)
    if not chapters:
        raise await unknown(ports, kind, id_)
    return chapters


def _entries_of(chapters: Sequence[store.DefinitionCommit]) -> Iterator[DefinitionEntry]:
    definition = UNDEFINED
    for chapter in chapters:
        event, before = chapter.event, holding(definition)
        definition = evolve(definition, event)
        after = holding(definition)
        yield DefinitionEntry(
            kind=event.kind,
            definition_id=event.id,
            journal_seq=chapter.record.seq,
            event_no=chapter.record.commit.events.index(event),
            change="disabled" if after is None else "applied",
            revision=event.revision,
            definition=after,
            at=chapter.record.commit.at,
            person=event.by,
            reason=event.reason or None,
            difference=[] if after is None else difference(before, after),
        )


def _workflow_row(
    seen: stacks.StackView, name: str, registered: RegisteredDefinition | None
) -> Row:
    actor = stacks.actor_of(DefinitionKind.WORKFLOW, name)
    infos = {node.name: node.actors[actor] for node in seen.nodes if actor in node.actors}
    begins = [each for info in infos.values() for each in info.expectations.values()]
    row: Row = {
        "workflow_id": name,
        **stacks.origin(seen.nodes, seen.definitions, DefinitionKind.WORKFLOW, name),
        "nodes": sorted(infos),
        "triggers": sorted({text for each in begins for text in each.triggers}),
        "steps": None,
    }
    return row if row["source"] == stacks.CODE else {**row, **_said(registered)}


def _said(registered: RegisteredDefinition | None) -> Row:
    """Return the content of the definition of a workflow, if it is in force and can be read."""
    if registered is None or not registered.holds:
        return {}
    try:
        definition = workflow_of(unraw(registered.body))
    except BadDefinition:
        return {}
    texts = [text for source in definition.on for text in trigger_texts(source.made())]
    return {"triggers": texts, "steps": list(definition.steps)}
