"""What a stack has lost, as streams, reactors and rows know it; and going on without it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from engine.operations.rebuild_gates import rebuild_gates
from engine.orders.store import rebuild_copies
from projections.postgres import store
from projections.postgres.progress import known_positions
from projections.postgres.reader import list_lost_rows
from streams import jetstream
from streams.clock import SystemClock
from streams.keys import DEFINITIONS
from streams.layout import Kind, Stream
from streams.model.definitions import definition_id
from streams.model.events.definitions import DefinitionKind
from streams.model.losses import GATES, REGISTRY, Consent, Loss
from streams.subjects import Stack
from vigil.asking.connect import connected, link_settings, pooled
from vigil.settings import Config

if TYPE_CHECKING:
    from projections.postgres.pool import Pool
    from streams.jetstream import FoundLosses
    from streams.ports.all import Ports

ROWS_MAX: Final = 100_000
"""Most rows that are looked through for each stream."""

SHOWN_MAX: Final = 5
"""Most of them that are shown."""

NEVER: Final = 2**62
"""Past every sequence: a stream of which nothing is left begins there."""

_KINDS: Final[Mapping[str, Sequence[Kind]]] = {
    Stream.JOURNAL: (Kind.EPISODE, Kind.OUTPUT, Kind.WORKFLOW),
    Stream.STATE: (Kind.FINDING, Kind.DEFINITION),
    Stream.DEAD: (Kind.DEAD,),
}
"""What rows show of each stream."""

_CLOCK: Final = SystemClock()


class LostRow(msgspec.Struct, frozen=True):
    """Something that the rows show, and whose newest commit is not on the log any more."""

    kind: str
    key: str
    journal_seq: int
    owner: str
    """The actor or the workflow that it belongs to."""
    status: str


class StreamLoss(msgspec.Struct, frozen=True, kw_only=True):
    """What one stream has lost, and what the rows know of that."""

    loss: Loss
    counts: Mapping[str, int]
    """Of each kind that the stream has, how many rows show what is lost."""
    first: Sequence[LostRow]
    """Those whose newest commit is the oldest."""
    is_all: bool
    """Whether all rows were counted."""


class StackLosses(msgspec.Struct, frozen=True, kw_only=True):
    """What a look at a stack has found of its losses."""

    report: LossReport
    found: FoundLosses
    """The same, as it is accepted."""

    @property
    def is_to_accept(self) -> bool:
        """Whether a person has to decide."""
        return bool(self.report.losses) or self.report.is_marked


class LossReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a stack has lost."""

    losses: Sequence[StreamLoss]
    is_marked: bool
    """Whether its nodes are refused until a person accepts it."""


async def look_for_losses(config: Config) -> StackLosses:
    """Return what the stack has lost, for people, and as it is accepted."""
    async with pooled(config) as pool:
        found = await find(config, await known_positions(pool, config.stack))
        losses = [await _in_rows(pool, found.stack, each) for each in found.losses]
    report = LossReport(losses=losses, is_marked=bool(found.marks))
    return StackLosses(report=report, found=found)


async def find(config: Config, known: Mapping[str, int]) -> FoundLosses:
    """Return what the stack has lost; `known`: positions of the rows, by stream."""
    url, link = config.settings.nats_url, link_settings(config)
    return await jetstream.find_losses(url, stack=config.stack, known=known, settings=link)


async def accept(config: Config, found: FoundLosses, *, by: str, reason: str) -> Mapping[str, int]:
    """Go on without what was found to be lost. After an interruption it can be called again.

    Returns how many keys of each kind the gates got anew, by the first token of the key.
    """
    url, link = config.settings.nats_url, link_settings(config)
    consent = Consent(by=by, at=_CLOCK.now(), reason=reason)
    async with pooled(config) as pool:
        known = await known_positions(pool, config.stack)

        async def resume_rows(losses: Sequence[Loss]) -> None:
            positions = {
                each.part: each.resumed(known[each.part]) for each in losses if each.part in known
            }
            await store.resume(pool, stack=config.stack.name, positions=positions, now=_CLOCK.now())

        await jetstream.accept_losses(
            url, found=found, consent=consent, resume_rows=resume_rows, settings=link
        )
    if any(each.part.partition("-")[0] == Stream.STATE for each in found.losses):
        async with connected(config, is_reading=True) as ports:
            await _forget_definitions(ports)
    if any(each.part == REGISTRY for each in found.losses):
        async with connected(config, is_reading=True) as ports:
            await rebuild_copies(ports)  # guard: lost-registry-keeps-orders
    rebuilt: Mapping[str, int] = {}
    if GATES in {*(each.part for each in found.losses), *(each.loss.part for each in found.marks)}:
        async with connected(config, is_reading=True) as ports:
            rebuilt = await rebuild_gates(ports)  # guard: lost-gates-rebuilt
    await jetstream.remove_marks(url, stack=config.stack, settings=link)
    return rebuilt


async def _forget_definitions(ports: Ports) -> None:
    """Remove from the registry the definitions that the state does not have any more.

    They begin with revision 1 again, which nodes would take for older than what is there.
    """
    for key in await ports.registry.entries(under=DEFINITIONS, from_leader=True):
        kind, _, id_ = key.removeprefix(f"{DEFINITIONS}.").partition(".")
        subject = ports.stack.definition(definition_id(DefinitionKind(kind), id_))
        if await ports.log.last(subject) is None:
            await ports.registry.delete(key)


async def _in_rows(pool: Pool, stack: Stack, loss: Loss) -> StreamLoss:
    stream = loss.part.partition("-")[0]
    kinds = _KINDS.get(stream, ())
    first, last = (NEVER, NEVER) if loss.is_of_all else (loss.first_seq, loss.last_seq)
    rows = await list_lost_rows(
        pool,
        stack,
        kinds=[each.value for each in kinds],
        first_seq=first,
        last_seq=last,
        limit=ROWS_MAX,
    )
    lost = [msgspec.convert(row, LostRow) for row in rows]
    ours = _newest(each for each in lost if stack.part_of(Kind(each.kind), each.key) == loss.part)
    counts = {each.value: sum(row.kind == each for row in ours) for each in kinds}
    return StreamLoss(loss=loss, counts=counts, first=ours[:SHOWN_MAX], is_all=len(rows) < ROWS_MAX)


def _newest(rows: Iterable[LostRow]) -> Sequence[LostRow]:
    """Return one row of each thing: a finding has one for each time that it was raised."""
    return sorted({(each.kind, each.key): each for each in rows}.values(), key=_position)


def _position(row: LostRow) -> tuple[int, str]:
    return row.journal_seq, row.key
