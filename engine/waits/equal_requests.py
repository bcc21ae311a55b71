"""Which of several episodes with an equal request a decision is for: the oldest. Pure.

People see equal requests as one, so an approval is to have one effect. Its journal is where two
decisions at the same time meet: a decision on another of the episodes goes to the oldest one that
waits, and what that one is told reaches the others. An older request that was decided for both of
them rules a later decision out.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from msgspec.structs import replace

from engine.errors import Refused
from engine.waits.answer import waits_of
from engine.waits.approval import end_in_words
from engine.waits.signal import SignalState
from streams.errors import Unavailable
from streams.model.commands import Decide
from streams.model.events import EpisodeResolved, SignalWaited
from streams.ports.log import Recorded


def is_of_people(decision: Decide) -> bool:
    """Return whether a decision comes from who has made it, and is for all equal requests."""
    return bool(decision.request_no) and not decision.acting_episode_id


def counted(state: SignalState, decision: Decide) -> Decide:
    """Return `decision` as one that is for the request of its episode, too.

    Raises `Refused` if another decision is on its way to the episode.
    """
    own_no, due = state.numbers[decision.episode_id], state.due.get(decision.episode_id)
    if due is not None and due.id != decision.id:  # guard: decision-on-its-way-stands
        raise Refused(f"it does not wait any more: {end_in_words('it was decided', by=due.by)}")
    # guard: decision-for-named-request
    return replace(decision, request_no=max(decision.request_no, own_no))


def older(state: SignalState, episode_id: str) -> list[SignalWaited]:
    """Return the requests before that of `episode_id`, oldest first, that nobody has decided."""
    own_no = state.numbers[episode_id]
    before = [id_ for id_ in state.waits if state.numbers[id_] < own_no and id_ not in state.due]
    return [state.waits[id_] for id_ in sorted(before, key=state.numbers.__getitem__)]


def for_older(
    decision: Decide, older: SignalWaited, records: Iterable[Recorded], *, own_no: int, at: datetime
) -> Decide | None:
    """Return `decision`, made at `at`, for an older episode that still waits; None: it does not.

    `records` are the journal of the older one; `own_no` is the number of the request decided on.

    Raises:
        Refused: the decision on the older one was for both.
        Unavailable: it has expired, which is not on its journal yet.
    """
    found = [each for each in waits_of(records) if each.blocked.step_no == older.step_no]
    if not found:
        return None
    end = found[-1].end
    # guard: older-decision-for-both
    if isinstance(end, EpisodeResolved) and end.request_no >= own_no:
        said = end_in_words(f"it was {end.resolution}", by=end.by, at=found[-1].ended_at)
        raise Refused(f"it does not wait any more: {said}")
    if end is not None:
        return None
    if found[-1].blocked.pending.is_expired(at=at):  # guard: expired-older-not-approved
        raise Unavailable(older.episode_id, detail="its request has expired just now")
    return replace(decision, episode_id=older.episode_id, step_no=older.step_no)
