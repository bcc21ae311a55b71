"""Findings: the intents of episodes, and the findings themselves. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, TypeAlias

import msgspec

from streams.json import NOTHING
from streams.model.struct import Struct


class Severity(StrEnum):
    """How bad a finding is, lowest first."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """How bad it is, from 0."""
        return _RANKS[self]


_RANKS: Final[Mapping[Severity, int]] = {each: rank for rank, each in enumerate(Severity)}


class FindingStatus(StrEnum):
    """Whether a finding is in force."""

    ACTIVE = "active"
    CLEARED = "cleared"
    EXPIRED = "expired"
    """Nobody raised or updated it for its whole time to live."""


class RaiseFinding(Struct, frozen=True, kw_only=True, tag_field="do", tag="raise"):
    """Make a finding active, or refresh the active one. `None` keeps what an active one says."""

    finding_key: str
    class_: str | None = msgspec.field(name="class", default=None)
    severity: Severity | None = None
    confidence: float | None = None
    """0.0 to 1.0."""
    summary: str | None = None
    subject_kind: str | None = None
    subject_id: str | None = None
    evidence_json: msgspec.Raw = msgspec.field(name="evidence", default=NOTHING)
    caused_by_key: str | None = None
    ttl_s: float | None = None
    """Seconds until it ends unless it is raised or updated again."""
    expires_at: datetime | None = None
    """When it ends, whatever is raised or updated meanwhile."""


class UpdateFinding(Struct, frozen=True, kw_only=True, tag_field="do", tag="update"):
    """Change an active finding; without one, nothing happens and the outcome says so."""

    finding_key: str
    severity: Severity | None = None
    confidence: float | None = None
    summary: str | None = None
    evidence_json: msgspec.Raw = msgspec.field(name="evidence", default=NOTHING)


class ClearFinding(Struct, frozen=True, kw_only=True, tag_field="do", tag="clear"):
    """End an active finding; without one, nothing happens."""

    finding_key: str
    reason: str = ""


FindingIntent: TypeAlias = RaiseFinding | UpdateFinding | ClearFinding


class Cause(Struct, frozen=True, kw_only=True):
    """The intent that a finding's event carries out: the `index`-th of an episode.

    Those of its reports come first, in the order of announcing, then those of its convergence.
    """

    episode_id: str
    index: int


class DueTimer(Struct, frozen=True, kw_only=True):
    """A timer of the finding that came due."""

    timer_id: str


class Person(Struct, frozen=True, kw_only=True):
    """Somebody who decided."""

    by: str
    reason: str = ""


class Finding(Struct, frozen=True, kw_only=True):
    """A lasting observation about a subject. One per key is active at a time."""

    finding_key: str
    raise_no: int
    """1 for the first raise, +1 for every raise after its end."""
    status: FindingStatus
    actor_id: str
    expectation_id: str
    class_: str = msgspec.field(name="class", default="")
    severity: Severity = Severity.MEDIUM
    confidence: float = 1.0
    """0.0 to 1.0."""
    summary: str = ""
    subject_kind: str = ""
    subject_id: str = ""
    evidence_json: msgspec.Raw = msgspec.field(name="evidence", default=NOTHING)
    """As it is stored; `evidence` is the value."""
    caused_by_key: str = ""
    """Key of the finding that explains this one."""
    raised_by_episode_id: str
    raised_at: datetime
    updated_at: datetime
    """When it was last raised, changed or ended. What people say of it does not count."""
    cleared_by_episode_id: str = ""
    cleared_at: datetime | None = None
    """When it ended: was cleared, or expired."""
    cleared_reason: str = ""
    ttl_s: float = 0.0
    """Seconds from each raise or update to its end; 0: its end does not move, if it has one."""
    expires_at: datetime | None = None
    """When it ends unless something happens before; None: it waits to be cleared."""
    escalated_to: Severity | None = None
    """What its age has made of its severity, which is never less from then on."""
    acknowledged_by: str = ""
    """Who acknowledged it; empty: nobody."""
    acknowledged_at: datetime | None = None
    cleared_by: str = ""
    """The person who cleared it; empty: an episode or nobody has."""

    @property
    def evidence(self) -> Any:  # noqa: ANN401 - it is what the user gave
        """Return what it was raised or updated with, any JSON value; None: nothing."""
        return msgspec.json.decode(self.evidence_json)


class FindingOutcome(Struct, frozen=True, kw_only=True):
    """What became of one finding intent."""

    finding_key: str
    outcome: str
    """`raised`, `updated`, `cleared`; `unchanged` when there was nothing to change; `dry_run`
    when it was left out in a dry run."""
    raise_no: int = 0
