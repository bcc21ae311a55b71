"""How a strategy reaches the outside: tools, synthesizers and gatherers; and their overrides.

A gatherer is an async function in `App(gatherers={"metrics": …})` that gives a template its facts.
Its result is recorded as a step, so after a crash the same facts are used. Overrides replace the
outside in dry runs. An expectation declares them, or a fire by hand gives them as JSON;
`engine.episodes.dry_run` decides which apply:

    overrides(tools={"mail.send": {"id": 7}}, synthesis="all is well", persist_findings=True)
    overrides(tools={"prices.read": Failure("tool_unavailable", "the server is down")})
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import blake2b
from http import HTTPStatus
from typing import Final, Literal, Protocol, TypeAlias, get_args

import msgspec

from engine import validation
from engine.app.actions import (
    NAME_CHARS_MAX,
    RETRY_AFTER_S_MAX,
    Retries,
    ToolCall,
    problem_of_declared,
    tool_call,
)
from engine.app.context import OUT_OF_REACH, Findings
from engine.errors import CRASH, Unencodable
from engine.validation import backoff_s, jittered_s
from streams.clock import Clock
from streams.errors import BadName
from streams.json import NOTHING, UNDECODABLE, JsonObject
from streams.model.money import NO_USD
from streams.model.triggers import OverrideFailure, Overrides
from streams.tokens import name as checked_name

SYNTHESIS_TOKENS_MAX: Final = 2**31 - 1
"""Most tokens that one synthesis may report: more is a mistake."""


ERROR_CLASSES: Final[tuple[tuple[type[Exception], str], ...]] = (
    (TimeoutError, "tool_timeout"),
    (PermissionError, "tool_auth_failed"),
    (ConnectionError, "tool_unavailable"),
    (FileNotFoundError, "tool_not_found"),
)
"""Exception of a tool → error class; any other is a `crash`."""

_CLASSES: Final[Mapping[int, str]] = {
    HTTPStatus.UNAUTHORIZED: "tool_auth_failed",
    HTTPStatus.FORBIDDEN: "tool_auth_failed",
    HTTPStatus.NOT_FOUND: "tool_not_found",
    HTTPStatus.GONE: "tool_not_found",
    HTTPStatus.REQUEST_TIMEOUT: "tool_unavailable",
    HTTPStatus.TOO_EARLY: "tool_unavailable",
    HTTPStatus.TOO_MANY_REQUESTS: "tool_rate_limited",
}
"""Status → error class; from 500 on `tool_unavailable`, any other `http_<status>`."""

TROUBLE: Final = frozenset({"tool_timeout", "tool_unavailable", CRASH})
"""Error classes that a breaker counts: with others, the tool has answered."""

RATE_LIMITED: Final = "tool_rate_limited"
"""Error class of a call whose turn would come too late."""

BREAKER_OPEN: Final = "tool_breaker_open"
"""Error class of a call that is not made because earlier ones have failed."""

RETRIED: Final = TROUBLE | {RATE_LIMITED, BREAKER_OPEN}  # guard: breaker-and-rate-awaited
"""Error classes of calls and syntheses that are repeated: with others, there was an answer."""

RESULT_BYTES_MAX: Final = 16 * 1024 * 1024
"""Largest result of a tool, as JSON; from 256 KiB on it is in the object store. A node has it about
four times while it encodes, redacts and stores it, and runs many episodes."""

TOO_LARGE: Final = "result_too_large"
"""Error class of a call whose result is larger, or larger than the tool allows."""

GATHER: Final = "gather"
"""The capability of gatherers; the action is the gatherer's name."""


OVERRIDES_BYTES_MAX: Final = 192 * 1024
"""Largest overrides of one place, in bytes of JSON. Those of a fire and those of its expectation
are stored with the payload (512 KiB) in one commit, of 1 MiB by the server's default.
"""

SYNTHESIS: Final = "synthesis"
"""What overrides call every synthesis, where they call tools `capability.action`."""

FAILURE_CHARS_MAX: Final = 4_000
"""Longest detail of a failure in overrides, in characters."""

PREFIX: Final = "dry_run"
"""Default prefix of the findings that a dry run stores."""

FIELDS: Final = tuple(field.name for field in msgspec.structs.fields(Overrides))
"""The fields of overrides."""


ENGINE: Final = "vigil"
"""The capability of the engine's own tools; no app may register it."""

OF_THE_ENGINE: Final = frozenset({ENGINE, GATHER})
"""Every actor may call these, by the actions that the engine makes for it."""

