"""Changing what is defined as data: applied, disabled. What nodes make of it is `receiving`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import msgspec

from engine.app.app import App
from engine.cluster.members import live_nodes
from engine.cluster.nodes import NodeInfo
from engine.definitions import difference
from engine.definitions.definition import Definition
from engine.definitions.store import Change, apply_definition, disable_definition, read_definition
from engine.errors import BadRequest, Refused
from engine.validation import REASON_CHARS_MAX, check_text
from streams.json import JsonObject, unraw
from streams.model.definitions import ID_KINDS, Edition
from streams.model.events.definitions import DefinitionKind
from streams.ports.all import Ports
from vigil.drafts import Draft
from vigil.editions import actor_of, editions_in, in_code, problems_of, revisions_of
from vigil.errors import Mistake, Trouble
from vigil.fitting import planned, require_fitting, require_undeclared
from vigil.gone import gone
from vigil.looking import hint
from vigil.needing import lacks, needed_by
from vigil.settings import Reading
from vigil.tables import Row
from vigil.work import connected


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """A definition that was applied, or would be."""

    edition: Edition
    file: str
    happened: bool
    """Whether that changes anything."""
    difference: Sequence[str]
    """To what has held so far, in lines for people."""
    gone: Sequence[str]
    """The expectations and schedules that what was applied last had, and this one has not."""
    needed_by: Mapping[str, Sequence[str]]
    """Workflow → its steps that name what is gone."""
    lacks: Sequence[str]
    """What a workflow names that nobody has, in lines for people."""
    problems_before: Mapping[str, str]
    """Node → why it could not run what was applied earlier."""
    ran: Mapping[str, int]
    """Node → the earlier revision that it had until now."""

    @property
    def actor(self) -> str:
        """The actor that is defined, or the one that begins the workflow."""
        return actor_of(self.edition.kind, self.edition.id)

    def as_row(self) -> Row:
        """Return it in columns, for programs."""
        return {
            "kind": self.edition.kind,
            "id": self.edition.id,
            "file": self.file,
            "revision": self.edition.revision,
            "changed": self.happened,
            "difference": self.difference,
            "gone": self.gone,
            "needed_by": self.needed_by,
            "lacks": self.lacks,
        }


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A definition as it stands."""

    definition: Definition
    needed_by: Mapping[str, Sequence[str]]
    """Workflow → its steps that name it."""


class _Scene(msgspec.Struct, frozen=True, kw_only=True):
    """What drafts come into."""

    nodes: Sequence[NodeInfo]
    """Those that are up."""
    planned: Sequence[Edition]
    """All that is defined once the drafts are."""


def check_reason(reason: str) -> None:
    """See to it that a reason can be kept.

    Raises:
        Mistake: it is too long.
    """
    try:
        check_text("reason", reason, least=0, most=REASON_CHARS_MAX)
    except BadRequest as error:
        raise Mistake(f"--{error}") from error


def preview(
    reading: Reading, drafts: Sequence[Draft], *, app: App | None, seen: int | None
) -> list[Applied]:
    """Return what applying `drafts` would change. Arguments and errors are as for `apply`."""

    async def looked() -> list[Applied]:
        async with connected(reading, creates=False) as ports:
            scene = await _scene(ports, drafts, app)
            return [
                _planned(scene, each, await _standing(ports, each), seen=seen) for each in drafts
            ]

    return asyncio.run(looked())


def apply(
    reading: Reading,
    drafts: Sequence[Draft],
    *,
    app: App | None,
    by: str,
    reason: str,
    seen: int | None,
    say: Callable[[Applied], None],
) -> list[Applied]:
    """Have what `drafts` say hold from now on.

    Args:
        reading: the settings.
        drafts: what to apply, in this order.
        app: must have what they name; None: only what no app can have is refused.
        by: who wants it.
        reason: why.
        seen: the revision that whoever wants it has looked at; None: whichever there is.
        say: told of each as soon as it holds.

    Raises:
        Mistake: a value is impossible, or `app` lacks something. Nothing is applied.
        Trouble: a node has one in code, and nothing is applied. Or others have changed one
            meanwhile; those before it are applied.
        UnreadableEvent: a newer version has written it.
        Unavailable, Incompatible: the log is away, or there is no such stack.
    """

    async def applied() -> list[Applied]:
        async with connected(reading, creates=False) as ports:
            scene = await _scene(ports, drafts, app)
            found: list[Applied] = []
            for draft in drafts:
                async with _told_of(draft.id):
                    found.append(await _apply(ports, scene, draft, by=by, reason=reason, seen=seen))
                say(found[-1])
            return found

    return asyncio.run(applied())


