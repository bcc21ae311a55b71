"""`AgentDefinition`: an actor with its expectations and triggers as data, and how it is made. Pure.

It has every option of `Actor` and `Actor.expect`, by the same names, except those that take
functions: `tools` and `synthesizer` come from the app; `enrich` and `state_schema` need code, and
so does an `on_exhausted` that makes a result.
Templates, strategies and gatherers are named and must be registered in the app; nothing is
imported. A trigger is one object:

    {"event": "disk.measured", "filter": {"used": {"gt": 90}}}
    {"stream": "ORDERS", "subject": "orders.>", "start": "all"}
    {"every": "15m", "payload": {"service": "shop"}}
    {"cron": "0 9 * * MON-FRI", "tz": "Europe/Berlin"}
    {"manual": true}      {"workflow": true}
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Final, get_args, get_origin, get_type_hints

import msgspec
from msgspec import structs
from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    create_model,
    field_validator,
    model_serializer,
    model_validator,
)

from engine.agents.model import Model
from engine.agents.unit import LIMIT_THE_ANSWER, LIMITED_MODEL
from engine.app.actions import RequestApproval, approval
from engine.app.actor import (
    QUEUE_MAX,
    STACKS_MAX,
    Actor,
    ExpectationOptions,
    Overflow,
    Publishing,
    StrategyLike,
)
from engine.app.app import App
from engine.app.checks import problem_of_grant
from engine.app.conditions import Condition, conditions_of, operators_of
from engine.app.dedupe import Dedupe, Window, by_event, by_payload, by_value
from engine.app.findings import Escalation, escalate
from engine.app.strategy import TOOLS, Needs, takes_tools
from engine.app.tools import OF_THE_ENGINE, check_name, overrides_of
from engine.app.triggers import SOURCES_MAX, CatchUp, Source, cron, event, every, manual, workflow
from engine.errors import BadDefinition, DeclarationError, InvalidAction
from engine.spending.prices import Prices, nobody_knows
from engine.templates import BUILT_IN
from engine.validation import Listed, Strict, parsed, shown, wrong
from streams.errors import BadName
from streams.json import JsonObject, exact
from streams.model.foreign_streams import FeedStart
from streams.model.money import Spending
from streams.model.retention import Retention
from streams.model.triggers import Overrides

KINDS: Final[Mapping[str, frozenset[str]]] = {
    "event": frozenset({"filter"}),
    "stream": frozenset({"filter", "subject", "start"}),
    "every": frozenset({"catch_up", "window", "payload"}),
    "cron": frozenset({"tz", "catch_up", "window", "payload"}),
    "manual": frozenset(),
    "workflow": frozenset(),
}
"""Kinds of triggers, each with its other fields."""

NAMES_MAX: Final = 64
"""Most names of events in one trigger."""

PATHS_MAX: Final = 64
"""Most paths of one filter."""


EXPECTATIONS_MAX: Final = 100
"""Most expectations of one definition."""

CLASSES_MAX: Final = 100
"""Most classes of findings that escalate in one expectation."""

STEPS_MAX: Final = 3
"""Most escalations of one class: each is worse, and there are four severities."""


CODE_ONLY: Final = frozenset({"state_schema", "synthesizer", "enrich"})
"""Options that take functions, and are no data."""

_SPELLED: Final = frozenset({"on", "dedupe", "dry_run", "escalation", "on_exhausted"})
"""Options that are written in another way than in code: `ExpectationDefinition` says how."""


class Coded(Strict):
    """A value that is written in another way than in code."""

    @abstractmethod
    def made(self) -> object:
        """Return the value as it is in code."""


class SourceDefinition(Coded):
    """One trigger."""

    event: Listed[str] = Field(default=(), max_length=NAMES_MAX)
    """One name or several."""
    stream: str = ""
    every: object = None
    """A number of seconds, or a text such as `15m`."""
    cron: str = ""
    manual: bool = False
    workflow: bool = False
    filter: dict[str, object] = Field(default_factory=dict, max_length=PATHS_MAX)
    subject: str = ">"
    start: object = "new"
    """`new`, `all`, a sequence, or a time with a zone."""
    tz: str = "UTC"
    catch_up: CatchUp = "one"
    window: Window | None = None
    payload: dict[str, object] = Field(default_factory=dict)

    @field_validator("event", mode="before")
    @classmethod
    def _is_listed(cls, names: object) -> object:
        return [names] if isinstance(names, str) else names

    @field_validator("filter")
    @classmethod
    def _is_spelled_out(cls, spelled: dict[str, object]) -> dict[str, object]:
        return {path: dict(sorted(operators_of(each).items())) for path, each in spelled.items()}

    @model_validator(mode="after")
    def _can_fire(self) -> SourceDefinition:
        said = [kind for kind in KINDS if getattr(self, kind)]
        if len(said) != 1:
            raise ValueError(f"write one of {', '.join(KINDS)}")
        besides = self.model_fields_set - {*KINDS}
        if strays := sorted(besides - KINDS[said[0]]):
            raise wrong(strays[0], f"it says nothing to {said[0]!r}; leave it out")
        try:
            self.made()
        except (ValueError, TypeError, BadName) as error:
            raise ValueError(_unsigned(str(error))) from error
        return self

    def made(self) -> Source:
        """Return the trigger; raises `ValueError`, `TypeError` or `BadName` if it cannot work."""
        if self.manual or self.workflow:
            return manual() if self.manual else workflow()
        schedule: dict[str, Any] = {
            "catch_up": self.catch_up,
            "window": self.window,
            "payload": self.payload,
        }
        if self.every:
            return every(self.every, **schedule)  # type: ignore[arg-type] # It looks for itself.
        if self.cron:
            return cron(self.cron, tz=self.tz, **schedule)
        if self.event:
            return event(*self.event, filter=self._conditions())
        start = start_of(self.start)
        return event(
            stream=self.stream, subject=self.subject, start=start, filter=self._conditions()
        )

    def _conditions(self) -> dict[str, Condition]:
        return {path: _condition(path, spelled) for path, spelled in self.filter.items()}


def _condition(path: str, spelled: object) -> Condition:
    try:
        return conditions_of(spelled)
    except ValueError as error:
        raise ValueError(f"filter: {path!r}: {error}") from error


def start_of(spelled: object) -> FeedStart:
    """Return where a feed begins, or raise `ValueError`."""
    match spelled:
        case "new" | "all":
            return spelled
        case bool():
            pass
        case int():
            return spelled
        case str():
            try:
                return datetime.fromisoformat(spelled)
            except ValueError:
                pass
        case _:
            pass
    raise ValueError(f"start: write new, all, a sequence or a time with a zone, not {spelled!r}")


def _unsigned(problem: str) -> str:
    """Return a problem without the name of the Python function in front."""
    first, call, rest = problem.partition("(): ")
    return rest if call and first in KINDS else problem


class StrategyDefinition(Strict):
    """A template with its configuration, or a strategy that the app has under a name."""

    template: str = ""
    config: dict[str, object] = Field(default_factory=dict)
    ref: str = ""
    """A name in `App.strategies`. Nothing is imported by it."""

    @model_validator(mode="after")
    def _is_one(self) -> StrategyDefinition:
        if bool(self.template) == bool(self.ref):
            raise ValueError("write either template, with a config, or ref")
        if self.ref and self.config:
            raise wrong("config", "it is for templates; leave it out")
        return self


class DedupeDefinition(Coded):
    """Which events are the same cause."""

    by: str = "event"
    paths: Listed[str] = ()
    path: str = ""
    window: Window | None = None

    @model_validator(mode="after")
    def _is_one(self) -> DedupeDefinition:
        fitting = {"event": set(), "payload": {"paths", "window"}, "value": {"path", "window"}}
        if self.by not in fitting:
            raise wrong("by", f"write one of {', '.join(fitting)}, not {self.by!r}")
        if strays := sorted(self.model_fields_set - {"by"} - fitting[self.by]):
            raise wrong(strays[0], f"it says nothing to {self.by!r}; leave it out")
        return self

    def made(self) -> Dedupe:
        """Return the rule."""
        match self.by:
            case "payload":
                return by_payload(*self.paths, window=self.window)
            case "value":
                return by_value(self.path, window=self.window)
            case _:
                return by_event()


class OverridesDefinition(Coded):
    """Results and failures that replace the outside in dry runs."""

    tools: dict[str, object] = Field(default_factory=dict)
    failures: dict[str, object] = Field(default_factory=dict)
    synthesis: object = None
    persist_findings: object = False

    @model_validator(mode="after")
    def _can_stand(self) -> OverridesDefinition:
        try:
            self.made()
        except ValueError as error:
            raise ValueError(str(error)) from error
        return self

    def made(self) -> Overrides:
        """Return the overrides, or raise `ValueError`."""
        return overrides_of({name: getattr(self, name) for name in type(self).model_fields})


class EscalationDefinition(Coded):
    """The severity of a finding of a certain age."""

    after: object
    """Seconds, or a text such as `30m`."""
    to: str

    @model_validator(mode="after")
    def _can_happen(self) -> EscalationDefinition:
        self.made()
        return self

    def made(self) -> Escalation:
        """Return the escalation, or raise `ValueError`."""
        return escalate(after=self.after, to=self.to)  # type: ignore[arg-type] # It looks for itself.


_ASK: Final = "ask"
"""A question that has no arguments; `{}` means the same."""


class QuestionDefinition(Coded):
    """What people are asked once a budget is used up: the arguments of `approval`."""

    grant: dict[str, Any] = Field(default_factory=dict)
    """Limit → how much more, such as `{usd: "1.00"}`; by default as much again."""
    summary: str = ""
    approvers: Listed[str] | None = None
    expires_s: float | None = None
    remind_every_s: float | None = None
    quorum: int = 1
    requester_may_approve: bool = True

    @model_validator(mode="after")
    def _can_be_asked(self) -> QuestionDefinition:
        if self.grant and (problem := problem_of_grant(self.grant)):
            raise wrong("grant", problem)
        try:
            self.made()
        except InvalidAction as error:
            raise ValueError(str(error)) from error
        return self

    @model_serializer(mode="wrap")
    def _written(self, as_object: SerializerFunctionWrapHandler) -> object:
        return as_object(self) or _ASK

    def made(self) -> RequestApproval:
        """Return the question."""
        return approval(
            self.grant,
            summary=self.summary,
            approvers=self.approvers,
            expires_s=self.expires_s,
            remind_every_s=self.remind_every_s,
            quorum=self.quorum,
            requester_may_approve=self.requester_may_approve,
        )


class StructDefinition(Coded):
    """An option that is a struct in code: an object with the same fields."""

    struct: ClassVar[type[msgspec.Struct]]

    def made(self) -> msgspec.Struct:
        """Return the struct."""
        return self.struct(**dict(self))


_SUM: Any = Annotated[Decimal, Field(strict=False)]
"""A sum of dollars: `0.5` or `"0.50"`."""


def _plain_options() -> Any:  # noqa: ANN401 - a class that is made at run time has no type
    """Return a model of the options that are the same as data and in code, and of structs."""
    types, model_fields = get_type_hints(ExpectationOptions), dict[str, Any]()
    for option in fields(ExpectationOptions):
        if option.name not in CODE_ONLY | _SPELLED:
            type_: Any = types[option.name]
            if type_ == Sequence[str]:
                type_ = Listed[str]
            default: Any = option.default
            for struct in filter(_is_struct, (type_, *get_args(type_))):
                model = _model_of(struct)
                type_ = model if type_ is struct else model | None
                default = None if default is None else model(**structs.asdict(default))
            model_fields[option.name] = (type_, default)
    return create_model("PlainOptions", __base__=Strict, **model_fields)


def _is_struct(type_: object) -> bool:
    return isinstance(type_, type) and issubclass(type_, msgspec.Struct)


def _model_of(struct: type[msgspec.Struct]) -> type[StructDefinition]:
    types = get_type_hints(struct)
    model_fields: dict[str, Any] = {
        each.name: (_read_as(types[each.name]), ... if each.required else each.default)
        for each in structs.fields(struct)
    }
    model = create_model(f"{struct.__name__}Definition", __base__=StructDefinition, **model_fields)
    model.struct = struct
    return model


def _read_as(type_: Any) -> Any:  # noqa: ANN401 - as above
    """Return the type as a file has it: a pair is a list there, a sum a number or a text."""
    if type_ is Decimal:
        return _SUM
    pairs = [each for each in get_args(type_) if get_origin(each) is tuple]
    if not pairs:
        return type_
    is_of_sums = Decimal in get_args(pairs[0])
    pair = tuple[_SUM, _SUM] if is_of_sums else pairs[0]
    return Annotated[pair, Field(strict=False)] | None


_PlainOptions: Any = _plain_options()


class ExpectationDefinition(_PlainOptions):  # type: ignore[misc] # It is made at run time.
    """One expectation: the options of `Actor.expect`, by the same names."""

    strategy: StrategyDefinition
    on: Listed[SourceDefinition] = Field(min_length=1, max_length=SOURCES_MAX)
    """One trigger or a list of them."""
    dedupe: DedupeDefinition = DedupeDefinition()
    dry_run: OverridesDefinition | None = None
    on_exhausted: QuestionDefinition | None = None
    """`ask`, or what people are asked. A function, which makes a result, is for code."""
    escalation: dict[str, Listed[EscalationDefinition]] = Field(
        default_factory=dict, max_length=CLASSES_MAX
    )

    @field_validator("on", mode="before")
    @classmethod
    def _is_listed(cls, on: object) -> object:
        return [on] if isinstance(on, dict) else on

    @field_validator("on_exhausted", mode="before")
    @classmethod
    def _asks(cls, on_exhausted: object) -> object:
        if on_exhausted is None or isinstance(on_exhausted, dict):
            return on_exhausted
        if on_exhausted == _ASK:
            return {}
        raise ValueError(
            f"write ask, or an object such as {{grant: {{usd: 1}}}}, not {shown(on_exhausted)}"
        )

    @field_validator("escalation")
    @classmethod
    def _ends(
        cls, escalation: dict[str, tuple[EscalationDefinition, ...]]
    ) -> dict[str, tuple[EscalationDefinition, ...]]:
        if long := [class_ for class_, steps in escalation.items() if len(steps) > STEPS_MAX]:
            raise ValueError(f"{long[0]!r}: at most {STEPS_MAX} steps")
        return escalation


SpendingDefinition: Any = _model_of(Spending)


class RetentionDefinition(Strict):
    """How long an actor keeps what has ended, such as `30d`: the fields of `Retention`."""

    done: str | None = None
    failed: str | None = None
    findings: str | None = None
    outputs: str | None = None
    results: str | None = None

    def made(self) -> Retention:
        """Return it as code has it."""
        return Retention(**self.model_dump())


class AgentDefinition(Strict):
    """One actor: the options of `Actor`, by the same names, and its expectations."""

    id: str
    domain: str = "default"
    description: str = ""
    spec_rev: str = ""
    max_concurrent_episodes: int = 5
    max_concurrent_cluster: int | None = None
    overflow: Overflow = "queue"
    queue_max: int = QUEUE_MAX
    public_events: Publishing = "all"
    stacks: Listed[str] | None = Field(default=None, min_length=1, max_length=STACKS_MAX)
    """Those that it runs on; every one by default."""
    capabilities: Listed[str] | None = None
    """All that its strategies may call; every tool by default."""
    spending: Listed[SpendingDefinition] = ()
    """Most that its requests to models may cost in a window; no limit by default."""
    retention: RetentionDefinition | None = None
    """How long what it has done is kept; as the stack says by default."""
    expectations: dict[str, ExpectationDefinition] = Field(
        min_length=1, max_length=EXPECTATIONS_MAX
    )
    """By name."""

    @field_validator("id")
    @classmethod
    def _names_an_actor(cls, id: str) -> str:
        check_name(id, of="an actor")
        return id

    @field_validator("expectations")
    @classmethod
    def _are_named(
        cls, expectations: dict[str, ExpectationDefinition]
    ) -> dict[str, ExpectationDefinition]:
        for name in expectations:
            check_name(name, of="an expectation")
        return expectations


def agent_of(data: JsonObject) -> AgentDefinition:
    """Return the agent in `data`; `BadDefinition` names the first field that is wrong."""
    return parsed(AgentDefinition, data)


def canonical(definition: Strict) -> msgspec.Raw:
    """Return a definition as JSON that is the same for equal ones: sorted, and without defaults."""
    return exact(definition.model_dump(mode="json", by_alias=True, exclude_defaults=True))


def to_actor(
    definition: AgentDefinition, app: App, *, revision: int = 0, here: bool = True
) -> Actor:
    """Return the actor of a definition, with the parts of `app` that it names.

    `here`: whether this process is to run it. If not, it need not have the tools and the models of
    agents, and what a model needs, such as a key.

    `BadDefinition` names the field that cannot work, and what to write.
    """
    try:
        actor = Actor(
            definition.id,
            domain=definition.domain,
            description=definition.description,
            spec_rev=definition.spec_rev,
            revision=revision,
            max_concurrent_episodes=definition.max_concurrent_episodes,
            max_concurrent_cluster=definition.max_concurrent_cluster,
            overflow=definition.overflow,
            queue_max=definition.queue_max,
            public_events=definition.public_events,
            stacks=definition.stacks,
            capabilities=definition.capabilities,
            spending=[each.made() for each in definition.spending],
            retention=None if definition.retention is None else definition.retention.made(),
        )
        for name, each in definition.expectations.items():
            at = f"expectations.{name}.strategy"
            strategy = _strategy(each.strategy, app, at=at, here=here)
            options = {option: _in_code(value) for option, value in each if option != "strategy"}
            actor.expect(name, strategy, **options)
        app.check(actor)
        if here:
            _check_money(actor, app)
    except DeclarationError as error:
        raise BadDefinition(_path(error), error.problem) from error
    return actor


def _check_money(actor: Actor, app: App) -> None:
    """Refuse whoever asks a model and nobody knows the most that costs, if dollars are limited.

    Its episodes would fail before their first request.
    """
    for name, each in actor.expectations.items():
        needs = getattr(each.strategy, "needs", Needs())
        is_limited = bool(each.budget.usd or actor.spending or app.spending)
        if not is_limited:
            continue
        asked = app.synthesizer_of(actor, each) if needs.synthesizer else None
        # guard: unlimited-synthesizer-refused
        if isinstance(asked, Model) and not asked.answers_limited:
            problem = f"{asked!r} of the app: {LIMIT_THE_ANSWER}: {LIMITED_MODEL}"
            raise BadDefinition(f"expectations.{name}.strategy", problem)
        lacking = _unpriced(app, asked.names) if isinstance(asked, Model) else None
        if lacking is not None:  # guard: unpriced-synthesizer-refused
            problem = f"{asked!r} of the app: {nobody_knows(lacking)}"
            raise BadDefinition(f"expectations.{name}.strategy", problem)
        if not needs.model:
            continue
        at = f"expectations.{name}.strategy.config.agent"
        if not needs.answers_limited:  # guard: unlimited-answers-refused
            problem = "write it: a limit in dollars applies, so answers need one, too"
            raise BadDefinition(f"{at}.model_settings.max_tokens", problem)
        if _unpriced(app, [needs.model]) is not None:  # guard: unpriced-definition-refused
            raise BadDefinition(f"{at}.model", nobody_knows(needs.model))


def _unpriced(app: App, models: Iterable[str]) -> str | None:
    """Return the first of `models` that is not asked, as nobody knows its price; None: all are."""
    if app.unpriced != "refuse":
        return None
    prices = Prices(app.prices)
    return next((each for each in models if not prices.is_priced(each)), None)


def _path(error: DeclarationError) -> str:
    place = ("expectations", error.expectation) if error.expectation else ()
    return ".".join((*place, error.field))


def _in_code(value: object) -> Any:  # noqa: ANN401 - each option has a type of its own
    match value:
        case Coded():
            return value.made()
        case tuple():
            return [_in_code(each) for each in value]
        case dict():
            return {key: _in_code(each) for key, each in value.items()}
        case _:
            return value


def _strategy(definition: StrategyDefinition, app: App, *, at: str, here: bool) -> StrategyLike:
    if definition.ref:
        found = app.strategies.get(definition.ref)
        if found is None:
            raise _unknown(f"{at}.ref", definition.ref, app.strategies, "App(strategies=…)")
        return found
    templates = {**BUILT_IN, **app.templates}
    template = templates.get(definition.template)
    if template is None:
        raise _unknown(f"{at}.template", definition.template, templates, "the app")
    own = {name: each for name, each in app.tools.items() if name not in OF_THE_ENGINE}
    given = {TOOLS: own if here else None} if takes_tools(template) else {}
    try:
        return template(definition.config, **given)
    except BadDefinition as error:
        raise error.within(f"{at}.config") from error
    # A user's template may raise these where it checks nothing.
    except (ValueError, TypeError, LookupError) as error:
        raise BadDefinition(f"{at}.config", f"{type(error).__name__}: {error}") from error


def _unknown(path: str, name: str, known: Any, where: str) -> BadDefinition:  # noqa: ANN401 - any value
    has = ", ".join(sorted(known)) or "nothing"
    return BadDefinition(path, f"there is no {name!r}; {where} has {has}")
