"""The circuit breaker of one expectation: whether it may open episodes while they fail. Pure.

    closed ──threshold failures, one after the other──▶ open
    open ──half_open_after_s──▶ half_open: one episode, the probe, is let through
    half_open ──the probe succeeded──▶ closed
    half_open ──the probe failed──▶ open

A probe that was canceled, or has not ended after `half_open_after_s`, makes room for another one.
While the breaker is not closed only the probe's end counts: older episodes are no evidence.
Canceled episodes never count. Dry runs and fires by hand neither ask the breaker nor count. The
same call twice in a row changes nothing, so a crash may repeat it.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from engine.app.checks import Breaker
from streams.model.events import EndStatus, EpisodeFinished, EpisodeOpened
from streams.model.triggers import ManualTrigger, Mode

Status: TypeAlias = Literal["closed", "open", "half_open"]

Outcome: TypeAlias = Literal["succeeded", "failed", "canceled"]

Change: TypeAlias = Literal["opened", "half_opened", "closed"]

Moment: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time with its zone: without one it cannot be compared."""

TRIPPED: Final = "circuit_breaker_tripped"
"""Error class of an episode that an open breaker canceled."""


class BreakerState(msgspec.Struct, frozen=True, kw_only=True):
    """The latest ends of an expectation's episodes."""

    status: Status = "closed"
    failures: tuple[str, ...] = ()
    """Ids of the episodes that failed in a row, the newest last."""
    opened_at: Moment | None = None
    probe: str = ""
    """Id of the probe; empty: there is none. In a closed breaker, the probe that closed it, as long
    as nothing has failed since.
    """
    probe_since: Moment | None = None
    reset: str = ""
    """The newest order of people to close it that was carried out, by the id of its commit."""


CLOSED: Final = BreakerState()


class Passage(msgspec.Struct, frozen=True):
    """Whether an episode may be opened."""

    allowed: bool
    becomes: BreakerState | None = None
    """The state to store before the episode is opened; None: unchanged."""


def pass_through(
    state: BreakerState, breaker: Breaker, *, episode_id: str, now: datetime
) -> Passage:
    """Return whether an episode may be opened now.

    The state with the probe must be stored first, at its revision, or two nodes would have one.
    """
    match state.status:
        case "closed":
            return Passage(allowed=True)
        case "open":
            is_free = _is_over(state.opened_at, breaker, now)
        case "half_open":
            if state.probe == episode_id:
                return Passage(allowed=True)
            is_free = _is_over(state.probe_since, breaker, now)
    if not is_free:
        return Passage(allowed=False)
    probing = msgspec.structs.replace(state, status="half_open", probe=episode_id, probe_since=now)
    return Passage(allowed=True, becomes=probing)


def tried_at(state: BreakerState, breaker: Breaker) -> datetime | None:
    """Return when a breaker that is not closed lets the next event through; None: now."""
    since = state.probe_since if state.status == "half_open" else state.opened_at
    return None if since is None else since + timedelta(seconds=breaker.half_open_after_s)


def _is_over(since: datetime | None, breaker: Breaker, now: datetime) -> bool:
    return since is None or (now - since).total_seconds() >= breaker.half_open_after_s


def record(
    state: BreakerState, breaker: Breaker, *, episode_id: str, outcome: Outcome, now: datetime
) -> BreakerState:
    """Return the state after the end of an episode; the same object if nothing changes."""
    match state.status:
        case "closed":
            return _record_closed(state, breaker, episode_id, outcome, now)
        case "half_open" if state.probe == episode_id:
            return _record_probe(state, breaker, outcome, now)
        case _:
            return state


def _record_closed(
    state: BreakerState, breaker: Breaker, episode_id: str, outcome: Outcome, now: datetime
) -> BreakerState:
    match outcome:
        case "succeeded":
            return BreakerState(reset=state.reset) if state.failures else state
        case "failed" if episode_id not in state.failures:
            failures = (*state.failures, episode_id)
            if len(failures) < breaker.threshold:
                return BreakerState(failures=failures, reset=state.reset)
            return _opened(state, failures, breaker, now)
        case _:
            return state


def _record_probe(
    state: BreakerState, breaker: Breaker, outcome: Outcome, now: datetime
) -> BreakerState:
    match outcome:
        case "succeeded":
            return BreakerState(probe=state.probe, reset=state.reset)
        case "failed":
            return _opened(state, (*state.failures, state.probe), breaker, now)
        case "canceled":
            return msgspec.structs.replace(state, probe="", probe_since=None)


def outcome_of(opened: EpisodeOpened, finished: EpisodeFinished) -> Outcome | None:
    """Return what the end of an episode means to a breaker; None: nothing."""
    if stands_outside(opened):
        return None
    match finished.status:
        case EndStatus.DONE | EndStatus.PARTIALLY_FAILED:
            return "succeeded"
        case EndStatus.FAILED:
            return "failed"
        case EndStatus.CANCELED:
            return "canceled"


def cancels(state: BreakerState, breaker: Breaker, opened: EpisodeOpened) -> bool:
    """Return whether an episode that is queued or running must be canceled.

    When it was opened does not matter, so clocks need not agree: while the breaker is not closed,
    the only episodes left are those from before it opened, and the probe.
    """
    if not breaker.cancel_in_flight or stands_outside(opened):
        return False
    # guard: old-news-spare-probe
    return state.status != "closed" and state.probe != opened.episode_id


def stands_outside(opened: EpisodeOpened) -> bool:
    """Return whether a breaker ignores an episode: a dry run, or fired by hand."""
    # guard: breakers-ignore-dry-and-manual
    return opened.mode is Mode.DRY_RUN or isinstance(opened.trigger, ManualTrigger)


def reset(state: BreakerState, *, order: str) -> BreakerState:
    """Return the state once the newest order to close it is carried out; the same if it was."""
    # guard: breaker-reset-once
    return state if state.reset == order else BreakerState(reset=order)


def _opened(
    state: BreakerState, failures: tuple[str, ...], breaker: Breaker, now: datetime
) -> BreakerState:
    kept = failures[-breaker.threshold :]
    # guard: breaker-keeps-its-resets
    return BreakerState(status="open", failures=kept, opened_at=now, reset=state.reset)


def transition(before: BreakerState, after: BreakerState) -> Change | None:
    """Return the public change between two states; None: there is none."""
    if before.status == after.status:
        return None
    match after.status:
        case "open":
            return "opened"
        case "half_open":
            return "half_opened"
        case "closed":
            return "closed"


def change_by(episode_id: str, state: BreakerState) -> Literal["opened", "closed"] | None:
    """Return what an episode's end did to the breaker, if it is still so; a crash may repeat it."""
    # guard: breaker-change-told-after-crash
    if state.status == "open" and state.failures[-1:] == (episode_id,):
        return "opened"
    if state.status == "closed" and state.probe == episode_id:
        return "closed"
    return None
