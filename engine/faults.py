"""What is wrong with the values of an action. Pure.

A strategy may make actions by any means, so whatever it asks for is looked at before it is done.
"""

from __future__ import annotations

from engine.actions import (
    APPROVER_CHARS_MAX,
    APPROVERS_MAX,
    EXPIRES_S_MAX,
    NAME_CHARS_MAX,
    OF_APPROVALS,
    OF_WAITS,
    REF_CHARS_MAX,
    REMIND_S_MIN,
    SUMMARY_CHARS_MAX,
    Action,
    Checkpoint,
    Pause,
    RequestApproval,
    Synthesize,
    ToolCall,
    WaitFor,
    either,
)
from streams.blocks import OnExpiry


def problem_of(action: Action) -> str | None:
    """Return what is wrong with the values of `action`, or None.

    Whether JSON can say them is found out when they are recorded.
    """
    match action:
        case ToolCall(capability=capability, action=name, args=args):
            return _name("capability", capability) or _name("action", name) or _object("args", args)
        case Synthesize(transient=transient):
            return _object("transient", transient)
        case Checkpoint(phase=phase):
            return _name("phase", phase)
        case RequestApproval():
            return _request(action) or _deadlines(action, OF_APPROVALS)
        case WaitFor(ref=ref):
            return _text("ref", ref, least=1, most=REF_CHARS_MAX) or _deadlines(action, OF_WAITS)
        case _:
            return None


def _request(action: RequestApproval) -> str | None:
    approvers: object = action.approvers
    if not isinstance(approvers, tuple):
        return f"approvers must be a tuple of names, not a {type(approvers).__name__}"
    if len(approvers) > APPROVERS_MAX:
        return f"approvers: {len(approvers):,} of them, the limit is {APPROVERS_MAX}"
    named = (_text("approvers", each, least=1, most=APPROVER_CHARS_MAX) for each in approvers)
    problem = next((each for each in named if each), None)
    return problem or _text("summary", action.summary, least=0, most=SUMMARY_CHARS_MAX)


def _deadlines(action: Pause, allowed: frozenset[OnExpiry]) -> str | None:
    given: object = action.on_expiry
    if all(given != each for each in allowed):
        return f"on_expiry: {str(given)!r}; use {either(allowed)}"
    return _seconds("expires_s", action.expires_s, least=0.0) or _seconds(
        "remind_every_s", action.remind_every_s, least=REMIND_S_MIN
    )


def _seconds(field: str, value: object, *, least: float) -> str | None:
    """Return what is wrong with a number of seconds, of which 0 stands for none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"{field} must be a number of seconds, not a {type(value).__name__}"
    if value == 0 or least <= value <= EXPIRES_S_MAX:
        return None
    return f"{field}: {value:g} is not from {least:g} to {EXPIRES_S_MAX:,.0f} seconds"


def _text(field: str, value: object, *, least: int, most: int) -> str | None:
    if not isinstance(value, str):
        return f"{field}: {value!r} is not text"
    if not least <= len(value) <= most:
        return f"{field}: {len(value):,} characters, not {least} to {most:,}"
    try:
        value.encode()
    except UnicodeEncodeError:
        return f"{field}: {value!r} is not valid Unicode text"
    return None


def _name(field: str, value: object) -> str | None:
    if not isinstance(value, str):
        return f"{field} must be text, not a {type(value).__name__}"
    if len(value) > NAME_CHARS_MAX:
        return f"{field}: {len(value):,} characters, the limit is {NAME_CHARS_MAX}"
    return None


def _object(field: str, value: object) -> str | None:
    if not isinstance(value, dict):
        return f"{field} must be a dict, not a {type(value).__name__}"
    if strays := [key for key in value if not isinstance(key, str)]:
        return f"{field}: its keys must be text, and one is a {type(strays[0]).__name__}"
    return None
