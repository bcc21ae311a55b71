"""Looking at what is defined as data: its history, its text, and which workflows there are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from engine.app.workflow_starter import workflow_of as workflow_begun_by
from engine.cluster.nodes import trigger_texts
from engine.definitions import difference, workflow_of
from engine.definitions.definition import UNDEFINED, evolve
from engine.definitions.store import Chapter, definition_history
from engine.definitions.text import Written, write
from engine.errors import BadDefinition
from streams.json import unraw
from streams.model.definitions import ID_KINDS, Edition
from streams.model.events import DefinitionApplied
from streams.model.events.definitions import DefinitionKind
from vigil.defining import holding, unknown
from vigil.editions import CODE, actor_of, origin
from vigil.errors import Trouble
from vigil.looking import Look, look_at
from vigil.settings import Reading
from vigil.tables import Row
from vigil.work import connected

APPLIED: Final = "applied"
DISABLED: Final = "disabled"
"""What a change was."""


def history(
    reading: Reading, kind: DefinitionKind, id_: str, *, with_difference: bool
) -> list[Row]:
    """Return a row for each change of a definition, oldest first; if wanted, with what it changed.

    Columns are those of the table `definition_history`.

    Raises:
        BadName: the id can name nothing of this kind.
        Trouble: nobody has ever defined it.
        UnreadableEvent: a newer version has written it.
        Unavailable, Incompatible: the log is away.
    """
    rows = _rows_of(_chapters(reading, kind, id_))
    return list(rows) if with_difference else [_without(row, "difference") for row in rows]


def text_of(
    reading: Reading, kind: DefinitionKind, id_: str, *, revision: int | None, form: Written
) -> str:
    """Return a definition as the text of a file that can be applied again.

    Args:
        reading: the settings.
        kind: of what.
        id_: the actor's, or the workflow's.
        revision: which; None: the one that was applied last, even if it is disabled.
        form: what to write it as.

    Raises:
        Trouble: there is no such revision, too.
        BadName, UnreadableEvent, Unavailable, Incompatible: as `history`.
    """
    bodies = {
        chapter.event.revision: chapter.event.body
        for chapter in _chapters(reading, kind, id_)
        if isinstance(chapter.event, DefinitionApplied)
    }
    newest = max(bodies)
    if revision not in {None, *bodies}:
        raise Trouble(f"{ID_KINDS[kind]} {id_!r} has no revision {revision}; the last is {newest}")
    return write(unraw(bodies[newest if revision is None else revision]), form)


def list_workflows(reading: Reading) -> list[Row]:
    """Return a row for each workflow that a node has, or that was ever defined as data.

    Raises:
        Unavailable, Incompatible: the log is away.
    """

    async def looked() -> list[Row]:
        async with connected(reading, creates=False) as ports:
            seen = await look_at(ports)
        workflows = map(workflow_begun_by, seen.actors())
        editions = {each.id: each for each in seen.editions if each.kind is DefinitionKind.WORKFLOW}
        names = {*editions, *(name for name in workflows if name is not None)}
        return [_workflow_row(seen, name, editions.get(name)) for name in sorted(names)]

    return asyncio.run(looked())


def _chapters(reading: Reading, kind: DefinitionKind, id_: str) -> Sequence[Chapter]:
    async def read() -> Sequence[Chapter]:
        async with connected(reading, creates=False) as ports:
            chapters = await definition_history(ports, kind, id_)
            if not chapters:
                raise await unknown(ports, kind, id_)
            return chapters

    return asyncio.run(read())


def _rows_of(chapters: Sequence[Chapter]) -> Iterator[Row]:
    definition = UNDEFINED
    for chapter in chapters:
        event, before = chapter.event, holding(definition)
        definition = evolve(definition, event)
        after = holding(definition)
        yield {
            "kind": event.kind,
            "definition_id": event.id,
            "journal_seq": chapter.record.seq,
            "event_no": chapter.record.commit.events.index(event),
            "change": DISABLED if after is None else APPLIED,
            "revision": event.revision,
            "definition": after,
            "at": chapter.record.commit.at,
            "person": event.by,
            "reason": event.reason or None,
            "difference": [] if after is None else difference(before, after),
        }


def in_words(row: Row) -> Row:
    """Return a row of `history` as people read it: only what was applied is a revision."""
    if row["change"] == APPLIED:
        return row
    return {**row, "revision": None, "change": f"{DISABLED} ({row['revision']})"}


def _without(row: Row, column: str) -> Row:
    return {key: value for key, value in row.items() if key != column}


def _workflow_row(seen: Look, name: str, edition: Edition | None) -> Row:
    actor = actor_of(DefinitionKind.WORKFLOW, name)
    infos = {node.name: node.actors[actor] for node in seen.nodes if actor in node.actors}
    begins = [each for info in infos.values() for each in info.expectations.values()]
    row: Row = {
        "workflow_id": name,
        **origin(seen.nodes, seen.editions, DefinitionKind.WORKFLOW, name),
        "nodes": sorted(infos),
        "triggers": sorted({text for each in begins for text in each.triggers}),
        "steps": None,
    }
    return row if row["source"] == CODE else {**row, **_said(edition)}


def _said(edition: Edition | None) -> Row:
    """Return what the definition of a workflow says of itself, if it holds and can be read."""
    if edition is None or not edition.holds:
        return {}
    try:
        definition = workflow_of(unraw(edition.body))
    except BadDefinition:
        return {}
    texts = [text for source in definition.on for text in trigger_texts(source.made())]
    return {"triggers": texts, "steps": list(definition.steps)}
