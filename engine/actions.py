"""What a strategy may ask for next, as data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

import msgspec

from engine.errors import InvalidAction
from streams.blocks import OnExpiry
from streams.json import JsonObject
from streams.outputs import OutputIntent

NAME_CHARS_MAX: Final = 256
"""Longest name of a capability, an action or a phase, in characters."""

APPROVERS_MAX: Final = 64
"""Most people that one request for approval names."""

NAMES_NOBODY: Final = "an empty list names nobody; leave it out, and anybody may decide"
"""What is wrong with a list of those who may decide, wherever it is given."""

APPROVER_CHARS_MAX: Final = 200
"""Longest name of one of them, in characters: as long as that of whoever decides may be."""

SUMMARY_CHARS_MAX: Final = 4_000
"""Longest summary of a request, in characters."""

REF_CHARS_MAX: Final = 256
"""Longest reference that something is waited for by, in characters."""

EXPIRES_S_MAX: Final = 10 * 365 * 24 * 3600.0
"""Longest that an answer can be waited for, unless it is for ever: ten years, in seconds."""

REMIND_S_MIN: Final = 1.0
"""Shortest time between two reminders, in seconds: each is a public event and a timer."""

OF_APPROVALS: Final = frozenset({OnExpiry.DENY, OnExpiry.APPROVE, OnExpiry.FAIL})
OF_WAITS: Final = frozenset({OnExpiry.CONTINUE, OnExpiry.FAIL})
"""What the expiry of either may mean."""

ExpiryOfApproval: TypeAlias = Literal["deny", "approve", "fail"]
ExpiryOfWait: TypeAlias = Literal["continue", "fail"]
"""The same, as strategies write it."""


class ToolCall(msgspec.Struct, frozen=True, tag_field="kind", tag="tool_call"):
    """Call a tool and hand its result to `handle_result`."""

    capability: str
    action: str
    args: JsonObject = {}


class Observe(msgspec.Struct, frozen=True, tag_field="kind", tag="observation"):
    """Put a fact on the journal and hand it to `handle_result`."""

    data: object


class Synthesize(msgspec.Struct, frozen=True, tag_field="kind", tag="synthesis"):
    """Ask the synthesizer; without one, the prompt itself is the result."""

    prompt: object
    transient: JsonObject = {}
    """Given to the synthesizer and stored nowhere."""


class Checkpoint(msgspec.Struct, frozen=True, tag_field="kind", tag="checkpoint"):
    """Keep the state as `handle_result` leaves it; a resume starts from there."""

    phase: str


class SendOutput(msgspec.Struct, frozen=True, tag_field="kind", tag="output"):
    """Have something delivered now, instead of with the result of `converge`."""

    intent: OutputIntent


class RequestApproval(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="approval"):
    """Ask people, and go on when they have decided. No node has the episode meanwhile."""

    plan: object
    summary: str = ""
    approvers: tuple[str, ...] = ()
    expires_s: float = 0.0
    on_expiry: OnExpiry = OnExpiry.DENY
    remind_every_s: float = 0.0


class WaitFor(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="wait"):
    """Go on when word has come from outside. No node has the episode meanwhile."""

    ref: str
    expires_s: float = 0.0
    on_expiry: OnExpiry = OnExpiry.FAIL
    remind_every_s: float = 0.0


class Converge(msgspec.Struct, frozen=True, tag_field="kind", tag="converge"):
    """Call `converge` and end with its result."""


class Done(msgspec.Struct, frozen=True, tag_field="kind", tag="done"):
    """End without a result."""


Work: TypeAlias = ToolCall | Observe | Synthesize | Checkpoint | SendOutput
"""An action that the node performs."""

Pause: TypeAlias = RequestApproval | WaitFor
"""An action that someone outside answers."""

Step: TypeAlias = Work | Pause
"""An action whose result is recorded and handed to `handle_result`."""

Action: TypeAlias = Step | Converge | Done


def tool_call(capability: str, action: str, args: JsonObject | None = None) -> ToolCall:
    """Return the action that calls `action` of the tool registered as `capability`.

    Arguments whose name starts with `_` reach the tool and are stored nowhere.
    """
    return ToolCall(capability, action, args or {})


def observe(data: object) -> Observe:
    """Return the action that records `data`, any JSON value."""
    return Observe(data)


def synthesize(prompt: object, *, transient: JsonObject | None = None) -> Synthesize:
    """Return the action that asks the synthesizer about `prompt`, any JSON value.

    Args:
        prompt: recorded with the step.
        transient: what the synthesizer gets besides and nobody stores, such as secrets.
    """
    return Synthesize(prompt, transient or {})


def checkpoint(phase: str) -> Checkpoint:
    """Return the action that keeps the state, under the name of a `phase`."""
    return Checkpoint(phase)


def approval(
    plan: object,
    *,
    summary: str = "",
    approvers: Iterable[str] | str | None = None,
    expires_s: float | None = None,
    on_expiry: ExpiryOfApproval = "deny",
    remind_every_s: float | None = None,
) -> RequestApproval:
    """Return the action that asks people whether `plan` may be carried out, and waits for them.

    `handle_result` gets `{"resolution": "approved", "by": …, "reason": …}`, or a `Failure` of class
    `denied` or `approval_expired`. An episode that a denial ends is canceled, not failed.

    Args:
        plan: what is to be done, any JSON value, for people to read. Whoever decides names its
            SHA-256, so nobody approves something else than they saw.
        summary: the same in one sentence, up to 4,000 characters.
        approvers: names of those who may decide, 1 to 64; None: anybody.
        expires_s: how long it can be decided, in seconds, over 0 and up to ten years; None: for as
            long as it takes.
        on_expiry: what it means that nobody has decided by then: `deny`, `approve` or `fail`.
        remind_every_s: seconds between two public reminders, at least 1; None: none.

    Raises:
        InvalidAction: `approvers` is empty or holds what is no name, `on_expiry` is none of the
            three, or a number of seconds is 0 or less.
    """
    return RequestApproval(
        plan=plan,
        summary=summary,
        approvers=_approvers(approvers),
        expires_s=_seconds("expires_s", expires_s),
        on_expiry=_on_expiry(on_expiry, OF_APPROVALS),
        remind_every_s=_seconds("remind_every_s", remind_every_s),
    )


def wait(
    ref: str,
    *,
    expires_s: float | None = None,
    on_expiry: ExpiryOfWait = "fail",
    remind_every_s: float | None = None,
) -> WaitFor:
    """Return the action that waits until somebody outside says that `ref` has come about.

    `handle_result` gets what they said, any JSON value, or a `Failure` of class `wait_expired`.

    Args:
        ref: what they call it, such as `payment:42`: 1 to 256 characters.
        expires_s: how long to wait, in seconds, over 0 and up to ten years; None: for as long as
            it takes.
        on_expiry: what it means that nothing has come by then: `fail`, or `continue` with `null`.
        remind_every_s: seconds between two public reminders, at least 1; None: none.

    Raises:
        InvalidAction: `on_expiry` is neither of the two, or a number of seconds is 0 or less.
    """
    return WaitFor(
        ref=ref,
        expires_s=_seconds("expires_s", expires_s),
        on_expiry=_on_expiry(on_expiry, OF_WAITS),
        remind_every_s=_seconds("remind_every_s", remind_every_s),
    )


def converge() -> Converge:
    """Return the action that ends the episode with the result of `Strategy.converge`."""
    return Converge()


def done() -> Done:
    """Return the action that ends the episode without a result."""
    return Done()


def _approvers(given: Iterable[str] | str | None) -> tuple[str, ...]:
    """Return names as actions have them, where none stands for None."""
    if given is None:
        return ()
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names:
        raise InvalidAction(f"approvers: {NAMES_NOBODY}")
    for each in names:
        _check_approver(each)
    return names


def _check_approver(name: object) -> None:
    if not isinstance(name, str) or not 1 <= len(name) <= APPROVER_CHARS_MAX:
        problem = f"{name!r} is no name of 1 to {APPROVER_CHARS_MAX} characters"
        raise InvalidAction(f"approvers: {problem}")


def _seconds(field: str, given: float | None) -> float:
    """Return a number of seconds as actions have it, where 0 stands for None."""
    if given is None:
        return 0.0
    said: object = given
    is_number = isinstance(said, int | float) and not isinstance(said, bool)
    if is_number and given <= 0:
        raise InvalidAction(f"{field}: {given:g} is not more than 0; write more, or leave it out")
    return given


def _on_expiry(given: str, allowed: frozenset[OnExpiry]) -> OnExpiry:
    if given not in allowed:
        raise InvalidAction(f"on_expiry: {given!r}; use {either(allowed)}")
    return OnExpiry(given)


def either(allowed: frozenset[OnExpiry]) -> str:
    """Return `allowed` as a choice, for whoever is to make it."""
    return " or ".join(sorted(each.value for each in allowed))
