"""Who of those that wait in a lane may run, and who may not even wait. Pure.

A lane is in the order of rank: the highest priority first, of equal ones the lowest number, which
is the oldest cause's. From its head on, episodes are admitted while fewer than the capacity are.
One whose key is at its limit is passed over, and so is all behind it that has the same key; what
has another key, or none, overtakes them. `overflow` says what becomes of those not admitted:

    queue         they wait; while `queue_max` do, no more events are read: those stay in their
                  stream, whatever their keys are
    drop          newcomers are dropped; who waited already goes on waiting
    shed_oldest   at most `queue_max` wait; the rest goes, the lowest priority first, and of equal
                  ones the oldest: who waited is shed, and a newcomer is dropped

What had a turn before, and goes on with what it has done, is neither dropped nor shed.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import Literal, TypeAlias, assert_never

import msgspec

from engine.actor import CLUSTER_EPISODES_MAX, QUEUE_MAX, Overflow
from streams.lanes import Ticket

DropReason: TypeAlias = Literal["no_room", "key_busy", "queue_full"]
"""Why a newcomer got no place: too many run; as many with its key do as may; enough others wait."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much of an actor may run, and wait."""

    capacity: int
    """Most episodes that are admitted at a time; see `capacity_of`."""
    overflow: Overflow = "queue"
    queue_max: int = QUEUE_MAX


def capacity_of(*, cluster_max: int | None, nodes: Iterable[int]) -> int:
    """Return how many episodes of an actor may be admitted, at most `CLUSTER_EPISODES_MAX`.

    Args:
        cluster_max: its `max_concurrent_cluster`; None: as many as the nodes have room for.
        nodes: its `max_concurrent_episodes` on each of the nodes that take episodes now.
    """
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
        if _is_busy(ticket, busy) or (ticket.key_limit and key in passed_over):
            passed_over.add(key)
            continue
        admitted.append(ticket)
        busy[key] += 1
        if len(admitted) == room:
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
            return [
                ticket for ticket in rest if ticket.episode_id in newcomers and not ticket.resumes
            ]
        case "shed_oldest":
            too_many = max(0, len(rest) - limits.queue_max)
            strangers = (ticket for ticket in rest if not ticket.resumes)
            return nsmallest(too_many, strangers, key=lambda each: (each.priority, each.number))
        case _:
            assert_never(limits.overflow)


def drop_reasons(
    dropped: Iterable[Ticket], limits: Limits, *, running: Iterable[Ticket]
) -> dict[str, DropReason]:
    """Return why each of `dropped` is, beside `running`, which are those just admitted, too."""
    if limits.overflow == "shed_oldest":
        return {ticket.episode_id: "queue_full" for ticket in dropped}
    busy = Counter(_key(ticket) for ticket in running if ticket.key)
    return {
        ticket.episode_id: "key_busy" if _is_busy(ticket, busy) else "no_room" for ticket in dropped
    }


def _rank(ticket: Ticket) -> tuple[int, int]:
    return -ticket.priority, ticket.number


def _is_busy(ticket: Ticket, busy: Mapping[tuple[str, str], int]) -> bool:
    """Return whether as many with the ticket's key run as may."""
    is_limited = bool(ticket.key and ticket.key_limit)
    return is_limited and busy.get(_key(ticket), 0) >= ticket.key_limit


def _key(ticket: Ticket) -> tuple[str, str]:
    """Return what is counted: each expectation's keys by themselves."""
    return ticket.expectation_id, ticket.key
