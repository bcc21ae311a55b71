"""Actors and what they expect. Checked when declared, so that a node starts or says why not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar, get_args

from engine.budget import COUNT_MAX, is_whole, problem_of_budget
from engine.errors import DeclarationError
from engine.recovery import ATTEMPTS_MAX, POLICIES, Policy
from engine.schema import StateSchema
from engine.strategy import Strategy, missing, state_type
from engine.tools import Synthesizer, Tool, ToolLike, as_tool
from engine.trigger import EventSource, problem_of
from streams.errors import BadName
from streams.events import Budget
from streams.subjects import name as checked_name

F = TypeVar("F")
"""Something to call."""

Durability = Literal["pipelined", "strict"]
"""`pipelined`: a recorded step is on its way to disk while the next one is decided, and is
there before any side effect. `strict`: it is on disk before the next one is decided."""

DEFAULT_BUDGET: Final = Budget()
DEFAULT_SCHEMA: Final = StateSchema()

CONCURRENT_EPISODES_MAX: Final = 10_000
"""Most episodes of one actor that one node may run at a time."""

LABEL_BYTES_MAX: Final = 512
"""Longest `domain`, `spec_rev` or `subject_key`, in bytes of UTF-8; every episode keeps them."""


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """Something an actor expects to be true, and how it finds out."""

    name: str
    strategy: Strategy[Any]
    state_type: type
    on: EventSource
    subject_key: str = ""
    budget: Budget = DEFAULT_BUDGET
    durability: Durability = "pipelined"
    loop_detection: bool = True
    recovery: Policy = "resume"
    attempts_max: int = ATTEMPTS_MAX
    state_schema: StateSchema = DEFAULT_SCHEMA
    synthesizer: Synthesizer | None = None


@dataclass(frozen=True, init=False)
class Actor:
    """A name, what it expects, and how much of it may run at a time."""

    id: str
    domain: str
    spec_rev: str
    max_concurrent_episodes: int
    tools: Mapping[str, Tool]
    synthesizer: Synthesizer | None
    expectations: dict[str, Expectation] = field(default_factory=dict)

    def __init__(
        self,
        id: str,  # noqa: A002
        *,
        domain: str = "default",
        spec_rev: str = "",
        max_concurrent_episodes: int = 5,
        tools: Mapping[str, ToolLike] | None = None,
        synthesizer: Synthesizer | None = None,
    ) -> None:
        """Declare an actor.

        Args:
            id: stable; stored with every episode. 1 to 64 of A-Z a-z 0-9 _ -
            domain: a label, for people.
            spec_rev: a version of your own, stored with every episode.
            max_concurrent_episodes: most of its episodes that one node runs at a time; the rest
                wait in order for any node with room.
            tools: capability → tool, before those of the app.
            synthesizer: for expectations that have none of their own.

        Raises:
            DeclarationError: a value cannot work; the message names it.
        """
        try:
            checked_name(id, of="actor id")
        except (BadName, TypeError) as error:
            raise DeclarationError(actor=str(id), field="id", problem=str(error)) from error
        check = _Check(id)
        values = {
            "id": id,
            "domain": check.label("domain", domain),
            "spec_rev": check.label("spec_rev", spec_rev),
            "max_concurrent_episodes": check.count(
                "max_concurrent_episodes", max_concurrent_episodes, most=CONCURRENT_EPISODES_MAX
            ),
            "tools": checked_tools(tools or {}, actor=id),
            "synthesizer": check.callback("synthesizer", synthesizer),
            "expectations": {},
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def expect(
        self,
        name: str,
        strategy: type[Strategy[Any]] | Strategy[Any],
        *,
        on: EventSource,
        subject_key: str = "",
        budget: Budget | None = None,
        durability: Durability = "pipelined",
        loop_detection: bool = True,
        recovery: Policy = "resume",
        attempts_max: int = ATTEMPTS_MAX,
        state_schema: StateSchema = DEFAULT_SCHEMA,
        synthesizer: Synthesizer | None = None,
    ) -> Expectation:
        """Declare an expectation and return it.

        Args:
            name: stable within the actor; stored with every episode.
            strategy: a `Strategy` subclass, or an instance; one instance serves all episodes.
            on: what fires it, such as `event("order.placed")`.
            subject_key: payload key whose value is what the episode is about.
            budget: default 12 turns, 25,000 tokens, 120 seconds.
            durability: `pipelined` or `strict`; see `Durability`.
            loop_detection: whether to end an episode that goes in circles.
            recovery: after a crash, `resume` where it stopped, `restart` from the beginning, or
                `fail`; see `engine.recovery.Policy`.
            attempts_max: crashes that end the episode as `attempts_exhausted`, with a dead letter.
            state_schema: version of the state's shape, with migrations from older ones.
            synthesizer: before the actor's and the app's.

        Raises:
            DeclarationError: a value cannot work; the message names actor, expectation and field.
        """
        check = _Check(self.id, name)
        check.name(name, taken=self.expectations)
        instance = check.strategy(strategy)
        expectation = Expectation(
            name=name,
            strategy=instance,
            state_type=check.state_type(instance),
            on=check.trigger(on),
            subject_key=check.label("subject_key", subject_key),
            budget=check.budget(DEFAULT_BUDGET if budget is None else budget),
            durability=check.durability(durability),
            loop_detection=check.switch("loop_detection", value=loop_detection),
            recovery=check.recovery(recovery),
            attempts_max=check.count("attempts_max", attempts_max, most=COUNT_MAX),
            state_schema=check.state_schema(state_schema),
            synthesizer=check.callback("synthesizer", synthesizer),
        )
        self.expectations[name] = expectation
        return expectation

    def event_names(self) -> frozenset[str]:
        """Return the names of every domain event that may fire one of its expectations."""
        return frozenset(name for one in self.expectations.values() for name in one.on.names)


def checked_tools(tools: Mapping[str, ToolLike], *, actor: str) -> Mapping[str, Tool]:
    """Return `tools` with every value as a `Tool`.

    Raises:
        DeclarationError: a value is no tool, or a capability has a dot in its name.
    """
    if not isinstance(tools, Mapping):
        raise DeclarationError(actor=actor, field="tools", problem=f"{tools!r} is not a dict")
    checked = {}
    for capability, candidate in tools.items():
        named: object = capability
        if not isinstance(named, str) or not named or "." in named:
            raise DeclarationError(
                actor=actor, field="tools", problem=f"{capability!r}: a name without dots, please"
            )
        try:
            checked[capability] = as_tool(candidate)
        except TypeError as error:
            raise DeclarationError(
                actor=actor, field="tools", problem=f"{capability!r}: {error}"
            ) from error
    return checked


def checked_callback(value: F | None, *, actor: str, field: str) -> F | None:
    """Return `value`, which is to be called one day.

    Raises:
        DeclarationError: it cannot be.
    """
    return _Check(actor).callback(field, value)


@dataclass(frozen=True)
class _Check:
    """Checks of declared values; each returns the value or says what is wrong with it."""

    actor: str
    expectation: str = ""

    def refuse(self, field_: str, problem: str, cause: Exception | None = None) -> DeclarationError:
        error = DeclarationError(
            actor=self.actor, expectation=self.expectation, field=field_, problem=problem
        )
        error.__cause__ = cause
        return error

    def name(self, name: str, *, taken: Mapping[str, object]) -> None:
        try:
            checked_name(name, of="expectation")
        except (BadName, TypeError) as error:
            raise self.refuse("name", str(error), error) from error
        if name in taken:
            raise self.refuse("name", "declared twice")

    def strategy(self, candidate: type[Strategy[Any]] | Strategy[Any]) -> Strategy[Any]:
        instance = self._instance(candidate) if isinstance(candidate, type) else candidate
        if not isinstance(instance, Strategy):
            raise self.refuse("strategy", f"{candidate!r} is not a Strategy; subclass it")
        if absent := missing(instance):
            raise self.refuse("strategy", f"{type(instance).__name__} lacks {', '.join(absent)}")
        return instance

    def _instance(self, candidate: Callable[[], Strategy[Any]]) -> Strategy[Any]:
        try:
            return candidate()
        except TypeError as error:
            problem = f"cannot be made without arguments ({error}); pass an instance"
            raise self.refuse("strategy", problem, error) from error

    def state_type(self, strategy: Strategy[Any]) -> type:
        try:
            return state_type(strategy)
        except TypeError as error:
            raise self.refuse("strategy", f"State: {error}", error) from error

    def trigger(self, on: EventSource) -> EventSource:
        try:
            problem = problem_of(on)
        except TypeError as error:
            raise self.refuse("on", f"{on!r}: {error}", error) from error
        if problem:
            raise self.refuse("on", problem)
        return on

    def budget(self, budget: Budget) -> Budget:
        if not isinstance(budget, Budget):
            raise self.refuse("budget", f"{budget!r} is not a Budget(turns=…, tokens=…, wall_s=…)")
        if problem := problem_of_budget(budget):
            raise self.refuse("budget", problem)
        return budget

    def durability(self, durability: Durability) -> Durability:
        if durability not in get_args(Durability):
            known = " or ".join(map(repr, get_args(Durability)))
            raise self.refuse("durability", f"{durability!r} is not {known}")
        return durability

    def recovery(self, policy: Policy) -> Policy:
        if policy not in POLICIES:
            raise self.refuse("recovery", f"{policy!r} is not one of {', '.join(POLICIES)}")
        return policy

    def count(self, field_: str, value: int, *, most: int) -> int:
        if not is_whole(value) or not 1 <= value <= most:
            raise self.refuse(field_, f"{value!r} is not a whole number from 1 to {most:,}")
        return value

    def label(self, field_: str, value: str) -> str:
        if not isinstance(value, str):
            raise self.refuse(field_, f"{value!r} is not text")
        try:
            size_bytes = len(value.encode())
        except UnicodeEncodeError as error:
            raise self.refuse(field_, f"{value!r} is not valid Unicode text", error) from error
        if size_bytes > LABEL_BYTES_MAX:
            raise self.refuse(field_, f"{size_bytes:,} bytes, the limit is {LABEL_BYTES_MAX}")
        return value

    def switch(self, field_: str, *, value: bool) -> bool:
        if not isinstance(value, bool):
            raise self.refuse(field_, f"{value!r} is not True or False")
        return value

    def callback(self, field_: str, value: F | None) -> F | None:
        if value is not None and not callable(value):
            raise self.refuse(field_, f"{value!r} is not a function")
        return value

    def state_schema(self, schema: StateSchema) -> StateSchema:
        if not isinstance(schema, StateSchema):
            raise self.refuse("state_schema", f"{schema!r} is not a StateSchema(version=…)")
        if not is_whole(schema.version):
            raise self.refuse("state_schema", f"version {schema.version!r} is not a whole number")
        if problem := schema.problem():
            raise self.refuse("state_schema", problem)
        return schema
