"""`Actor` and `Expectation`: declared by users, and checked when declared. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial, wraps
from inspect import Signature, isfunction, signature
from typing import (
    Annotated,
    Any,
    Concatenate,
    Final,
    Literal,
    ParamSpec,
    TypeAlias,
    TypeVar,
    get_args,
    get_type_hints,
)

from engine.app.checks import (
    COUNT_MAX,
    Breaker,
    Check,
    problem_of_actors_retention,
    problem_of_adapting,
    problem_of_adaptive_budget,
    problem_of_breaker,
    problem_of_budget,
    problem_of_schema,
    problem_of_service_level,
    problem_of_spending,
)
from engine.app.context import OnExhausted, StateSchema
from engine.app.dedupe import ByEvent, Dedupe, problem_of_dedupe
from engine.app.findings import TTL_S_MAX, Escalations
from engine.app.function_tool import Tools, checked_tools
from engine.app.strategy import Enrich, Function, Strategy, StrategyFunction, code_of
from engine.app.tools import OF_THE_ENGINE, Synthesizer, Tool, problem_of_overrides
from engine.app.triggers import EventSource, On, Schedule, Sources, schedules_of
from engine.errors import BadRequest, DeclarationError
from engine.validation import check_name, near
from streams.model.foreign_streams import ForeignStream
from streams.model.money import Spending
from streams.model.retention import Retention
from streams.model.service_levels import ServiceLevel
from streams.model.triggers import AdaptiveBudget, Budget, Overlap, Overrides

ATTEMPTS_MAX: Final = 3
"""Crashes that end an episode, by default."""

Policy: TypeAlias = Literal["resume", "restart", "fail"]
"""What becomes of an episode whose node crashed; see `ExpectationOptions.recovery`."""

POLICIES: Final[tuple[str, ...]] = get_args(Policy)

Durability = Literal["pipelined", "strict"]
"""When a step must be on disk; see `ExpectationOptions.durability`."""

Logging = Literal["none", "summary_only", "timeline", "full_debug"]
"""What people may see; see `ExpectationOptions.log_strategy`."""

Publishing = Literal["all", "without_starts"]
"""Which public events an actor's episodes publish; see `Actor`."""

Replay = Literal["lenient", "strict"]
"""Whether records stand for calls with other values; see `ExpectationOptions.replay`."""

PARK_S: Final = 7 * 86_400.0
"""How long an episode is parked by default, in seconds: a deploy that is made before a holiday is
seen after it.
"""

DEFAULT_BUDGET: Final = Budget()

DEFAULT_SCHEMA: Final = StateSchema()

DEFAULT_DEDUPE: Final[Dedupe] = ByEvent()

WAIT_S_MAX: Final = 31 * 86_400
"""Longest wait for calm, cooldown or time to begin in, in seconds: 31 days."""

KEY_EPISODES_MAX: Final = 1_000
"""Most episodes with one concurrency key that may run at a time."""

PRIORITY_MAX: Final = 1_000
"""Highest priority; the lowest is as far below 0."""


CONCURRENT_EPISODES_MAX: Final = 10_000
"""Most episodes of one actor that one node may run at a time."""

CLUSTER_EPISODES_MAX: Final = 1_000
"""Most episodes of one actor that all nodes together run at a time, where turns are taken, however
many the nodes have room for: the tickets of all of them fit in one commit."""

REVISION_MAX: Final = 1_000_000_000
"""Highest revision of a definition: one a second for thirty years."""

DESCRIPTION_BYTES_MAX: Final = 2_000
"""Longest description, in bytes. The entry of a node has those of all its actors."""

NAMED_MAX: Final = 50
"""Most outputs, or resources, that an expectation names."""

STACKS_MAX: Final = 100
"""Most stacks that an actor names."""

QUEUE_MAX: Final = 1_000
"""Most episodes of one actor that wait for their turn at a time, unless it says less: what is
beyond stays in the stream of events. All of them fit in one commit."""

