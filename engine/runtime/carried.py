"""How far what an episode decided is carried out: one of its outputs, and all of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from engine.commands import Cancel, Finish
from engine.publicity import PublicEvent
from streams.events import EpisodeDeferred
from streams.findings import FindingOutcome
from streams.outputs import OutputOutcome


@dataclass(frozen=True)
class Carried:
    """How far an output has got."""

    key: str
    outcome: OutputOutcome | None
    """None: it is not settled."""
    status: str
    """The outcome, or where it is in its life."""
    wakes_at: datetime | None
    """When it is to be looked at again; None: when somebody decides, or never."""
    news: tuple[PublicEvent, ...]
    """What there is to tell of it."""


@dataclass(frozen=True, kw_only=True)
class CarriedOut:
    """How far an episode's decisions are carried out."""

    findings: tuple[FindingOutcome, ...] = ()
    outputs: tuple[OutputOutcome, ...] = ()
    """Those that are settled."""
    pending: tuple[str, ...] = ()
    """Keys of the others."""
    wakes_at: datetime | None = None
    """When something is due about those; None: when somebody decides."""
    news: tuple[PublicEvent, ...] = ()
    """What there is to tell: of findings first, then of outputs."""
    canceled: Cancel | None = None
    """How the episode ends instead, if outputs were canceled with it."""

    @property
    def end(self) -> Finish | EpisodeDeferred | Cancel:
        """What the episode records of it."""
        if self.canceled is not None:
            return self.canceled
        if self.pending:
            return EpisodeDeferred(
                findings=self.findings, outputs=self.outputs, pending=self.pending
            )
        return Finish(findings=self.findings, outputs=self.outputs)


NOTHING_DONE: Final = CarriedOut()


def added_up(
    carried: Iterable[Carried],
    *,
    known: Mapping[str, OutputOutcome] | None = None,
    order: Iterable[str] = (),
) -> CarriedOut:
    """Return what several outputs came to, in `order`, with what is `known` of others."""
    by_key = {one.key: one for one in carried}
    outcomes = dict(known or {})
    outcomes |= {key: one.outcome for key, one in by_key.items() if one.outcome is not None}
    keys = list(dict.fromkeys((*order, *outcomes)))
    wakes = [one.wakes_at for one in by_key.values() if one.wakes_at is not None]
    return CarriedOut(
        outputs=tuple(outcomes[key] for key in keys if key in outcomes),
        pending=tuple(key for key, one in by_key.items() if one.outcome is None),
        wakes_at=min(wakes, default=None),
        news=tuple(event for one in by_key.values() for event in one.news),
    )
