"""What a strategy is: the thinking part of an actor, one step at a time."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Final, Generic, TypeAlias, get_type_hints

import msgspec
from pydantic import BaseModel
from typing_extensions import TypeVar

from engine.actions import Action, Step
from engine.convergence import ConvergeResult
from engine.gathering import check_name
from engine.reading import OUT_OF_REACH, Findings
from engine.tools import Failure
from streams.events import StepKind
from streams.json import JsonObject
from streams.triggers import Budget, Mode, Trigger

S = TypeVar("S", default=Any)
"""A strategy's state."""


class EpisodeView(msgspec.Struct, frozen=True, kw_only=True):
    """The episode, as its strategy may see it."""

    episode_id: str
    actor_id: str
    expectation_id: str
    spec_rev: str
    budget: Budget
    stack: str
    mode: Mode = Mode.LIVE
    """Whether it is meant."""
    findings: Findings = OUT_OF_REACH
    """Those of the stack, by key, as they are now."""


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """Where the episode stands, as the journal knows it: the same in a replay."""

    episode_id: str
    actor_id: str
    expectation_id: str
    budget: Budget
    turn: int
    """1 for the first `next_step`."""
    tokens_used: int
    mode: Mode = Mode.LIVE
    """Whether the episode is meant."""
    findings: Findings = OUT_OF_REACH
    """In `converge`: those of the stack, by key, as they are now. In `next_step` it refuses."""


class StepTaken(msgspec.Struct, frozen=True, kw_only=True):
    """The step that `handle_result` gets the result of."""

    step_no: int
    """1-based."""
    kind: StepKind
    tool: str
    """`capability.action` of a tool call; else empty."""
    action: Step


class Retry(msgspec.Struct, frozen=True):
    """Go on with this state: `next_step` may well ask for the same again. The budget counts."""

    state: Any


class Abort(msgspec.Struct, frozen=True):
    """End the episode as failed."""

    error_class: str
    detail: str = ""


def retry(state: object) -> Retry:
    """Return, from `handle_result`, that the step is to be tried again with `state`."""
    return Retry(state)


def abort(error_class: str, detail: str = "") -> Abort:
    """Return, from `handle_result`, that the episode has failed."""
    return Abort(error_class, detail)


Handled: TypeAlias = S | Retry | Abort


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What an app must have for a strategy to work; it is checked when the app is declared."""

    gatherer: str = ""
    """Name of the gatherer that it asks; empty: none."""
    synthesizer: bool = False
    """Whether it is nothing without a synthesizer."""
    outputs: tuple[str, ...] = ()
    """Names of the outputs that it proposes, in order."""


class Strategy(Generic[S]):
    """Subclass this. Every callback may be plain or `async`.

    A plain one runs on the node's event loop, where everything else waits for it: if it blocks
    (`time.sleep`, a synchronous HTTP client), the node's leases may lapse, and other nodes take
    its episodes over. Whoever waits for something uses async code, or `asyncio.to_thread`.

    `next_step` and `handle_result` must be deterministic: after a crash they are called again
    with what the journal recorded, and must decide the same. `init`, `converge`, tools and
    synthesizers may read the outside. One instance serves all episodes: keep nothing on `self`.
    """

    State: ClassVar[type | None] = None
    """The state's type. Not needed where `init` declares what it returns, or for a dict."""

    needs: Needs = Needs()
    """What the app must have for it."""

    def init(self, episode: EpisodeView, trigger: Trigger) -> S | Awaitable[S]:
        """Return the state to begin with."""
        raise NotImplementedError

    def next_step(self, state: S, ctx: Context) -> Action | Awaitable[Action]:
        """Return what to do next."""
        raise NotImplementedError

    def handle_result(
        self,
        state: S,
        step: StepTaken,
        result: Any,  # noqa: ANN401 - a tool's shape is its own
    ) -> Handled[S] | Awaitable[Handled[S]]:
        """Return the state after `step`, or `retry(…)` or `abort(…)`.

        Args:
            state: as it was before the step.
            step: what was done.
            result: what it brought back, as JSON gives it, or a `Failure`.

        By default a failure ends the episode and a result is ignored.
        """
        del step
        if isinstance(result, Failure):
            return Abort(result.error_class, result.detail)
        return state

    def converge(self, state: S, ctx: Context) -> ConvergeResult | Awaitable[ConvergeResult]:
        """Return what is true now."""
        raise NotImplementedError


def state_type(strategy: Strategy[Any]) -> type:
    """Return the type that `strategy` keeps its state in.

    Raises:
        TypeError: neither `State` nor the annotation of `init` names a type that can be kept.
    """
    declared = strategy.State or _returned_by(strategy.init)
    if declared is None:
        return dict
    if not inspect.isclass(declared) or not _can_be_kept(declared):
        raise TypeError(
            f"{declared!r} cannot be kept; use a msgspec.Struct, a dataclass, a pydantic model"
            " or a dict"
        )
    return declared


def _returned_by(init: object) -> object:
    try:
        returned = get_type_hints(init).get("return")
    except NameError:  # An annotation that only a type checker can see.
        return None
    origin = getattr(returned, "__origin__", returned)
    return origin if inspect.isclass(origin) and _can_be_kept(origin) else None


def _can_be_kept(candidate: type) -> bool:
    keeps = (msgspec.Struct, BaseModel, dict)
    return issubclass(candidate, keeps) or hasattr(candidate, "__dataclass_fields__")


def missing(strategy: Strategy[Any]) -> list[str]:
    """Return the callbacks that `strategy` must override and does not."""
    return [
        name
        for name in ("init", "next_step", "converge")
        if getattr(type(strategy), name) is getattr(Strategy, name)
    ]


Template: TypeAlias = Callable[[JsonObject], Strategy[Any]]
"""Makes a strategy of a configuration. It raises a `ValueError` about one that cannot work."""

BUILT_IN_TEMPLATES: Final = frozenset(
    {"observe_classify_converge", "observe_synthesize_converge", "dispatch"}
)
"""Names of the templates that every app has; see `engine.templates`."""


def checked_templates(templates: object) -> Mapping[str, Template]:
    """Return what `App(templates=…)` was given.

    Raises:
        TypeError, ValueError: something is no template, or its name is taken; which, and why.
    """
    if not isinstance(templates, Mapping):
        raise TypeError(f"{templates!r} is not a dict of name to template")
    for name, template in templates.items():
        check_name(name, of="a template")
        if name in BUILT_IN_TEMPLATES:
            raise ValueError(f"{name!r}: every app has a template of that name")
        if not callable(template):
            raise TypeError(f"{name!r}: {template!r} is no function of a configuration")
    return templates