Overflow = Literal["queue", "drop", "shed_oldest"]
"""What happens to an episode when there is no room: it waits; it is not opened; or it waits, and if
more than `queue_max` wait, the oldest of the lowest priority is canceled."""


A = TypeVar("A")

F = TypeVar("F", bound=Callable[..., object])

R = TypeVar("R")

P = ParamSpec("P")

StrategyLike: TypeAlias = type[Strategy[Any]] | Strategy[Any] | StrategyFunction | Function
"""What an expectation may be given as its strategy."""


@dataclass(frozen=True, kw_only=True)
class ExpectationOptions:
    """The options of `Actor.expect`, each with its type, its `Check`, its default and its meaning.

    Definitions, `vigil actors show` and the reference take the options from here.
    """

    on: Annotated[On, Check.sources]
    """What fires it, such as `event("order.placed")`, `every("15m")` or `manual()`, or a list of
    such: the first one that fits fires, once per event."""
    subject_key: Annotated[str, Check.path] = ""
    """Path into the payload whose value is what the episode is about."""
    cooldown_s: Annotated[int, partial(Check.whole_seconds, most=WAIT_S_MAX)] = 0
    """Whole seconds after it has fired in which no other event fires it for the same subject. By
    default no event is held off."""
    debounce_s: Annotated[float, partial(Check.seconds, most=WAIT_S_MAX)] = 0.0
    """How long a subject must be calm: the newest event fires it once no other has come for so many
    seconds. By default an event fires it at once."""
    max_wait_s: Annotated[float, partial(Check.seconds, most=WAIT_S_MAX)] = 0.0
    """With `debounce_s`: fires it so many seconds after the first event even if the subject is
    never calm. By default it waits for as long as it takes."""
    overlap: Annotated[Overlap, partial(Check.choice, known=get_args(Overlap))] = "allow"
    """What a cause does while an episode of the same subject is open, also one that waits or
    sleeps. `allow`: it opens another one. `skip`: it is refused. `buffer_one`: one episode is kept
    and starts once the open one has ended; further causes are refused. `cancel_other`: the open one
    is canceled, and the new one starts once it has ended."""
    breaker: Annotated[Breaker | None, partial(Check.sound, problem_of=problem_of_breaker)] = None
    """Stops firing it after so many failures in a row. By default there is no circuit breaker."""
    sample: Annotated[float, Check.share] = 1.0
    """Share of the events and ticks that fire it which open an episode, from 0 to 1. Every node
    chooses the same events. With 0 only people, workflows and parents open any."""
    concurrency_key: Annotated[str, Check.path] = ""
    """Path into the payload: of the episodes with the same value there, only `concurrency` run at a
    time in the whole cluster; the others wait in order."""
    concurrency: Annotated[int, partial(Check.count, most=KEY_EPISODES_MAX)] = 1
    """How many episodes with the same value under `concurrency_key` run at a time."""
    priority: Annotated[int, partial(Check.whole, least=-PRIORITY_MAX, most=PRIORITY_MAX)] = 0
    """Where episodes of the actor wait for their turn, a higher priority goes first: from -1,000 to
    1,000. Each is worth 100 places, so no episode waits for ever."""
    start_within_s: Annotated[float, partial(Check.seconds, most=WAIT_S_MAX)] = 0.0
    """An episode that has not started after so many seconds is canceled as `expired`. By default it
    waits for as long as it takes."""
    dedupe: Annotated[Dedupe, partial(Check.sound, problem_of=problem_of_dedupe)] = DEFAULT_DEDUPE
    """Which events are the same cause and open one episode: `by_event()`, the default;
    `by_payload(…)`, `by_value(…)`; or a function of the event that returns a text of 1 to 512
    characters, always the same one for the same event. If it fails, the event becomes a dead
    letter."""
    dry_run: Annotated[Overrides | None, partial(Check.sound, problem_of=problem_of_overrides)] = (
        None
    )
    """What its dry runs use instead of tools and synthesis; see `overrides(…)`."""
    budget: Annotated[Budget, partial(Check.sound, problem_of=problem_of_budget)] = DEFAULT_BUDGET
    """What one episode may use, by default 12 turns, 25,000 tokens and 120 seconds."""
    adaptive_budget: Annotated[
        AdaptiveBudget | None, partial(Check.sound, problem_of=problem_of_adaptive_budget)
    ] = None
    """Bounds within which the budget follows what the latest 100 episodes used, once there are five
    of them. By default the budget does not change."""
    on_exhausted: Annotated[OnExhausted | None, Check.on_exhausted] = None
    """What happens when the budget of an episode is used up. A function is called with an
    `Exhausted`, within 10 s; the episode converges with the findings and outputs, or the
    `ConvergeResult`, that it returns. `"ask"` asks people to grant as much again, and
    `approval({"usd": "1.00"}, approvers=…, expires_s=…)` so much more. By default the episode fails
    as `budget_exceeded`."""
    service_level: Annotated[
        ServiceLevel | None, partial(Check.sound, problem_of=problem_of_service_level)
    ] = None
    """How soon its episodes should start and end, and which share of them must; the end of each
    says whether it did. By default nothing is promised."""
    durability: Annotated[Durability, partial(Check.choice, known=get_args(Durability))] = (
        "pipelined"
    )
    """`pipelined`: a recorded step is on its way to disk while the next one is decided, and is
    there before any side effect. `strict`: it is on disk before the next one is decided."""
    log_strategy: Annotated[Logging, partial(Check.choice, known=get_args(Logging))] = "full_debug"
    """What people may see of its steps, in the tables and in `vigil episodes log`. `none` and
    `summary_only`: neither arguments nor results. `timeline`: names, and results in short.
    `full_debug`: everything, what a model was asked as well; see `transient` of `synthesize`."""
    loop_detection: Annotated[bool, Check.switch] = True
    """Whether an episode in a loop fails as `loop_detected`."""
    recovery: Annotated[Policy, partial(Check.choice, known=POLICIES)] = "resume"
    """What becomes of an episode whose node crashed. `resume`: it goes on after its last recorded
    step. `restart`: it begins anew, as another attempt. `fail`: it ends as `orphaned`."""
    replay: Annotated[Replay, partial(Check.choice, known=get_args(Replay))] = "lenient"
    """What a replay does with a recorded call that it asks for with other arguments, or a recorded
    sleep that it asks for with another length. `lenient`: the record stands, and the log of the
    node warns of it. `strict`: the episode is parked, as one that takes another way is."""
    park_s: Annotated[float, partial(Check.park_seconds, most=WAIT_S_MAX)] = PARK_S
    """How long an episode whose replay takes another way than the recorded one waits for other
    code, in seconds, before it fails as `nondeterministic_replay`: by default 7 days."""
    attempts_max: Annotated[int, partial(Check.count, most=COUNT_MAX)] = ATTEMPTS_MAX
    """Crashes that end the episode as `attempts_exhausted`, with a dead letter."""
    state_schema: Annotated[StateSchema, partial(Check.sound, problem_of=problem_of_schema)] = (
        DEFAULT_SCHEMA
    )
    """Version of the state's shape, with migrations from older ones."""
    synthesizer: Annotated[Synthesizer | None, Check.callback] = None
    """Comes before the actor's and the app's."""
    finding_ttl_s: Annotated[float, partial(Check.seconds, most=TTL_S_MAX)] = 0.0
    """Its findings expire so many seconds after they were last raised or updated, unless the
    finding has a time of its own. By default they are active until they are cleared."""
    escalation: Annotated[Escalations, Check.escalation] = field(default_factory=dict)
    """Class of findings → `[escalate(after="30m", to="critical"), …]`: what they become when they
    have been active for so long. By default they stay as they are."""
    enrich: Annotated[Enrich | None, Check.callback] = None
    """Called with each finding that the expectation has raised, and the episode; may return
    `enriched(…)`. If it fails, or takes longer than 10 s, the finding stays as it is."""
    description: Annotated[str, partial(Check.label, most_bytes=DESCRIPTION_BYTES_MAX)] = ""
    """What it expects and what it does about it, in words. For people, as the next three:
    `vigil actors show` and definitions tell it, and nothing depends on it."""
    outputs: Annotated[Sequence[str], partial(Check.labels, most=NAMED_MAX)] = ()
    """Which outputs it may propose, such as `["slack", "ticket"]`. For people: it limits none."""
    resources: Annotated[Sequence[str], partial(Check.labels, most=NAMED_MAX)] = ()
    """What it reads or changes, such as `["db.orders"]`. For people: it reserves nothing."""
    audit_level: Annotated[str, Check.label] = ""
    """How closely people look at what it does, in words of your own. For people: what is recorded
    is said by `log_strategy`."""


