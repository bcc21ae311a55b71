"""Fires by hand: a request for an episode, and the episode that it opens.

The request travels as a timer, so it waits in the actor's queue until a node opens the episode. No
filter applies. The idempotency key is the cause: two requests with one key, to one expectation, are
one episode. Dry and live runs with the same key are different causes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from engine.app import dedupe
from engine.app.actor import PRIORITY_MAX, REVISION_MAX, Logging
from engine.app.checks import COUNT_MAX, LIMITS, problem_of_budget
from engine.app.dedupe import KEY_CHARS_MAX
from engine.app.tools import OVERRIDES_BYTES_MAX, problem_of_overrides, size_of
from engine.app.triggers import entity_id
from engine.app.workflow_plan import PREFIX
from engine.errors import BadRequest
from engine.validation import (
    check_cause,
    check_name,
    check_switch,
    check_text,
    is_whole,
)
from streams.errors import BadName
from streams.json import JsonObject, exact, raw
from streams.model.children import WithParent
from streams.model.triggers import (
    Budget,
    EpisodeTrigger,
    LogStrategy,
    ManualTrigger,
    Mode,
    Overrides,
)
from streams.ports.all import Ports
from streams.ports.domain_events import EVENT_BYTES_MAX
from streams.ports.timers import Timer
from streams.tokens import encode_token
from streams.tracing import traceparent
from streams.wire.timers import due_time

PURPOSE: Final = "fire"
"""Of the timers that carry fires by hand."""

METADATA_BYTES_MAX: Final = 16 * 1024
"""Largest metadata of a fire, in bytes of JSON: every list of episodes may show it."""


class ParentCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which episode asks for another one and waits for its end."""

    actor_id: str
    episode_id: str
    call: str
    """The path of the call in its function."""
    budget: Budget
    """What it has left; a limit of 0: it has none."""
    with_parent: WithParent = WithParent.CANCEL
    requested_by: str = ""
    """Who asked for that episode; empty: nobody did."""


class FireRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request for an episode."""

    expectation: str
    requested_by: str
    """Who asks, for people: 1 to `BY_CHARS_MAX` characters."""
    key: str
    """The idempotency key: 1 to `KEY_CHARS_MAX` characters."""
    reason: str = ""
    payload: JsonObject = {}
    """The payload of the trigger."""
    priority: int = 0
    """From -`PRIORITY_MAX` to `PRIORITY_MAX`: higher is sooner."""
    mode: Mode = Mode.LIVE
    overrides: Overrides | None = None
    """Of a dry run. They win over those of the expectation."""
    step_overrides: dict[str, Overrides] = {}
    """Of a dry run of a workflow: step → overrides that win over all others."""
    hops: int = 0
    """How many engine-made events lie between the outside world and the requester."""
    metadata: JsonObject = {}
    """Kept with the episode, for people and queries: up to `METADATA_BYTES_MAX`."""
    budget: dict[str, int | float | str] = {}
    """Limit → what is allowed instead of what the expectation says; 0: no limit."""
    revision: int = 0
    """Of the actor's definition; 0: the one that is in force when the episode is opened."""
    log_strategy: LogStrategy | None = None
    """None: the expectation's."""
    parent: ParentCall | None = None
    """None: no episode asks."""
    attempts_max: int = 0
    """Crashes that end the episode; 0: as many as the expectation says."""


def fire_timer(asked: FireRequest, *, actor: str) -> Timer:
    """Return the timer of a checked request; it replaces a pending one with the same key."""
    check_name("actor", actor)
    _check(asked)
    return Timer(
        actor=actor, purpose=PURPOSE, key=_timer_key(asked), payload=msgspec.json.decode(raw(asked))
    )


def parse_fire(said: JsonObject) -> FireRequest:
    """Return the request in a timer's payload, which any program may have written."""
    try:
        asked = msgspec.json.decode(raw(said), type=FireRequest)
    except (TypeError, ValueError) as error:
        raise BadRequest(field="fire", problem=str(error)) from error
    _check(asked)
    return asked


def fired_trigger(asked: FireRequest, *, subject_key: str) -> ManualTrigger | EpisodeTrigger:
    """Return the trigger of an episode that a request opens: of a person, or of an episode."""
    if asked.parent is None:
        return manual_trigger(asked, subject_key=subject_key)
    return EpisodeTrigger(
        parent_id=asked.parent.episode_id,
        parent_actor_id=asked.parent.actor_id,
        call=asked.parent.call,
        requested_by=asked.parent.requested_by,
        payload=asked.payload,
        entity_id=entity_id(asked.payload, subject_key),
        hops=asked.hops,
    )


