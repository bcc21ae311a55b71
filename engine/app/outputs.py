"""Outputs as users declare them: adapters, routes, and the intents of strategies.

    App(outputs={
        "pager": Webhook(url="https://pager.example/alerts"),
        "mail": Route(Email(…), retries=Retries(attempts_max=3), max_concurrent=2, rate_per_s=5),
    })

Delivery is at least once: if a node dies after the receiver accepted an output and before the
journal has that, the output is delivered again with the same `idempotency_key`.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo

import msgspec

from engine import validation
from engine.app.actions import (
    ExpiryOfApproval,
    RequestApproval,
    Retries,
    SendOutput,
    approval,
    problem_of,
    problem_of_retries,
)
from engine.app.dedupe import FIRST_WINDOW, WINDOWS, Window
from engine.app.triggers import is_zone
from engine.errors import InvalidAction, InvalidOutput
from engine.validation import problem_of_count, problem_of_number
from streams.errors import BadName
from streams.model.outputs import OutputIntent
from streams.ports.all import Ports
from streams.tokens import encode_token
from streams.tokens import name as checked_name

ERROR_CLASSES: Final[tuple[tuple[type[Exception], str], ...]] = (
    (TimeoutError, "delivery_timeout"),
    (PermissionError, "delivery_refused"),
    (ConnectionError, "receiver_unavailable"),
)
"""Exception of an adapter → error class; any other is a `crash`."""


KEY_CHARS_MAX: Final = 512
"""Longest `key` of an output, in characters: it becomes part of a hash."""

_KEY_BYTES: Final = 16


NO_ADAPTER: Final = "no_adapter"
"""Error class of an output whose adapter this app lacks."""

TIMEOUT_S_MAX: Final = 600.0
"""Longest that one attempt may take, in seconds."""

CONCURRENT_MAX: Final = 1_000
"""Most deliveries of one route at a time on a node."""

RATE_MAX: Final = 10_000.0
"""Highest rate that a route may keep to, per second."""


class OutputView(msgspec.Struct, frozen=True, kw_only=True):
    """An output as adapters get it.

    Nodes fill in every field. The defaults are for tests: `await deliver(OutputView(payload=…))`.
    """

    payload: object
    """As the strategy gave it: any JSON value, decoded. The adapter may change it."""
    output_key: str = "output"
    """Its key in the stack; `vigil outputs show` takes it."""
    adapter: str = "adapter"
    """The adapter's name in `App.outputs`."""
    idempotency_key: str = "0" * 64
    """64 hex digits: the same for every attempt at this output, and different for every other
    output.
    """
    attempt: int = 1
    """1-based, over all attempts since it was proposed, repeats after a crash included."""
    episode_id: str = "episode"
    actor_id: str = "actor"
    expectation_id: str = "expectation"
    stack: str = "vigil"