_CHECKS: Final[Mapping[str, Callable[[Check, str, Any], object]]] = {
    name: hint.__metadata__[0]
    for name, hint in get_type_hints(ExpectationOptions, include_extras=True).items()
}
"""The check of each option."""


@dataclass(frozen=True, kw_only=True)
class Expectation(ExpectationOptions):
    """Something an actor expects to be true, and how it finds out. See `Actor.expect`."""

    name: str
    strategy: Strategy[Any] | Function
    state_type: type
    """Of a strategy's state."""
    on: Sources

    @cached_property
    def code(self) -> str:
        """A digest of the code of its strategy, the same in every process that has this code."""
        return code_of(self.strategy)

    @property
    def is_gated(self) -> bool:
        """Whether firing depends on state that the cluster stores, besides the event."""
        return bool(self.cooldown_s or self.debounce_s or self.breaker or self.overlap != "allow")

    @property
    def waits_its_turn(self) -> bool:
        """Whether its episodes have an order in the whole cluster."""
        return bool(self.concurrency_key or self.priority)

    @property
    def event_names(self) -> frozenset[str]:
        """The domain events of the stack that may fire it."""
        sources = (source for source in self.on if isinstance(source, EventSource))
        return frozenset(name for source in sources for name in source.names)

    @property
    def foreign_streams(self) -> tuple[ForeignStream, ...]:
        """The foreign streams whose events may fire it."""
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