PUBLISH: Final = "publish"
"""The action that publishes."""

_MARK_BYTES: Final = 16
"""Length of the hash of an event's subject: long enough that two never collide."""


def class_of_status(status: int) -> str:
    """Return the error class of an answer over HTTP."""
    is_down = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return _CLASSES.get(status, "tool_unavailable" if is_down else f"http_{status}")


class CallContext(msgspec.Struct, frozen=True, kw_only=True):
    """The calling episode and step, for tools and synthesizers."""

    actor_id: str
    expectation_id: str
    episode_id: str
    step_no: int
    """1-based; the same in a replay."""
    idempotency_key: str
    """Give it to systems that honour one: the same for every attempt at this step, and for an equal
    action on an equal turn if the episode restarts; different for any other action. It is
    `<episode_id>:<turn>:<first 16 hex digits of the action's fingerprint>`.
    """
    findings: Findings = OUT_OF_REACH
    """The stack's findings by key, as they are now."""
    hops: int = 0
    """How many engine-made events lie between the trigger and the outside world."""


class ToolFailed(Exception):
    """Raised by a tool to report a failure, which `handle_result` gets as a `Failure`.

    `retry_after_s`: how long its server asks to be left alone, in seconds. If the call is repeated,
    the pause is as long at least, up to an hour; alone it repeats nothing.
    """

    def __init__(
        self, error_class: str, detail: str = "", *, retry_after_s: float | None = None
    ) -> None:
        super().__init__(f"{error_class}: {detail}" if detail else error_class)
        self.error_class = error_class or "tool_failed"
        self.detail = detail
        self.retry_after_s = retry_after_s


class Failure(msgspec.Struct, frozen=True):
    """What `handle_result` gets instead of a result when a step failed."""

    error_class: str
    detail: str = ""


CacheScope: TypeAlias = Literal["node", "stack"]
"""Who shares the result of a call; see `Tool.cache_scope`."""


class ToolBreaker(msgspec.Struct, frozen=True, kw_only=True):
    """When calls of a tool are not made because earlier ones have failed; on each node."""

    threshold: int = 5
    """Failures, one after the other, that open it: `tool_timeout`, `tool_unavailable` and `crash`.
    With any other error class the tool has answered."""
    half_open_after_s: float = 30.0
    """How long it stays open before one call is made, in seconds. That one decides."""


class ToolConnection(Protocol):
    """What calls of the tools of one server go over, on one node."""

    async def call(self, tool: Tool, args: JsonObject, ctx: CallContext) -> object:
        """Return the result of a call of `tool`, any JSON value; or raise `ToolFailed`."""

    async def close(self) -> None:
        """Release what the calls have opened. Called once, when the node has stopped."""


class ToolServer(Protocol):
    """What several tools share, and a node keeps between their calls: a connection, a process."""

    def connection(self, clock: Clock) -> ToolConnection:
        """Return that of one node. It opens at its first call."""


Risk: TypeAlias = Literal["read", "change", "destroy"]
"""What a call may do outside; only `read` is no side effect."""

RISKS: Final[tuple[Risk, ...]] = get_args(Risk)
"""All risks, the least first."""


@dataclass(frozen=True, kw_only=True)
class OfferedTool:
    """A tool of a server as a model gets to know it, for `toolset` and `plan_of`."""

    capability: str
    action: str
    """An app has it as `<capability>.<action>`; a model calls it `<capability>_<action>`."""
    description: str
    risk: Risk
    schema: JsonObject = field(compare=False, repr=False)
    """The JSON schema of its arguments."""
    problem_of: Callable[[JsonObject], str] = field(compare=False, repr=False)
    """Returns in one line why arguments do not fit; empty: they do."""
    hidden: frozenset[str] = frozenset()
    """Keys whose values nobody sees, in arguments and results."""


