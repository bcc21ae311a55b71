"""Whether the archive has all that the journal has no more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from streams.archive.archive import Archive
from streams.errors import StreamError
from streams.layout import Stream
from streams.model.losses import KnownPast
from streams.noted import noted
from vigil.archiving.settings import opened_store
from vigil.asking.connect import link_settings
from vigil.errors import VigilError

if TYPE_CHECKING:
    from streams.ports.all import Ports
    from vigil.archiving.settings import ArchiveSpec
    from vigil.settings import Config

REMEDY: Final = (
    "Find where the segments are, and have store of [archive] name that; without them nothing"
    " brings back what was purged."
)


async def gaps(config: Config, spec: ArchiveSpec | None, ports: Ports) -> Mapping[str, str]:
    """Return what is wrong with the archive, by stream: it ends before the journal begins.

    An archive that cannot be read is at fault for every stream that was archived.
    """
    stack, known = ports.stack, await noted(ports)
    parts = [stack.part(Stream.JOURNAL, each) for each in stack.partitions_of(Stream.JOURNAL)]
    archived = [part for part in parts if known.get(part, KnownPast()).archived]
    if spec is None or not archived:
        return {}
    try:
        async with opened_store(config, spec, link_settings(config)) as store:
            found = {part: await _gap(Archive(store, stack), part, ports) for part in archived}
    except (StreamError, VigilError) as error:
        return dict.fromkeys(archived, f"the archive cannot be read: {error}")
    return {part: says for part, says in found.items() if says}


async def _gap(archive: Archive, part: str, ports: Ports) -> str:
    state = await ports.states.of(part)
    newest = None if state is None else await archive.last(part, state.created)
    end = 0 if newest is None else newest.last_seq
    if state is None or state.first_seq <= end + 1:  # guard: lost-segments-told
        return ""
    where = f"the archive in {archive.store.address} ends at {end:,}"
    return f"it begins at {state.first_seq:,}, and {where}"
