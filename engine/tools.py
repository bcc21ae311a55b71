"""Tools and synthesizers: how a strategy reaches the outside."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol, TypeAlias

import msgspec

from engine.reading import OUT_OF_REACH, Findings
from streams.events import EpisodeOpened
from streams.json import JsonObject


class CallContext(msgspec.Struct, frozen=True, kw_only=True):
    """Who is calling, for tools and synthesizers."""

    actor_id: str
    expectation_id: str
    episode_id: str
    step_no: int
    """1-based; the same in a replay."""
    idempotency_key: str
    """Give it to systems that honour one: the same for every attempt at this step, and for an equal
    action on an equal turn if the episode begins anew; for any other action, another one. It is
    `<episode_id>:<turn>:<first 16 hex digits of the action's fingerprint>`."""
    findings: Findings = OUT_OF_REACH
    """Those of the stack, by key, as they are now."""
    hops: int = 0
    """How many engine-made events lie between what fired the episode and the outside world."""


class ToolFailed(Exception):
    """Raised by a tool to say, in its own words, that the call failed.

    The strategy's `handle_result` gets it as a `Failure`.
    """

    def __init__(self, error_class: str, detail: str = "") -> None:
        super().__init__(f"{error_class}: {detail}" if detail else error_class)
        self.error_class = error_class or "tool_failed"
        self.detail = detail


class Failure(msgspec.Struct, frozen=True):
    """What `handle_result` gets instead of a result when a step failed."""

    error_class: str
    detail: str


class Tool:
    """Something strategies can call. Override `call`; the rest has sensible defaults."""

    side_effect: bool = False
    """Whether a call changes the outside: then it is announced on the journal before it happens."""

    idempotent: bool = False
    """Whether calls with one `idempotency_key` have one effect. After a crash in the middle of
    such a call it is made again; without this the episode fails as `outcome_unknown`."""

    async def call(self, action: str, args: JsonObject, ctx: CallContext) -> object:
        """Do `action` and return its result, any JSON value.

        Raises:
            ToolFailed: the call failed; the strategy decides what to do.
        """
        raise NotImplementedError

    def redact(self, args: JsonObject) -> object:
        """Return `args` as people may see them."""
        return args

    def redact_result(self, result: object) -> object:
        """Return `result` as people may see it."""
        return result


class EngineTool(Tool):
    """A tool that the engine supplies, and that is shown the episode that calls it."""

    async def serve(self, opened: EpisodeOpened, action: str, args: JsonObject) -> object:
        """Do `action` for the episode that `opened` opened, and return its result.

        Raises:
            ToolFailed: as `Tool.call`.
        """
        raise NotImplementedError


ToolFunction: TypeAlias = Callable[[JsonObject, CallContext], Awaitable[object]]
ToolLike: TypeAlias = Tool | ToolFunction | Mapping[str, ToolFunction]
"""A `Tool`; an async function that serves every action; or a mapping of action → function."""


class _Functions(Tool):
    """Plain functions as a tool."""

    def __init__(
        self, functions: Mapping[str, ToolFunction], fallback: ToolFunction | None = None
    ) -> None:
        self._functions = functions
        self._fallback = fallback

    async def call(self, action: str, args: JsonObject, ctx: CallContext) -> object:
        """Call the function of that action."""
        function = self._functions.get(action, self._fallback)
        if function is None:
            raise ToolFailed("no_such_action", f"{action!r}; known: {sorted(self._functions)}")
        return await function(args, ctx)


def as_tool(candidate: object) -> Tool:
    """Return `candidate` as a tool.

    Raises:
        TypeError: it is none of the things that can be a tool.
    """
    match candidate:
        case Tool():
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


SYNTHESIS_TOKENS_MAX: Final = 2**31 - 1
"""Most tokens that one synthesis may say it used: beyond is a mistake."""


class Synthesis(msgspec.Struct, frozen=True, kw_only=True):
    """What a synthesizer came back with."""

    content: object
    """Any JSON value; `handle_result` gets this."""
    input_tokens: int = 0
    output_tokens: int = 0
    model: str = ""

    def __post_init__(self) -> None:
        """Refuse what the journal could not be read with, where it is made."""
        counts = (self.input_tokens, self.output_tokens)
        if not all(isinstance(count, int) for count in counts) or not isinstance(self.model, str):
            raise TypeError("Synthesis: tokens must be whole numbers and the model text")
        if min(counts) < 0 or sum(counts) > SYNTHESIS_TOKENS_MAX:
            raise ValueError(
                f"Synthesis: {counts[0]} and {counts[1]} tokens; none may be negative, and together"
                f" they are at most {SYNTHESIS_TOKENS_MAX:,}"
            )


class Synthesizer(Protocol):
    """Makes sense of a prompt, usually with a language model. A plain async function is one."""

    async def __call__(
        self, prompt: object, transient: JsonObject, ctx: CallContext
    ) -> Synthesis | object:
        """Return a `Synthesis`, or just its content when no tokens are counted.

        Raises:
            ToolFailed: it failed; the strategy decides what to do.
        """


ERROR_CLASSES: Final[tuple[tuple[type[Exception], str], ...]] = (
    (TimeoutError, "tool_timeout"),
    (PermissionError, "tool_auth_failed"),
    (ConnectionError, "tool_unavailable"),
    (FileNotFoundError, "tool_not_found"),
)
"""What an exception out of a tool is called, where its kind says enough; else it is a `crash`."""
