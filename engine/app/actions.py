"""The actions that `next_step` may return, as data, and the check of their values. Pure.

A strategy may construct an action without the functions below, so `problem_of` checks each one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from copy import deepcopy
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias, overload, runtime_checkable

import msgspec

from engine.errors import InvalidAction, Unencodable
from engine.validation import problem_of_count, problem_of_number
from streams.json import JsonObject, place_of_problem, raw
from streams.model.findings import FindingIntent
from streams.model.outputs import OutputIntent
from streams.model.waits import EditableCalls, OnExpiry

NAME_CHARS_MAX: Final = 256
"""Longest name of a capability, an action or a phase, in characters."""

APPROVERS_MAX: Final = 64
"""Most people that one request for approval names."""

QUORUM_MAX: Final = 16
"""Most people that have to approve one request."""

GROUP: Final = "group:"
"""Begins the name of a group among those who may decide."""

NAMES_NOBODY: Final = "an empty list names nobody; leave it out, and anybody may decide"
"""The problem with a list of approvers that names nobody."""

APPROVER_CHARS_MAX: Final = 200
"""Longest name of an approver, in characters: as long as the `by` of a decision may be."""

SUMMARY_CHARS_MAX: Final = 4_000
"""Longest summary of a request, in characters."""

REF_CHARS_MAX: Final = 256
"""Longest `ref` of a `wait`, in characters."""

ATTEMPTS_MAX: Final = 100
"""Most attempts at one output, call or synthesis."""

RETRY_S_MAX: Final = 86_400.0
"""Longest wait between two of them, in seconds: a day."""

RETRY_AFTER_S_MAX: Final = 3_600.0
"""Longest pause that a receiver or a server can ask for, in seconds."""

CHILD_KEY_CHARS_MAX: Final = 128
"""Longest `key` of a child, in characters: it is named within its parent."""

EXPIRES_S_MAX: Final = 10 * 365 * 24 * 3600.0
"""Longest time limit for an answer, in seconds: ten years."""

REMIND_S_MIN: Final = 1.0
"""Shortest time between two reminders, in seconds: each is a public event and a timer."""

OF_APPROVALS: Final = frozenset({OnExpiry.DENY, OnExpiry.APPROVE, OnExpiry.FAIL})
OF_WAITS: Final = frozenset({OnExpiry.CONTINUE, OnExpiry.FAIL})
"""The values of `on_expiry` for either kind of wait."""

ExpiryOfApproval: TypeAlias = Literal["deny", "approve", "fail"]
ExpiryOfWait: TypeAlias = Literal["continue", "fail"]
"""The same values, as strategies write them."""

WITH_PARENT: Final = ("cancel", "leave")
"""What may become of a child when its parent ends before it."""


class ToolCall(msgspec.Struct, frozen=True, tag_field="kind", tag="tool_call"):
    """Call a tool and hand its result to `handle_result`."""

    capability: str
    action: str
    args: JsonObject = {}


class Observe(msgspec.Struct, frozen=True, tag_field="kind", tag="observation"):
    """Put a fact on the journal and hand it to `handle_result`."""

    data: object


@dataclass(frozen=True, kw_only=True)
class Retries:
    """How often, and when, a failed delivery, call of a tool or synthesis is repeated."""

    attempts_max: int = 20
    """Attempts, the first included; when the last one fails, the output becomes a dead letter, or
    the call fails. The defaults spread them over about an hour: nine waits that double, 511 s
    together, and ten of 300 s are 3,511 s at most, and no less than half of that.
    """
    first_s: float = 1.0
    """Wait after the first attempt, in seconds; it doubles each time. Jitter shortens each wait by
    up to half, so that outputs that failed together are not retried together.
    """
    most_s: float = 300.0
    """Longest such wait, in seconds."""


class Synthesize(msgspec.Struct, frozen=True, tag_field="kind", tag="synthesis"):
    """Ask the synthesizer; without one, the prompt itself is the result."""

    prompt: object
    transient: JsonObject = {}
    """Given to the synthesizer and stored nowhere."""
    retries: Retries | None = None
    """How often it is repeated if it fails, and after which pauses; None: as the synthesizer says.
    """


class Checkpoint(msgspec.Struct, frozen=True, tag_field="kind", tag="checkpoint"):
    """Keep the state as `handle_result` leaves it; a resume starts from there."""

    phase: str


class OfAgent(msgspec.Struct, frozen=True, tag_field="kind", tag="of_agent"):
    """A whole run of an agent, or something that it does within one: its library performs it."""

    what: str
    """The kind of its step."""
    name: str
    values: object = None


class SendOutput(msgspec.Struct, frozen=True, tag_field="kind", tag="output"):
    """Have something delivered now, instead of with the result of `converge`."""

    intent: OutputIntent


class ReportFindings(msgspec.Struct, frozen=True, tag_field="kind", tag="report"):
    """Have findings applied now, instead of with the result of `converge`."""

    findings: tuple[FindingIntent, ...]


class RequestApproval(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="approval"):
    """Ask people and continue when they have decided. Meanwhile the episode occupies no node."""

    plan: object
    summary: str = ""
    approvers: tuple[str, ...] = ()
    expires_s: float = 0.0
    on_expiry: OnExpiry = OnExpiry.DENY
    remind_every_s: float = 0.0
    editable: bool | msgspec.UnsetType = msgspec.UNSET
    """Unset: no, and no part of the fingerprint."""
    calls: EditableCalls | msgspec.UnsetType = msgspec.UNSET
    """What may become of it, if it is editable; unset: anything. No part of the fingerprint."""
    shared: bool | msgspec.UnsetType = msgspec.UNSET
    """Unset: yes, and no part of the fingerprint either."""
    per_episode: bool | msgspec.UnsetType = msgspec.UNSET
    """Unset: no, and no part of the fingerprint either."""
    quorum: int | msgspec.UnsetType = msgspec.UNSET
    """Unset: one is enough, and no part of the fingerprint either."""
    requester_may_approve: bool | msgspec.UnsetType = msgspec.UNSET
    """Unset: yes, and no part of the fingerprint either."""


class WaitFor(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="wait"):
    """Continue when a signal arrives. Meanwhile the episode occupies no node."""

    ref: str
    expires_s: float = 0.0
    on_expiry: OnExpiry = OnExpiry.FAIL
    remind_every_s: float = 0.0


class Sleep(msgspec.Struct, frozen=True, tag_field="kind", tag="sleep"):
    """Continue after so many seconds. Meanwhile the episode occupies no node."""

    seconds: float


class StartEpisode(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="episode"):
    """Start another episode, and continue when it has ended. Meanwhile this one occupies no node.

    Functions have it as `ctx.episode`.
    """

    actor: str
    expectation: str
    payload: JsonObject = {}
    key: str | msgspec.UnsetType = msgspec.UNSET
    """Unset: the call names it."""
    with_parent: Literal["cancel", "leave"] = "cancel"


class Converge(msgspec.Struct, frozen=True, tag_field="kind", tag="converge"):
    """Call `converge` and end with its result."""


class Done(msgspec.Struct, frozen=True, tag_field="kind", tag="done"):
    """End without a result."""


Work: TypeAlias = ToolCall | Observe | Synthesize | Checkpoint | SendOutput | ReportFindings
"""An action that the node performs."""

Pause: TypeAlias = RequestApproval | WaitFor | Sleep
"""An action that is answered from outside, or by time."""

Step: TypeAlias = Work | Pause | StartEpisode
"""An action whose result is recorded and handed to `handle_result`."""

Action: TypeAlias = Step | Converge | Done


@runtime_checkable
class NamedTool(Protocol):
    """A tool that brings its own name: a function with `@tool`."""

    @property
    def capability(self) -> str:
        """What it is registered as."""

    @property
    def action(self) -> str:
        """Its one action."""


@overload
def tool_call(tool: str, action: str, args: JsonObject | None = None, /) -> ToolCall: ...
@overload
def tool_call(tool: NamedTool, /, **given: object) -> ToolCall: ...
def tool_call(
    tool: str | NamedTool, action: str = "", args: JsonObject | None = None, /, **given: object
) -> ToolCall:
    """Return the action that calls a tool: `tool_call(fetch, url="…")` for a function with `@tool`.

    Other tools are called by name: `tool_call("disk", "largest", {"host": "web-1"})`, where "disk"
    is what the tool is registered as. Arguments whose name starts with `_` reach the tool and are
    stored nowhere.
    """
    if not isinstance(tool, str) and isinstance(tool, NamedTool):
        return ToolCall(tool.capability, tool.action, given)
    return ToolCall(tool, action, args or {})


def observe(data: object) -> Observe:
    """Return the action that records `data`, any JSON value."""
    return Observe(data)


def synthesize(
    prompt: object, *, transient: JsonObject | None = None, retries: Retries | None = None
) -> Synthesize:
    """Return the action that asks the synthesizer about `prompt`, any JSON value.

    `prompt` is recorded; `transient` reaches the synthesizer and is stored nowhere: put secrets
    there. `retries`: how often it is asked again, after pauses, while it is down, busy or too slow;
    None: as the `retries` of the synthesizer say.
    """
    return Synthesize(prompt, transient or {}, retries)


def checkpoint(phase: str) -> Checkpoint:
    """Return the action that stores the state under the name `phase`."""
    return Checkpoint(phase)


def approval(
    plan: object,
    *,
    summary: str = "",
    approvers: Iterable[str] | str | None = None,
    expires_s: float | None = None,
    on_expiry: ExpiryOfApproval = "deny",
    remind_every_s: float | None = None,
    editable: bool | EditableCalls = False,
    shared: bool = True,
    per_episode: bool = False,
    quorum: int = 1,
    requester_may_approve: bool = True,
) -> RequestApproval:
    """Return the action that asks people whether `plan` may be carried out, and waits for them.

    `handle_result` gets `{"resolution": "approved", "by": …, "reason": …}`, or a `Failure` of class
    `denied`, `approval_expired` or `superseded`. An episode that a denial ends is canceled, not
    failed, and so is one that is superseded. If who has approved it has changed the plan, there is
    also `"plan"`: what is approved instead.

    Equal requests of several episodes are one for people. Once they approve it, the oldest of these
    episodes acts; the others get `superseded`. A denial is for all of them.

    Args:
        plan: what is to be done, any JSON value, for people to read. A decision names its SHA-256,
            so nobody approves a plan other than the one they read.
        summary: the plan in one sentence, up to 4,000 characters.
        approvers: names of those who may decide, 1 to 64, and `group:oncall` for whoever is in that
            group of the stack's people then; None: anybody.
        expires_s: time limit in seconds, over 0 and up to ten years; None: none.
        on_expiry: the decision if nobody decides in time: `deny`, `approve` or `fail`.
        remind_every_s: seconds between two public reminders, at least 1; None: none.
        editable: whether the person who approves may change the plan; then carry out the `plan` of
            the result. `EditableCalls`, which agents give, says what it may become.
        shared: whether one decision answers all episodes of the actor that wait for an equal
            approval about the same subject.
        per_episode: whether each of these episodes acts once it is approved, not the oldest alone.
        quorum: how many different people have to approve it, 1 to 16. One denial denies it. Who
            changes the plan is the first to approve what it becomes, and the others have to approve
            that. With more than 1 each episode asks for itself, whatever `shared` says.
        requester_may_approve: whether who has asked for the episode, or for what it is a part of,
            may decide; if not, each episode asks for itself, too.

    Raises `InvalidAction` if a value is impossible.
    """
    return RequestApproval(
        plan=plan,
        summary=summary,
        approvers=_approvers(approvers),
        expires_s=_seconds("expires_s", expires_s),
        on_expiry=_on_expiry(on_expiry, OF_APPROVALS),
        remind_every_s=_seconds("remind_every_s", remind_every_s),
        editable=True if editable else msgspec.UNSET,  # guard: default-not-in-fingerprint
        calls=editable if isinstance(editable, EditableCalls) else msgspec.UNSET,
        shared=msgspec.UNSET if shared else False,
        per_episode=True if per_episode else msgspec.UNSET,
        quorum=_quorum(quorum),
        requester_may_approve=msgspec.UNSET if requester_may_approve else False,
    )


def wait(
    ref: str,
    *,
    expires_s: float | None = None,
    on_expiry: ExpiryOfWait = "fail",
    remind_every_s: float | None = None,
) -> WaitFor:
    """Return the action that waits for the signal `ref`, such as `payment:42`: 1 to 256 characters.

    `handle_result` gets the signal's result, any JSON value, or a `Failure` of class
    `wait_expired`. `on_expiry` is the answer if no signal arrives in time: `fail`, or `continue`
    with `null`. The other arguments and errors are those of `approval`.
    """
    return WaitFor(
        ref=ref,
        expires_s=_seconds("expires_s", expires_s),
        on_expiry=_on_expiry(on_expiry, OF_WAITS),
        remind_every_s=_seconds("remind_every_s", remind_every_s),
    )


def sleep(seconds: float) -> Sleep:
    """Return the action that waits for `seconds`, up to ten years; `handle_result` gets `None`.

    From 5 s on, no node has the episode.
    """
    return Sleep(seconds)


def converge() -> Converge:
    """Return the action that ends the episode with the result of `Strategy.converge`."""
    return Converge()


def done() -> Done:
    """Return the action that ends the episode without a result."""
    return Done()


def _approvers(given: Iterable[str] | str | None) -> tuple[str, ...]:
    if given is None:
        return ()
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names:  # guard: empty-deciders-refused
        raise InvalidAction(f"approvers: {NAMES_NOBODY}")
    for each in names:
        _check_approver(each)  # guard: approver-has-name
    return names


def _quorum(given: object) -> int | msgspec.UnsetType:
    match given:
        case bool():
            pass
        case int() if 1 <= given <= QUORUM_MAX:
            return msgspec.UNSET if given == 1 else given
        case _:
            pass
    raise InvalidAction(f"quorum: {given!r} is not a whole number from 1 to {QUORUM_MAX}")


def problem_of_quorum(quorum: int, approvers: Collection[str]) -> str | None:
    """Return why so many of those who may decide cannot approve; None: they can."""
    are_named = bool(approvers) and not any(each.startswith(GROUP) for each in approvers)
    if are_named and len({*approvers}) < quorum:  # guard: quorum-can-be-reached
        return f"quorum: {quorum} have to approve it, and only {len({*approvers})} may"
    return None


def _check_approver(name: object) -> None:
    if not isinstance(name, str) or not 1 <= len(name) <= APPROVER_CHARS_MAX:
        problem = f"{name!r} is no name of 1 to {APPROVER_CHARS_MAX} characters"
        raise InvalidAction(f"approvers: {problem}")


def _seconds(field: str, given: float | None) -> float:
    if given is None:
        return 0.0
    said: object = given
    is_number = isinstance(said, int | float) and not isinstance(said, bool)
    if is_number and given <= 0:  # guard: no-time-is-not-forever
        raise InvalidAction(f"{field}: {given:g} is not more than 0; write more, or leave it out")
    return given


def _on_expiry(given: str, allowed: frozenset[OnExpiry]) -> OnExpiry:
    if given not in allowed:
        raise InvalidAction(f"on_expiry: {given!r}; use {either(allowed)}")
    return OnExpiry(given)


def either(allowed: frozenset[OnExpiry]) -> str:
    """Return the names in `allowed` as text for an error message: `a or b`."""
    return " or ".join(sorted(each.value for each in allowed))


def problem_of(action: Action) -> str | None:
    """Return what is wrong with the values of `action`, or None; their JSON is checked later."""
    match action:
        case ToolCall(capability=capability, action=name, args=args):
            return _name("capability", capability) or _name("action", name) or _object("args", args)
        case Synthesize(transient=transient, retries=retries):
            return _object("transient", transient) or problem_of_declared(retries)
        case Checkpoint(phase=phase):
            return _name("phase", phase)
        case RequestApproval():
            return _request(action) or _deadlines(action, OF_APPROVALS)
        case WaitFor(ref=ref):
            return _text("ref", ref, least=1, most=REF_CHARS_MAX) or _deadlines(action, OF_WAITS)
        case Sleep(seconds=seconds):
            return _problem_of_seconds("seconds", seconds, least=0.0)
        case StartEpisode():
            return _child(action)
        case _:
            return None


def problem_of_retries(retries: Retries) -> str | None:
    """Return why `retries` cannot work, or None."""
    problem = (
        problem_of_count("attempts_max", retries.attempts_max, most=ATTEMPTS_MAX)
        or problem_of_number("first_s", retries.first_s, most=RETRY_S_MAX)
        or problem_of_number("most_s", retries.most_s, most=RETRY_S_MAX)
    )
    if problem is None and retries.most_s < retries.first_s:
        return f"most_s={retries.most_s:g} is less than first_s={retries.first_s:g}"
    return problem


def problem_of_declared(retries: object) -> str | None:
    """Return why the `retries` of a tool or a synthesis cannot work, or None."""
    if retries is None:
        return None
    if not isinstance(retries, Retries):
        return f"retries: {retries!r} is not Retries(attempts_max=…)"
    problem = problem_of_retries(retries)
    return f"retries: {problem}" if problem else None


def _request(action: RequestApproval) -> str | None:
    approvers: object = action.approvers
    if not isinstance(approvers, tuple):
        return f"approvers must be a tuple of names, not a {type(approvers).__name__}"
    if len(approvers) > APPROVERS_MAX:
        return f"approvers: {len(approvers):,} of them, the limit is {APPROVERS_MAX}"
    named = (_text("approvers", each, least=1, most=APPROVER_CHARS_MAX) for each in approvers)
    problem = next((each for each in named if each), None)
    try:
        quorum = _quorum(1 if action.quorum is msgspec.UNSET else action.quorum)
    except InvalidAction as error:
        return str(error)
    if problem is None and isinstance(quorum, int):
        problem = problem_of_quorum(quorum, approvers)
    return problem or _text("summary", action.summary, least=0, most=SUMMARY_CHARS_MAX)


def _child(action: StartEpisode) -> str | None:
    if action.with_parent not in WITH_PARENT:
        return f"with_parent: {action.with_parent!r}; use {' or '.join(WITH_PARENT)}"
    problem = _object("payload", action.payload)
    for field in ("actor", "expectation"):
        problem = problem or _name(field, getattr(action, field))
    if action.key is msgspec.UNSET:
        return problem
    return problem or _text("key", action.key, least=1, most=CHILD_KEY_CHARS_MAX)


def _deadlines(action: RequestApproval | WaitFor, allowed: frozenset[OnExpiry]) -> str | None:
    given: object = action.on_expiry
    if all(given != each for each in allowed):
        return f"on_expiry: {str(given)!r}; use {either(allowed)}"
    return _problem_of_seconds("expires_s", action.expires_s, least=0.0) or _problem_of_seconds(
        "remind_every_s", action.remind_every_s, least=REMIND_S_MIN
    )


def _problem_of_seconds(field: str, value: object, *, least: float) -> str | None:
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


def without_transient(args: JsonObject) -> JsonObject:
    """Return `args` without those that are never stored: names starting with `_`."""
    # guard: transient-keys
    return {key: value for key, value in args.items() if not key.startswith("_")}


def as_asked(action: Step) -> Step:
    """Return `action` with copies of its values, which nobody changes any more.

    Another branch may change them while the call waits, and a tool what it gets. Transient values
    are passed on as they are.
    """
    match action:
        case ToolCall(args=args):
            if all(isinstance(value, _UNCHANGING) for value in args.values()):
                return action
            copied = {k: v if k.startswith("_") else deepcopy(v) for k, v in args.items()}
            return msgspec.structs.replace(action, args=copied)
        case Observe(data=value):
            return Observe(deepcopy(value))
        case Synthesize(prompt=value):
            return msgspec.structs.replace(action, prompt=deepcopy(value))
        case RequestApproval(plan=value):
            return msgspec.structs.replace(action, plan=deepcopy(value))
        case StartEpisode(payload=value):
            return msgspec.structs.replace(action, payload=deepcopy(value))
        case _:
            return action


_UNCHANGING: Final = (str, int, float, bytes, type(None))
"""Types of values that cannot change; `bool` is one of `int`."""


def fingerprint(action: Step | OfAgent) -> str:
    """Return the SHA-256 of `action` in hex, transient values left out; or raise `Unencodable`."""
    match action:
        case ToolCall():
            action = msgspec.structs.replace(action, args=without_transient(action.args))
        case RequestApproval():
            # guard: editable-calls-in-no-fingerprint
            action = msgspec.structs.replace(action, calls=msgspec.UNSET)
        case _:
            pass
    said: object = action
    if isinstance(action, Synthesize):  # guard: retries-change-no-fingerprint
        said = {"kind": "synthesis", "prompt": action.prompt, "transient": {}}
    try:
        return hashlib.sha256(raw(said)).hexdigest()
    except (TypeError, ValueError) as error:
        where = place_of_problem(said)
        problem = f"JSON has no such value at {where}" if where else f"{error}"
        raise Unencodable(f"{type(action).__name__}: {problem}") from error
