"""What the commands about the archive do, and where its settings meet the stack."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import structs

from engine.archive.run import ArchiveReport, KnownRows, archive_once
from engine.retention.store import read_state
from projections.errors import PostgresUnavailable
from projections.postgres.pool import Pool
from projections.postgres.progress import known_positions
from projections.postgres.reader import oldest_dead_letter, oldest_row
from streams.archive.archive import Archive
from streams.archive.restored import RestoredPast, restore
from streams.archive.segment import seq_in
from streams.clock import SystemClock
from streams.errors import DamagedSegment
from streams.layout import Kind
from streams.model.losses import KnownPast
from streams.noted import noted
from streams.ports.states import RawMessage
from streams.subjects import Stack
from vigil.archiving.settings import ArchiveSpec, opened_store, opened_to_read
from vigil.archiving.step import plan_of
from vigil.asking.connect import link_settings, pooled
from vigil.errors import Mistake, NotFound
from vigil.settings import Config

if TYPE_CHECKING:
    from engine.archive.run import Tell
    from streams.archive.segment import Manifest
    from streams.ports.all import Ports

DAY_S: Final = 86_400

SAY_HOW_LONG: Final = (
    'write `journal = "14d"` into [retention] of vigil.toml, and start a node with it'
)

_CLOCK: Final = SystemClock()


class SegmentShown(msgspec.Struct, frozen=True, kw_only=True):
    """One segment, for people."""

    part: str
    first_seq: int
    last_seq: int
    messages: int
    first_at: datetime | None
    """None: it cannot be read."""
    last_at: datetime | None
    raw_bytes: int
    stored_bytes: int
    file: str
    problem: str = ""
    """What is wrong with it, if anything is."""


async def known_rows(config: Config, spec: ArchiveSpec | None) -> KnownRows | None:
    """Return what the tables have; None: nobody can say.

    Postgres that is away holds the floor, unless the settings say that there are no tables.
    """
    if spec is not None and not spec.waits_for_rows:
        return KnownRows()
    try:
        async with pooled(config) as pool:
            return await rows_in(pool, config.stack)
    except PostgresUnavailable:
        return None


async def rows_in(pool: Pool, stack: Stack) -> KnownRows:
    """Return what the tables have of a stack. Raises `PostgresUnavailable`."""
    return KnownRows(
        positions=await known_positions(pool, stack),
        since=await oldest_row(pool, stack),
        letters_since=await oldest_dead_letter(pool, stack),
    )


async def run_archive(
    ports: Ports, config: Config, spec: ArchiveSpec, *, purges: bool, is_dry: bool, tell: Tell
) -> ArchiveReport | None:
    """Archive and purge once, as the log says of retention; the rest is as for `archive_once`.

    Raises:
        Mistake: nobody has said how long the journal is kept.
    """
    plan = plan_of(await read_state(ports, clock=_CLOCK), is_dry=is_dry)
    if plan is None:
        raise Mistake("the journal of this stack is kept for ever", remedy=SAY_HOW_LONG)
    plan = structs.replace(plan, purges=purges)
    rows = await known_rows(config, spec)
    async with opened_store(config, spec, link_settings(config)) as store:
        archive = Archive(store, ports.stack)
        return await archive_once(
            ports, archive, plan, rows=rows, node=config.node, clock=_CLOCK, tell=tell
        )


async def list_segments(
    config: Config,
    spec: ArchiveSpec,
    *,
    verifies: bool = False,
    tell: Callable[[int, int], None] = lambda _done, _of: None,
) -> tuple[list[SegmentShown], Mapping[str, int]]:
    """Return all segments of the stack, and where those of a stream begin of which old ones left.

    If it `verifies`, each is read whole, and a folder that is not there is `NotFound`. Needs no
    server.
    """
    opened = opened_to_read if verifies else opened_store
    async with opened(config, spec, link_settings(config)) as store:
        archive = Archive(store, config.stack)
        streams = await archive.streams()
        names = [name for each in streams for name in each.names]
        shown = []
        last = {each.folder: each.begin - 1 for each in streams}
        for number, name in enumerate(names, start=1):
            try:
                read = archive.verify if verifies else archive.manifest
                manifest = await read(name)
            except DamagedSegment as error:
                shown.append(_unreadable(name, str(error)))
            else:
                shown.append(_shown(manifest, after=last.get(_stream(name), 0)))
                last[_stream(name)] = manifest.last_seq
            tell(number, len(names))
        return shown, {each.part: each.begin for each in streams if each.begin > 1}


async def archived_past(
    config: Config, spec: ArchiveSpec, kind: Kind, key: str
) -> Sequence[RawMessage]:
    """Return what the archive has of an aggregate. Needs no server."""
    async with opened_to_read(config, spec, link_settings(config)) as store:
        return await Archive(store, config.stack).history(kind, key)


async def segment_messages(
    config: Config, spec: ArchiveSpec, *, part: str, after: int, limit: int
) -> AsyncIterator[RawMessage]:
    """Yield up to `limit` messages of the segments of a stream past a sequence, oldest first."""
    left = limit
    async with opened_to_read(config, spec, link_settings(config)) as store:
        archive = Archive(store, config.stack)
        there = sorted({each.part for each in await archive.streams()})
        if part not in there:
            raise NotFound(f"the archive has no stream {part!r}", remedy=_streams_there(there))
        for name in await archive.names():
            if name.split("/")[1] != part:
                continue
            manifest = await archive.manifest(name)
            if manifest.last_seq <= after:
                continue
            async for messages in archive.blocks(manifest, after=after):
                for message in messages[:left]:
                    yield message
                left -= len(messages)
                if left <= 0:
                    return


async def restore_past(
    ports: Ports, config: Config, spec: ArchiveSpec, kind: Kind, key: str, *, days: int, by: str
) -> RestoredPast:
    """Bring the past of one aggregate back for so many days, and return where it is."""
    async with opened_to_read(config, spec, link_settings(config)) as store:
        known = (await noted(ports)).get(ports.stack.part_of(kind, key), KnownPast())
        messages = await Archive(store, ports.stack).history(kind, key, continued=known.continues)
    if not messages:
        raise NotFound(f"the archive has nothing of {key}")
    now = _CLOCK.now()
    return await restore(ports, kind, key, messages, by=by, at=now, ttl_s=days * DAY_S)


def _streams_there(parts: Sequence[str]) -> str:
    return f"there is {', '.join(parts)}" if parts else "nothing was archived yet"


def _unreadable(name: str, problem: str) -> SegmentShown:
    return SegmentShown(
        part=name.split("/")[1],
        first_seq=seq_in(name),
        last_seq=0,
        messages=0,
        first_at=None,
        last_at=None,
        raw_bytes=0,
        stored_bytes=0,
        file=name,
        problem=problem,
    )


def _stream(name: str) -> str:
    return name.rpartition("/")[0]


def _shown(manifest: Manifest, *, after: int) -> SegmentShown:
    problem = ""
    if manifest.follows != after:
        problem = f"the segment before it, which ended at {manifest.follows:,}, is missing"
    return SegmentShown(
        part=manifest.part,
        first_seq=manifest.first_seq,
        last_seq=manifest.last_seq,
        messages=manifest.count,
        first_at=manifest.first_at,
        last_at=manifest.last_at,
        raw_bytes=manifest.raw_bytes,
        stored_bytes=manifest.stored_bytes,
        file=manifest.name,
        problem=problem,
    )
