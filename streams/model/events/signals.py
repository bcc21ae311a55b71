"""The life of a reference: which episodes wait for it, and the signals that were sent to it."""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

import msgspec

from streams.json import NOTHING
from streams.model.struct import Event


class SignalWaited(Event, frozen=True, kw_only=True, tag="signal.waited@1"):
    """An episode waits for a signal."""

    ref: str
    """The reference, in full: the subject may have its hash."""
    actor_id: str
    episode_id: str
    step_no: int
    """The step that the answer becomes."""
    since: datetime
    """When it was blocked, by the clock of its node."""
    signal_id: str = ""
    """The earlier signal that it takes; empty: there was none for it."""
    is_ahead: bool = False
    """Whether it is blocked by something else, as `step_no`, and will wait for this afterwards."""


class SignalGiven(Event, frozen=True, kw_only=True, tag="signal.given@1"):
    """A signal came."""

    ref: str
    id: str
    """The same for a repeated signal."""
    by: str
    at: datetime
    """When it was stored, by the server's clock; of one for those that wait now alone, when the
    newest of them began to."""
    result: msgspec.Raw = NOTHING
    """Any JSON value, for the strategies."""
    episodes: tuple[str, ...] = ()
    """All that waited for it then; none: it is kept for the next that waits."""
    request_no: int = 0
    """Of a decision: as in `Decide`; it is not kept. 0: it is a signal."""
    ahead: tuple[str, ...] = ()
    """Episodes that will wait for it later: it is kept for them until they have a result."""


SignalEvent: TypeAlias = SignalWaited | SignalGiven
