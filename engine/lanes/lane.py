"""The Lane aggregate: which episodes of an actor may run, over the whole cluster. Pure.

    wanted ──placed──▶ waiting ──admitted──▶ admitted ──left──▶ (gone)
       └──dropped         └──shed, left──▶ (gone)

Waiting episodes are ordered by number, which is the age of the cause, and each priority above
another is worth `PLACES_PER_PRIORITY` numbers: so a higher priority goes first, but only so many
later ones overtake an episode, and none waits for ever (docs/adr/0036-priorities-age.md). From the
head on they are admitted while there is capacity. One whose concurrency key is at its limit is
passed over, with all behind it of the same key. `overflow` decides about those without room:

    queue         they wait; at `queue_max` no more events are read: those stay in their stream
    drop          new ones are dropped; those that wait stay
    shed_oldest   at most `queue_max` wait; of the rest the lowest priority goes first, then the
                  oldest: a waiting one is shed, a new one is dropped

An episode that had a place before, and continues, is neither dropped nor shed. Every `KEEP_EVERY`th
commit has the whole lane, and every commit names it, so nobody reads a lane from its beginning.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from heapq import nsmallest
from typing import Final, Literal, TypeAlias, assert_never

import msgspec
from msgspec.structs import replace

from engine.app.actor import CLUSTER_EPISODES_MAX, QUEUE_MAX, Overflow
from engine.episodes.episode import ENDED, WAITING
from engine.episodes.episode import fold as fold_episode
from engine.episodes.open import untouched
from engine.waits.wait import block_in, is_answered
from streams.json import raw
from streams.model.events import EpisodeOpened, LaneEvent, LaneKept, LaneMoved
from streams.model.lanes import Ticket
from streams.ports.domain_events import DomainEvent
from streams.ports.log import START, Recorded
from streams.ports.timers import Due

DropReason: TypeAlias = Literal["no_room", "key_busy", "queue_full"]
"""Why a newcomer got no place: too many run; its key is at its limit; enough others wait."""


PLACES_PER_PRIORITY: Final = 100
"""How many later episodes may overtake one for each priority that they have above it. With 10 above
it, all that may wait at a time do (`QUEUE_MAX`)."""

KEEP_EVERY: Final = 200
"""Commits from one with the whole lane to the next: the most that a new scheduler reads."""

TICKETS_KEPT_MAX: Final = 2_500
"""Most tickets that one commit keeps; a longer lane is kept once it is shorter again. With the
longest names and keys so many are 706 KiB, of the 1 MiB that servers take."""

KEY_BYTES_MAX: Final = 48
"""Longest key, as JSON, that a ticket has in full; of a longer one it has the hash."""


Cause: TypeAlias = DomainEvent | Due


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much of an actor may run, and wait."""

    capacity: int
    """Most episodes that are admitted at a time; see `capacity_of`."""
    overflow: Overflow = "queue"
    queue_max: int = QUEUE_MAX


def capacity_of(*, cluster_max: int | None, nodes: Iterable[int]) -> int:
    """Return how many episodes may be admitted; `nodes` are the rooms of those that take any."""
    room = min(sum(nodes), CLUSTER_EPISODES_MAX)
    return room if cluster_max is None else min(room, cluster_max)


def ranked(waiting: Iterable[Ticket], newcomers: Iterable[Ticket]) -> list[Ticket]:
    """Return `waiting`, which is by rank, with `newcomers` in their places."""
    line = list(waiting)
    for ticket in newcomers:
        insort(line, ticket, key=_rank)
    return line


def admissible(line: Iterable[Ticket], running: Sequence[Ticket], *, capacity: int) -> list[Ticket]:
    """Return those of `line`, which is by rank, that may run beside `running`, by rank."""
    room = capacity - len(running)
    if room <= 0:
        return []
    busy = Counter(_key(ticket) for ticket in running if ticket.key)
    passed_over: set[tuple[str, str]] = set()
    admitted: list[Ticket] = []
    for ticket in line:
        key = _key(ticket)
        # guard: busy-key-passed-over
        if _is_busy(ticket, busy) or (ticket.key_limit and key in passed_over):
            passed_over.add(key)  # guard: same-key-not-overtaken
            continue
        admitted.append(ticket)
        busy[key] += 1
        if len(admitted) == room:  # guard: lane-capacity
            break
    return admitted


def losers(
    rest: Sequence[Ticket], limits: Limits, *, newcomers: frozenset[str]
) -> Sequence[Ticket]:
    """Return those of `rest`, which was not admitted, that may not wait either."""
    match limits.overflow:
        case "queue":
            return ()
        case "drop":
            # guard: returning-not-dropped
            return [
                ticket for ticket in rest if ticket.episode_id in newcomers and not ticket.resumes
            ]
        case "shed_oldest":
            too_many = max(0, len(rest) - limits.queue_max)  # guard: queue-max-sheds
            # guard: returning-not-shed
            strangers = (ticket for ticket in rest if not ticket.resumes)
            return nsmallest(too_many, strangers, key=lambda each: (each.priority, each.number))
        case _:
            assert_never(limits.overflow)


