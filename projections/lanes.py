"""The lanes read model: a row per episode that has a place in its actor's lane. Pure.

A row goes when its episode leaves the lane. A commit with the whole lane makes all of its rows
anew, so wherever a journal begins, the rows are the same from the first such commit on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, assert_never, get_args

from projections.rows import Row, RowChange, Statement, events_of, key, uuid_or_none
from streams.errors import UnreadableEvent
from streams.model.events import LaneEvent, LaneKept, LaneMoved
from streams.model.lanes import Ticket
from streams.ports.log import Recorded

_KEYS: Final = ("actor_id", "episode_id")

EMPTY: Final = Statement(name="empty_lanes", table="lane_tickets", keys=())

PLACE: Final = Statement(name="place_lane_tickets", table="lane_tickets", keys=_KEYS)

ADMIT: Final = Statement(name="admit_lane_tickets", table="lane_tickets", keys=_KEYS)

REMOVE: Final = Statement(name="remove_lane_tickets", table="lane_tickets", keys=_KEYS)

_EVENTS: Final[frozenset[type[LaneEvent]]] = frozenset(get_args(LaneEvent))


class Emptied(Row, kw_only=True):
    """One row of `sql/empty_lanes.sql`: it takes what an older commit put in the lane."""

    actor_id: str
    journal_seq: int


class Gone(Row, kw_only=True):
    """One row of `sql/remove_lane_tickets.sql`."""

    actor_id: str
    episode_id: str


class Admitted(Gone, kw_only=True):
    """One row of `sql/admit_lane_tickets.sql`."""

    journal_seq: int


class Placed(Admitted, kw_only=True):
    """One row of `sql/place_lane_tickets.sql`: a ticket, and whether its turn has come."""

    expectation_id: str
    number: int
    priority: int
    lane_key: str | None
    state: Literal["waiting", "admitted"]


class LaneFold:
    """The fold of some consecutive commits of one lane."""

    def __init__(self, actor_id: str) -> None:
        self._actor_id = key(actor_id)
        self._rows: dict[str, Placed | Admitted | Gone] = {}
        """By episode."""
        self._kept_seq = 0
        """Of the newest commit that holds the whole lane; 0: none does."""

    def add(self, record: Recorded) -> None:
        """Take the next commit; `UnreadableEvent`: it is no lane's, or a bad one, and left out."""
        events = events_of(record, _EVENTS, whose="a lane")
        for episode_id in (each for event in events for each in _episodes(event)):
            if uuid_or_none(episode_id) is None:
                detail = f"{episode_id!r} is not a UUID"
                raise UnreadableEvent(record.subject, seq=record.seq, detail=detail)
        for event in events:
            self._add(event, seq=record.seq)

    def changes(self) -> Iterator[RowChange]:
        """Yield the lane's emptying, and each row once."""
        if self._kept_seq:
            yield RowChange(EMPTY, Emptied(actor_id=self._actor_id, journal_seq=self._kept_seq))
        for row in self._rows.values():
            yield RowChange(_statement(row), row)

    def _add(self, event: LaneEvent, *, seq: int) -> None:
        match event:
            case LaneMoved():
                self._move(event, seq=seq)
            case LaneKept():
                self._rows.clear()
                self._kept_seq = seq
                self._place(event.waiting, "waiting", seq=seq)
                self._place(event.admitted, "admitted", seq=seq)
            case _:
                assert_never(event)

    def _move(self, event: LaneMoved, *, seq: int) -> None:
        # What gave its place up to wait for something else may get another one in the same move.
        for episode_id in (*event.shed, *event.left):
            self._rows[episode_id] = Gone(actor_id=self._actor_id, episode_id=episode_id)
        self._place(event.placed, "waiting", seq=seq)
        for episode_id in event.admitted:
            self._admit(episode_id, seq=seq)

    def _place(
        self, tickets: tuple[Ticket, ...], state: Literal["waiting", "admitted"], *, seq: int
    ) -> None:
        for ticket in tickets:
            self._rows[ticket.episode_id] = Placed(
                actor_id=self._actor_id,
                episode_id=ticket.episode_id,
                journal_seq=seq,
                expectation_id=ticket.expectation_id,
                number=ticket.number,
                priority=ticket.priority,
                lane_key=ticket.key or None,
                state=state,
            )

    def _admit(self, episode_id: str, *, seq: int) -> None:
        match self._rows.get(episode_id):
            case Placed() as placed:
                placed.state, placed.journal_seq = "admitted", seq
            case Admitted() as admitted:
                admitted.journal_seq = seq
            case None if not self._kept_seq:  # guard: kept-lane-is-whole
                self._rows[episode_id] = Admitted(
                    actor_id=self._actor_id, episode_id=episode_id, journal_seq=seq
                )
            case _:
                pass


def _statement(row: Gone) -> Statement:
    match row:
        case Placed():
            return PLACE
        case Admitted():
            return ADMIT
        case _:
            return REMOVE


def _episodes(event: LaneEvent) -> Iterator[str]:
    """Yield every episode that an event has a row for, or would have."""
    match event:
        case LaneMoved(placed=placed, admitted=admitted, shed=shed, left=left):
            yield from (ticket.episode_id for ticket in placed)
            yield from (*admitted, *shed, *left)
        case LaneKept(waiting=waiting, admitted=admitted):
            yield from (ticket.episode_id for ticket in (*waiting, *admitted))
