"""Drafts: what is to be defined, read from files and checked before anything is applied."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from console.errors import Mistake, Trouble
from engine.definitions import Format, agent_of, canonical, format_of, kind_of, read, workflow_of
from engine.definitions.texts import TEXT_BYTES_MAX
from engine.errors import BadDefinition
from engine.runtime.definition_book import BODY_BYTES_MAX
from streams.definitions import ID_KINDS
from streams.events.definitions import DefinitionKind
from streams.json import JsonObject

FILES_MAX: Final = 1_000
"""Most files of one command."""

STDIN: Final = "-"

COMMANDS: Final = {
    DefinitionKind.AGENT: "vigil actors apply",
    DefinitionKind.WORKFLOW: "vigil workflows apply",
}
"""What applies each kind."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """What one file defines."""

    file: str
    kind: DefinitionKind
    id: str
    """The actor's, or the workflow's."""
    body: msgspec.Raw
    """The definition in its canonical form."""


def drafts_of(kind: DefinitionKind, files: Sequence[str], form: Format | None) -> list[Draft]:
    """Return what `files` define, in their order.

    Args:
        kind: what all of them are to define.
        files: names, or `-` for standard input.
        form: their format; None: as their names say.

    Raises:
        Mistake: one of them defines nothing that can work, or is of another kind; or two define
            the same.
        Trouble: one cannot be read.
    """
    if len(files) > FILES_MAX:
        raise Mistake(f"{len(files):,} files, the limit is {FILES_MAX:,}")
    found: dict[str, Draft] = {}
    for file in files:
        draft = _draft(kind, file, form)
        if draft.id in found:
            other = found[draft.id].file
            raise Mistake(f"{other} and {file} both define {ID_KINDS[kind]} {draft.id!r}")
        found[draft.id] = draft
    return list(found.values())


def _draft(kind: DefinitionKind, file: str, form: Format | None) -> Draft:
    if file == STDIN and form is None:
        raise Mistake("standard input has no name that says its format; say --format")
    text = _text_of(file)
    try:
        data = read(text, form or format_of(file))
        found = kind_of(data)
        if found is not kind:
            raise Mistake(f"{file}: not for {ID_KINDS[kind]}s; say `{COMMANDS[found]} {file}`")
        id_, body = _parsed(kind, data)
    except BadDefinition as error:
        raise Mistake(f"{file}: {error}") from error
    if len(bytes(body)) > BODY_BYTES_MAX:
        raise Mistake(
            f"{file}: {len(bytes(body)):,} bytes as JSON, the limit is {BODY_BYTES_MAX:,}"
        )
    return Draft(file=file, kind=kind, id=id_, body=body)


def _parsed(kind: DefinitionKind, data: JsonObject) -> tuple[str, msgspec.Raw]:
    """Return the id of what is defined, and the definition in its canonical form."""
    match kind:
        case DefinitionKind.AGENT:
            agent = agent_of(data)
            return agent.id, canonical(agent)
        case DefinitionKind.WORKFLOW:
            workflow = workflow_of(data)
            return workflow.name, canonical(workflow)


def _text_of(file: str) -> bytes:
    """Return what is read of a file: a little more than may be, so that what is too long shows."""
    try:
        if file == STDIN:
            return sys.stdin.buffer.read(TEXT_BYTES_MAX + 1)
        with Path(file).open("rb") as opened:
            return opened.read(TEXT_BYTES_MAX + 1)
    except OSError as error:
        raise Trouble(f"{file}: {error.strerror or error}") from error