class Tool:
    """Something strategies can call. Override `call`; the rest has sensible defaults."""

    side_effect: bool = False
    """Whether a call changes the outside: then the journal announces it before it happens."""

    idempotent: bool = False
    """Whether calls with one `idempotency_key` have one effect. After a crash in the middle of such
    a call it is repeated; without this the episode fails as `outcome_unknown`.
    """

    timeout_s: float | None = None
    """Longest that a call may take, in seconds; then it fails as `tool_timeout`. None: as long as
    the episode may."""

    cache_ttl_s: float = 0.0
    """How long the result of a call stands for calls with the same arguments, in seconds; 0: each
    call is made. Not for side effects."""

    cache_scope: CacheScope = "node"
    """Who shares such results: the episodes of one actor on one `node`, or in the whole `stack`."""

    rate_per_s: float | None = None
    """Calls that may begin in a second, on each node; None: no limit."""

    breaker: ToolBreaker | None = None
    """When calls fail at once because earlier ones have, on each node; None: never."""

    retries: Retries | None = None
    """How often a failed call is repeated, and after which pauses; None: never. A side effect must
    be `idempotent` for it."""

    server: ToolServer | None = None
    """What a node makes its calls over, in place of `call`; None: `call`."""

    async def call(self, action: str, args: JsonObject, ctx: CallContext) -> object:
        """Do `action` and return its result, any JSON value, or raise `ToolFailed`."""
        raise NotImplementedError

    def redact(self, args: JsonObject) -> object:
        """Return `args` with secrets removed."""
        return args

    def redact_result(self, result: object) -> object:
        """Return `result` with secrets removed."""
        return result

    def secrets(self) -> Iterable[str]:
        """Return what it knows itself and nobody may see in results and errors."""
        return ()

    @property
    def known_actions(self) -> frozenset[str] | None:
        """Return the actions that it has; None: it may have any."""
        return None

    @property
    def hides(self) -> bool:
        """Whether it may remove secrets from arguments or results."""
        own = type(self)
        return own.redact is not Tool.redact or own.redact_result is not Tool.redact_result


ToolFunction: TypeAlias = Callable[[JsonObject, CallContext], Awaitable[object]]

ToolLike: TypeAlias = Tool | ToolFunction | Mapping[str, ToolFunction]
"""A `Tool`; an async function for every action; or a mapping of action → function."""


class _Functions(Tool):
    def __init__(
        self, functions: Mapping[str, ToolFunction], fallback: ToolFunction | None = None
    ) -> None:
        self._functions = functions
        self._fallback = fallback

    @property
    def known_actions(self) -> frozenset[str] | None:
        return None if self._fallback else frozenset(self._functions)

    async def call(self, action: str, args: JsonObject, ctx: CallContext) -> object:
        function = self._functions.get(action, self._fallback)
        if function is None:
            raise ToolFailed("no_such_action", f"{action!r}; known: {sorted(self._functions)}")
        return await function(args, ctx)


def as_tool(candidate: object) -> Tool:
    """Return `candidate` as a tool; raise `TypeError` if it cannot be one."""
    match candidate:
        case Tool():
            if problem := _problem_of_retries(candidate):
                raise TypeError(problem)
            return candidate
        case Mapping() if all(inspect.iscoroutinefunction(value) for value in candidate.values()):
            return _Functions(dict(candidate))
        case _ if inspect.iscoroutinefunction(candidate):
            return _Functions({}, candidate)
        case _:
            raise TypeError(
                f"{candidate!r} is no tool; use an async function (args, ctx),"
                " a mapping of action to such functions, or a subclass of Tool"
            )


def _problem_of_retries(tool: Tool) -> str | None:
    if tool.retries is None:
        return None
    if problem := problem_of_declared(tool.retries):  # guard: tool-with-impossible-retries
        return problem
    if tool.side_effect and not tool.idempotent:  # guard: retried-tool-is-idempotent
        return "retries: a side effect is repeated only with idempotent = True"
    return None


def retry_s(
    retries: Retries | None, error_class: str, *, attempt: int, key: str, after_s: float = 0.0
) -> float:
    """Return the pause after the failed `attempt`, from 1, in seconds; 0: it was the last one.

    `key` fixes the jitter. The server that failed asks for a pause of `after_s` at least.
    """
    # guard: retry-attempts-max
    if retries is None or attempt >= retries.attempts_max or error_class not in RETRIED:
        return 0.0
    # guard: pauses-grow
    pause_s = backoff_s(attempt, first_s=retries.first_s, most_s=retries.most_s)
    pause_s = jittered_s(pause_s, seed=f"{key}.{attempt}")  # guard: jitter-of-call
    return max(pause_s, min(after_s, RETRY_AFTER_S_MAX))  # guard: servers-pause-kept


