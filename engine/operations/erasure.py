"""What a stack has of one subject of data, found by reading its log, before and after it is erased.

    find    every aggregate that is encrypted with the key of the subject, every one that was
            written about it before there was one, and its public and domain events
    order   it is noted who had it erased, when, why, and what goes with the key
    erase   the key is destroyed, and events that are kept in the open are overwritten

Everything may be repeated: after an interruption, the same order goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

import msgspec

from engine.app.workflow_plan import starter_id
from engine.retention.rules import RetentionHolds
from streams.errors import BadName
from streams.json import UNDECODABLE, raw
from streams.layout import Kind, Stream
from streams.model.events import (
    EpisodeFinished,
    EpisodeOpened,
    SubjectErased,
    WorkflowFinished,
    WorkflowStarted,
)
from streams.model.sealed import SEALED_KEY, Sealed, key_name
from streams.ports.all import Ports
from streams.ports.delivery import Unreadable
from streams.ports.domain_events import DomainEvent
from streams.ports.log import START, Recorded
from streams.ports.subject_keys import SubjectKey
from streams.sealing.contents import without_contents
from streams.sealing.seals import Seals
from streams.sealing.subjects import (
    DataOwner,
    whose_events,
    whose_payload,
    whose_subject,
)

READ_MAX: Final = 500
"""Commits that are read at a time."""

READ_S: Final = 5.0
"""Longest wait for the next ones that are there, in seconds."""

OPEN_SHOWN_MAX: Final = 20
"""Most aggregates that are named which have not ended."""

PLURALS: Final = {
    Kind.EPISODE: "episodes",
    Kind.FINDING: "findings",
    Kind.OUTPUT: "outputs",
    Kind.WORKFLOW: "instances",
    Kind.SIGNAL: "signals",
    Kind.DEAD: "dead_letters",
}


class ErasureTraces(msgspec.Struct, frozen=True, kw_only=True):
    """What there is of a subject of data."""

    subject: str
    encrypted: dict[str, int]
    """Kind → how many aggregates have contents that go with the key."""
    plain: dict[str, int]
    """Kind → how many have contents that were written in the open, before they were encrypted:
    they stay."""
    events: int
    """Domain and public events that are kept, and encrypted."""
    plain_events: tuple[int, ...]
    """Sequences of those that are kept in the open: they are overwritten."""
    open: tuple[str, ...]
    """Episodes and instances that have not ended, up to `OPEN_SHOWN_MAX` of them."""
    held: tuple[str, ...] = ()
    """By what people hold some of it, such as `subject 123`."""
    aggregates: tuple[str, ...]
    """The subjects on the log of all aggregates with contents that go with the key."""

    @property
    def counts(self) -> dict[str, int]:
        """Kind → how many have contents that are gone afterwards."""
        events = self.events + len(self.plain_events)
        return {**self.encrypted, **({"events": events} if events else {})}


def check_subject(subject: str, kinds: Sequence[str]) -> None:
    """Raise `BadName` if `subject` is no subject of data of one of `kinds`."""
    kind, slash, value = subject.partition("/")
    if not slash or not value:
        raise BadName(f"subject: {subject!r}; use KIND/VALUE, such as client_id/123")
    if kind not in kinds:
        there = ", ".join(kinds) or "none"
        raise BadName(f"subject: nothing about {kind!r} is encrypted; kinds that are: {there}")


def erasure_of(
    traces: ErasureTraces, key: SubjectKey | None, *, by: str, reason: str
) -> SubjectErased:
    """Return the order to erase what was found, as it is noted."""
    return SubjectErased(
        subject=traces.subject,
        key_id=key.id if key is not None else "",
        key_digest=sha256(key.secret).hexdigest() if key is not None else "",
        counts=traces.counts,
        by=by,
        reason=reason,
    )


async def find_traces(
    ports: Ports, seals: Seals, subject: str, *, holds: RetentionHolds | None = None
) -> ErasureTraces:
    """Return what a stack has of a subject of data.

    `ports` are those of the log as it is, encrypted; `seals` know whose an aggregate is. All of the
    log is read.
    """
    search = _Search(ports, seals, key_name(subject), holds or RetentionHolds())
    search.note_held(subject_id=subject.partition("/")[2])
    for stream in (Stream.JOURNAL, Stream.STATE, Stream.DEAD):
        for partition in ports.stack.partitions_of(stream):
            await search.read(stream, partition)
    await search.read_events()
    return search.found(subject)


@dataclass
class _Search:
    ports: Ports
    seals: Seals
    name: str
    holds: RetentionHolds
    held: set[str] = field(default_factory=set)
    encrypted: set[DataOwner] = field(default_factory=set)
    plain: set[DataOwner] = field(default_factory=set)
    begun: set[DataOwner] = field(default_factory=set)
    subjects: set[str] = field(default_factory=set)
    events: int = 0
    plain_events: list[int] = field(default_factory=list)

    async def read(self, stream: Stream, partition: int) -> None:
        log = self.ports.log
        head, at = await log.head(stream, partition=partition), START
        async with log.follow(stream, after=START, partition=partition) as follower:
            while at < head:
                records = await follower.receive(most=READ_MAX, wait_s=READ_S)
                if not records:
                    return
                for each in records:
                    await self._take(each)
                at = records[-1].seq

    async def read_events(self) -> None:
        after = START
        while page := await self.ports.domain_events.page(after=after):
            for each in page:
                if not isinstance(each, Unreadable):
                    await self._take_event(each)
            after = page[-1].seq

    def found(self, subject: str) -> ErasureTraces:
        ended = sorted(f"{each.kind.value} {each.key}" for each in self.begun)
        return ErasureTraces(
            subject=subject,
            encrypted=_counted(self.encrypted),
            plain=_counted(self.plain),
            events=self.events,
            plain_events=tuple(self.plain_events),
            open=tuple(ended[:OPEN_SHOWN_MAX]),
            held=tuple(sorted(self.held)),
            aggregates=tuple(sorted(self.subjects)),
        )

    def note_held(self, *, actor_id: str = "", episode_id: str = "", subject_id: str = "") -> None:
        """Take note of what holds something of it, if anything does."""
        self.held.update(
            self.holds.reasons(actor_id=actor_id, episode_id=episode_id, subject_id=subject_id)
        )

    async def _take(self, record: Recorded) -> None:
        owner = whose_subject(record.subject, self.ports.stack)
        if owner is None:
            return
        commit = record.commit
        if commit.sealed is not None:
            is_ours = commit.sealed.name == self.name
            if is_ours:
                self.encrypted.add(owner)
                self.subjects.add(record.subject)
        else:
            is_ours = await self._is_plain(owner, record)
            if is_ours:
                self.plain.add(owner)
        for event in commit.events:
            if isinstance(event, EpisodeOpened | WorkflowStarted) and is_ours:
                self.begun.add(owner)
                if isinstance(event, EpisodeOpened):
                    self.note_held(actor_id=event.actor_id, episode_id=event.episode_id)
                else:
                    self.note_held(actor_id=starter_id(event.spec.name))
            elif isinstance(event, EpisodeFinished | WorkflowFinished):
                self.begun.discard(owner)

    async def _is_plain(self, owner: DataOwner, record: Recorded) -> bool:
        """Return whether contents of the subject stand in a commit in the open."""
        events = record.commit.events
        if without_contents(events) is events:
            return False
        whose = whose_events(events, self.seals.kinds) or owner
        return await self.seals.name_of(whose) == self.name

    async def _take_event(self, event: DomainEvent) -> None:
        payload = event.payload
        if SEALED_KEY in payload:
            try:
                sealed = msgspec.json.decode(raw(payload[SEALED_KEY]), type=Sealed)
            except UNDECODABLE:
                return
            self.events += sealed.name == self.name
        elif self.name == await self.seals.name_of_first(*whose_payload(payload, self.seals.kinds)):
            self.plain_events.append(event.seq)


def _counted(owners: set[DataOwner]) -> dict[str, int]:
    kinds = sorted(PLURALS.get(each.kind, each.kind.value) for each in owners)
    return {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