def checked_options(check: Check, options: ExpectationOptions) -> dict[str, Any]:
    """Return each of `options` as an expectation has it, or raise `DeclarationError`."""
    given = ((option, getattr(options, option.name)) for option in fields(options))
    return {
        option.name: value
        if value is None and option.default is None
        # guard: options-checked-at-declaration
        else _CHECKS[option.name](check, option.name, value)
        for option, value in given
    }


def _chosen(check: Check, strategy: StrategyLike) -> tuple[Strategy[Any] | Function, type]:
    """Return what an expectation runs, and the type of its state."""
    if isinstance(strategy, Function):
        return strategy, dict
    if isfunction(strategy):
        return check.strategy_function(strategy), dict
    instance = check.strategy(strategy)
    return instance, check.state_type(instance)


def contradiction(expectation: Expectation) -> tuple[str, str] | None:
    """Return an option that cannot work together with the others, and why; or None."""
    wait_s, calm_s = expectation.max_wait_s, expectation.debounce_s
    if wait_s and not calm_s:
        return "max_wait_s", "bounds debounce_s, and there is none; set that, or leave it out"
    if wait_s and wait_s < calm_s:
        return "max_wait_s", f"{wait_s:g} is less than debounce_s={calm_s:g}"
    if expectation.concurrency != 1 and not expectation.concurrency_key:
        return "concurrency", "counts by concurrency_key, and there is none"
    adapts = expectation.adaptive_budget
    # guard: first-budget-within-bounds
    if adapts is not None and (problem := problem_of_adapting(adapts, expectation.budget)):
        return "adaptive_budget", problem
    if unheard := unasked(expectation):  # guard: option-no-cause-is-asked
        option, causes = unheard
        return option, f"is for {causes}, and none fires it; leave it out"
    return None


