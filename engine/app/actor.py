"""`Actor` and `Expectation`: declared by users, and checked when declared. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, get_args

from engine.app.checks import COUNT_MAX, Breaker, Check, checked_tools
from engine.app.context import StateSchema
from engine.app.dedupe import ByEvent, Dedupe
from engine.app.findings import TTL_S_MAX, Enrich, Escalations
from engine.app.strategy import Strategy
from engine.app.tools import Synthesizer, Tool, ToolLike
from engine.app.triggers import EventSource, On, Schedule, Sources, schedules_of
from engine.errors import DeclarationError
from streams.errors import BadName
from streams.model.foreign_streams import ForeignStream
from streams.model.triggers import Budget, Overrides
from streams.tokens import name as checked_name

ATTEMPTS_MAX: Final = 3
"""Crashes that end an episode, by default."""

Policy: TypeAlias = Literal["resume", "restart", "fail"]
"""What becomes of an episode whose node crashed. `resume`: fold what is recorded and go on.
`restart`: begin anew, as another attempt at the same episode. `fail`: end as `orphaned`."""

POLICIES: Final[tuple[str, ...]] = get_args(Policy)

Durability = Literal["pipelined", "strict"]
"""`pipelined`: a recorded step is on its way to disk while the next one is decided, and is
there before any side effect. `strict`: it is on disk before the next one is decided."""

DEFAULT_BUDGET: Final = Budget()
DEFAULT_SCHEMA: Final = StateSchema()
DEFAULT_DEDUPE: Final[Dedupe] = ByEvent()

WAIT_S_MAX: Final = 31 * 86_400
"""Longest wait for calm, cooldown or time to begin in, in seconds: 31 days."""

KEY_EPISODES_MAX: Final = 1_000
"""Most episodes with one concurrency key that may run at a time."""

PRIORITY_MAX: Final = 1_000
"""Highest priority; the lowest is as far below 0."""


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """Something an actor expects to be true, and how it finds out. See `Actor.expect`."""

    name: str
    strategy: Strategy[Any]
    state_type: type
    on: Sources
    subject_key: str = ""
    cooldown_s: int = 0
    debounce_s: float = 0.0
    max_wait_s: float = 0.0
    breaker: Breaker | None = None
    sample: float = 1.0
    concurrency_key: str = ""
    concurrency: int = 1
    priority: int = 0
    start_within_s: float = 0.0
    dedupe: Dedupe = DEFAULT_DEDUPE
    dry_run: Overrides | None = None
    budget: Budget = DEFAULT_BUDGET
    durability: Durability = "pipelined"
    loop_detection: bool = True
    recovery: Policy = "resume"
    attempts_max: int = ATTEMPTS_MAX
    state_schema: StateSchema = DEFAULT_SCHEMA
    synthesizer: Synthesizer | None = None
    finding_ttl_s: float = 0.0
    escalation: Escalations = field(default_factory=dict)
    enrich: Enrich | None = None

    @property
    def is_gated(self) -> bool:
        """Whether more than the event itself decides if it fires: what the cluster remembers."""
        return bool(self.cooldown_s or self.debounce_s or self.breaker)

    @property
    def waits_its_turn(self) -> bool:
        """Whether its episodes have an order that holds in the whole cluster."""
        return bool(self.concurrency_key or self.priority)

    @property
    def event_names(self) -> frozenset[str]:
        """The domain events of the stack that may fire it."""
        sources = (source for source in self.on if isinstance(source, EventSource))
        return frozenset(name for source in sources for name in source.names)

    @property
    def foreign_streams(self) -> tuple[ForeignStream, ...]:
        """The streams that are not the stack's whose events may fire it."""
        sources = (source for source in self.on if isinstance(source, EventSource))
        return tuple(source.foreign for source in sources if source.foreign is not None)

    @property
    def hears(self) -> bool:
        """Whether any event may fire it."""
        return any(isinstance(source, EventSource) for source in self.on)

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        """What fires it by time."""
        return schedules_of(self.on)


def unasked(expectation: Expectation) -> tuple[str, str] | None:
    """Return an option that nothing which fires `expectation` is ever asked, and what is; or None.

    Whatever is fired by hand is asked none of these.
    """
    if expectation.hears:
        return None
    of_events = {
        "cooldown_s": expectation.cooldown_s,
        "debounce_s": expectation.debounce_s,
        "dedupe": expectation.dedupe != DEFAULT_DEDUPE,
    }
    of_ticks = {"breaker": expectation.breaker, "sample": expectation.sample != 1}
    if option := next((name for name, is_set in of_events.items() if is_set), ""):
        return option, "events"
    if expectation.schedules:
        return None
    option = next((name for name, is_set in of_ticks.items() if is_set), "")
    return (option, "events and ticks") if option else None


CONCURRENT_EPISODES_MAX: Final = 10_000
"""Most episodes of one actor that one node may run at a time."""

CLUSTER_EPISODES_MAX: Final = 1_000
"""Most episodes of one actor that all nodes together run at a time, where turns are taken, however
many the nodes have room for: the tickets of all of them fit in one commit."""