class Synthesis(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a synthesizer."""

    content: object
    """Any JSON value; `handle_result` gets this."""
    input_tokens: int = 0
    output_tokens: int = 0
    model: str = ""
    model_id: str = ""
    """The whole name, such as `openai:gpt-5`, by which `App(prices=…)` may know the model."""
    cached_tokens: int = 0
    """Of the input, those that the provider had from earlier requests."""
    reasoning_tokens: int = 0
    """Of the output, those that the model has thought with."""
    cost_usd: Decimal | None = None
    """What it has cost; None: nobody knows. A price of the app goes before it."""
    others_may_cost: bool = False
    """Whether other requests for it were lost, which may cost something: then nobody knows what it
    has cost in all, whatever the price of this model."""

    def __post_init__(self) -> None:
        """Refuse values that would make the journal unreadable."""
        counts = (self.input_tokens, self.output_tokens)
        parts = (self.cached_tokens, self.reasoning_tokens)
        is_whole = all(isinstance(count, int) for count in (*counts, *parts))
        if not is_whole or not isinstance(self.model, str):
            raise TypeError("Synthesis: tokens must be whole numbers and the model text")
        cost: object = self.cost_usd
        # guard: impossible-cost
        if cost is not None and not (isinstance(cost, Decimal) and cost.is_finite() and cost >= 0):
            raise ValueError(f"Synthesis: cost_usd: {cost!r} is no Decimal from 0 on")
        # guard: impossible-tokens
        if min(*counts, *parts) < 0 or sum(counts) > SYNTHESIS_TOKENS_MAX:
            raise ValueError(
                f"Synthesis: {counts[0]} and {counts[1]} tokens; none may be negative, and together"
                f" they are at most {SYNTHESIS_TOKENS_MAX:,}"
            )


NOTHING_SPENT: Final = Synthesis(content=None, cost_usd=NO_USD)
"""What a request has cost that the provider has refused, or that was not made."""


class SynthesisFailed(ToolFailed):
    """Raised by a synthesizer whose answer nobody can use: what it has cost counts.

    `retry_after_s`: see `ToolFailed`.
    """

    def __init__(
        self,
        error_class: str,
        detail: str = "",
        *,
        spent: Synthesis,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(error_class, detail, retry_after_s=retry_after_s)
        self.spent = spent
        """Its tokens and its model; the content is dropped."""


class Synthesizer(Protocol):
    """Answers a prompt, usually with a language model. A plain async function is one.

    An object may have `retries`, too: `Retries` that say how often it is asked again, and after
    which pauses, while it is down, busy or too slow. And it may have `estimate_tokens(prompt,
    content)`, which says how many tokens an answer has cost that is no `Synthesis`.
    """

    async def __call__(
        self, prompt: object, transient: JsonObject, ctx: CallContext
    ) -> Synthesis | object:
        """Return a `Synthesis`, or its content if tokens are not counted; or raise `ToolFailed`."""


class Gatherer(Protocol):
    """Looks facts up. It may be called again after a crash, so it must change nothing."""

    async def __call__(self, payload: JsonObject, options: JsonObject) -> object:
        """Return the facts, any JSON value of up to 256 KiB.

        `payload` is the trigger's, `options` come from the template's configuration. Raise
        `ToolFailed` if it failed; the error class becomes the step's and the episode's.
        """


class Gathering(Tool):
    """The gatherers of an app as a tool."""

    def __init__(self, gatherers: Mapping[str, Gatherer]) -> None:
        """Call one of `gatherers`, by name."""
        self._gatherers = gatherers

    async def call(self, action: str, args: JsonObject, ctx: CallContext) -> object:
        """Call the gatherer of that name."""
        del ctx
        gatherer = self._gatherers.get(action)
        if gatherer is None:
            raise ToolFailed("no_such_action", f"{action!r}; gatherers: {sorted(self._gatherers)}")
        return await gatherer(args.get("_payload", {}), args.get("options", {}))


def gather(gatherer: str, *, payload: JsonObject, options: JsonObject) -> ToolCall:
    """Return the action that asks `gatherer`. The payload is transient: the journal has it."""
    return tool_call(GATHER, gatherer, {"_payload": payload, "options": options})


def retries_of(synthesizer: Synthesizer | None) -> Retries | None:
    """Return the retries that `synthesizer` has itself, or None."""
    found: Retries | None = getattr(synthesizer, "retries", None)
    return found


def checked_gatherers(gatherers: object) -> Mapping[str, Gatherer]:
    """Return the gatherers of `App(gatherers=…)`; `TypeError` or `ValueError`: one is none."""
    if not isinstance(gatherers, Mapping):
        raise TypeError(f"{gatherers!r} is not a dict of name to gatherer")
    for name, gatherer in gatherers.items():
        check_name(name, of="a gatherer")
        if not inspect.iscoroutinefunction(gatherer):
            problem = "is no gatherer; use an async function (payload, options)"
            raise TypeError(f"{name!r}: {gatherer!r} {problem}")
    return dict(gatherers)


def check_name(name: object, *, of: str) -> None:
    """Raise `ValueError` unless `name` is 1 to 64 of A-Z a-z 0-9 _ -; the error calls it `of`."""
    if not isinstance(name, str):
        raise ValueError(f"{name!r} is no name of {of}")  # noqa: TRY004 - as for its value
    try:
        checked_name(name, of=of)
    except BadName as error:
        problem = f"{name!r} is no name of {of}; use 1 to 64 of A-Z a-z 0-9 _ -"
        raise ValueError(problem) from error


def overrides(
    *,
    tools: Mapping[str, object] | None = None,
    synthesis: object = None,
    persist_findings: bool | str = False,
) -> Overrides:
    """Return the overrides that a dry run uses in place of the outside.

    Args:
        tools: `capability.action` → the result, any JSON value, that replaces the call; or a
            `Failure` or `ToolFailed`, with which the call fails.
        synthesis: any JSON value but `null` that replaces every synthesis, or with which it fails;
            None: nothing does.
        persist_findings: whether its findings are stored, under keys and an actor of their own:
            False: no; True: with the prefix `dry_run:`; or another prefix, 1 to 64 of
            `A-Z a-z 0-9 _ -`.

    Raises `ValueError` if a value is impossible; the message names the field.
    """
    try:
        return _made(tools or {}, synthesis, persist_findings)
    except ValueError as error:
        raise ValueError(f"overrides(): {error}") from error


def parse_overrides(text: str | bytes) -> Overrides:
    """Return the overrides in `text`, JSON with some of `FIELDS`; `ValueError` has one line."""
    try:
        said = msgspec.json.decode(text)
    except UNDECODABLE as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(said, dict):
        raise ValueError(f"not a JSON object of {', '.join(FIELDS)}")  # noqa: TRY004 - it is data
    if strays := sorted(said.keys() - set(FIELDS)):
        raise ValueError(f"no field {strays[0]!r}; there are {', '.join(FIELDS)}")
    # guard: override-stands-for-something
    if said.get("synthesis") is None and "synthesis" in said:
        raise ValueError("synthesis: null stands for none; leave it out")
    return overrides_of(said)


def overrides_of(said: Mapping[str, object]) -> Overrides:
    """Return the overrides that plain data says, by the names of `FIELDS`; or raise `ValueError`.

    There, failures have a field of their own: `{"failures": {"prices.read": {"error_class": …}}}`.
    """
    made = _made(said.get("tools", {}), said.get("synthesis"), said.get("persist_findings", False))
    try:
        failures = msgspec.convert(said.get("failures", {}), dict[str, _Failing])
    except msgspec.ValidationError as error:
        raise ValueError(f"failures: {error}") from error
    failing = {name: OverrideFailure(**msgspec.structs.asdict(f)) for name, f in failures.items()}
    return _checked(msgspec.structs.replace(made, failures=failing))


def problem_of_overrides(given: object) -> str | None:
    """Return why a dry run cannot use `given`, for people, or None."""
    if not isinstance(given, Overrides) or not isinstance(given.tools, dict):
        return f"{given!r}: not made by overrides(tools={{'mail.send': …}})"
    for tool_name in given.tools:
        if problem := _problem_of_tool_name(tool_name):
            return f"tools: {problem}"
    if problem := _problem_of_failures(given):
        return f"failures: {problem}"
    values = {**given.tools, "synthesis": given.synthesis}
    if strays := [name for name, value in values.items() if not _is_json(value)]:
        return f"{strays[0]}: not JSON; use overrides(…), which takes any value"
    if (size_bytes := size_of(given)) > OVERRIDES_BYTES_MAX:
        return f"{size_bytes:,} bytes, the limit is {OVERRIDES_BYTES_MAX:,}"
    return _problem_of_prefix(given.persist_findings) if given.persist_findings else None


def size_of(given: Overrides) -> int:
    """Return the size of the overrides' values, in bytes of JSON."""
    results = sum(len(bytes(value)) for value in (*given.tools.values(), given.synthesis))
    return results + sum(len(msgspec.json.encode(each)) for each in given.failures.values())


def named_tools(given: Overrides) -> Iterator[str]:
    """Return the tools, as `capability.action`, that overrides are for."""
    yield from given.tools
    yield from (name for name in given.failures if name != SYNTHESIS)


class _Failing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A failure as JSON says it."""

    error_class: str
    detail: str = ""


def parse_step_overrides(text: str | bytes) -> dict[str, Overrides]:
    """Return the overrides in `text`, JSON of step → overrides; `ValueError` has one line."""
    try:
        said = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except UNDECODABLE as error:
        raise ValueError(f"not a JSON object of step to overrides: {error}") from error
    made = {}
    for step, each in said.items():
        try:
            made[step] = parse_overrides(bytes(each))
        except ValueError as error:
            raise ValueError(f"{step}: {error}") from error
    return made


def _made(tools: object, synthesis: object, persist_findings: object) -> Overrides:
    if not isinstance(tools, Mapping):
        raise ValueError(f"tools: {tools!r} is not a dict of 'capability.action' to results")  # noqa: TRY004 - as for its values
    try:
        # guard: failure-is-no-result
        failing = {name: said for name, given in tools.items() if (said := _failing(given))}
        if failed := _failing(synthesis):
            failing, synthesis = {**failing, SYNTHESIS: failed}, None
        results = {
            tool: validation.encode(given, what=f"tools: {tool}")
            for tool, given in tools.items()
            if tool not in failing
        }
        made = Overrides(
            tools=results,
            failures=failing,
            synthesis=validation.encode(synthesis, what="synthesis"),
            persist_findings=_prefix(persist_findings),
        )
    except Unencodable as error:
        raise ValueError(str(error)) from error
    return _checked(made)


def _checked(made: Overrides) -> Overrides:
    if problem := problem_of_overrides(made):
        raise ValueError(problem)
    return made


def _failing(given: object) -> OverrideFailure | None:
    if isinstance(given, Failure | ToolFailed):
        return OverrideFailure(error_class=given.error_class, detail=given.detail)
    return None


def _prefix(persist_findings: object) -> str:
    if isinstance(persist_findings, bool):
        return PREFIX if persist_findings else ""
    if problem := _problem_of_prefix(persist_findings):
        raise ValueError(problem)
    return str(persist_findings)


def _problem_of_prefix(prefix: object) -> str | None:
    if not isinstance(prefix, str):
        return f"persist_findings: {prefix!r} is not True, False or a name"
    try:
        checked_name(prefix, of="persist_findings")
    except BadName as error:
        return str(error)
    return None


def _problem_of_failures(given: Overrides) -> str | None:
    for name, failure in given.failures.items():
        problem = None if name == SYNTHESIS else _problem_of_tool_name(name)
        if problem:
            return problem
        if name in given.tools or (name == SYNTHESIS and given.synthesis != NOTHING):
            return f"{name!r} has a result, too; give it one of the two"
        if not 1 <= len(failure.error_class) <= NAME_CHARS_MAX:
            return f"{name}: error_class: 1 to {NAME_CHARS_MAX} characters"
        if len(failure.detail) > FAILURE_CHARS_MAX:
            return f"{name}: detail: at most {FAILURE_CHARS_MAX:,} characters"
    return None


def _problem_of_tool_name(tool_name: object) -> str | None:
    text = tool_name if isinstance(tool_name, str) else ""
    capability, _, action = text.partition(".")
    if not capability or not action:
        return f"{tool_name!r} is not a capability and an action, such as 'mail.send'"
    if max(len(capability), len(action)) > NAME_CHARS_MAX:
        return f"{text[:40]!r}…: the limit is {NAME_CHARS_MAX} characters on each side"
    return None


def _is_json(value: object) -> bool:
    if not isinstance(value, msgspec.Raw):
        return False
    try:
        msgspec.json.decode(value)
    except UNDECODABLE:
        return False
    return True


class Announcement(msgspec.Struct, frozen=True):
    """One domain event that is to be published."""

    id: str
    payload: JsonObject


def publish(name: str, events: Sequence[Announcement], *, attempt: int = 1) -> ToolCall:
    """Return the action that publishes `events`, each with the dotted event name `name`.

    Repeating it is safe: an event with the same id is the same event, to the stream for two minutes
    and to actors for ever. `attempt` tells an intended repetition from a loop.
    """
    told = [{"id": event.id, "payload": event.payload} for event in events]
    return tool_call(ENGINE, PUBLISH, {"name": name, "events": told, "attempt": attempt})


def event_id(episode_id: str, about: str) -> str:
    """Return the id of an event that an episode publishes; the same in every replay."""
    mark = blake2b(about.encode(errors="surrogatepass"), digest_size=_MARK_BYTES).hexdigest()
    return f"{episode_id}.about.{mark}"  # guard: entity-event-one-id
