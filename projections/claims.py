"""The work claims read model: a row per lease that was ever seen. Pure.

The bucket has only the newest change of each key and nothing of a released one. So a projector
first ends all claims (`sql/forget_claims.sql`) and then learns from its watch which are active; a
release that nobody saw shows as done from then on.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from projections.rows import Row, RowChange, Statement, key
from streams.ports.leases import Claim, ClaimChange

FORGET: Final = Statement(name="forget_claims", table="work_claims", keys=())

TAKE: Final = Statement(name="take_claims", table="work_claims", keys=("dedupe_key",))

END: Final = Statement(name="end_claims", table="work_claims", keys=("dedupe_key",))


class Ended(Row, kw_only=True):
    """A row of `sql/end_claims.sql`: of the claim that it ended, the table may know more."""

    dedupe_key: str
    fence: int
    work_type: str
    state: str
    error_detail: str | None = None
    finished_at: datetime | None = None


class Taken(Ended, kw_only=True):
    """A row of `sql/take_claims.sql`: a claim, and how it ended if it has."""

    owner_node: str
    attempt: int
    claimed_at: datetime
    last_heartbeat_at: datetime
    lease_until: datetime


class Forgotten(Row, kw_only=True):
    """The row of `sql/forget_claims.sql`; it changes every claim that shows as active."""

    finished_at: datetime


def forget(now: datetime) -> RowChange:
    """Return the change after which no claim shows as active. It must be a batch's first."""
    return RowChange(FORGET, Forgotten(finished_at=now))


def project(seen: Iterable[ClaimChange]) -> list[RowChange]:
    """Return the row changes that changes in the bucket ask for, each row once."""
    rows: dict[str, Ended] = {}
    for change in seen:
        dedupe_key = key(change.key)
        if change.claim is not None:
            rows[dedupe_key] = _taken(change, change.claim, dedupe_key=dedupe_key)
        elif dedupe_key in rows:
            _end(rows[dedupe_key], change)
        else:
            rows[dedupe_key] = _ended(change, dedupe_key=dedupe_key)
    return [RowChange(TAKE if isinstance(row, Taken) else END, row) for row in rows.values()]


def _taken(change: ClaimChange, claim: Claim, *, dedupe_key: str) -> Taken:
    return Taken(
        dedupe_key=dedupe_key,
        fence=change.revision,
        work_type=_work_type(dedupe_key),
        state="claimed",
        owner_node=claim.owner_node,
        attempt=claim.attempt,
        claimed_at=claim.claimed_at,
        last_heartbeat_at=claim.heartbeat_at,
        lease_until=claim.lease_until,
    )


def _ended(change: ClaimChange, *, dedupe_key: str) -> Ended:
    ended = Ended(
        dedupe_key=dedupe_key,
        fence=change.revision,
        work_type=_work_type(dedupe_key),
        state=change.state,
    )
    _end(ended, change)
    return ended


def _end(row: Ended, change: ClaimChange) -> None:
    row.fence = change.revision
    row.state = change.state
    row.error_detail = change.error or None
    row.finished_at = change.at


def _work_type(dedupe_key: str) -> str:
    return dedupe_key.partition(".")[0]