def unasked(expectation: Expectation) -> tuple[str, str] | None:
    """Return an option that no trigger of `expectation` uses, and what it needs; or None."""
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
    if expectation.schedules:  # guard: schedule-without-ticks-options
        return None
    option = next((name for name, is_set in of_ticks.items() if is_set), "")
    return (option, "events and ticks") if option else None


def check_given(
    check: Check,
    options: Callable[..., ExpectationOptions],
    args: Sequence[object],
    given: Mapping[str, object],
) -> None:
    """Refuse an argument that is no option, one without a name, and a call without `on`."""
    known = signature(options).parameters
    if args and isfunction(args[0]):  # guard: bare-decorator-told
        raise check.refuse("on", "missing; write @actor.expectation(on=…) above the function")
    if args:
        raise check.refuse("options", f"{args[0]!r} has no name; write `on=…`, and so on")
    if stray := next((each for each in given if each not in known), ""):  # guard: stray-option-told
        raise check.refuse(stray, f"there is no such option; {near(stray, known)}".rstrip("; "))
    if "on" not in given:
        raise check.refuse("on", "missing; say what fires it, such as on=event('order.placed')")


def _taking(
    options: Callable[P, ExpectationOptions],
) -> Callable[
    [Callable[[A, str, StrategyLike, ExpectationOptions], Expectation]],
    Callable[Concatenate[A, str, StrategyLike, P], Expectation],
]:
    """Make a method callable with the fields of `options` in the place of its last argument."""

    def decorated(
        method: Callable[[A, str, StrategyLike, ExpectationOptions], Expectation],
    ) -> Callable[Concatenate[A, str, StrategyLike, P], Expectation]:
        @wraps(method)
        def taking(
            actor: A, name: str, strategy: StrategyLike, /, *args: P.args, **given: P.kwargs
        ) -> Expectation:
            check_given(Check(str(getattr(actor, "id", "")), name), options, args, given)
            return method(actor, name, strategy, options(*args, **given))

        return _shown(taking, method, options)

    return decorated


def _declared_with(
    options: Callable[P, ExpectationOptions],
) -> Callable[[Callable[[A, ExpectationOptions], R]], Callable[Concatenate[A, P], R]]:
    """Do as `_taking`, for a method that takes nothing else."""

    def decorated(
        method: Callable[[A, ExpectationOptions], R],
    ) -> Callable[Concatenate[A, P], R]:
        @wraps(method)
        def taking(actor: A, /, *args: P.args, **given: P.kwargs) -> R:
            name = getattr(args[0], "__name__", "") if args else ""
            check_given(Check(str(getattr(actor, "id", "")), name), options, args, given)
            return method(actor, options(*args, **given))

        return _shown(taking, method, options)

    return decorated


def _shown(taking: F, method: Callable[..., object], options: Callable[..., object]) -> F:
    """Return `taking` with the signature that `help` and editors that run the code show."""
    own, types = signature(method).parameters.values(), get_type_hints(options)
    given = signature(options).parameters.values()
    shown = [*list(own)[:-1], *(each.replace(annotation=types[each.name]) for each in given)]
    taking.__signature__ = Signature(shown)  # type: ignore[attr-defined] # `inspect` reads it.
    return taking


