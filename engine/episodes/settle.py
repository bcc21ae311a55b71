"""Settles calls of which nobody knows whether they happened: a person says it, and it goes on.

An episode that has ended as `outcome_unknown` has announced a call and not recorded it. What a
person says of the call becomes a fork of the episode: it begins with all that was recorded and
with the outcome, and goes on from there. Calls of other branches that are open, too, stay announced
in it, so each of them is settled in turn.

A fork that failed with what was said, and has recorded nothing since, is settled anew: its own fork
has the new word in the place of the first. So a result of a wrong type is corrected.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from engine import validation
from engine.app.dedupe import episode_id
from engine.episodes.episode import ENDED, Episode, attempt_at, fold, seed_of
from engine.errors import OUTCOME_UNKNOWN, BadRequest, NotOnJournal, Refused, Unencodable
from engine.validation import check_cause, check_text
from streams.json import NOTHING, raw
from streams.model.events import (
    CallAgain,
    CheckpointSaved,
    EndStatus,
    EpisodeEvent,
    EpisodeOpened,
    EpisodeStarted,
    Fork,
    StepAnnounced,
    StepKind,
    StepRecorded,
)
from streams.ports.log import Recorded

NOT_HAPPENED: Final = "not_happened"
"""Error class of a call of which a person says that it has not happened."""

REMEDY: Final = "find out whether it happened; `vigil episodes settle {}` says so, and it goes on"

SAID: Final = frozenset({"happened", "not_happened"})
"""What a person says of a call that is not made again."""

Past = TypeVar("Past", bound=StepRecorded | CheckpointSaved | StepAnnounced)

PATH_CHARS_MAX: Final = 256
"""Longest path of a call."""


class CallSettlement(StrEnum):
    """What a person says of a call."""

    HAPPENED = "happened"
    """It has: the episode goes on with a result that the person gives."""
    NOT_HAPPENED = "not_happened"
    """It has not: the call fails with that class, and the strategy decides what to do."""
    AGAIN = "again"
    """It is to be made again, with the same idempotency key."""


class Settle(msgspec.Struct, frozen=True, kw_only=True):
    """A person settles a call."""

    settlement: CallSettlement
    by: str
    reason: str = ""
    result: msgspec.Raw = NOTHING
    """Of a call that has happened."""
    call: str = ""
    """The path of the call; empty: the only one."""


def checked(
    settlement: str, *, by: str, reason: str = "", result: object = None, call: str = ""
) -> Settle:
    """Return what a person says; `BadRequest`: a value is impossible."""
    check_cause(by, reason)
    check_text("call", call, least=0, most=PATH_CHARS_MAX)
    if settlement not in tuple(CallSettlement):
        known = ", ".join(CallSettlement)
        raise BadRequest(field="settlement", problem=f"{settlement!r} is not one of {known}")
    if result is not None and settlement != CallSettlement.HAPPENED:
        raise BadRequest(field="result", problem="only a call that has happened has any")
    try:
        kept = validation.encode(result, what="result")
    except Unencodable as error:
        raise BadRequest(field="result", problem=str(error)) from error
    return Settle(
        settlement=CallSettlement(settlement), by=by, reason=reason, result=kept, call=call
    )


def unsettled(episode: Episode) -> tuple[StepAnnounced, ...]:
    """Return the calls of `episode` of which nobody knows whether they happened."""
    finished = episode.finished
    if finished is None or finished.error_class != OUTCOME_UNKNOWN:
        return ()
    return tuple(each for each in episode.announced if each.is_call)


def settled(
    records: Sequence[Recorded], command: Settle, *, stack: str
) -> tuple[EpisodeOpened, Sequence[EpisodeEvent]]:
    """Return the opening of the fork that goes on, and its past with the outcome.

    Raises `Refused` if the journal does not allow it.
    """
    episode = fold(records)
    opened = episode.opened
    if opened is None:
        raise NotOnJournal("there is no such episode")
    if episode.status not in ENDED:
        raise Refused(f"it is still {episode.status}; it may go on by itself")
    life, steps_before = _last_life(records)
    call: StepAnnounced | StepRecorded
    mistaken = _mistaken(episode, life)
    if mistaken is None:
        call = _chosen(unsettled(episode), command.call)
    else:
        call, life = mistaken, life[: life.index(mistaken)]
    past = [_counted_from(each, steps_before) for each in life]
    # guard: settling-one-branch
    others = [_counted_from(each, steps_before) for each in episode.announced if each != call]
    call = _counted_from(call, steps_before)
    step_no = call.step_no - 1 if mistaken else episode.steps_recorded - steps_before
    outcome, again = [], None
    if command.settlement is CallSettlement.AGAIN:
        if isinstance(call, StepRecorded):  # guard: settled-not-called-again
            raise Refused(
                "it was settled before: say --happened with its result, or --not-happened"
            )
        again = CallAgain(
            call=attempt_at(call.path)[0],
            fingerprint=call.fingerprint,
            idempotency_key=call.idempotency_key,
        )
    else:
        outcome = [_outcome(call, command, step_no=step_no + 1)]
    cause = f"settle:{opened.episode_id}"
    fork = replace(
        opened,
        episode_id=episode_id(
            stack=stack,
            actor=opened.actor_id,
            expectation=opened.expectation_id,
            dedupe_key=cause,
        ),
        dedupe_key=cause,
        opened_by="",
        is_request=False,
        start_by=None,
        fork=Fork(
            episode_id=opened.episode_id,
            step_no=step_no,
            by=command.by,
            reason=command.reason,
            seed=seed_of(opened),
            settled=command.settlement.value,
            again=again,
        ),
    )
    return fork, (*past, *outcome, *others)


def _mistaken(
    episode: Episode, life: Sequence[StepRecorded | CheckpointSaved]
) -> StepRecorded | None:
    """Return the outcome that a fork has failed with before it recorded more; None: it has not."""
    fork = episode.opened.fork if episode.opened else None
    steps = [each for each in life if isinstance(each, StepRecorded)]
    if fork is None or fork.settled not in SAID or unsettled(episode):
        return None
    is_failed = episode.finished is not None and episode.finished.status is EndStatus.FAILED
    # guard: settled-anew-if-nothing-followed
    return steps[-1] if is_failed and len(steps) == fork.step_no + 1 else None


def _chosen(open_calls: Sequence[StepAnnounced], path: str) -> StepAnnounced:
    if not open_calls:
        raise Refused("it has no call whose outcome is unknown")
    found = [each for each in open_calls if not path or each.path == path]
    if len(found) == 1:
        return found[0]
    known = ", ".join(f"{each.path} {each.tool_name}" for each in open_calls)
    raise Refused(f"say which of these calls: {known}" if found else f"its calls are: {known}")


def _last_life(
    records: Sequence[Recorded],
) -> tuple[list[StepRecorded | CheckpointSaved], int]:
    """Return what its strategy has done since it began anew, and how many steps came before."""
    life: list[StepRecorded | CheckpointSaved] = []
    steps, steps_before = 0, 0
    for event in (event for record in records for event in record.commit.events):
        match event:
            case EpisodeStarted(fresh=True):
                life, steps_before = [], steps
            case StepRecorded():
                life.append(event)
                steps = event.step_no
            case CheckpointSaved():
                life.append(event)
            case _:
                pass
    return life, steps_before


def _counted_from(event: Past, steps_before: int) -> Past:
    return replace(event, step_no=event.step_no - steps_before)


def _outcome(call: StepAnnounced | StepRecorded, command: Settle, *, step_no: int) -> StepRecorded:
    said = {"settled": command.settlement.value, "by": command.by, "reason": command.reason}
    step = StepRecorded(
        step_no=step_no,
        kind=StepKind.TOOL_CALL,
        fingerprint=call.fingerprint,
        tool_name=call.tool_name,
        args=raw(said),
        result=command.result,
        path=call.path,
    )
    if command.settlement is CallSettlement.HAPPENED:
        return step
    detail = f"{command.by} says that it has not happened"
    if command.reason:
        detail = f"{detail}: {command.reason}"
    return replace(step, error_class=NOT_HAPPENED, error_detail=detail)
