"""What strategies want delivered, checked where it is said; and the keys that make it once. Pure.

The key of an output is its identity in the stack. Where a strategy gives none, it is made from the
episode, so that a replay means the same output again and no other episode does.

Adapters: how outputs reach the outside.

An adapter is what a user registers in `App(outputs={"pager": …})`. It is asked to deliver one
output at a time, at least once: a node that dies after the outside has accepted an output and
before that is on the journal leaves it to be delivered again, with the same `idempotency_key`.
Give that key to systems that honour one, and nothing happens twice.

Routes: the way that outputs of one kind take to the outside, as an app declares it. Pure.

    App(outputs={
        "pager": Webhook(url="https://pager.example/alerts"),
        "mail": Route(Email(…), retries=Retries(attempts_max=3), max_concurrent=2, rate_per_s=5),
    })

An adapter alone is a route with the defaults.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import msgspec

from engine import validation
from engine.app.actions import ExpiryOfApproval, RequestApproval, SendOutput, approval, problem_of
from engine.errors import InvalidAction, InvalidOutput
from engine.validation import is_whole
from streams.errors import BadName
from streams.model.outputs import OutputIntent
from streams.ports.all import Ports
from streams.tokens import encode_token
from streams.tokens import name as checked_name


class OutputView(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be delivered, for adapters.

    Nodes fill in every field. The defaults are for tests: `await deliver(OutputView(payload=…))`.
    """

    payload: object
    """As the strategy gave it: any JSON value, decoded. It is the adapter's to keep."""
    output_key: str = "output"
    """Its name in the stack; `vigil outputs show` finds it by this."""
    adapter: str = "adapter"
    """The name under which `App.outputs` has the adapter."""
    idempotency_key: str = "0" * 64
    """64 hex digits: the same for every attempt at this output, and never that of another one."""
    attempt: int = 1
    """1-based, over all attempts since it was proposed; a new one after a crash counts, too."""
    episode_id: str = "episode"
    actor_id: str = "actor"
    expectation_id: str = "expectation"
    stack: str = "vigil"


