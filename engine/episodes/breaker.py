"""The circuit breaker of one expectation: whether it may open episodes while they fail. Pure.

    closed ──threshold failures, one after the other──▶ open
    open ──half_open_after_s──▶ half_open: one episode, the probe, is let through
    half_open ──the probe succeeded──▶ closed
    half_open ──the probe failed──▶ open

A probe that was canceled, or has not ended after `half_open_after_s`, makes room for another one.
While the breaker is not closed nobody but the probe has a say: an episode that was begun before
and ends now tells what was true then. A canceled episode says nothing at any time.

Dry runs and what people fire by hand stand outside: the first do not meet what fails, the second
are somebody's decision. They are not asked, count for nothing, and are not canceled.

The state is a value that whoever rules keeps; nothing here knows where. Being asked or told the
same thing twice in a row changes nothing, so a crash between the two may repeat it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from engine.app.checks import Breaker
from streams.model.events import EndStatus, EpisodeFinished, EpisodeOpened
from streams.model.triggers import ManualTrigger, Mode

Status: TypeAlias = Literal["closed", "open", "half_open"]

Outcome: TypeAlias = Literal["succeeded", "failed", "canceled"]
"""How an episode ended, as far as a breaker cares."""

Change: TypeAlias = Literal["opened", "half_opened", "closed"]

Moment: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time with its zone: without one it cannot be compared."""

TRIPPED: Final = "circuit_breaker_tripped"
"""Error class of an episode that was canceled because a breaker was not closed."""


class BreakerState(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about the latest episodes."""

    status: Status = "closed"
    failures: tuple[str, ...] = ()
    """Ids of the episodes that failed one after the other, the newest last."""
    opened_at: Moment | None = None
    probe: str = ""
    """Id of the one episode that is let through; empty if there is none. In a closed breaker, that
    of the one which closed it, for as long as nothing has failed since."""
    probe_since: Moment | None = None


CLOSED: Final = BreakerState()
"""The state of a breaker that nobody has told anything."""


class Passage(msgspec.Struct, frozen=True):
    """Whether an episode may be opened."""

    allowed: bool
    becomes: BreakerState | None = None
    """The state to keep before the episode is opened; None if it stays as it is."""


def pass_through(
    state: BreakerState, breaker: Breaker, *, episode_id: str, now: datetime
) -> Passage:
    """Return whether an episode may be opened now.

    While the breaker is not closed an episode is only ever allowed as the probe. The state that
    makes it one must be kept first, and by one node only, or two nodes would each have a probe.
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


def _is_over(since: datetime | None, breaker: Breaker, now: datetime) -> bool:
    return since is None or (now - since).total_seconds() >= breaker.half_open_after_s


def note(
    state: BreakerState, breaker: Breaker, *, episode_id: str, outcome: Outcome, now: datetime
) -> BreakerState:
    """Return the state once it is known how an episode ended; the same object if nothing changes.

    One episode's failure counts once as long as no success has come between; each end should
    be noted once.
    """
    match state.status:
        case "closed":
            return _note_closed(state, breaker, episode_id, outcome, now)
        case "half_open" if state.probe == episode_id:
            return _note_probe(state, breaker, outcome, now)
        case _:
            return state


def _note_closed(
    state: BreakerState, breaker: Breaker, episode_id: str, outcome: Outcome, now: datetime
) -> BreakerState:
    match outcome:
        case "succeeded":
            return CLOSED if state.failures else state
        case "failed" if episode_id not in state.failures:
            failures = (*state.failures, episode_id)
            if len(failures) < breaker.threshold:
                return BreakerState(failures=failures)
            return _opened(failures, breaker, now)
        case _:
            return state


def _note_probe(
    state: BreakerState, breaker: Breaker, outcome: Outcome, now: datetime
) -> BreakerState:
    match outcome:
        case "succeeded":
            return BreakerState(probe=state.probe)
        case "failed":
            return _opened((*state.failures, state.probe), breaker, now)
        case "canceled":
            return msgspec.structs.replace(state, probe="", probe_since=None)


def outcome_of(opened: EpisodeOpened, finished: EpisodeFinished) -> Outcome | None:
    """Return what the end of an episode says to a breaker; None if that is none of its business."""
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
    """Return whether an episode that is queued or running is to be canceled.

    It says nothing of when the episode was opened. Of all that have passed the gate, only those
    from before the breaker opened, and the probe, can be met while it is not closed: no two nodes'
    clocks need agree.
    """
    if not breaker.cancel_in_flight or stands_outside(opened):
        return False
    return state.status != "closed" and state.probe != opened.episode_id


def stands_outside(opened: EpisodeOpened) -> bool:
    """Return whether an episode is no business of a breaker: a dry run, or fired by hand."""
    return opened.mode is Mode.DRY_RUN or isinstance(opened.trigger, ManualTrigger)


def _opened(failures: tuple[str, ...], breaker: Breaker, now: datetime) -> BreakerState:
    kept = failures[-breaker.threshold :]
    return BreakerState(status="open", failures=kept, opened_at=now)


def transition(before: BreakerState, after: BreakerState) -> Change | None:
    """Return what happened to a breaker between two states, to be told; None if nothing did."""
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
    """Return what the end of an episode has done to the breaker, if it still stands; else None.

    So a node that goes on where another one died knows what there may still be to tell.
    """
    if state.status == "open" and state.failures[-1:] == (episode_id,):
        return "opened"
    if state.status == "closed" and state.probe == episode_id:
        return "closed"
    return None
