"""Who defined something last, and who disabled it, as its journal says."""

from __future__ import annotations

from typing import Final

import msgspec

from engine.definitions.store import Chapter, definition_history
from streams.model.events import DefinitionApplied
from streams.model.events.definitions import DefinitionKind
from streams.ports.all import Ports
from vigil.editions import GROUPS
from vigil.tables import Row

NOTHING_TOLD: Final[Row] = {}


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """How a definition came to stand as it does."""

    applied: Chapter | None = None
    """What was applied last; None: nobody has ever defined it."""
    disabled: Chapter | None = None
    """None: it holds."""


async def story_of(ports: Ports, kind: DefinitionKind, id_: str) -> Story:
    """Return how a definition came to stand as it does.

    Raises:
        BadName: the id can name nothing of this kind.
        UnreadableEvent: a newer version has written it.
        Unavailable: the log is away.
    """
    story = Story()
    for chapter in await definition_history(ports, kind, id_):
        if isinstance(chapter.event, DefinitionApplied):
            story = Story(applied=chapter)
        else:
            story = Story(applied=story.applied, disabled=chapter)
    return story


def said(chapter: Chapter) -> str:
    """Return when something was done, and by whom, in words."""
    return f"{chapter.record.commit.at:%Y-%m-%d %H:%M:%S} by {chapter.event.by}"


async def told(ports: Ports, kind: DefinitionKind, id_: str) -> Row:
    """Return the same in columns, and where to see the definition; nothing: there never was one.

    Raises:
        As `story_of`.
    """
    story = await story_of(ports, kind, id_)
    if story.applied is None:
        return NOTHING_TOLD
    return {
        **_columns("applied", story.applied),
        **_columns("disabled", story.disabled),
        "definition": f"vigil {GROUPS[kind]} definition {id_}",
    }


def _columns(change: str, chapter: Chapter | None) -> Row:
    """Return who did it, when and why, by the names that the tables of definitions have."""
    return {
        f"{change}_at": None if chapter is None else chapter.record.commit.at,
        f"{change}_by": None if chapter is None else chapter.event.by,
        f"{change}_reason": None if chapter is None else chapter.event.reason or None,
    }