class DeliveryFailed(Exception):
    """Raised by an adapter to say, in its own words, that an output was not delivered."""

    def __init__(
        self,
        error_class: str,
        detail: str = "",
        *,
        permanent: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        """Say why.

        Args:
            error_class: a stable word or two, such as `rate_limited`.
            detail: for people.
            permanent: whether trying again is of no use: the output fails at once. Otherwise it is
                tried again, as often as its `Route` says.
            retry_after_s: what the receiver asks for: the next attempt is not made before, but for
                what is longer than an hour.
        """
        super().__init__(f"{error_class}: {detail}" if detail else error_class)
        self.error_class = error_class or "delivery_failed"
        self.detail = detail
        self.permanent = permanent
        self.retry_after_s = retry_after_s


class OutputAdapter:
    """Something that delivers outputs. Override `deliver`; the rest has sensible defaults."""

    async def open(self, ports: Ports) -> None:
        """Get ready, once, before the first delivery on a node.

        An exception fails that delivery for now, and the next one calls it again.
        """

    async def deliver(self, output: OutputView) -> str | None:
        """Deliver `output`, and return what the receiver calls it, if that is known.

        It may be called for several outputs at a time: `Route.max_concurrent` bounds that. It is
        canceled when it takes longer than `Route.timeout_s`.

        Raises:
            DeliveryFailed: it was not delivered, for now or for good. Any other exception counts
                as for now.
        """
        raise NotImplementedError

    async def close(self) -> None:
        """Let go of what `open` has got. Called once, when the node has stopped."""


DeliverFunction: TypeAlias = Callable[[OutputView], Awaitable[str | None]]
AdapterLike: TypeAlias = OutputAdapter | DeliverFunction
"""An `OutputAdapter`, or an async function that delivers."""


class _Function(OutputAdapter):
    """A plain function as an adapter."""

    def __init__(self, function: DeliverFunction) -> None:
        self._function = function

    async def deliver(self, output: OutputView) -> str | None:
        """Call the function."""
        return await self._function(output)


def as_adapter(candidate: object) -> OutputAdapter:
    """Return `candidate` as an adapter.

    Raises:
        TypeError: it is none of the things that can be one.
    """
    match candidate:
        case OutputAdapter():
            if problem := _problem_of(candidate):
                raise TypeError(f"{type(candidate).__name__}: {problem}")
            return candidate
        case _ if inspect.iscoroutinefunction(candidate):
            return _Function(candidate)
        case _:
            raise TypeError(
                f"{candidate!r} is no adapter; use an async function (output)"
                " or an instance of a subclass of OutputAdapter"
            )


def _problem_of(adapter: OutputAdapter) -> str | None:
    if type(adapter).deliver is OutputAdapter.deliver:
        return "it has no deliver; write `async def deliver(self, output)`"
    methods = {"open": adapter.open, "deliver": adapter.deliver, "close": adapter.close}
    plain = [name for name, method in methods.items() if not inspect.iscoroutinefunction(method)]
    return f"{plain[0]} must be `async def`" if plain else None


ERROR_CLASSES: Final[tuple[tuple[type[Exception], str], ...]] = (
    (TimeoutError, "delivery_timeout"),
    (PermissionError, "delivery_refused"),
    (ConnectionError, "receiver_unavailable"),
)
"""What an exception out of an adapter is called, where its kind says enough; else `crash`."""


def plan_hash(plan: msgspec.Raw) -> str:
    """Return what a decision names a plan by: the SHA-256 of its JSON, in hex.

    Args:
        plan: as `streams.json.raw` encodes it, keys sorted.
    """
    return hashlib.sha256(bytes(plan)).hexdigest()


KEY_CHARS_MAX: Final = 512
"""Longest `key` of an output, in characters: it becomes part of a hash."""

_KEY_BYTES: Final = 16


def propose_output(
    adapter: str,
    payload: object,
    *,
    dedupe_key: str | None = None,
    key: str | None = None,
    requires_approval: bool = False,
    summary: str = "",
    approvers: Iterable[str] | str | None = None,
    expires_s: float | None = None,
    on_expiry: ExpiryOfApproval = "deny",
    remind_every_s: float | None = None,
) -> OutputIntent:
    """Return the intent to deliver something to the outside, for `ConvergeResult(outputs=[…])`.

    Args:
        adapter: who delivers it: a name in `App(outputs=…)`.
        payload: any JSON value; what of it goes where is the adapter's matter.
        dedupe_key: whatever has the same, of any episode, is delivered once; unless it failed for
            good, was canceled, or nobody approved it in time, then it may be proposed anew. At most
            1,024 bytes with every byte outside `A-Z a-z 0-9 _ -` counted as three.
        key: tells outputs apart where there is no `dedupe_key`: the same adapter, the same key and
            the same cause are one output, whatever episode is opened for that cause. Up to 512
            characters. Without either, the output is one of its own.
        requires_approval: whether nothing is delivered before somebody approves it. The rest is
            about that, and means nothing without it.
        summary: what people are asked, in one sentence of up to 4,000 characters.
        approvers: names of those who may decide, 1 to 64; None: anybody.
        expires_s: how long it can be decided, in seconds, over 0 and up to ten years; None: for as
            long as it takes.
        on_expiry: what it means that nobody has decided by then: `deny`, it is rejected; `fail`, it
            has failed, as if it could not be delivered; `approve`, it is delivered.
        remind_every_s: seconds between two public reminders, at least one; None: none.

    Raises:
        InvalidOutput: a value is impossible; the message says which.
        Unencodable: JSON cannot say the payload, or it is over 256 KiB.
    """
    try:
        asked = approval(
            None,
            summary=summary,
            approvers=approvers,
            expires_s=expires_s,
            on_expiry=on_expiry,
            remind_every_s=remind_every_s,
        )
    except InvalidAction as error:
        raise InvalidOutput(str(error)) from error
    intent = OutputIntent(
        adapter=adapter,
        payload=validation.encode(payload, what="payload"),
        dedupe_key=_given("dedupe_key", dedupe_key),
        key=_given("key", key),
        requires_approval=requires_approval,
        summary=asked.summary,
        approvers=asked.approvers,
        expires_s=asked.expires_s,
        on_expiry=asked.on_expiry,
        remind_every_s=asked.remind_every_s,
    )
    return checked_intent(intent)


def output(
    adapter: str,
    payload: object,
    *,
    dedupe_key: str | None = None,
    key: str | None = None,
    requires_approval: bool = False,
    summary: str = "",
    approvers: Iterable[str] | str | None = None,
    expires_s: float | None = None,
    on_expiry: ExpiryOfApproval = "deny",
    remind_every_s: float | None = None,
) -> SendOutput:
    """Return the action that has something delivered now, instead of after convergence.

    One attempt is made at once. `handle_result` gets `{"output_key": …, "status": …}`, where the
    status is `delivered`, `duplicate`, `failed` (then with `error_class`), `rejected`, `dry_run`;
    or `proposed` or `awaiting_approval`, if it is to be delivered, or approved, later: then the
    episode ends no sooner than that is settled.

    Args:
        adapter: as in `propose_output`, like everything else.
        payload: what is delivered.
        dedupe_key: its identity in the stack.
        key: its identity for one cause.
        requires_approval: whether nothing is delivered before somebody approves it.
        summary: what people are asked.
        approvers: who may decide.
        expires_s: how long it can be decided.
        on_expiry: what it means that nobody has.
        remind_every_s: seconds between two public reminders.

    Raises:
        InvalidOutput, Unencodable: as `propose_output`.
    """
    intent = propose_output(
        adapter,
        payload,
        dedupe_key=dedupe_key,
        key=key,
        requires_approval=requires_approval,
        summary=summary,
        approvers=approvers,
        expires_s=expires_s,
        on_expiry=on_expiry,
        remind_every_s=remind_every_s,
    )
    return SendOutput(intent)


def checked_intent(intent: object) -> OutputIntent:
    """Return `intent` if an output can be made of it, however it was made.

    Raises:
        InvalidOutput: it cannot; the message says why.
    """
    if not isinstance(intent, OutputIntent):
        raise InvalidOutput(
            f"outputs must be made with propose_output(…), not a {type(intent).__name__}"
        )
    if problem := _problem_of_approval(intent):
        raise InvalidOutput(problem)
    try:
        # Whoever made it by hand may have put anything in; the log could not be read with that.
        msgspec.json.decode(msgspec.json.encode(intent), type=OutputIntent)
        checked_name(intent.adapter, of="adapter")
        if intent.dedupe_key:
            encode_token(intent.dedupe_key)
    except (BadName, TypeError, ValueError) as error:
        raise InvalidOutput(f"output: {error}") from error
    if problem := _problem_of_keys(intent):
        raise InvalidOutput(problem)
    return intent


def _problem_of_keys(intent: OutputIntent) -> str | None:
    if intent.dedupe_key and intent.key:
        return "key: there is a dedupe_key, which says it all; give one of them"
    if len(intent.key) > KEY_CHARS_MAX:
        return f"key: {len(intent.key):,} characters, the limit is {KEY_CHARS_MAX}"
    return None


def _problem_of_approval(intent: OutputIntent) -> str | None:
    asked = RequestApproval(
        plan=None,
        summary=intent.summary,
        approvers=intent.approvers,
        expires_s=intent.expires_s,
        on_expiry=intent.on_expiry,
        remind_every_s=intent.remind_every_s,
    )
    return problem_of(asked)


def _given(field: str, value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or not value:
        raise InvalidOutput(f"{field}: {value!r} is not text")
    return value


NO_ADAPTER: Final = "no_adapter"
"""Error class of an output whose adapter the app here does not have."""

ATTEMPTS_MAX: Final = 100
"""Most attempts that a route may make at one output."""

RETRY_S_MAX: Final = 86_400.0
"""Longest wait between two attempts that a route may ask for, in seconds: a day."""

TIMEOUT_S_MAX: Final = 600.0
"""Longest that one attempt may take, in seconds."""

CONCURRENT_MAX: Final = 1_000
"""Most deliveries of one route at a time on a node."""

RATE_MAX: Final = 10_000.0
"""Highest rate that a route may keep to, per second."""


@dataclass(frozen=True, kw_only=True)
class Retries:
    """How often, and when, a delivery that failed for now is tried again."""

    attempts_max: int = 20
    """Attempts, the first included; the last one that fails makes the output a dead letter. The
    defaults spread them over about an hour: nine waits that double, 511 s together, and ten of
    300 s are 3,511 s at most, and no less than half of that."""
    first_s: float = 1.0
    """Wait after the first attempt, in seconds; it doubles each time. A part of each wait, up to
    half, is left off, another one for each output, so that not all come again at once."""
    most_s: float = 300.0
    """Longest such wait, in seconds."""


@dataclass(frozen=True)
class Route:
    """An adapter, and how it is to be used."""

    adapter: AdapterLike
    retries: Retries = field(default=Retries(), kw_only=True)
    timeout_s: float = field(default=30.0, kw_only=True)
    """How long one attempt may take, in seconds. Past it nobody knows whether the outside has
    accepted the output: it is tried again, with the same idempotency key."""
    max_concurrent: int = field(default=8, kw_only=True)
    """Deliveries at a time, on each node."""
    rate_per_s: float | None = field(default=None, kw_only=True)
    """Deliveries that may begin in a second, on each node; None: as many as there are."""

    @property
    def outlet(self) -> OutputAdapter:
        """Return the adapter, which `checked_routes` has made one."""
        return as_adapter(self.adapter)


Outputs: TypeAlias = Mapping[str, AdapterLike | Route]
"""What `App(outputs=…)` takes: name → adapter, or a route to one."""


def checked_routes(outputs: object) -> Mapping[str, Route]:
    """Return what `App(outputs=…)` was given, every value as a route with an `OutputAdapter`.

    Raises:
        ValueError, TypeError: something cannot work; the message says what.
    """
    if not isinstance(outputs, Mapping):
        raise TypeError(f"{outputs!r} is not a dict of name to adapter")
    return {_name(name): _route(name, value) for name, value in outputs.items()}


def missing(adapter: str) -> str:
    """Return what people are told of an adapter that the app does not have."""
    return f"the app has no output {adapter!r}"


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"{name!r}: a name, please")
    try:
        return checked_name(name, of="output")
    except BadName as error:
        raise ValueError(str(error)) from error


def _route(name: str, value: object) -> Route:
    route = value if isinstance(value, Route) else None
    try:
        adapter = as_adapter(route.adapter if route else value)
    except TypeError as error:
        raise ValueError(f"{name!r}: {error}") from error
    checked = replace(route, adapter=adapter) if route else Route(adapter)
    if problem := problem_of_route(checked):
        raise ValueError(f"{name!r}: {problem}")
    return checked


def problem_of_route(route: Route) -> str | None:
    """Return why `route` cannot work, or None."""
    if not isinstance(route.retries, Retries):
        return f"retries: {route.retries!r} is not Retries(…)"
    return (
        _problem_of_retries(route.retries)
        or _within("timeout_s", route.timeout_s, most=TIMEOUT_S_MAX)
        or _count("max_concurrent", route.max_concurrent, most=CONCURRENT_MAX)
        or (
            None
            if route.rate_per_s is None
            else _within("rate_per_s", route.rate_per_s, most=RATE_MAX)
        )
    )


def _problem_of_retries(retries: Retries) -> str | None:
    problem = (
        _count("attempts_max", retries.attempts_max, most=ATTEMPTS_MAX)
        or _within("first_s", retries.first_s, most=RETRY_S_MAX)
        or _within("most_s", retries.most_s, most=RETRY_S_MAX)
    )
    if problem is None and retries.most_s < retries.first_s:
        return f"most_s={retries.most_s:g} is less than first_s={retries.first_s:g}"
    return problem


def _count(field_: str, value: object, *, most: int) -> str | None:
    if is_whole(value) and isinstance(value, int) and 1 <= value <= most:
        return None
    return f"{field_}: {value!r} is not a whole number from 1 to {most:,}"


def _within(field_: str, value: object, *, most: float) -> str | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and isinstance(value, int | float) and 0 < value <= most:
        return None
    return f"{field_}: {value!r} is not a number over 0 and up to {most:,g}"