class DeliveryFailed(Exception):
    """Raised by an adapter to report, with an error class, that an output was not delivered."""

    def __init__(
        self,
        error_class: str,
        detail: str = "",
        *,
        permanent: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        """Report the failure, for people in `detail`.

        `error_class` is a stable name, such as `rate_limited`. A `permanent` failure is not
        retried, whatever the `Route` allows. No attempt is made for `retry_after_s`, up to an hour.
        """
        super().__init__(f"{error_class}: {detail}" if detail else error_class)
        self.error_class = error_class or "delivery_failed"
        self.detail = detail
        self.permanent = permanent
        self.retry_after_s = retry_after_s


class OutputAdapter:
    """Something that delivers outputs. Override `deliver`; the rest has sensible defaults."""

    async def open(self, ports: Ports) -> None:
        """Prepare, once, before the first delivery on a node.

        If it raises, that delivery fails for now and the next one calls it again.
        """

    async def deliver(self, output: OutputView) -> str | None:
        """Deliver `output` and return the receiver's reference for it, if there is one.

        It may run for several outputs at once, up to `Route.max_concurrent`, and is canceled after
        `Route.timeout_s`. Raise `DeliveryFailed` if it was not delivered; any other exception
        counts as a failure for now.
        """
        raise NotImplementedError

    async def close(self) -> None:
        """Release what `open` acquired. Called once, when the node has stopped."""


DeliverFunction: TypeAlias = Callable[[OutputView], Awaitable[str | None]]

AdapterLike: TypeAlias = OutputAdapter | DeliverFunction
"""An `OutputAdapter`, or an async function that delivers."""


class _Function(OutputAdapter):
    def __init__(self, function: DeliverFunction) -> None:
        self._function = function

    async def deliver(self, output: OutputView) -> str | None:
        return await self._function(output)


def as_adapter(candidate: object) -> OutputAdapter:
    """Return `candidate` as an adapter; raise `TypeError` if it cannot be one."""
    match candidate:
        case OutputAdapter():
            if problem := _problem_of(candidate):  # guard: undeliverable-adapter-refused
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


def plan_hash(plan: msgspec.Raw) -> str:
    """Return the SHA-256, in hex, of a plan encoded by `streams.json.raw`, which sorts the keys."""
    return hashlib.sha256(bytes(plan)).hexdigest()


def bucket(at: datetime, window: Window, *, tz: str = "UTC") -> str:
    """Return the window that has `at`, by its start in the time zone `tz`: a part of a key.

        output("mail", body, dedupe_key=f"digest:{bucket(ctx.now(), 'h24', tz='Europe/Berlin')}")

    Windows of hours begin at midnight, and a week on Monday. `h24`, `h48` and `w1` return a date,
    `h4` a date with an hour, and shorter ones have the offset, too: an hour that comes twice when
    the clocks change is two. The same arguments give the same text for ever, so take `at` from
    what a replay has again: `ctx.now()`, the trigger, or the result of a tool.

    Raises `ValueError` for a time without a zone, and for a window or a zone that there is not.
    """
    if window not in tuple(WINDOWS):
        raise ValueError(f"window {window!r} is not one of {', '.join(WINDOWS)}")
    if at.tzinfo is None:
        raise ValueError(f"{at!r} has no time zone")
    if not is_zone(tz):
        raise ValueError(f"tz {tz!r} is no time zone; write one as Europe/Berlin")
    there = at.astimezone(ZoneInfo(tz))
    length = WINDOWS[window]
    wall = there.replace(tzinfo=None)
    start = wall - (wall - FIRST_WINDOW.replace(tzinfo=None)) % length
    if length >= WINDOWS["h24"]:
        return f"{start:%Y-%m-%d}"
    if length > WINDOWS["h1"]:
        return f"{start:%Y-%m-%dT%H}"
    return start.replace(tzinfo=there.tzinfo, fold=there.fold).isoformat(timespec="minutes")


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
    quorum: int = 1,
    requester_may_approve: bool = True,
) -> OutputIntent:
    """Return the intent to deliver something to the outside, for `ConvergeResult(outputs=[…])`.

    Args:
        adapter: a name in `App(outputs=…)`.
        payload: any JSON value; the adapter decides what it means.
        dedupe_key: outputs of any episodes with the same one are delivered once, unless the first
            failed for good, was canceled, or was not approved in time. At most 1,024 bytes with
            every byte outside `A-Z a-z 0-9 _ -` counted as three.
        key: identifies the output where there is no `dedupe_key`: same adapter, key and cause are
            one output. Up to 512 characters. Without either, every proposal is an output of its
            own.
        requires_approval: whether somebody must approve it before it is delivered. The arguments
            below count only then, and are those of `approval`.
        summary: the question to people.
        approvers: names of those who may decide, and `group:` with the name of a group.
        expires_s: time limit in seconds.
        on_expiry: if nobody decides in time: `deny` rejects it, `fail` fails it as undeliverable,
            `approve` delivers it.
        remind_every_s: seconds between two public reminders.
        quorum: how many different people have to approve it.
        requester_may_approve: whether who has asked for the episode may decide, too.

    Raises `InvalidOutput` if a value is impossible, and `Unencodable` if the payload is no JSON, or
    over 256 KiB.
    """
    try:
        asked = approval(
            None,
            summary=summary,
            approvers=approvers,
            expires_s=expires_s,
            on_expiry=on_expiry,
            remind_every_s=remind_every_s,
            quorum=quorum,
            requester_may_approve=requester_may_approve,
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
        quorum=quorum,
        requester_may_approve=requester_may_approve,
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
    quorum: int = 1,
    requester_may_approve: bool = True,
) -> SendOutput:
    """Return the action that delivers an output now, instead of after convergence.

    The arguments and errors are those of `propose_output`. One attempt is made at once.
    `handle_result` gets `{"output_key": …, "status": …}` with the status `delivered`, `duplicate`,
    `failed` (then with `error_class`), `rejected` or `dry_run`; or `proposed` or
    `awaiting_approval` if it is delivered or approved later: then the episode ends only after that.
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
        quorum=quorum,
        requester_may_approve=requester_may_approve,
    )
    return SendOutput(intent)


def checked_intent(intent: object) -> OutputIntent:
    """Return `intent` if it can become an output; else raise `InvalidOutput`."""
    if not isinstance(intent, OutputIntent):
        raise InvalidOutput(
            f"outputs must be made with propose_output(…), not a {type(intent).__name__}"
        )
    if problem := _problem_of_approval(intent):
        raise InvalidOutput(problem)
    try:
        # An intent made by hand may contain anything; the log could not be read with that.
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
    if intent.dedupe_key and intent.key:  # guard: dedupe-key-alone
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
        quorum=intent.quorum,
    )
    return problem_of(asked)


def _given(field: str, value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or not value:
        raise InvalidOutput(f"{field}: {value!r} is not text")
    return value


@dataclass(frozen=True)
class Route:
    """An adapter, with its limits and retries."""

    adapter: AdapterLike
    retries: Retries = field(default=Retries(), kw_only=True)
    timeout_s: float = field(default=30.0, kw_only=True)
    """Longest that one attempt may take, in seconds. After that it counts as failed and is repeated
    with the same idempotency key, since the receiver may have accepted it.
    """
    max_concurrent: int = field(default=8, kw_only=True)
    """Deliveries at a time, on each node."""
    rate_per_s: float | None = field(default=None, kw_only=True)
    """Deliveries that may begin in a second, on each node; None: no limit."""

    @property
    def output_adapter(self) -> OutputAdapter:
        """Return the adapter, which `checked_routes` has converted."""
        return as_adapter(self.adapter)


Outputs: TypeAlias = Mapping[str, AdapterLike | Route]
"""What `App(outputs=…)` takes: name → adapter, or a route to one."""


def checked_routes(outputs: object) -> Mapping[str, Route]:
    """Return the routes of `App(outputs=…)`; `ValueError` or `TypeError`: one cannot work."""
    if not isinstance(outputs, Mapping):
        raise TypeError(f"{outputs!r} is not a dict of name to adapter")
    return {_name(name): _route(name, value) for name, value in outputs.items()}


def missing(adapter: str) -> str:
    """Return the error detail for an adapter that the app lacks."""
    return f"the app has no output {adapter!r}; write one of its own, or add it to App(outputs=…)"


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
        problem_of_retries(route.retries)
        or problem_of_number("timeout_s", route.timeout_s, most=TIMEOUT_S_MAX)
        or problem_of_count("max_concurrent", route.max_concurrent, most=CONCURRENT_MAX)
        or (
            None
            if route.rate_per_s is None
            else problem_of_number("rate_per_s", route.rate_per_s, most=RATE_MAX)
        )
    )
