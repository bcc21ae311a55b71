"""The work claims read model: a row per lease that was ever seen. Pure.

The bucket keeps only the newest change of each key and nothing of a released one. So a
projector first forgets what it thought was held and then hears from its watch what is
(`sql/forget_claims.sql`); a release that nobody watched shows as done from then on.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from projections.statement import Change, Statement
from projections.values import text, text_or_none
from streams.leases import Claim, ClaimChange


class Taken(NamedTuple):
    """One row of `sql/take_claims.sql`."""

    dedupe_key: str
    fence: int
    work_type: str
    owner_node: str
    attempt: int
    claimed_at: datetime
    last_heartbeat_at: datetime
    lease_until: datetime


class Ended(NamedTuple):
    """One row of `sql/end_claims.sql`."""

    dedupe_key: str
    fence: int
    work_type: str
    state: str
    error_detail: str | None
    finished_at: datetime


class Forgotten(NamedTuple):
    """The one row of `sql/forget_claims.sql`; it changes every claim that shows as held."""

    finished_at: datetime


FORGET: Final = Statement(name="forget_claims", table="work_claims", rank=0, key_size=0)
TAKE: Final = Statement(name="take_claims", table="work_claims", rank=1, key_size=1)
END: Final = Statement(name="end_claims", table="work_claims", rank=2, key_size=1)


def forget(now: datetime) -> Change:
    """Return the change after which no claim shows as held. It must be a batch's first."""
    return Change(FORGET, Forgotten(now))


def project(change: ClaimChange) -> Change:
    """Return the row change that a change in the bucket asks for."""
    if change.claim is None:
        return Change(END, _ended(change))
    return Change(TAKE, _taken(change, change.claim))


def _taken(change: ClaimChange, claim: Claim) -> Taken:
    return Taken(
        dedupe_key=text(change.key),
        fence=change.revision,
        work_type=_work_type(change.key),
        owner_node=text(claim.owner_node),
        attempt=claim.attempt,
        claimed_at=claim.claimed_at,
        last_heartbeat_at=claim.heartbeat_at,
        lease_until=claim.lease_until,
    )


def _ended(change: ClaimChange) -> Ended:
    return Ended(
        dedupe_key=text(change.key),
        fence=change.revision,
        work_type=_work_type(change.key),
        state=change.state,
        error_detail=text_or_none(change.error),
        finished_at=change.at,
    )


def _work_type(key: str) -> str:
    return text(key.partition(".")[0])