def look(reading: Reading, kind: DefinitionKind, id_: str) -> Standing:
    """Return a definition as its journal stands, and who needs it.

    Raises:
        BadName: the id can name nothing of this kind.
        Trouble: nobody has ever defined it.
        UnreadableEvent: a newer version has written it.
        Unavailable, Incompatible: the log is away.
    """

    async def looked() -> Standing:
        async with connected(reading, creates=False) as ports:
            definition = await read_definition(ports, kind, id_)
            if not definition.revision:
                raise await unknown(ports, kind, id_)
            editions = await editions_in(ports)
            return Standing(definition=definition, needed_by=needed_by(editions, (kind, id_)))

    return asyncio.run(looked())


def disable(
    reading: Reading, kind: DefinitionKind, id_: str, *, by: str, reason: str, seen: int | None
) -> Change:
    """Disable a definition until it is applied again.

    Raises:
        As `look`; `Trouble`, too, if others have changed it since `seen`; `Mistake`, if a value is
        impossible.
    """

    async def disabled() -> Change:
        async with connected(reading, creates=False) as ports, _told_of(id_):
            return await disable_definition(ports, kind, id_, by=by, reason=reason, seen=seen)

    return asyncio.run(disabled())


async def unknown(ports: Ports, kind: DefinitionKind, id_: str) -> Trouble:
    """Return the error that says that nobody has ever defined this."""
    declaring = in_code(await live_nodes(ports.gates), kind, id_)
    if declaring:
        what = f"{ID_KINDS[kind]} {id_!r} is not defined as data"
        return Trouble(f"{what}: it is in the code of {', '.join(declaring)}")
    names = [edition.id for edition in await editions_in(ports) if edition.kind is kind]
    return Trouble(f"nobody has defined {ID_KINDS[kind]} {id_!r}; {hint(id_, names)}")


def holding(definition: Definition) -> JsonObject | None:
    """Return what a definition says, or None if it does not hold."""
    held: JsonObject | None = unraw(definition.body) if definition.holds else None
    return held


async def _scene(ports: Ports, drafts: Sequence[Draft], app: App | None) -> _Scene:
    """Return what `drafts` come into, if they can be applied to it."""
    nodes, editions = await live_nodes(ports.gates), await editions_in(ports)
    require_undeclared(nodes, drafts)
    require_fitting(app, ports.stack.name, drafts, editions)
    return _Scene(nodes=nodes, planned=planned(drafts, editions))


async def _standing(ports: Ports, draft: Draft) -> Definition:
    return await read_definition(ports, draft.kind, draft.id)


def _planned(scene: _Scene, draft: Draft, stands: Definition, *, seen: int | None) -> Applied:
    """Return what applying `draft` would make of what stands."""
    kind, id_, body = draft.kind, draft.id, draft.body
    if seen not in (None, stands.revision):
        raise Trouble(f"{id_}: it is at revision {stands.revision} by now, not {seen}")
    happens = not stands.holds or stands.body != body
    revision = stands.revision + happens
    lost = gone(kind, stands.body, body)
    had = revisions_of(scene.nodes, kind, id_)
    return Applied(
        edition=Edition(kind=kind, id=id_, revision=revision, seq=0, body=body),
        file=draft.file,
        happened=happens,
        difference=difference(holding(stands), unraw(body)),
        gone=lost,
        needed_by=needed_by(scene.planned, (kind, id_), only=lost) if lost else {},
        lacks=lacks(scene.nodes, scene.planned, id_) if kind is DefinitionKind.WORKFLOW else [],
        problems_before=problems_of(scene.nodes, kind, id_) if happens else {},
        ran={name: each for name, each in had.items() if each < revision},
    )


async def _apply(
    ports: Ports, scene: _Scene, draft: Draft, *, by: str, reason: str, seen: int | None
) -> Applied:
    """Apply `draft` to what stands now, so that the difference is what happens."""
    plan = _planned(scene, draft, await _standing(ports, draft), seen=seen)
    looked_at = plan.edition.revision - plan.happened
    change = await apply_definition(
        ports, draft.kind, draft.id, draft.body, by=by, reason=reason, seen=looked_at
    )
    return msgspec.structs.replace(plan, edition=change.edition, happened=change.happened)


@asynccontextmanager
async def _told_of(id_: str) -> AsyncIterator[None]:
    """Have what is refused told as one line about a definition."""
    try:
        yield
    except BadRequest as error:
        raise Mistake(f"{id_}: {error}") from error
    except Refused as error:
        raise Trouble(f"{id_}: {error}") from error
