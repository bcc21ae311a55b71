"""Forks: episodes that begin with the recorded past of another one.

The commit that opens a fork has copies of the steps and checkpoints of the past, so the fork needs
the other journal no more, and a node runs it as it runs any open episode: it replays the steps and
goes on from there. Announcements, waits and starts are not copied: what they led to is in the
steps, and nothing of the other episode's outside is touched again. With another payload, the states
of the past are left out: the strategy begins with the payload and is fed the recorded results; if
it asks for anything else, the fork fails as `nondeterministic_replay`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import uuid4

from msgspec.structs import replace

from engine.app.dedupe import KEY_CHARS_MAX, episode_id
from engine.app.triggers import entity_id
from engine.episodes.episode import seed_of
from engine.episodes.overlap.hold import SubjectHeld, in_words
from engine.episodes.overlap.store import Holds
from engine.errors import BadRequest, Refused
from engine.runtime.store import append_first
from engine.validation import check_cause, check_id, check_switch, check_text, is_whole
from streams.clock import SystemClock
from streams.errors import TooLarge
from streams.json import JsonObject
from streams.model.events import (
    CheckpointSaved,
    EpisodeEvent,
    EpisodeOpened,
    EpisodeStarted,
    Fork,
    StepRecorded,
)
from streams.model.triggers import Mode, Overrides, Trigger, WorkflowTrigger
from streams.ports.all import Ports
from streams.ports.log import Commit, Recorded
from streams.tracing import traceparent

_CLOCK: Final = SystemClock()


async def fork(
    ports: Ports,
    forked_id: str,
    *,
    at: int,
    by: str,
    reason: str = "",
    payload: JsonObject | None = None,
    key: str | None = None,
    dry_run: bool = False,
    overrides: Overrides | None = None,
) -> str:
    """Open an episode that begins with the first `at` steps of another one; return its id.

    It is of the same expectation, revision and budget, which the steps of the past count towards,
    and has the same trigger. What it does from then on is its own: with effects, unless it is a dry
    run. The fork of a dry run is one. The episode of a workflow's step is forked without the
    workflow, which hears nothing of the fork.

    Args:
        forked_id: the episode whose past it is, whether it has ended or not.
        at: the last step that both have; 0: none.
        by: who asks, for people: 1 to 200 characters.
        reason: why, for people: up to 4,000 characters.
        payload: replaces the payload of the trigger; None: it stays.
        key: the idempotency key, 1 to 512 characters: the same one opens no second fork. Dry runs
            have keys of their own.
        dry_run: whether to change nothing outside.
        overrides: of a dry run, made by `overrides(…)`; they win over those of the other episode.

    Raises:
        BadRequest: a value is impossible; the error names the field.
        Refused: that past cannot be begun with; the message says why.
        UnknownOutcome: no answer. Asking again with the same `key` is safe.
    """
    _check(forked_id, at=at, by=by, reason=reason, key=key)
    check_switch("dry_run", value=dry_run)
    records = await ports.log.read(ports.stack.episode(forked_id))
    origin = Fork(episode_id=forked_id, step_no=at, by=by, reason=reason)
    opened, past = begun_with(records, origin, payload=payload)
    is_dry = dry_run or opened.mode is Mode.DRY_RUN
    if overrides is not None and not is_dry:
        raise BadRequest(field="overrides", problem="only a dry run has any; ask for one")
    kind = "fork"
    if is_dry:  # guard: dry-fork-takes-no-key
        kind = "dry_fork"
    cause = f"{kind}:{uuid4().hex if key is None else key}"
    id_ = episode_id(
        stack=ports.stack.name,
        actor=opened.actor_id,
        expectation=opened.expectation_id,
        dedupe_key=cause,
    )
    opened = replace(
        opened,
        episode_id=id_,
        dedupe_key=cause,
        mode=Mode.DRY_RUN if is_dry else Mode.LIVE,
        overrides=overrides or opened.overrides,
        holds_subject=opened.holds_subject and not is_dry,
    )
    await open_fork(ports, opened, past, at=_CLOCK.now())
    return id_


async def _take_subject(ports: Ports, opened: EpisodeOpened) -> None:
    """Hold the subject of a fork as any other episode does; `Refused`: another one holds it."""
    found = await Holds(ports, _CLOCK).take(opened, "skip")
    if isinstance(found, SubjectHeld):
        raise Refused(f"{in_words(opened, found)}; cancel that one, or try it as a dry run")


def begun_with(
    records: Sequence[Recorded], origin: Fork, *, payload: JsonObject | None = None
) -> tuple[EpisodeOpened, Sequence[EpisodeEvent]]:
    """Return the opening of a fork, with the id of the other episode, and the past that follows.

    Raises:
        BadRequest: its trigger has no payload.
        Refused: `records`, the journal of `origin`, have no such past.
    """
    events = [event for record in records for event in record.commit.events]
    opened = next((event for event in events if isinstance(event, EpisodeOpened)), None)
    if opened is None:
        raise Refused(f"the journal holds no episode {origin.episode_id}")
    trigger = opened.trigger if payload is None else _with_payload(opened, payload)
    past = [
        event
        for event in _first_life(events)
        if isinstance(event, StepRecorded)
        # guard: fork-drops-other-states
        or (isinstance(event, CheckpointSaved) and payload is None)
    ]
    # guard: fork-past-ends-as-asked
    taken = [event for event in past if event.step_no <= origin.step_no]
    steps = sum(isinstance(event, StepRecorded) for event in taken)
    if steps < origin.step_no:  # guard: fork-of-missing-past-refused
        begun_anew = any(isinstance(e, EpisodeStarted) and e.fresh for e in events)
        when = " before its strategy began anew" if begun_anew else ""
        raise Refused(f"it has recorded {steps:,} steps{when}, not {origin.step_no:,}")
    fresh = replace(
        opened,
        trigger=trigger,
        opened_by="",
        is_request=False,
        start_by=None,
        held_by="",
        fork=replace(origin, seed=seed_of(opened)),
    )
    return fresh, taken


def _check(forked_id: str, *, at: int, by: str, reason: str, key: str | None) -> None:
    check_id("episode_id", forked_id)
    check_cause(by, reason)
    if not is_whole(at) or at < 0:
        raise BadRequest(field="at", problem=f"{at!r} is not a number of steps")
    if key is not None:
        check_text("key", key, least=1, most=KEY_CHARS_MAX)


def _with_payload(opened: EpisodeOpened, payload: JsonObject) -> Trigger:
    trigger, about = opened.trigger, entity_id(payload, opened.subject_kind)
    match trigger:
        case WorkflowTrigger():
            return replace(trigger, input=payload, entity_id=about)
        case _:
            return replace(trigger, payload=payload, entity_id=about)


def _first_life(events: Sequence[object]) -> list[object]:
    """Return the events before the strategy first began anew: a replay needs no others."""
    anew = (n for n, e in enumerate(events) if isinstance(e, EpisodeStarted) and e.fresh)
    return list(events[: next(anew, len(events))])


async def open_fork(
    ports: Ports, opened: EpisodeOpened, past: Sequence[EpisodeEvent], *, at: datetime
) -> None:
    """Open a fork with its past, unless it is; `Refused`: it is too large, or may not overlap."""
    subject = ports.stack.episode(opened.episode_id)
    if opened.holds_subject and await ports.log.last(subject) is None:  # guard: overlap-fork-apart
        await _take_subject(ports, opened)
    commit = Commit(
        id=f"open.{opened.episode_id}", at=at, events=(opened, *past), trace=traceparent()
    )
    try:
        await append_first(ports.log, subject, commit)
    except TooLarge as error:
        raise Refused(f"its past does not fit in one message ({error}); fork earlier") from error
