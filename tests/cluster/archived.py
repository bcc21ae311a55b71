"""The archive of a run: what has to be in it, and whether it and the servers have all there was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from streams.archive.archive import Archive, identity
from streams.archive.folder import FolderArchive
from streams.archive.history import with_history
from streams.layout import Stream
from streams.model.events import RetentionDeclared
from streams.model.retention import RetentionField
from streams.ports.all import Ports
from streams.ports.states import RawMessage
from streams.subjects import Stack
from streams.wire.messages import COMMIT_HEADER
from tests.cluster.replicas import Kept, told

JOURNAL_S: Final = 25
"""How long the journal keeps what has ended, in seconds: longer than an event may take to come
again once its episode has ended, which is 10 s and as long as servers are gone."""

ROWS_S: Final = 15
"""How long rows of what is done stay, in seconds."""

KEPT: Final = RetentionDeclared(
    kept_s={RetentionField.JOURNAL.value: JOURNAL_S, RetentionField.DONE.value: ROWS_S},
    by="chaos",
)
"""An order, since settings may not keep a journal for less than its events, nor for seconds."""

Archived: TypeAlias = Mapping[int, RawMessage]
"""The messages of the journal that segments have, by sequence."""


def archive_of(folder: Path, stack: Stack) -> Archive:
    """Return the archive in a folder."""
    return Archive(FolderArchive(folder), stack)


def name_archive(home: Path, archive: Path) -> None:
    """Make the folder in which nodes run, whose settings name the archive."""
    home.mkdir()
    (home / "vigil.toml").write_text(f'[archive]\nstore = "{archive}"\n')


def whole(ports: Ports, archive: Archive) -> Ports:
    """Return ports whose log has what was archived, too."""

    async def find() -> Archive:
        return archive

    return with_history(ports, find)


async def read_archive(archive: Archive) -> Archived:
    """Return what the segments have; raise `DamagedSegment` if any is not what was written."""
    found: dict[int, RawMessage] = {}
    for name in await archive.names():
        manifest = await archive.verify(name)
        async for block in archive.blocks(manifest):
            for message in block:
                assert message.seq not in found, f"{message.seq} is in two segments"
                found[message.seq] = message
    return found


def incomplete(archived: Archived, journal: Mapping[int, Kept]) -> Iterator[str]:
    """Yield what is wrong with an archive and one server's copy of the journal, in words.

    Together they have each sequence, and each commit once; what both have is the same.
    """
    name = Stream.JOURNAL.value
    there = archived.keys() | journal.keys()
    missing = sorted(set(range(1, max(there, default=0) + 1)) - there)
    yield from told(name, missing, "is neither on the server nor in the archive")
    both = sorted(archived.keys() & journal.keys())
    other = [seq for seq in both if not _is_same(archived[seq], journal[seq])]
    yield from told(name, other, "is another message in the archive")
    commits = Counter(
        [identity(each) for each in archived.values()]
        + [kept.headers[COMMIT_HEADER] for seq, kept in journal.items() if seq not in archived]
    )
    yield from (
        f"commit {id_} is there {count} times" for id_, count in commits.items() if count > 1
    )


def _is_same(message: RawMessage, kept: Kept) -> bool:
    return (message.subject, message.data) == (kept.subject, kept.data)


def as_kept(archived: Archived) -> Mapping[int, Kept]:
    """Return archived messages as a server would have them."""
    return {
        seq: Kept(each.subject, each.at.isoformat(), each.headers, each.data)
        for seq, each in archived.items()
    }