REVISION_MAX: Final = 1_000_000_000
"""Highest revision of a definition: one a second for thirty years."""

STACKS_MAX: Final = 100
"""Most stacks that an actor names."""

QUEUE_MAX: Final = 1_000
"""Most episodes of one actor that wait for their turn at a time, unless it says less: what is
beyond stays in the stream of events. All of them fit in one commit."""

Overflow = Literal["queue", "drop", "shed_oldest"]
"""What becomes of an episode that has no room: it waits; it is not opened; or it waits in the
place of the one that has waited longest, which is canceled."""


@dataclass(frozen=True, init=False)
class Actor:
    """A name, what it expects, and how much of it may run at a time."""

    id: str
    domain: str
    spec_rev: str
    revision: int
    """Of the definition that it was made of; 0: it is declared in code."""
    max_concurrent_episodes: int
    max_concurrent_cluster: int | None
    overflow: Overflow
    queue_max: int
    stacks: tuple[str, ...]
    """Those that it runs on; none named: every one."""
    tools: Mapping[str, Tool]
    synthesizer: Synthesizer | None
    expectations: dict[str, Expectation] = field(default_factory=dict)

    def __init__(
        self,
        id: str,
        *,
        domain: str = "default",
        spec_rev: str = "",
        revision: int = 0,
        max_concurrent_episodes: int = 5,
        max_concurrent_cluster: int | None = None,
        overflow: Overflow = "queue",
        queue_max: int = QUEUE_MAX,
        stacks: Sequence[str] | None = None,
        tools: Mapping[str, ToolLike] | None = None,
        synthesizer: Synthesizer | None = None,
    ) -> None:
        """Declare an actor.

        Args:
            id: stable; stored with every episode. 1 to 64 of A-Z a-z 0-9 _ -
            domain: a label, for people.
            spec_rev: a version of your own, stored with every episode.
            revision: of the definition that it is made of, for who makes actors of those; leave it
                out otherwise.
            max_concurrent_episodes: most of its episodes that one node runs at a time; the rest
                wait in order for any node with room.
            max_concurrent_cluster: most of them that all nodes together run at a time; None: as
                many as the nodes have room for.
            overflow: what becomes of an episode that finds no room; see `Overflow`.
            queue_max: how many wait for their turn at a time, at most `QUEUE_MAX`. An app refuses
                it where nothing does: see `is_laned`.
            stacks: the stacks that it runs on, each by its whole name: `orders` is not `orders-qa`.
                Nodes of others do not have it. Default: every stack.
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
            "revision": check.whole("revision", revision, least=0, most=REVISION_MAX),
            "max_concurrent_episodes": check.count(
                "max_concurrent_episodes", max_concurrent_episodes, most=CONCURRENT_EPISODES_MAX
            ),
            "max_concurrent_cluster": None
            if max_concurrent_cluster is None
            else check.count(
                "max_concurrent_cluster", max_concurrent_cluster, most=CLUSTER_EPISODES_MAX
            ),
            "overflow": check.choice("overflow", overflow, get_args(Overflow)),
            "queue_max": check.count("queue_max", queue_max, most=QUEUE_MAX),
            "stacks": check.stacks("stacks", stacks, most=STACKS_MAX),
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
        cooldown_s: int = 0,
        debounce_s: float = 0.0,
        max_wait_s: float = 0.0,
        breaker: Breaker | None = None,
        sample: float = 1.0,
        concurrency_key: str = "",
        concurrency: int = 1,
        priority: int = 0,
        start_within_s: float = 0.0,
        dedupe: Dedupe = DEFAULT_DEDUPE,
        dry_run: Overrides | None = None,
        budget: Budget | None = None,
        durability: Durability = "pipelined",
        loop_detection: bool = True,
        recovery: Policy = "resume",
        attempts_max: int = ATTEMPTS_MAX,
        state_schema: StateSchema = DEFAULT_SCHEMA,
        synthesizer: Synthesizer | None = None,
        finding_ttl_s: float = 0.0,
        escalation: Escalations | None = None,
        enrich: Enrich | None = None,
    ) -> Expectation:
        """Declare an expectation and return it.

        Args:
            name: stable within the actor; stored with every episode.
            strategy: a `Strategy` subclass, or an instance; one instance serves all episodes.
            on: what fires it, such as `event("order.placed")`, `every("15m")` or `manual()`, or
                a list of such: the first one that fits fires, once per event.
            subject_key: path into the payload whose value is what the episode is about.
            cooldown_s: whole seconds after it has fired in which no other event fires it for the
                same subject. Default none.
            debounce_s: how long a subject must be calm: the newest event fires it once none has
                come for so many seconds. Default: at once.
            max_wait_s: fires it then even if a subject is never calm, counted from the first
                event. Default: it waits for as long as it takes.
            breaker: stops firing it after so many failures in a row. Default none.
            sample: share of the events that fire it which open an episode, over 0 and up to 1;
                every node chooses the same ones. Default all.
            concurrency_key: path into the payload: of the episodes with the same value there, only
                `concurrency` run at a time in the whole cluster; the others wait in order.
            concurrency: how many. Default 1.
            priority: whose turn comes first where episodes of the actor wait: the highest's, from
                -1,000 to 1,000. Default 0.
            start_within_s: an episode that has not begun after so many seconds is canceled as
                `expired`. Default: it waits for as long as it takes.
            dedupe: which events are the same cause and open one episode: `by_event()`, the
                default; `by_payload(…)`, `by_value(…)`; or a function of the event that returns
                a text of 1 to 512 characters, always the same one for the same event. If it
                fails, the event becomes a dead letter.
            dry_run: what stands for tools and synthesis in its dry runs, see `overrides(…)`.
            budget: default 12 turns, 25,000 tokens, 120 seconds.
            durability: `pipelined` or `strict`; see `Durability`.
            loop_detection: whether to end an episode that goes in circles.
            recovery: after a crash, `resume` where it stopped, `restart` from the beginning, or
                `fail`; see `engine.recovery.Policy`.
            attempts_max: crashes that end the episode as `attempts_exhausted`, with a dead letter.
            state_schema: version of the state's shape, with migrations from older ones.
            synthesizer: before the actor's and the app's.
            finding_ttl_s: its findings expire so many seconds after they were last raised or
                updated, unless they say otherwise. Default: they wait to be cleared.
            escalation: class of findings → `[escalate(after="30m", to="critical"), …]`: what they
                become when they are active for so long. Default: nothing.
            enrich: called with each finding that it has raised, and the episode; may return
                `enriched(…)`. If it fails, or takes longer than 10 s, the finding stays as it is.

        Raises:
            DeclarationError: a value cannot work, or has a say in nothing that fires the
                expectation; the message names actor, expectation and field.
        """
        check = Check(self.id, name)
        check.name(name, taken=self.expectations)
        instance = check.strategy(strategy)
        expectation = Expectation(
            name=name,
            strategy=instance,
            state_type=check.state_type(instance),
            on=check.sources(on),
            subject_key=check.path("subject_key", subject_key),
            cooldown_s=check.whole_seconds("cooldown_s", cooldown_s, most=WAIT_S_MAX),
            debounce_s=check.seconds("debounce_s", debounce_s, most=WAIT_S_MAX),
            max_wait_s=check.max_wait(max_wait_s, debounce_s=debounce_s, most=WAIT_S_MAX),
            breaker=check.breaker(breaker),
            sample=check.share("sample", sample),
            concurrency_key=check.path("concurrency_key", concurrency_key),
            concurrency=check.concurrency(concurrency, key=concurrency_key, most=KEY_EPISODES_MAX),
            priority=check.whole("priority", priority, least=-PRIORITY_MAX, most=PRIORITY_MAX),
            start_within_s=check.seconds("start_within_s", start_within_s, most=WAIT_S_MAX),
            dedupe=check.dedupe(dedupe),
            dry_run=check.overrides(dry_run),
            budget=check.budget(DEFAULT_BUDGET if budget is None else budget),
            durability=check.choice("durability", durability, get_args(Durability)),
            loop_detection=check.switch("loop_detection", value=loop_detection),
            recovery=check.choice("recovery", recovery, POLICIES),
            attempts_max=check.count("attempts_max", attempts_max, most=COUNT_MAX),
            state_schema=check.state_schema(state_schema),
            synthesizer=check.callback("synthesizer", synthesizer),
            finding_ttl_s=check.seconds("finding_ttl_s", finding_ttl_s, most=TTL_S_MAX),
            escalation=check.escalation(escalation),
            enrich=check.callback("enrich", enrich),
        )
        if unheard := unasked(expectation):
            option, causes = unheard
            raise check.refuse(option, f"is for {causes}, and none fires it; leave it out")
        self.expectations[name] = expectation
        return expectation

    def runs_on(self, stack: str) -> bool:
        """Return whether nodes of the stack called `stack`, its `env` included, have it."""
        return not self.stacks or stack in self.stacks

    @property
    def is_laned(self) -> bool:
        """Whether its episodes take turns, in an order and within limits that hold everywhere."""
        waits = any(each.waits_its_turn for each in self.expectations.values())
        return self.max_concurrent_cluster is not None or self.overflow != "queue" or waits

    def event_names(self) -> frozenset[str]:
        """Return the names of every domain event that may fire one of its expectations."""
        return frozenset().union(*(each.event_names for each in self.expectations.values()))

    def foreign_streams(self) -> tuple[ForeignStream, ...]:
        """Return the streams that are not the stack's whose events may fire it, each once.

        Of two expectations that begin in different places, the one declared first says where.
        """
        every = (foreign for each in self.expectations.values() for foreign in each.foreign_streams)
        found: dict[tuple[str, str], ForeignStream] = {}
        for foreign in every:
            found.setdefault((foreign.stream, foreign.subject), foreign)
        return tuple(found.values())
