"""Encrypting what a stack has of its subjects of data, and erasing one, on the servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Final

import msgspec

from engine.operations.erasure import (
    ErasureTraces,
    check_subject,
    erasure_of,
    find_traces,
)
from engine.orders.store import give_order
from engine.retention.store import read_state
from engine.validation import check_cause
from projections.postgres import erase as rows
from streams import jetstream
from streams.archive.history import with_history
from streams.clock import SystemClock
from streams.layout import Stream
from streams.model.events import KindsEncrypted
from streams.model.sealed import key_name
from streams.ports.all import Ports
from streams.ports.log import EventLog, Recorded
from streams.sealing.seals import KEYS_S, Seals
from vigil.archiving.find import finding_archive
from vigil.asking.connect import connected, link_settings, pooled
from vigil.errors import Mistake
from vigil.settings import Config

_CLOCK: Final = SystemClock()

FORGOTTEN_S: Final = KEYS_S + 1.0
"""How long after a key is destroyed no process knows it any more, in seconds."""


OF_COPIES: Final = (
    "servers that copy streams have the key in the log of their copies, which each of them writes "
    "anew within three minutes"
)
"""What is left of a key for a while. Source: `compactInterval` of nats-server, 2 minutes and up to
one more; measured, 40 s on three servers of 2.15.1."""


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """What was erased of a subject of data, or would be."""

    traces: ErasureTraces
    is_dry: bool
    key_id: str = ""
    """Of the key that was destroyed; empty: there was none."""
    rows: int = 0
    """Rows of the tables that were made anew."""
    left: str = ""
    """What is still somewhere, for people; empty: nothing that is known of."""


async def kinds(config: Config) -> Sequence[str]:
    """Return the kinds of subjects whose data a stack encrypts."""
    url, link = config.settings.nats_url, link_settings(config)
    return await jetstream.read_kinds(url, stack=config.stack, settings=link)


async def encrypt(config: Config, added: Sequence[str], *, by: str, reason: str) -> Sequence[str]:
    """Have a stack encrypt data of more kinds of subjects; return all of them."""
    check_cause(by, reason)
    url, link = config.settings.nats_url, link_settings(config)
    found = await jetstream.add_kinds(url, stack=config.stack, kinds=added, settings=link)
    async with connected(config, creates=False) as ports:
        await give_order(ports, KindsEncrypted(kinds=tuple(found), by=by, reason=reason))
    return found


async def erase(
    config: Config, subject: str, *, by: str, reason: str, is_dry: bool = False
) -> Erasure:
    """Destroy the key of a subject of data, and make the rows anew without its contents.

    Raises:
        BadName: it is no subject of data of a kind that is encrypted.
        Mistake: people hold some of it, or episodes or instances about it have not ended.
    """
    check_cause(by, reason)
    url, link = config.settings.nats_url, link_settings(config)
    async with (
        jetstream.connect_encrypted(url, stack=config.stack, settings=link) as there,
        finding_archive(config, link) as find,
    ):
        check_subject(subject, there.kinds)
        ports = with_history(there.ports, find)  # guard: archived-contents-are-found
        seals = Seals(ports.log, there.keys, stack=ports.stack, kinds=there.kinds, clock=_CLOCK)
        holds = (await read_state(there.opened, clock=_CLOCK)).holds
        traces = await find_traces(ports, seals, subject, holds=holds)
        if is_dry:
            return Erasure(traces=traces, is_dry=True)
        if traces.held:  # guard: held-subject-not-erased
            raise Mistake(
                f"{subject} is not erased: people hold {', '.join(traces.held)}",
                remedy=f"`vigil retention hold remove {traces.held[0]}`, and erase again",
            )
        if traces.open:  # guard: open-work-is-not-erased
            first, *others = traces.open
            more = f" and {len(others)} more" if others else ""
            raise Mistake(
                f"{first}{more} about {subject} have not ended",
                remedy="wait for them, or cancel them, and erase again",
            )
        key = await there.keys.get(key_name(subject))
        order = erasure_of(traces, key, by=by, reason=reason)
        await give_order(there.opened, order)  # guard: erasure-noted-first
        await there.keys.destroy(key_name(subject))
        for seq in traces.plain_events:
            await there.overwrite_event(seq)  # guard: plain-events-overwritten
        await _CLOCK.sleep(FORGOTTEN_S)
        async with pooled(config) as pool:
            read = partial(_read, with_history(there.opened, find).log, traces.aggregates)
            made = await rows.make_rows_anew(pool, there.ports.stack, read)
            left = [await rows.write_files_anew(pool), await _left_of_key(ports)]
    said = "\n".join(each for each in left if each)
    return Erasure(traces=traces, is_dry=False, key_id=order.key_id, rows=made, left=said)


async def _left_of_key(ports: Ports) -> str:
    state = await ports.states.of(ports.stack.part(Stream.JOURNAL, 0))
    return OF_COPIES if state is not None and state.copies > 1 else ""


async def _read(log: EventLog, aggregates: Sequence[str]) -> AsyncIterator[Sequence[Recorded]]:
    """Yield all commits of each of some aggregates, by a process that knows no destroyed key."""
    for subject in aggregates:
        yield await log.read(subject)
