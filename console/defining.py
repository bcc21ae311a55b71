"""Changing what is defined as data: applied, disabled; and waiting until the nodes run it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from console.drafts import Draft
from console.editions import Reception, actor_of, editions_in, problems_of, reception
from console.errors import Mistake, Trouble
from console.fitting import require_fitting
from console.gone import gone
from console.looking import hint
from console.settings import Reading
from console.tables import Row
from console.work import connected
from engine import App
from engine.definitions import difference
from engine.definitions.revisions import Definition
from engine.errors import BadRequest, Refused
from engine.runtime.definition_book import (
    apply_definition,
    disable_definition,
    read_definition,
)
from engine.runtime.presence import live_nodes
from streams.clock import SystemClock
from streams.definitions import ID_KINDS, Edition
from streams.events.definitions import DefinitionKind
from streams.json import JsonObject, unraw
from streams.ports import Ports

LOOK_S: Final = 0.1
"""Between two looks at what nodes run, in seconds."""

_CLOCK: Final = SystemClock()


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
    problems_before: Mapping[str, str]
    """Node → why it could not run what was applied earlier."""

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
        }


class Disabled(msgspec.Struct, frozen=True, kw_only=True):
    """A definition that holds no longer."""

    revision: int
    happened: bool
    """Whether it held before."""


def preview(
    reading: Reading, drafts: Sequence[Draft], *, app: App | None, seen: int | None
) -> list[Applied]:
    """Return what applying `drafts` would change. Arguments and errors are as for `apply`."""

    async def looked() -> list[Applied]:
        async with connected(reading, creates=False) as ports:
            await _check(ports, drafts, app)
            return [_planned(each, await _standing(ports, each), seen=seen) for each in drafts]

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
    """Have what `drafts` say hold from now on; a stack that is not there yet is made.

    Args:
        reading: the settings.
        drafts: what to apply, in this order.
        app: must have what they name; None: nobody looks.
        by: who wants it.
        reason: why.
        seen: the revision that whoever wants it has looked at; None: whichever there is.
        say: told of each as soon as it holds.

    Raises:
        Mistake: a value is impossible, or `app` lacks something. Nothing is applied.
        Trouble: others have changed one meanwhile. Those before it are applied.
        UnreadableEvent: a newer version has written it.
        Unavailable, Incompatible: the log is away.
    """

    async def applied() -> list[Applied]:
        async with connected(reading) as ports:
            await _check(ports, drafts, app)
            found: list[Applied] = []
            for draft in drafts:
                async with _told_of(draft.id):
                    found.append(await _apply(ports, draft, by=by, reason=reason, seen=seen))
                say(found[-1])
            return found

    return asyncio.run(applied())


def wait_received(
    reading: Reading, applied: Sequence[Applied], *, timeout_s: float
) -> list[Reception]:
    """Return what the nodes make of what was applied, once all of them have said so.

    Args:
        reading: the settings.
        applied: what they are to run.
        timeout_s: longest wait, in seconds; then whoever has said nothing is silent.

    Raises:
        Unavailable, Incompatible: the log is away.
    """

    async def received() -> list[Reception]:
        until_s = _CLOCK.monotonic_s() + timeout_s
        async with connected(reading, creates=False) as ports:
            while True:
                nodes = await live_nodes(ports.gates)
                is_over = _CLOCK.monotonic_s() >= until_s
                found = [
                    reception(nodes, each.edition, before={} if is_over else each.problems_before)
                    for each in applied
                ]
                if is_over or not any(each.silent for each in found):
                    return found
                await _CLOCK.sleep(LOOK_S)

    return asyncio.run(received())


def look(reading: Reading, kind: DefinitionKind, id_: str) -> Definition:
    """Return a definition as its journal stands.

    Raises:
        BadName: the id can name nothing of this kind.
        Trouble: nobody has ever defined it.
        UnreadableEvent: a newer version has written it.
        Unavailable, Incompatible: the log is away.
    """

    async def looked() -> Definition:
        async with connected(reading, creates=False) as ports:
            definition = await read_definition(ports, kind, id_)
            if not definition.revision:
                raise await unknown(ports, kind, id_)
            return definition

    return asyncio.run(looked())


def disable(
    reading: Reading, kind: DefinitionKind, id_: str, *, by: str, reason: str, seen: int | None
) -> Disabled:
    """Have a definition hold no longer, until it is applied again.

    Raises:
        As `look`; `Trouble`, too, if others have changed it since `seen`; `Mistake`, if a value is
        impossible.
    """

    async def disabled() -> Disabled:
        async with connected(reading, creates=False) as ports, _told_of(id_):
            change = await disable_definition(ports, kind, id_, by=by, reason=reason, seen=seen)
            return Disabled(revision=change.edition.revision, happened=change.happened)

    return asyncio.run(disabled())


async def unknown(ports: Ports, kind: DefinitionKind, id_: str) -> Trouble:
    """Return the error that says that nobody has ever defined this."""
    names = [edition.id for edition in await editions_in(ports) if edition.kind is kind]
    return Trouble(f"nobody has defined {ID_KINDS[kind]} {id_!r}; {hint(id_, names)}")


def holding(definition: Definition) -> JsonObject | None:
    """Return what a definition says, or None if it does not hold."""
    held: JsonObject | None = unraw(definition.body) if definition.holds else None
    return held


async def _check(ports: Ports, drafts: Sequence[Draft], app: App | None) -> None:
    if app is not None:
        require_fitting(app, ports.stack.name, drafts, await editions_in(ports))


async def _standing(ports: Ports, draft: Draft) -> Definition:
    return await read_definition(ports, draft.kind, draft.id)


def _planned(draft: Draft, stands: Definition, *, seen: int | None) -> Applied:
    """Return what applying `draft` would make of what stands."""
    body = draft.body
    happens = not stands.holds or stands.body != body
    if happens and seen not in (None, stands.revision):
        raise Trouble(f"{draft.id}: it is at revision {stands.revision} by now, not {seen}")
    revision = stands.revision + happens
    return Applied(
        edition=Edition(kind=draft.kind, id=draft.id, revision=revision, seq=0, body=body),
        file=draft.file,
        happened=happens,
        difference=difference(holding(stands), unraw(body)),
        gone=gone(draft.kind, stands.body, body),
        problems_before={},
    )


async def _apply(ports: Ports, draft: Draft, *, by: str, reason: str, seen: int | None) -> Applied:
    """Apply `draft` to what stands now, so that the difference is what happens."""
    planned = _planned(draft, await _standing(ports, draft), seen=seen)
    before = problems_of(await live_nodes(ports.gates), draft.kind, draft.id)
    looked_at = planned.edition.revision - planned.happened
    change = await apply_definition(
        ports, draft.kind, draft.id, draft.body, by=by, reason=reason, seen=looked_at
    )
    return msgspec.structs.replace(
        planned,
        edition=change.edition,
        happened=change.happened,
        problems_before=before if change.happened else {},
    )


@asynccontextmanager
async def _told_of(id_: str) -> AsyncIterator[None]:
    """Have what is refused told as one line about a definition."""
    try:
        yield
    except BadRequest as error:
        raise Mistake(f"{id_}: {error}") from error
    except Refused as error:
        raise Trouble(f"{id_}: {error}") from error
