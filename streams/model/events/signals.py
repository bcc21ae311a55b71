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
    """Whether it will wait for it once it is no longer blocked, as `step_no`, by something else."""


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
    """As in `Decide`, of a decision, which is kept for nobody; 0: it is a signal."""
    ahead: tuple[str, ...] = ()
    """Those that were to wait for it later: it is kept for them until they have a result."""


SignalEvent: TypeAlias = SignalWaited | SignalGiven
