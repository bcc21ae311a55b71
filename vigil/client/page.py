"""What lists take and return: records, the same as rows, and where the next page begins. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import msgspec

from projections.postgres.query_result import ROWS_MAX
from projections.records import RowRecord, record_of
from vigil.errors import Mistake, near_hint

if TYPE_CHECKING:
    from projections.postgres.query_result import Row

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

R = TypeVar("R", bound=RowRecord)


class Page(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """A part of a list."""

    items: Sequence[R]
    rows: Sequence[dict[str, object]]
    """The same with every column, as `--json` of the command prints them."""
    next: str | None = None
    """What to give as `after` for the next page; None: this is the last one, or the list has no
    pages."""
    why_none: str = ""
    """Why there is nothing, if nothing was ever projected for the stack; otherwise empty."""


def check_asked(
    *, status: str | None = None, statuses: Iterable[str] = (), limit: int | None = None
) -> None:
    """Raise `Mistake` if a list is asked for a status that there is not, or for too many."""
    known = list(statuses)
    if status is not None and status not in known:  # guard: unknown-status-is-mistake
        near = near_hint(status, known)
        raise Mistake(f"status: {status!r} is not one of {', '.join(known)}", remedy=near)
    if limit is not None and not 1 <= limit <= LIMIT_MAX:
        raise Mistake(f"limit: {limit!r} is not from 1 to {LIMIT_MAX:,}")


def page_of(
    rows: Sequence[Row],
    type_: type[R],
    *,
    why_none: str = "",
    limit: int | None = None,
    key: str = "",
) -> Page[R]:
    """Return rows as a page; with `limit`, another follows a full one, after its last `key`."""
    is_full = limit is not None and len(rows) >= limit
    return Page(
        items=tuple(record_of(each, type_) for each in rows),
        rows=rows,
        next=str(rows[-1][key]) if rows and is_full else None,
        why_none=why_none,
    )
