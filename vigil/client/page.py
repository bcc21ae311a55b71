"""Lists: what they take, and the pages that they return.

A list has an order that no two of its rows share a place in. `next` of a page is the place of its
last row, so that the next page begins there whatever has become of that row by then: a queued
episode that starts meanwhile leaves its place, and those behind it must not be passed over.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, Generic, TypeVar
from uuid import UUID

import msgspec

from projections.postgres.query_result import ROWS_MAX
from projections.postgres.reader import list_inbox, list_inbox_at
from projections.records import InboxItem, RowRecord, record_of
from vigil.asking.rows import why_none_of
from vigil.errors import Mistake, near_hint

if TYPE_CHECKING:
    from projections.postgres.query_result import Row
    from projections.postgres.reader import OneOrMore
    from vigil.client.connections import Connections

LIMIT_MAX: Final = ROWS_MAX
"""Most that a list returns at once."""

EPISODE_STATUSES: Final = (
    "queued",
    "running",
    "blocked",
    "done",
    "failed",
    "partially_failed",
    "canceled",
)
FINDING_STATUSES: Final = ("active", "cleared", "expired", "superseded")
LETTER_STATUSES: Final = ("waiting", "requeued", "discarded")
INBOX_KINDS: Final = (
    "approval",
    "output",
    "wait",
    "workflow_step",
    "nondeterministic_replay",
    "dead_letter",
)

R = TypeVar("R", bound=RowRecord)


class Page(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """A part of a list. `for … in page` goes through its `items`."""

    items: Sequence[R]
    rows: Sequence[dict[str, object]]
    """The same with every column, as `--json` of the command prints them."""
    next: str | None = None
    """What to give as `after` for the next page; None: this is the last one, or the list has no
    pages."""
    why_none: str = ""
    """Why there is nothing, if nothing was ever projected for the stack, or the actor or
    expectation that was asked for has never had an episode there; otherwise empty."""

    def __iter__(self) -> Iterator[R]:
        """Return its items, one after the other."""
        return iter(self.items)


@dataclass(frozen=True)
class PagedList(Generic[R]):
    """A list that is read page by page."""

    of: str
    """What it is a list of; `next` of one is no `after` of another."""
    type_: type[R]
    rows: Callable[..., Awaitable[list[Row]]]
    """Returns rows; takes `past`, `reverse` and `limit`, and what else the list takes."""
    place: Mapping[str, object]
    """Columns of a row that say where it stands, with their types."""

    async def page(
        self,
        connections: Connections,
        *asked: object,
        after: UUID | str | None,
        limit: int,
        row_of: Callable[[UUID | str], Awaitable[Row]] | None = None,
        actor: OneOrMore | None = None,
        expectation: str | None = None,
        **said: object,
    ) -> Page[R]:
        """Return the page that begins past `after`, at most `limit` rows.

        Args:
            asked: what the list is asked for before all else, such as an episode.
            row_of: returns the row that an `after` names which is no `next`, but an id or a key.
            actor: whose rows alone are wanted; None: those of all.
            expectation: as `actor`.

        Raises:
            Mistake: `after` is not the `next` of a page of this list, or `limit` cannot be.
        """
        given: object = limit
        is_whole = isinstance(given, int) and not isinstance(given, bool)
        if not is_whole or not 1 <= limit <= LIMIT_MAX:  # guard: limit-is-a-count
            raise Mistake(f"limit: {limit!r} is not a whole number from 1 to {LIMIT_MAX:,}")
        past = None if after is None else self._parsed(after)
        if after is not None and past is None:
            if row_of is None:
                raise Mistake(f"after: {after!r} is not the `next` of a page of {self.of}")
            past = await row_of(after)
        async with connections.rows() as pool:
            stack = connections.stack
            of = {"actor": actor, "expectation": expectation}
            wanted = said | {name: each for name, each in of.items() if each is not None}
            rows = await self.rows(pool, stack, *asked, past=past, limit=limit, **wanted)
            why_none = (
                ""
                if past
                else await why_none_of(pool, stack, rows, actor=actor, expectation=expectation)
            )
        return Page(
            items=tuple(record_of(each, self.type_) for each in rows),
            rows=rows,
            next=self._text(rows[-1]) if len(rows) >= limit else None,
            why_none=why_none,
        )

    def _text(self, row: Row) -> str:
        place = [self.of, *(row[column] for column in self.place)]
        return urlsafe_b64encode(msgspec.json.encode(place)).rstrip(b"=").decode()

    def _parsed(self, after: UUID | str) -> Row | None:
        """Return the place that `after` is the text of; None: it is none of this list."""
        text = str(after)
        try:
            data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
            of, *values = msgspec.json.decode(data, type=list[object])
        except ValueError:
            return None
        if of != self.of or len(values) != len(self.place):  # guard: next-of-same-list
            return None
        try:
            return {
                column: msgspec.convert(value, type_)
                for (column, type_), value in zip(self.place.items(), values, strict=True)
            }
        except msgspec.ValidationError:
            return None


_INBOX_PLACE: Final = {
    "since": datetime,
    "kind": str,
    "id": str,
    "expectation_id": str | None,
    "item": int | None,
}

INBOX: Final = PagedList(
    "inbox",
    InboxItem,
    list_inbox,
    _INBOX_PLACE,
)

INBOX_AT: Final = PagedList("inbox then", InboxItem, list_inbox_at, _INBOX_PLACE)
"""What waited at a time."""


def checked_one_of(
    what: str, wanted: OneOrMore | None, known: Iterable[str]
) -> Sequence[str] | None:
    """Return the values of `what` that a list is asked for; `Mistake`: there is no such one."""
    if wanted is None:
        return None
    there = list(known)
    values = [wanted] if isinstance(wanted, str) else list(wanted)  # Of a generator, once.
    for each in values:
        if each not in there:  # guard: unknown-status-is-mistake
            says = f"{what}: {each!r} is not one of {', '.join(there)}"
            raise Mistake(says, remedy=near_hint(each, there))
    return values


def check_time(what: str, time: datetime | None) -> None:
    """Raise `Mistake` if a time has no zone: nobody knows when that is."""
    if time is not None and time.tzinfo is None:  # guard: time-has-zone
        raise Mistake(f"{what}: {time} has no time zone")


def check_past(at: datetime | None, now: datetime) -> None:
    """Raise `Mistake` if a list is asked for as it was at a time that has no zone or is to come."""
    check_time("at", at)
    if at is not None and at > now:  # guard: future-has-no-list
        raise Mistake(f"at: {at.isoformat()} is yet to come", remedy="leave `at` out for now")