def drop_reasons(
    dropped: Iterable[Ticket], limits: Limits, *, running: Iterable[Ticket]
) -> dict[str, DropReason]:
    """Return why each of `dropped` is; `running` includes those just admitted."""
    if limits.overflow == "shed_oldest":
        return {ticket.episode_id: "queue_full" for ticket in dropped}
    busy = Counter(_key(ticket) for ticket in running if ticket.key)
    # guard: drop-reason-of-its-own
    return {
        ticket.episode_id: "key_busy" if _is_busy(ticket, busy) else "no_room" for ticket in dropped
    }


def _rank(ticket: Ticket) -> tuple[int, int]:
    # guard: low-priority-ages
    return ticket.number - ticket.priority * PLACES_PER_PRIORITY, ticket.number


def _is_busy(ticket: Ticket, busy: Mapping[tuple[str, str], int]) -> bool:
    is_limited = bool(ticket.key and ticket.key_limit)
    return is_limited and busy.get(_key(ticket), 0) >= ticket.key_limit


def _key(ticket: Ticket) -> tuple[str, str]:
    return ticket.expectation_id, ticket.key  # guard: lane-keys-by-expectation


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """What a lane's events add up to."""

    waiting: tuple[Ticket, ...] = ()
    """By rank."""
    admitted: tuple[Ticket, ...] = ()
    """In the order of their admission."""
    newest_number: int = 0
    kept_at: int = 0
    """Version of the newest commit with the whole lane; 0: there is none."""
    moves: int = 0
    """Commits since then."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """An episode that is to run when its turn comes."""

    episode_id: str
    expectation_id: str
    priority: int = 0
    key: str = ""
    """Concurrency key, counted per expectation; empty: none."""
    key_limit: int = 0
    """How many with the same key may run at a time; 0: any number."""
    start_by: datetime | None = None
    """Latest start; None: any time."""
    resumes: bool = False
    """Whether it continues after a turn that it gave up while it waited for something else: it is
    never turned away, and that it left in the same moment is not its end."""
    answered_step: int = 0
    """The step that it waited for, if it resumes."""


class LaneInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What the scheduler has seen since the last decision. The lane may know any of it already."""

    wanted: Sequence[Wanted] = ()
    """In the order of their causes."""
    left: Collection[str] = ()
    """Episodes that have ended, or wait for something else."""


EMPTY: Final = Lane()


def decide(lane: Lane, seen: LaneInputs, limits: Limits) -> tuple[LaneEvent, ...]:
    """Return the events of one commit, with the whole lane if it is time; empty: no change.

    An episode that is in the lane is not placed again, and one that ended according to the same
    `seen` is not placed at all. One that resumes left before it asked again, in whichever order
    that was seen: it gets a new place for the old one.
    """
    known = {ticket.episode_id for ticket in (*lane.waiting, *lane.admitted)}
    left = tuple(each for each in dict.fromkeys(seen.left) if each in known)
    newcomers = _newcomers(seen, known=known, after=lane.newest_number)
    new = frozenset(_ids(newcomers))
    line = ranked(_without(lane.waiting, left), newcomers)
    running = _without(lane.admitted, left)
    admitted = admissible(line, running, capacity=limits.capacity)
    lost = losers(_without(line, _ids(admitted)), limits, newcomers=new)
    turned_away = [each for each in lost if each.episode_id in new]
    moved = LaneMoved(
        placed=_without(newcomers, _ids(lost)),
        admitted=_ids(admitted),
        shed=tuple(each for each in _ids(lost) if each not in new),
        dropped={**drop_reasons(turned_away, limits, running=(*running, *admitted))},
        left=left,
    )
    return () if moved == LaneMoved() else _commit(lane, replace(moved, kept_at=lane.kept_at))


def overdue(lane: Lane, *, at: datetime) -> list[str]:
    """Return the waiting episodes whose `start_by` is over."""
    return [each.episode_id for each in lane.waiting if each.start_by and each.start_by < at]


def closing(lane: Lane) -> tuple[LaneEvent, ...]:
    """Return the events of the commit that empties `lane`: all that wait may run."""
    waiting, admitted = _ids(lane.waiting), _ids(lane.admitted)
    # guard: closed-lane-lets-run
    moved = LaneMoved(admitted=waiting, left=(*admitted, *waiting), kept_at=lane.kept_at)
    return moved, LaneKept(newest_number=lane.newest_number)


def evolve(lane: Lane, event: LaneEvent, *, version: int) -> Lane:
    """Return `lane` after `event` of the commit `version`. Never refuses."""
    match event:
        case LaneMoved():
            return _moved(lane, event)
        case LaneKept():
            return Lane(
                waiting=event.waiting,
                admitted=event.admitted,
                newest_number=event.newest_number,
                kept_at=version,  # guard: lane-knows-kept-at
            )
        case _:
            assert_never(event)