@dataclass(frozen=True, init=False)
class Actor:
    """A name, what it expects, and how much of it may run at a time."""

    id: str
    domain: str
    description: str
    spec_rev: str
    revision: int
    """Of the definition that it was made of; 0: it is declared in code."""
    max_concurrent_episodes: int
    max_concurrent_cluster: int | None
    overflow: Overflow
    queue_max: int
    public_events: Publishing
    stacks: tuple[str, ...]
    """Those that it runs on; none named: every one."""
    tools: Mapping[str, Tool]
    capabilities: frozenset[str] | None
    """Those that its strategies may call; None: every one."""
    synthesizer: Synthesizer | None
    spending: tuple[Spending, ...] = ()
    """Most that the requests of its episodes to models may cost, by window of the calendar."""
    retention: Retention | None = None
    """How long what it has done is kept; None: as its stack says."""
    expectations: dict[str, Expectation] = field(default_factory=dict)

    def __init__(
        self,
        id: str,
        *,
        domain: str = "default",
        description: str = "",
        spec_rev: str = "",
        revision: int = 0,
        max_concurrent_episodes: int = 5,
        max_concurrent_cluster: int | None = None,
        overflow: Overflow = "queue",
        queue_max: int = QUEUE_MAX,
        public_events: Publishing = "all",
        stacks: Sequence[str] | None = None,
        tools: Tools | None = None,
        capabilities: Sequence[str] | None = None,
        synthesizer: Synthesizer | None = None,
        spending: Sequence[Spending] = (),
        retention: Retention | None = None,
    ) -> None:
        """Declare an actor.

        Args:
            id: stable; stored with every episode. 1 to 64 of A-Z a-z 0-9 _ -
            domain: a label, for people.
            description: what it is for, in up to 2,000 bytes, for people.
            spec_rev: a version of your own, stored with every episode.
            revision: for code that makes actors from definitions; leave it out otherwise.
            max_concurrent_episodes: most of its episodes that one node runs at a time; the rest
                wait in order for any node with room.
            max_concurrent_cluster: most of them that all nodes together run at a time; None: as
                many as the nodes have room for.
            overflow: what happens to an episode when there is no room. `"queue"`: it waits.
                `"drop"`: it is not opened. `"shed_oldest"`: it waits; if more than `queue_max`
                wait, the oldest of the lowest priority is canceled.
            queue_max: most episodes that wait for their turn at a time, at most 1,000. An app
                refuses another number for an actor whose episodes never wait for their turn.
            public_events: `"all"`, or `"without_starts"`: all but `expectation.triggered` and
                `episode.started`, which saves two messages for each episode.
            stacks: the stacks that it runs on, each by its whole name: `orders` is not `orders-qa`.
                Nodes of other stacks lack it. Default: every stack.
            tools: functions with `@tool`, or capability → tool; they come before those of the
                app.
            capabilities: all that its strategies may call, of its own tools and the app's, such as
                `["fetch", "services"]`; another call fails as `capability_not_allowed`. Default:
                every tool.
            synthesizer: for expectations that have none of their own.
            spending: most that requests of all its episodes to models may cost in a window, such as
                `[Spending(usd="5.00", per="day")]`; a request that does not fit ends its episode
                as `budget_exceeded`. Default: no limit.
            retention: how long the rows of what has ended are kept, such as
                `Retention(done="30d", failed="365d")`, in place of what the stack says for them.
                Default: as the stack says, or what was declared for it before.

        Raises `DeclarationError` if a value cannot work; the message names it.
        """
        try:
            check_name("id", id)
        except BadRequest as error:
            raise DeclarationError(actor=str(id), field="id", problem=error.problem) from error
        check = Check(id)
        values = {
            "id": id,
            "domain": check.label("domain", domain),
            "description": check.label(
                "description", description, most_bytes=DESCRIPTION_BYTES_MAX
            ),
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
            "public_events": check.choice("public_events", public_events, get_args(Publishing)),
            "stacks": check.stacks("stacks", stacks, most=STACKS_MAX),
            "tools": checked_tools(tools or {}, actor=id),
            "capabilities": check.capabilities("capabilities", capabilities),
            "synthesizer": check.callback("synthesizer", synthesizer),
            "spending": tuple(check.sound("spending", spending, problem_of_spending)),
            "retention": None
            if retention is None
            else check.sound("retention", retention, problem_of_actors_retention),
            "expectations": {},
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        # guard: own-tools-within-capabilities
        if beyond := [each for each in self.tools if not self.may_call(each)]:
            raise check.refuse("tools", f"{beyond[0]!r} is none of its capabilities")

    @_taking(ExpectationOptions)
    def expect(self, name: str, strategy: StrategyLike, options: ExpectationOptions) -> Expectation:
        """Declare an expectation and return it.

        `name` must be stable within the actor: it is stored with every episode. `strategy` is a
        subclass of `Strategy` or an instance, one instance serves all episodes; or a function, see
        `expectation`. `options` are the fields of `ExpectationOptions`, by keyword.

        Raises `DeclarationError` if a value cannot work, or can never take effect; the message
        names actor, expectation and field.
        """
        return self._declare(name, *_chosen(Check(self.id, name), strategy), options)

    def replaced(
        self, name: str, *, strategy: StrategyLike | None, synthesizer: Synthesizer | None
    ) -> Actor:
        """Return this actor with an expectation that has another strategy or synthesizer."""
        declared, check = self.expectations[name], Check(self.id, name)
        chosen, state_type = declared.strategy, declared.state_type
        if strategy is not None:
            chosen, state_type = _chosen(check, strategy)
        asked = check.callback("synthesizer", synthesizer) or declared.synthesizer
        expectation = replace(declared, strategy=chosen, state_type=state_type, synthesizer=asked)
        made = copy(self)  # guard: strategy-replaced-in-copy
        object.__setattr__(made, "expectations", {**self.expectations, name: expectation})
        return made

    def _declare(
        self,
        name: str,
        strategy: Strategy[Any] | Function,
        state_type: type,
        options: ExpectationOptions,
    ) -> Expectation:
        check = Check(self.id, name)
        check.name(name, taken=self.expectations)
        expectation = Expectation(
            name=name,
            strategy=strategy,
            state_type=state_type,
            **checked_options(check, options),
        )
        if found := contradiction(expectation):  # guard: options-contradict
            raise check.refuse(*found)
        self.expectations[name] = expectation
        return expectation

    @_declared_with(ExpectationOptions)
    def expectation(
        self, options: ExpectationOptions
    ) -> Callable[[StrategyFunction], StrategyFunction]:
        """Declare an expectation whose strategy is the function below, and which is called like it.

            @monitor.expectation(on=event("probe.failed"), subject_key="service")
            async def service_is_up(ctx, trigger):
                ...

        `ctx` is an `FunctionContext`. The function returns a `ConvergeResult`, findings or outputs,
        one or a list of them, or nothing. The options and errors are those of `expect`.
        """

        def declared(function: StrategyFunction) -> StrategyFunction:
            name = getattr(function, "__name__", "")
            check = Check(self.id, name)
            self._declare(name, check.strategy_function(function), dict, options)
            return function

        return declared

    def runs_on(self, stack: str) -> bool:
        """Return whether nodes of the stack called `stack`, its `env` included, have it."""
        return not self.stacks or stack in self.stacks  # guard: actor-on-its-stacks

    def may_call(self, capability: str) -> bool:
        """Return whether its strategies may call tools of `capability`."""
        named = self.capabilities
        return named is None or capability in named or capability in OF_THE_ENGINE

    @property
    def is_laned(self) -> bool:
        """Whether its episodes take turns, in an order and within limits of the whole cluster."""
        waits = any(each.waits_its_turn for each in self.expectations.values())
        return self.max_concurrent_cluster is not None or self.overflow != "queue" or waits

    def event_names(self) -> frozenset[str]:
        """Return the names of every domain event that may fire one of its expectations."""
        return frozenset().union(*(each.event_names for each in self.expectations.values()))

    def foreign_streams(self) -> tuple[ForeignStream, ...]:
        """Return the foreign streams that may fire it, once each; the first one's start counts."""
        every = (foreign for each in self.expectations.values() for foreign in each.foreign_streams)
        found: dict[tuple[str, str], ForeignStream] = {}
        for foreign in every:
            found.setdefault((foreign.stream, foreign.subject), foreign)
        return tuple(found.values())
