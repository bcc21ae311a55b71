"""Actors and what they expect. Checked when declared, so that a node starts or says why not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from engine.budget import COUNT_MAX
from engine.declaring import Check, checked_tools
from engine.dedupe import ByEvent, Dedupe
from engine.errors import DeclarationError
from engine.recovery import ATTEMPTS_MAX, POLICIES, Policy
from engine.schema import StateSchema
from engine.strategy import Strategy
from engine.tools import Synthesizer, Tool, ToolLike
from engine.trigger import On, Sources
from streams.errors import BadName
from streams.events import Budget
from streams.tokens import name as checked_name

Durability = Literal["pipelined", "strict"]
"""`pipelined`: a recorded step is on its way to disk while the next one is decided, and is
there before any side effect. `strict`: it is on disk before the next one is decided."""

DEFAULT_BUDGET: Final = Budget()
DEFAULT_SCHEMA: Final = StateSchema()
DEFAULT_DEDUPE: Final[Dedupe] = ByEvent()

CONCURRENT_EPISODES_MAX: Final = 10_000
"""Most episodes of one actor that one node may run at a time."""


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """Something an actor expects to be true, and how it finds out."""

    name: str
    strategy: Strategy[Any]
    state_type: type
    on: Sources
    subject_key: str = ""
    sample: float = 1.0
    dedupe: Dedupe = DEFAULT_DEDUPE
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
        id: str,
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
        check = Check(id)
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
        on: On,
        subject_key: str = "",
        sample: float = 1.0,
        dedupe: Dedupe = DEFAULT_DEDUPE,
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
            on: what fires it, such as `event("order.placed")`, or a list of such: the first one
                that fits fires, once per event.
            subject_key: path into the payload whose value is what the episode is about.
            sample: share of the events that fire it which open an episode, over 0 and up to 1;
                every node chooses the same ones. Default all.
            dedupe: which events are the same cause and open one episode: `by_event()`, the
                default; `by_payload(…)`, `by_value(…)`; or a function of the event that returns
                a text of 1 to 512 characters, always the same one for the same event. If it
                fails, the event becomes a dead letter.
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
        check = Check(self.id, name)
        check.name(name, taken=self.expectations)
        instance = check.strategy(strategy)
        expectation = Expectation(
            name=name,
            strategy=instance,
            state_type=check.state_type(instance),
            on=check.sources(on),
            subject_key=check.label("subject_key", subject_key),
            sample=check.share("sample", sample),
            dedupe=check.dedupe(dedupe),
            budget=check.budget(DEFAULT_BUDGET if budget is None else budget),
            durability=check.choice("durability", durability, get_args(Durability)),
            loop_detection=check.switch("loop_detection", value=loop_detection),
            recovery=check.choice("recovery", recovery, POLICIES),
            attempts_max=check.count("attempts_max", attempts_max, most=COUNT_MAX),
            state_schema=check.state_schema(state_schema),
            synthesizer=check.callback("synthesizer", synthesizer),
        )
        self.expectations[name] = expectation
        return expectation

    def event_names(self) -> frozenset[str]:
        """Return the names of every domain event that may fire one of its expectations."""
        return frozenset(
            name
            for expectation in self.expectations.values()
            for source in expectation.on
            for name in source.names
        )
