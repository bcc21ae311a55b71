"""Drafts: what is to be defined, read from files and checked before anything is applied."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from engine.definitions import Format, agent_of, canonical, format_of, kind_of, read, workflow_of
from engine.definitions.store import BODY_BYTES_MAX
from engine.definitions.text import TEXT_BYTES_MAX
from engine.errors import BadDefinition
from streams.model.definitions import ID_KINDS
from streams.model.events.definitions import DefinitionKind
from vigil import settings
from vigil.asking.stack import GROUPS
from vigil.errors import Mistake, Trouble

FILES_MAX: Final = 1_000

STDIN: Final = "-"

NOTHING_GIVEN: Final[Mapping[str, object]] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Draft:
    """What one file defines."""

    file: str
    kind: DefinitionKind
    id: str
    body: msgspec.Raw
    """The definition in its canonical form."""


def drafts_of(
    kind: DefinitionKind | None,
    paths: Sequence[str],
    form: Format | None,
    *,
    given: Mapping[str, object] = NOTHING_GIVEN,
) -> list[Draft]:
    """Return what files and data define, actors before workflows, and otherwise in their order.

    Args:
        kind: what all of them are to define; None: they may define both.
        paths: names of files, and of folders with such; or `-` for standard input.
        form: their format; None: as their names tell. Folders are read by the names.
        given: definitions as data, by what errors call them.

    Raises `Mistake` for what cannot work, and for two of one name; `Trouble` for what is not read.
    """
    found: dict[str, Draft] = {}
    drafts = (_draft(kind, file, format_) for file, format_ in _files(paths, form))
    for draft in (*drafts, *(_draft_of(kind, data, file=file) for file, data in given.items())):
        name = f"{ID_KINDS[draft.kind]} {draft.id!r}"
        if name in found:  # guard: definition-of-one-file
            raise Mistake(f"{found[name].file} and {draft.file} both define {name}")
        found[name] = draft
    # guard: actors-before-workflows
    return sorted(found.values(), key=lambda draft: draft.kind is DefinitionKind.WORKFLOW)


def _files(paths: Sequence[str], form: Format | None) -> list[tuple[str, Format | None]]:
    found = [
        named
        for path in paths
        for named in (
            [(file, None) for file in _files_in(path)] if Path(path).is_dir() else [(path, form)]
        )
    ]
    if len(found) > FILES_MAX:
        raise Mistake(f"{len(found):,} files, the limit is {FILES_MAX:,}")
    return found


def _files_in(folder: str) -> list[str]:
    """Return the files in a folder, and within it, whose names tell a format, sorted.

    Not those that are hidden, nor our own settings: `vigil up` may run there, too.
    """
    root = Path(folder)
    there = (str(each) for each in root.rglob("*") if _is_ours(each.relative_to(root), each))
    found = sorted(islice(filter(_says_format, there), FILES_MAX + 1))
    if not found:
        raise Trouble(f"{folder}: there is no .yaml, .yml, .json or .toml in it")
    return found


def _is_ours(within: Path, file: Path) -> bool:
    # guard: hidden-folder-not-applied
    is_hidden = any(part.startswith(".") for part in within.parts)
    return not is_hidden and file.name != settings.FILE and file.is_file()


def _says_format(file: str) -> bool:
    try:
        format_of(file)
    except BadDefinition:
        return False
    return True


def _draft(kind: DefinitionKind | None, file: str, form: Format | None) -> Draft:
    if file == STDIN and form is None:
        raise Mistake("standard input has no name that says its format; say --format")
    text = _text_of(file)
    try:
        data = read(text, form or format_of(file))
    except BadDefinition as error:
        raise Mistake(f"{file}: {error}") from error
    return _draft_of(kind, data, file=file)


def _draft_of(kind: DefinitionKind | None, data: object, *, file: str) -> Draft:
    if not isinstance(data, dict):
        raise Mistake(f"{file}: write an object")
    try:
        found = kind_of(data)
        if kind not in {None, found}:  # guard: other-kind-to-own-command
            raise Mistake(
                f"{file}: not for {GROUPS[kind]}; say `vigil {GROUPS[found]} apply {file}`"
            )
        if found is DefinitionKind.WORKFLOW:
            workflow = workflow_of(data)
            id_, body = workflow.name, canonical(workflow)
        else:
            agent = agent_of(data)
            id_, body = agent.id, canonical(agent)
    except BadDefinition as error:
        raise Mistake(f"{file}: {error}") from error
    if len(bytes(body)) > BODY_BYTES_MAX:
        raise Mistake(
            f"{file}: {len(bytes(body)):,} bytes as JSON, the limit is {BODY_BYTES_MAX:,}"
        )
    return Draft(file=file, kind=found, id=id_, body=body)


def _text_of(file: str) -> bytes:
    """Return the text of a file, at most one byte more than is allowed."""
    try:
        if file == STDIN:
            text = sys.stdin.buffer.read(TEXT_BYTES_MAX + 1)
        else:
            with Path(file).open("rb") as opened:
                text = opened.read(TEXT_BYTES_MAX + 1)
    except OSError as error:
        raise Trouble(f"{file}: {error.strerror or error}") from error
    if not text.strip():
        raise Mistake(f"{'standard input' if file == STDIN else file}: it is empty")
    return text
