"""Leases on JetStream: one key per lease, with a time to live that the server counts.

    acquire   write, expecting no key; or the tombstone, if that is all there is
    renew     write, expecting our own revision
    complete  write a purge that itself lives 1 s, expecting our own revision
    fail      the same, with the outcome and the error in its headers
    lapse     `mark_lapsed` replaces the key by a marker, expecting the revision that is over; the
              server does it when the time to live is over, which is `GRACE_S` longer

After a lost answer, and after a call that was canceled before its answer came, the key is read: the
claim is ours if it names us and our moment of acquiring, which is unique in a process. For a
renewal it must also be noted that the answer *was* lost: otherwise the old lease of a renewed one
could be used again. nats-py's key-value client does not fit: its update drops the time to live,
which makes a key immortal, and its create fails on a lapsed key until the marker is gone too.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from datetime import datetime, timedelta
from typing import Final

import msgspec

from streams.errors import LeaseLost, Unavailable, UnknownOutcome
from streams.jetstream.connection import headers
from streams.jetstream.connection.link import Link
from streams.jetstream.connection.session import Headers
from streams.jetstream.messages.publish import WrongSequence
from streams.jetstream.ports.bucket import SECONDS
from streams.jetstream.ports.configs import MARKER_S
from streams.jetstream.ports.follow import Tails
from streams.jetstream.ports.keys import PURGE, KeyMessage, Keys, has_lapsed, is_gone
from streams.json import UNDECODABLE
from streams.ports.leases import (
    CUT_SHORT_S,
    GRACE_S,
    RECLAIM_MAX,
    Claim,
    ClaimChange,
    ClaimWatch,
    Lease,
    error_shown,
)
from streams.subjects import Stack

ATTEMPTS_MAX: Final = 4
"""How often one call tries when the key changes under it, or an answer is lost."""

GIVE_UP_S: Final = 1.0
"""Longest that a canceled `acquire` may take to give up what the server may have stored."""

TOMBSTONE: Final = {**PURGE, headers.TTL: "1s"}
"""The end of a claim, visible for the shortest time that the server allows; it leaves no marker."""

# guard: marker-of-node-lasts
MARKER: Final = {**PURGE, headers.MARKER_REASON: "MaxAge", headers.TTL: f"{MARKER_S}{SECONDS}"}
"""Means what the server writes when a time to live is over, and lives as long on a stream with our
settings."""

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Claim] = msgspec.json.Decoder(Claim)
_error_decoder: msgspec.json.Decoder[str] = msgspec.json.Decoder(str)
_FAILED: Final = "failed"
_MICROSECOND: Final = timedelta(microseconds=1)


class JetStreamLeases:
    """`Leases` in the claims bucket of one stack."""

    def __init__(self, link: Link, stack: Stack) -> None:
        self._link = link
        self._keys = Keys(link, stack.claims_bucket())
        self._tails: Tails[ClaimChange] = Tails()
        self._last_acquired_at = link.clock.now()
        self._lost_answers: dict[tuple[str, int], float] = {}

    @property
    def ttl_s(self) -> int:
        """See `Leases.ttl_s`."""
        return self._link.settings.lease_ttl_s

    async def acquire(self, key: str, *, holder: str, attempt: int = 1) -> Lease | None:
        """See `Leases.acquire`."""
        wanted = self._new_lease(key, holder, attempt)
        try:
            return await self._acquire(wanted)
        except asyncio.CancelledError:
            self._note_lost_answer(wanted)  # guard: cancelled-acquire-leaves-no-claim
            with suppress(Unavailable, TimeoutError):
                async with self._link.clock.timeout(GIVE_UP_S):
                    await self.complete(wanted)
            raise

    async def _acquire(self, wanted: Lease) -> Lease | None:
        key = wanted.key
        found: KeyMessage | None = None
        lost_answer: UnknownOutcome | None = None
        for _ in range(ATTEMPTS_MAX):
            # guard: given-up-not-stolen
            lapse = found.seq if found is not None and has_lapsed(found) else 0
            wanted = msgspec.structs.replace(wanted, lapse_revision=lapse)
            try:
                return await self._store(wanted, expected=found.seq if found else 0)
            except UnknownOutcome as error:
                lost_answer = error
            except WrongSequence:
                lost_answer = None
            found = await self._keys.last(key)
            if not is_gone(found):
                break
        if found is not None and _is_claim_of(found, wanted):
            return msgspec.structs.replace(wanted, revision=found.seq)
        if lost_answer is not None and is_gone(found):
            raise lost_answer
        return None

    async def renew(self, lease: Lease) -> Lease:
        """See `Leases.renew`."""
        expected = lease.revision
        for _ in range(ATTEMPTS_MAX):
            try:
                renewed = await self._store(lease, expected=expected)
            except (UnknownOutcome, asyncio.CancelledError):  # guard: cancelled-renewal-can-end
                self._note_lost_answer(lease)
                raise
            except WrongSequence as error:
                expected = await self._our_revision(lease, error)
            else:
                self._lost_answers.pop((lease.key, lease.revision), None)
                return renewed
        raise Unavailable(lease.key, detail="the lease keeps changing")

    async def complete(self, lease: Lease) -> None:
        """See `Leases.complete`."""
        await self._give_up(lease, TOMBSTONE)

    async def fail(self, lease: Lease, *, error: str) -> None:
        """See `Leases.fail`."""
        # guard: error-text-breaks-no-header
        said = {headers.OUTCOME: _FAILED, headers.ERROR: json.dumps(error_shown(error))}
        await self._give_up(lease, {**TOMBSTONE, **said})

    async def owns(self, lease: Lease) -> bool:
        """See `Leases.owns`."""
        found = await self._keys.last(lease.key)
        # guard: newest-revision-owns
        return found is not None and found.seq == lease.revision and not is_gone(found)

    async def standing(self, key: str) -> ClaimChange | None:
        """See `Leases.standing`."""
        found = await self._keys.last(key)
        if found is None or (is_gone(found) and not has_lapsed(found)):
            return None
        return _change(key, found, at=found.at)

    async def reclaim_expired(self, *, limit: int = RECLAIM_MAX) -> Sequence[ClaimChange]:
        """See `Leases.reclaim_expired`."""
        lapses: list[ClaimChange] = []
        async with aclosing(self._keys.every()) as messages:
            async for message in messages:
                if len(lapses) >= limit:
                    break
                if has_lapsed(message):  # guard: only-lapse-reclaimed
                    at = datetime.fromisoformat(message.headers[headers.STORED_AT])
                    lapses.append(_change(self._keys.key_of(message), message, at=at))
        return lapses

    async def cut_short(self, *, holder: str) -> Sequence[str]:
        """See `Leases.cut_short`."""
        now = self._link.clock.now()
        lease_until = now + timedelta(seconds=CUT_SHORT_S)
        async with aclosing(self._keys.every()) as messages:
            held = [(each, _claim_in(each)) async for each in messages]
        cut: list[str] = []
        for message, claim in held:
            if claim is None or claim.owner_node != holder:
                continue
            key = self._keys.key_of(message)
            short = msgspec.structs.replace(claim, heartbeat_at=now, lease_until=lease_until)
            with suppress(WrongSequence):
                await self._write(key, short, expected=message.seq)
                cut.append(key)
        return cut

    async def mark_lapsed(self, key: str, revision: int) -> None:
        """See `Leases.mark_lapsed`."""
        with suppress(WrongSequence):
            # guard: renewed-claim-not-lapsed
            await self._keys.write(key, b"", more=MARKER, expected=revision, alone=True)

    def watch(self, *, after: int = 0) -> AbstractAsyncContextManager[ClaimWatch]:
        """See `Leases.watch`."""
        return self._keys.reader(
            lambda arrived: _change(self._keys.key_of(arrived), arrived, at=arrived.at),
            after=after,
            tails=self._tails,
        )

    async def _give_up(self, lease: Lease, tombstone: Headers) -> None:
        """Put `tombstone` in the place of `lease`, if the key is still ours."""
        expected = lease.revision
        for _ in range(ATTEMPTS_MAX):
            try:
                # guard: former-owner-deletes-nothing
                await self._keys.write(lease.key, b"", more=tombstone, expected=expected)
            except WrongSequence as error:
                try:
                    expected = await self._our_revision(lease, error)
                except LeaseLost:
                    return
            else:
                return
        raise Unavailable(lease.key, detail="the lease keeps changing")

    def _new_lease(self, key: str, holder: str, attempt: int) -> Lease:
        """Return a lease that is not stored yet, with a moment of acquiring all its own."""
        at = max(self._link.clock.now(), self._last_acquired_at + _MICROSECOND)
        self._last_acquired_at = at
        trusted_until_s = self._link.clock.monotonic_s() + self.ttl_s
        return Lease(
            key=key,
            holder=holder,
            attempt=attempt,
            revision=0,
            lapse_revision=0,
            trusted_until_s=trusted_until_s,
            acquired_at=at,
        )

    async def _store(self, lease: Lease, *, expected: int) -> Lease:
        """Return `lease` with a full life, once the server has it."""
        trusted_until_s = self._link.clock.monotonic_s() + self.ttl_s
        now = self._link.clock.now()
        claim = Claim(
            owner_node=lease.holder,
            claimed_at=lease.acquired_at,
            heartbeat_at=now,
            lease_until=now + timedelta(seconds=self.ttl_s),
            attempt=lease.attempt,
        )
        revision = await self._write(lease.key, claim, expected=expected)
        return msgspec.structs.replace(lease, revision=revision, trusted_until_s=trusted_until_s)

    async def _write(self, key: str, claim: Claim, *, expected: int) -> int:
        """Return the revision of `claim`, which the server ends by itself once nobody else has."""
        server_s = round(claim.life_s) + GRACE_S  # guard: server-ends-later
        data, life = _encoder.encode(claim), {headers.TTL: f"{server_s}{SECONDS}"}
        return await self._keys.write(key, data, more=life, expected=expected)

    def _note_lost_answer(self, lease: Lease) -> None:
        """Remember that a renewal of `lease` may be stored, for as long as that matters."""
        now_s = self._link.clock.monotonic_s()
        self._lost_answers = {
            noted: ends_s for noted, ends_s in self._lost_answers.items() if ends_s > now_s
        }
        self._lost_answers[lease.key, lease.revision] = now_s + self.ttl_s

    async def _our_revision(self, lease: Lease, error: WrongSequence) -> int:
        """Return the revision of `lease` after a renewal of it whose answer was lost."""
        lost = LeaseLost(lease.key, revision=lease.revision)
        if (lease.key, lease.revision) not in self._lost_answers:
            raise lost from error
        found = await self._keys.last(lease.key)
        if found is None or not _is_claim_of(found, lease):
            raise lost from error
        return found.seq


def _change(key: str, message: KeyMessage, *, at: datetime) -> ClaimChange:
    state = _state(message)
    return ClaimChange(
        key=key,
        revision=message.seq,
        state=state,
        at=at,
        claim=_claim(message.data) if state == "claimed" else None,
        error=_error(message.headers) if state == _FAILED else "",
    )


def _state(message: KeyMessage) -> str:
    if has_lapsed(message):
        return "expired"
    if not is_gone(message):
        return "claimed"
    return _FAILED if message.headers.get(headers.OUTCOME) == _FAILED else "done"


def _error(given: Headers) -> str:
    """Return why a claim failed; what no engine wrote, as it stands."""
    told = given.get(headers.ERROR, "")
    try:
        return _error_decoder.decode(told)
    except UNDECODABLE:
        return told


def _is_claim_of(found: KeyMessage, lease: Lease) -> bool:
    claim = _claim_in(found)
    if claim is None:
        return False
    return (claim.owner_node, claim.claimed_at) == (lease.holder, lease.acquired_at)


def _claim_in(message: KeyMessage) -> Claim | None:
    return None if is_gone(message) else _claim(message.data)


def _claim(data: bytes) -> Claim | None:
    """Return the claim in a key's value, or None if it was not written by an engine."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