def fold(records: Iterable[Recorded]) -> Lane:
    """Return what `records` add up to, oldest first: all of them, or those since `beginning`."""
    lane = EMPTY
    for record in records:
        for event in record.commit.events:
            if isinstance(event, LaneEvent):
                lane = evolve(lane, event, version=record.seq)
    return lane


def beginning(newest: Recorded | None) -> int:
    """Return the version to read a lane after; if that is not `is_complete`, read all of it."""
    match newest:
        case Recorded(commit=commit) if any(isinstance(each, LaneKept) for each in commit.events):
            return newest.seq - 1
        case Recorded(commit=commit):
            kept_at = (each.kept_at for each in commit.events if isinstance(each, LaneMoved))
            return max(START, next(kept_at, START) - 1)
        case None:
            return START


def is_complete(records: Sequence[Recorded], *, past: int) -> bool:
    """Return whether `records`, those after version `past`, give all of a lane.

    They do if they begin where the lane was kept. In a stack that was moved to other streams,
    `LaneMoved.kept_at` may name any other commit: versions are of one stream.
    """
    first = (event for record in records[:1] for event in record.commit.events)
    # guard: moved-lane-read-whole
    return past == START or any(isinstance(event, LaneKept) for event in first)


def _newcomers(seen: LaneInputs, *, known: Collection[str], after: int) -> list[Ticket]:
    back = {each.episode_id for each in seen.wanted if each.resumes}.intersection(seen.left)
    settled = {*known, *seen.left} - back  # guard: one-place-per-episode
    tickets: list[Ticket] = []
    for each in seen.wanted:
        if each.episode_id not in settled:
            settled.add(each.episode_id)
            tickets.append(_ticket(each, number=after + len(tickets) + 1))
    return tickets


def _ticket(wanted: Wanted, *, number: int) -> Ticket:
    return Ticket(
        episode_id=wanted.episode_id,
        expectation_id=wanted.expectation_id,
        number=number,
        priority=wanted.priority,
        key=_short(wanted.key),
        key_limit=wanted.key_limit,
        start_by=wanted.start_by,
        resumes=wanted.resumes,
        answered_step=wanted.answered_step,
    )


def _short(key: str) -> str:
    encoded = bytes(raw(key))
    is_short = len(encoded) <= KEY_BYTES_MAX  # guard: long-lane-key-hashed
    return key if is_short else f"#{blake2b(encoded, digest_size=16).hexdigest()}"


def _moved(lane: Lane, event: LaneMoved) -> Lane:
    line = ranked(_without(lane.waiting, (*event.left, *event.shed)), event.placed)
    waits = {ticket.episode_id: ticket for ticket in line}
    admitted = [waits.pop(each) for each in event.admitted if each in waits]
    return Lane(
        waiting=tuple(waits.values()),
        admitted=(*_without(lane.admitted, event.left), *admitted),
        newest_number=max((each.number for each in event.placed), default=lane.newest_number),
        kept_at=lane.kept_at,
        moves=lane.moves + 1,
    )


def _commit(lane: Lane, moved: LaneMoved) -> tuple[LaneEvent, ...]:
    if lane.moves + 1 < KEEP_EVERY:
        return (moved,)
    after = _moved(lane, moved)
    return (moved, _kept(after)) if _may_be_kept(after) else (moved,)


def _may_be_kept(lane: Lane) -> bool:
    return len(lane.waiting) + len(lane.admitted) <= TICKETS_KEPT_MAX  # guard: long-lane-not-kept


def _kept(lane: Lane) -> LaneKept:
    return LaneKept(waiting=lane.waiting, admitted=lane.admitted, newest_number=lane.newest_number)


def _without(tickets: Iterable[Ticket], episodes: Iterable[str]) -> tuple[Ticket, ...]:
    gone = frozenset(episodes)
    return tuple(each for each in tickets if each.episode_id not in gone)


def _ids(tickets: Iterable[Ticket]) -> tuple[str, ...]:
    return tuple(ticket.episode_id for ticket in tickets)


def waits(newest: Recorded | None) -> bool:
    """Return whether an episode waits for its turn: it is untouched, or has its answer."""
    return untouched(newest) is not None or is_answered(newest)


def needs_no_turn(newest: Recorded | None) -> bool:
    """Return whether an episode has ended or waits for something else."""
    if newest is None:
        return False
    # guard: parent-between-children-no-turn
    has_more_children = block_in(newest) is not None
    return has_more_children or fold_episode((newest,)).status in {*ENDED, *WAITING}


@dataclass(frozen=True, kw_only=True)
class RequestedEpisode:
    """An episode that something asks for."""

    opened: EpisodeOpened
    wanted: Wanted
    cause: Cause
    seq: int
    """Of the cause, in its stream."""
    trace: str = ""
    is_open: bool = False
    """Whether it is known to be open and to wait for its turn."""
    is_repeat: bool = False
    """Whether its cause was delivered before: then another node may have opened it."""