def manual_trigger(asked: FireRequest, *, subject_key: str) -> ManualTrigger:
    """Return the trigger of an episode that a fire by hand opened."""
    return ManualTrigger(
        requested_by=asked.requested_by,
        reason=asked.reason,
        payload=asked.payload,
        entity_id=entity_id(asked.payload, subject_key),
        hops=asked.hops,
    )


def fire_dedupe_key(key: str, mode: Mode = Mode.LIVE) -> str:
    """Return the dedupe key of a fire with the idempotency key `key`."""
    return f"{'manual' if mode is Mode.LIVE else mode.value}:{key}"  # guard: fire-key-per-mode


def fired_episode_id(
    *, stack: str, actor: str, expectation: str, key: str, mode: Mode = Mode.LIVE
) -> str:
    """Return the id of the episode that a fire with the idempotency key `key` opens."""
    return dedupe.episode_id(
        stack=stack, actor=actor, expectation=expectation, dedupe_key=fire_dedupe_key(key, mode)
    )


def _timer_key(asked: FireRequest) -> str:
    return f"{asked.expectation}.{fire_dedupe_key(asked.key, asked.mode)}"


def _check(asked: FireRequest) -> None:
    check_name("expectation", asked.expectation)
    check_cause(asked.requested_by, asked.reason)
    _check_key(asked)
    _check_number("priority", asked.priority, least=-PRIORITY_MAX, most=PRIORITY_MAX)
    _check_number("hops", asked.hops, least=0, most=COUNT_MAX)
    _check_object("payload", asked.payload, most_bytes=EVENT_BYTES_MAX)
    _check_object("metadata", asked.metadata, most_bytes=METADATA_BYTES_MAX)
    _check_number("revision", asked.revision, least=0, most=REVISION_MAX)
    _check_number("attempts_max", asked.attempts_max, least=0, most=COUNT_MAX)
    _check_budget(asked.budget)
    if asked.overrides is not None:
        _check_overrides("overrides", asked.overrides, mode=asked.mode)
    _check_step_overrides(asked)


def budget_for(asked: FireRequest, declared: Budget) -> Budget:
    """Return what the episode of a checked request may use."""
    return replace(declared, **asked.budget)  # guard: unasked-limit-of-expectation


def _check_budget(given: object) -> None:
    if not isinstance(given, dict):
        raise BadRequest(field="budget", problem=f"{given!r} is not a dict of limit to number")
    if unknown := [limit for limit in given if limit not in LIMITS]:  # guard: unknown-limit-refused
        known = ", ".join(LIMITS)
        raise BadRequest(field="budget", problem=f"no limit {unknown[0]!r}; there are {known}")
    if problem := problem_of_budget(replace(Budget(), **given)):  # guard: fired-budget-works
        raise BadRequest(field="budget", problem=problem)


def _check_overrides(field: str, given: Overrides, *, mode: Mode) -> None:
    if mode is Mode.LIVE:
        raise BadRequest(field=field, problem="only a dry run has any; ask for one")
    if problem := problem_of_overrides(given):
        raise BadRequest(field=field, problem=problem)


def _check_step_overrides(asked: FireRequest) -> None:
    """Check all but whether the steps exist: that is checked when the workflow starts."""
    field, given = "step_overrides", asked.step_overrides
    if not isinstance(given, dict):
        raise BadRequest(field=field, problem=f"{given!r} is not a dict of step to overrides")
    for step, said in given.items():
        check_name(field, step)
        _check_overrides(f"{field}.{step}", said, mode=asked.mode)
    size_bytes = sum(map(size_of, (asked.overrides or Overrides(), *given.values())))
    if given and size_bytes > OVERRIDES_BYTES_MAX:
        problem = f"{size_bytes:,} bytes with overrides, the limit is {OVERRIDES_BYTES_MAX:,}"
        raise BadRequest(field=field, problem=problem)


def _check_key(asked: FireRequest) -> None:
    check_text("key", asked.key, least=1, most=KEY_CHARS_MAX)
    try:
        encode_token(_timer_key(asked))
    except BadName as error:
        problem = "too long; of other characters than A-Z a-z 0-9 _ - it may hold fewer"
        raise BadRequest(field="key", problem=problem) from error


def _check_number(field: str, value: int, *, least: int, most: int) -> None:
    if not is_whole(value) or not least <= value <= most:
        problem = f"{value!r} is not a whole number from {least:,} to {most:,}"
        raise BadRequest(field=field, problem=problem)


