"""What is done about a step of a workflow that has failed: how it is declared, and the rule. Pure.

on_failure="abort"                                what runs is canceled, what is done undone
on_failure="continue"                             it goes on, as if the step had brought nothing
on_failure="pause"                                it waits for a person
on_failure=retrying(attempts=3, backoff_s=5)      it is tried again, and then one of these
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias, get_args

from engine.backoff import backoff_s, jittered_s
from engine.budget import is_whole
from streams.workflows import OnFailure, Remedy

RemedyName: TypeAlias = Literal["abort", "continue", "pause"]

Policy: TypeAlias = RemedyName | OnFailure

ATTEMPTS_MAX: Final = 100
"""Most attempts at one item that a step may declare."""

BACKOFF_S_MAX: Final = 3_600.0
"""Longest wait between two attempts, in seconds."""

SKIP_ON_MAX: Final = 100
"""Most error classes that a step may name."""

ABORTING: Final = OnFailure()
"""What is done if nothing else is declared."""

DENIED: Final = "denied"
APPROVAL_EXPIRED: Final = "approval_expired"
"""Error classes of a step that people did not approve."""

STEP_TIMEOUT: Final = "step_timeout"
"""Error class of an attempt that took too long."""

DECIDED: Final = frozenset({DENIED, APPROVAL_EXPIRED})
"""Error classes that no other attempt is made after: it would ask the same people again."""


def retrying(
    attempts: int = 3,
    *,
    backoff_s: float = 5.0,
    skip_on: Sequence[str] = (),
    then: RemedyName = "abort",
) -> OnFailure:
    """Return the policy that a step which fails is tried again.

    Args:
        attempts: how often at most, the first one included: 1 to `ATTEMPTS_MAX`.
        backoff_s: wait after the first, in seconds, up to `BACKOFF_S_MAX`; it doubles each time. A
            part of each wait, up to half, is left off, so that not all come again at once.
        skip_on: error classes after which it is of no use, such as `["bad_input"]`.
        then: what becomes of the workflow after the last attempt: "abort", "continue" or "pause".

    Raises:
        ValueError: an argument cannot work; which one, and why.
    """
    if isinstance(skip_on, str) or not isinstance(skip_on, Sequence):
        raise ValueError(f"retrying(): skip_on: {skip_on!r} is not a list of error classes")  # noqa: TRY004 - as for its values
    if then not in get_args(RemedyName):
        raise ValueError(f"retrying(): then: {then!r} is not one of abort, continue, pause")
    policy = OnFailure(
        attempts_max=attempts, backoff_s=backoff_s, skip_on=tuple(skip_on), then=Remedy(then)
    )
    if problem := _problem_of(policy):
        raise ValueError(f"retrying(): {problem}")
    return policy


def policy_of(declared: object) -> OnFailure:
    """Return the policy that `on_failure=` means.

    Raises:
        ValueError: it is none.
    """
    if isinstance(declared, OnFailure):
        if problem := _problem_of(declared):
            raise ValueError(problem)
        return declared
    if declared is retrying:
        raise ValueError("retrying must be called, as in retrying(attempts=3)")
    if declared in get_args(RemedyName):
        return OnFailure(then=Remedy(str(declared)))
    raise ValueError(f"{declared!r} is not one of abort, continue, pause, or retrying(…)")


def remedy(
    policy: OnFailure, *, error_class: str, attempts: int, at: datetime, seed: str
) -> datetime | Remedy:
    """Return when another attempt is made, or what becomes of the instance if none is.

    Args:
        policy: of the step.
        error_class: of the attempt that has failed.
        attempts: how many there were, since a person last had it tried again.
        at: when it failed.
        seed: of the share of the wait that is left off; the same one leaves off the same.
    """
    is_final = error_class in policy.skip_on or error_class in DECIDED
    if is_final or attempts >= policy.attempts_max:
        return policy.then
    return at + timedelta(seconds=wait_s(policy.backoff_s, attempts=attempts, seed=seed))


def wait_s(first_s: float, *, attempts: int, seed: str) -> float:
    """Return how long to wait after the `attempts`-th attempt, in seconds."""
    pause_s = backoff_s(attempts, first_s=first_s, most_s=BACKOFF_S_MAX)
    return jittered_s(pause_s, seed=seed)


def _problem_of(policy: OnFailure) -> str | None:
    if not is_whole(policy.attempts_max) or not 1 <= policy.attempts_max <= ATTEMPTS_MAX:
        hint = f"is not a whole number from 1 to {ATTEMPTS_MAX}"
        return f"attempts: {policy.attempts_max!r} {hint}"
    given: object = policy.backoff_s
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    if not is_number or not math.isfinite(policy.backoff_s):
        return f"backoff_s: {given!r} is not a number of seconds"
    if not 0 <= policy.backoff_s <= BACKOFF_S_MAX:
        return f"backoff_s: {given!r} is not from 0 to {BACKOFF_S_MAX:,g}"
    classes: tuple[object, ...] = policy.skip_on
    strays = [each for each in classes if not isinstance(each, str) or not each]
    if strays or len(classes) > SKIP_ON_MAX:
        return f"skip_on: {policy.skip_on!r} is not a list of up to {SKIP_ON_MAX} error classes"
    return None