def _check_object(field: str, given: object, *, most_bytes: int) -> None:
    if not isinstance(given, dict):
        raise BadRequest(field=field, problem=f"a {type(given).__name__}, not a JSON object")
    try:
        size_bytes = len(bytes(exact(given)))
    except (TypeError, ValueError) as error:
        raise BadRequest(field=field, problem=str(error)) from error
    if size_bytes > most_bytes:
        problem = f"{size_bytes:,} bytes, the limit is {most_bytes:,}"
        raise BadRequest(field=field, problem=problem)


async def fire(
    ports: Ports,
    actor: str,
    expectation: str,
    payload: JsonObject | None = None,
    *,
    by: str,
    reason: str = "",
    key: str | None = None,
    priority: int = 0,
    at: datetime | None = None,
    dry_run: bool = False,
    overrides: Overrides | None = None,
    metadata: JsonObject | None = None,
    budget: Mapping[str, int | float | str] | None = None,
    revision: int = 0,
    log_strategy: Logging | None = None,
    attempts_max: int = 0,
) -> str:
    """Ask `actor` for an episode of `expectation`, and return the id of the episode.

    The request is durable when this returns, and waits until a node that runs the actor opens the
    episode. If none knows the expectation, it becomes a dead letter.

    Args:
        payload: a JSON object for the strategy, `trigger.payload`, of up to 512 KiB.
        by: who asks, for people: 1 to 200 characters.
        reason: why, for people: up to 4,000 characters.
        key: the idempotency key, 1 to 512 characters: a repeated request opens no second episode;
            before a later time has come, it replaces the first one. Default: none.
        priority: from -1,000 to 1,000; higher is sooner, if episodes of the actor wait.
        at: when to open it, with a time zone; None or a time in the past: now.
        dry_run: whether to change nothing outside; see `engine.episodes.dry_run`.
        overrides: of a dry run, made by `overrides(…)`; they win over the expectation's.
        metadata: a JSON object that people and queries find with the episode, of up to 16 KiB.
        budget: limit → what this episode may use instead of what the expectation says, such as
            `{"turns": 5, "wall_s": 60, "usd": "0.50"}`; 0 is no limit.
        revision: of the actor's definition, on which the episode runs; 0: the one in force. One
            that was never applied makes the request a dead letter.
        log_strategy: what people may see of this episode, instead of what the expectation says.
        attempts_max: crashes that end this episode, instead of what the expectation says; 0: that.

    Raises:
        BadRequest: a value is impossible; the error names the field.
        UnknownOutcome: no answer. Asking again with the same `key` is safe.
    """
    check_switch("dry_run", value=dry_run)  # guard: dry-run-by-one-word
    if actor.startswith(PREFIX):  # guard: workflow-started-not-fired
        name = actor.removeprefix(PREFIX)
        problem = f"workflow {name!r} has no episodes; start it: start_workflow(…), or"
        raise BadRequest(field="actor", problem=f"{problem} `vigil workflows start {name}`")
    asked = FireRequest(
        expectation=expectation,
        requested_by=by,
        key=uuid4().hex if key is None else key,
        reason=reason,
        payload={} if payload is None else payload,
        priority=priority,
        mode=Mode.DRY_RUN if dry_run else Mode.LIVE,
        overrides=overrides,
        metadata={} if metadata is None else metadata,
        budget=dict(budget or {}),
        revision=revision,
        log_strategy=None if log_strategy is None else _log_strategy(log_strategy),
        attempts_max=attempts_max,
    )
    return await send_fire(ports, actor, asked, at=at)


async def send_fire(
    ports: Ports, actor: str, asked: FireRequest, *, at: datetime | None = None
) -> str:
    """Send the request `asked` to `actor`, now or later; return the id of the episode."""
    timer = fire_timer(asked, actor=actor)
    episode_id = fired_episode_id(
        stack=ports.stack.name,
        actor=actor,
        expectation=asked.expectation,
        key=asked.key,
        mode=asked.mode,
    )
    if at is None:
        await ports.timers.send(timer, id=f"fire.{episode_id}", trace=traceparent())
    else:
        await ports.timers.arm(timer, at=_time(at), trace=traceparent())
    return episode_id


def _log_strategy(given: str) -> LogStrategy:
    try:
        return LogStrategy(given)
    except ValueError as error:
        known = ", ".join(LogStrategy)
        raise BadRequest(
            field="log_strategy", problem=f"{given!r} is not one of {known}"
        ) from error


def _time(at: datetime) -> datetime:
    given: object = at
    if not isinstance(given, datetime):
        raise BadRequest(field="at", problem=f"{at!r} is not a datetime with a time zone")
    try:
        return due_time(at)
    except (ValueError, OverflowError) as error:
        raise BadRequest(field="at", problem=str(error)) from error
