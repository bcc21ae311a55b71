"""Checks of the declarations of actors and apps; an error names actor, expectation and field."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, TypeAlias, TypeVar, get_args

import msgspec
from msgspec.structs import replace

from engine.app.actions import RequestApproval, approval
from engine.app.context import OnExhausted, PartialResult, StateSchema
from engine.app.findings import Escalations, problem_of_escalation
from engine.app.strategy import (
    Function,
    Strategy,
    StrategyFunction,
    missing,
    problem_of_function,
    state_type,
)
from engine.app.triggers import On, Sources, sources_of
from engine.errors import BadRequest, DeclarationError
from engine.validation import check_name, is_whole, near, problem_of_path, seconds_of
from streams.errors import BadName
from streams.model.money import Per, Price, Spending, priced_name, usd_of
from streams.model.retention import OF_ACTORS, Retention, RetentionField
from streams.model.service_levels import ServiceLevel
from streams.model.triggers import AdaptiveBudget, Budget, Grant
from streams.model.waits import OnExpiry
from streams.subjects import Stack

Scope: TypeAlias = Literal["cluster", "node"]
"""Who shares a breaker: all nodes, or the episodes of one."""

THRESHOLD_MAX: Final = 100
"""Most failures that a threshold may be: the state has the id of each, 36 characters."""

HALF_OPEN_AFTER_S_MAX: Final = 7 * 86_400.0
"""Longest time that a breaker may stay open, in seconds: a week."""

LIMITS: Final = tuple(field.name for field in msgspec.structs.fields(Budget))
"""The names of what a budget limits."""

_GRANTABLE: Final = tuple(field.name for field in msgspec.structs.fields(Grant))
"""Those of which people can grant more."""

HEADROOM_MAX: Final = 100
"""Most that a budget may allow, as a multiple of what episodes have used."""

LEVEL_S_MAX: Final = 31 * 86_400.0
"""Longest time that a service level may allow, in seconds: 31 days."""

LEVEL_WINDOW_MAX: Final = 10_000
"""Most episodes that a service level may be measured over."""


KEPT_S_MIN: Final = 3_600
"""The shortest time, in seconds: an hour, so that whoever looks at what has just ended finds it."""

KEPT_S_MAX: Final = 100 * 366 * 86_400
"""The longest, in seconds: a hundred years. What is to stay for longer is kept for ever."""

FAILED_TIMES: Final = 4
"""Failures are kept so many times as long as what was done, unless the time for them is given."""

EVENTS_S: Final = 7 * 86_400
"""How long domain events are kept unless the time for them is given, in seconds: 7 days."""

COUNT_MAX: Final = 2**31 - 1
"""Largest count or number of seconds that may be declared: 68 years, if it is seconds."""


F = TypeVar("F")
"""The type of the declared value."""

LABEL_BYTES_MAX: Final = 512
"""Longest `domain`, `spec_rev` or `subject_key`, in bytes of UTF-8; every episode keeps them."""


class Breaker(msgspec.Struct, frozen=True, kw_only=True):
    """When to stop opening episodes that keep failing, and when to try again."""

    threshold: int = 5
    """Failures, one after the other, that open it."""
    half_open_after_s: float = 60.0
    """How long it stays open before one episode is let through, in seconds; and how long that
    one may take before another one is."""
    scope: Scope = "cluster"
    """`cluster`: one for all nodes, which outlives them. `node`: each node has one of its own, for
    trouble that is the node's: it also leaves to others what they have opened. It is closed again
    when the node starts anew. Not where episodes take turns, for one node opens those of all."""
    cancel_in_flight: bool = False
    """Whether episodes of the expectation that are queued or run when it opens are canceled; with
    `scope="node"` those that run there. What has converged is finished; fires by hand and dry runs
    go on."""


def problem_of_breaker(breaker: object) -> str | None:
    """Return why `breaker` cannot work, or None."""
    if not isinstance(breaker, Breaker):
        return f"{breaker!r} is not a Breaker(threshold=…, half_open_after_s=…)"
    if not is_whole(breaker.threshold) or not 1 <= breaker.threshold <= THRESHOLD_MAX:
        return f"threshold={breaker.threshold!r} is not a whole number from 1 to {THRESHOLD_MAX}"
    if not _is_over_0(breaker.half_open_after_s, most=HALF_OPEN_AFTER_S_MAX):
        return (
            f"half_open_after_s={breaker.half_open_after_s!r} is not a number of seconds over 0"
            f" and up to {HALF_OPEN_AFTER_S_MAX:,.0f}"
        )
    if breaker.scope not in get_args(Scope):
        return f"scope={breaker.scope!r} is not one of {', '.join(get_args(Scope))}"
    given: object = breaker.cancel_in_flight
    if not isinstance(given, bool):
        return f"cancel_in_flight={given!r} is not True or False"
    return None


def _is_over_0(number: object, *, most: float) -> bool:
    if isinstance(number, bool) or not isinstance(number, int | float):
        return False
    return 0 < number <= most


def problem_of_budget(budget: object) -> str | None:
    """Return why `budget` cannot work, or None. A limit of 0 is no limit."""
    if not isinstance(budget, Budget):
        return f"{budget!r} is not a Budget(turns=…, tokens=…, wall_s=…, usd=…)"
    for limit in ("turns", "tokens"):
        if not is_whole(getattr(budget, limit)):
            return f"{limit}={getattr(budget, limit)!r} is not a whole number; use 0 for no limit"
    wall_s: object = budget.wall_s
    if not (is_whole(wall_s) or (isinstance(wall_s, float) and math.isfinite(wall_s))):
        return f"wall_s={wall_s!r} is not a number of seconds; use 0 for no limit"
    if problem := problem_of_usd(budget.usd):
        return f"usd={problem}; use 0 for no limit"
    for limit in ("turns", "tokens", "wall_s"):
        value = getattr(budget, limit)
        if value < 0:  # guard: budget-limit-not-negative
            return f"{limit}={value!r} is below 0; use 0 for no limit"
        if value > COUNT_MAX:
            return f"{limit}={value!r} is over {COUNT_MAX:,}; use 0 for no limit"
    return None


def problem_of_grant(grant: object) -> str | None:
    """Return why nobody can grant that beyond a budget, or None: limit → how much more."""
    if not isinstance(grant, dict) or not grant:
        return f'{grant!r} is no grant; write {{"usd": "0.50"}}, or turns or tokens'
    if strays := [each for each in grant if each not in _GRANTABLE]:
        return f"{strays[0]!r} cannot be granted; {near(str(strays[0]), _GRANTABLE)}"
    granted = replace(Budget(turns=0, tokens=0), **grant)
    if problem := problem_of_budget(granted):
        return problem.partition(";")[0]
    if not (granted.turns or granted.tokens or granted.usd):
        return f"{grant!r} grants nothing; deny it instead"
    return None


def problem_of_usd(usd: object) -> str | None:
    """Return why a sum of dollars cannot be one, or None."""
    try:
        usd_of(usd)
    except ValueError as error:
        return str(error)
    return None


def problem_of_spending(spending: object) -> str | None:
    """Return why what may be spent in windows of the calendar cannot be enforced, or None."""
    if isinstance(spending, str) or not isinstance(spending, Sequence):
        return f"{spending!r} is not a list of Spending(usd=…, per=…)"
    seen = set[str]()
    for each in spending:
        if not isinstance(each, Spending):
            return f"{each!r} is not a Spending(usd=…, per=…)"
        if each.per not in get_args(Per):
            return f"per={each.per!r} is not one of {', '.join(get_args(Per))}"
        if problem := problem_of_usd(each.usd):
            return f"usd={problem}"
        if not each.usd:  # guard: spending-of-nothing
            return f"usd={each.usd}: nothing could be spent; leave it out for no limit"
        if each.per in seen:
            return f"two limits per {each.per}; leave one out"
        seen.add(each.per)
    return None


def problem_of_prices(prices: object) -> str | None:
    """Return why the prices of models cannot be such, or None."""
    if not isinstance(prices, Mapping):
        return f"{prices!r} is not a dict of model to Price(…)"
    known: dict[str, str] = {}
    for model, price in prices.items():
        if not isinstance(model, str) or not model:
            return f'{model!r} is no name of a model, such as "openai:my-model"'
        if not isinstance(price, Price):
            return f"{model}: {price!r} is not a Price(input_per_million=…, output_per_million=…)"
        for name in ("input_per_million", "output_per_million", "cached_per_million"):
            given = getattr(price, name)
            if given is not None and (problem := problem_of_usd(given)):
                return f"{model}: {name}={problem}"
        other = known.setdefault(priced_name(model), model)
        if prices[other] != price:  # guard: one-price-for-a-model
            return f"{model}: {other} is the same model, and has another price; leave one out"
    return None


def problem_of_adaptive_budget(adapts: object) -> str | None:
    """Return why the bounds of `adapts` cannot work, or None."""
    if not isinstance(adapts, AdaptiveBudget):
        limits = ", ".join(f"{limit}=(…, …)" for limit in LIMITS)
        return f"{adapts!r} is not an AdaptiveBudget({limits})"
    if all(getattr(adapts, limit) is None for limit in LIMITS):
        return f"it has no bounds; give them for at least one of {', '.join(LIMITS)}"
    for limit in LIMITS:
        if problem := _problem_of_bounds(limit, getattr(adapts, limit)):
            return problem
    percentile: object = adapts.percentile
    if not _is_over_0(percentile, most=1.0):
        return f"percentile={percentile!r} is not a share: a number over 0 and up to 1"
    headroom: object = adapts.headroom
    if not _is_over_0(headroom, most=HEADROOM_MAX) or adapts.headroom < 1:
        return f"headroom={headroom!r} is not a number from 1 to {HEADROOM_MAX}"
    return None


def _problem_of_bounds(limit: str, bounds: object) -> str | None:
    if bounds is None:
        return None
    said = f"{limit}={bounds!r}"
    if not isinstance(bounds, tuple | list) or len(bounds) != len(("fewest", "most")):
        return f"{said} is not two numbers: a lower and an upper bound"
    if limit == "usd":
        if any(problem_of_usd(each) is not None or not each for each in bounds):
            return f"{said} are not two sums over 0: a lower and an upper bound"
        return _problem_of_order(said, bounds)
    is_number = is_whole if limit != "wall_s" else partial(_is_over_0, most=COUNT_MAX)
    if not all(is_number(each) and 0 < each <= COUNT_MAX for each in bounds):
        return f"{said} are not two numbers over 0: a lower and an upper bound"
    return _problem_of_order(said, bounds)


def _problem_of_order(said: str, bounds: Sequence[Any]) -> str | None:
    return f"{said}: the lower bound is over the upper one" if bounds[0] > bounds[1] else None


def problem_of_adapting(adapts: AdaptiveBudget, budget: Budget) -> str | None:
    """Return why `budget`, which applies at first, is not within the bounds, or None."""
    for limit in LIMITS:
        bounds, declared = getattr(adapts, limit), getattr(budget, limit)
        if bounds is not None and not bounds[0] <= declared <= bounds[1]:
            return (
                f"{limit}={bounds!r}: the {declared:g} of budget, which applies at first, is not"
                " within these bounds"
            )
    return None


def problem_of_service_level(level: object) -> str | None:
    """Return why `level` cannot be kept or measured, or None."""
    if not isinstance(level, ServiceLevel):
        return f"{level!r} is not a ServiceLevel(start_s=…, end_s=…)"
    for limit in ("start_s", "end_s"):
        given = getattr(level, limit)
        if given != 0 and not _is_over_0(given, most=LEVEL_S_MAX):
            return f"{limit}={given!r} is not a number of seconds up to {LEVEL_S_MAX:,.0f}"
    if 0 < level.end_s < level.start_s:
        return f"start_s={level.start_s:g} is over end_s={level.end_s:g}: it ends after it starts"
    success: object = level.success
    if not _is_over_0(success, most=1.0):
        return f"success={success!r} is not a share: a number over 0 and up to 1"
    if not is_whole(level.window) or not 1 <= level.window <= LEVEL_WINDOW_MAX:
        return f"window={level.window!r} is not a whole number from 1 to {LEVEL_WINDOW_MAX:,}"
    return None


def problem_of_schema(schema: object) -> str | None:
    """Return why the migrations of `schema` do not lead to its version, or None."""
    if not isinstance(schema, StateSchema):
        return f"{schema!r} is not a StateSchema(version=…)"
    if not is_whole(schema.version):
        return f"version {schema.version!r} is not a whole number"
    return schema.problem()


def checked_callback(value: F | None, *, actor: str, field: str) -> F | None:
    """Return `value` if it can be called; raise `DeclarationError` otherwise."""
    return Check(actor).callback(field, value)


@dataclass(frozen=True)
class Check:
    """Checks of declared values; each returns the value or raises an error that names the field."""

    actor: str
    expectation: str = ""

    def refuse(self, field_: str, problem: str, cause: Exception | None = None) -> DeclarationError:
        """Return the error for a field, for the caller to raise."""
        error = DeclarationError(
            actor=self.actor, expectation=self.expectation, field=field_, problem=problem
        )
        error.__cause__ = cause
        return error

    def name(self, name: str, *, taken: Mapping[str, object]) -> None:
        """Check the name of an expectation beside those that are `taken`."""
        try:
            check_name("name", name)
        except BadRequest as error:
            raise self.refuse("name", error.problem, error) from error
        if name in taken:
            raise self.refuse("name", "declared twice; give one of them another name")

    def stacks(self, field_: str, given: object, *, most: int) -> tuple[str, ...]:
        """Return the names of stacks; none if there is no list."""
        if given is None:
            return ()
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise self.refuse(field_, f"{given!r} is not a list")
        if not 1 <= len(given) <= most:
            problem = f"{len(given)} stacks; name 1 to {most}, or leave it out for every one"
            raise self.refuse(field_, problem)
        for name in given:
            try:
                Stack(name)
            except (BadName, TypeError) as error:
                raise self.refuse(field_, str(error), error) from error
        if len(set(given)) < len(given):
            raise self.refuse(field_, "it names a stack twice")
        return tuple(given)

    def capabilities(self, field_: str, given: object) -> frozenset[str] | None:
        """Return the names of capabilities; None: there is no list."""
        if given is None:
            return None
        if isinstance(given, str) or not isinstance(given, Sequence | frozenset | set):
            raise self.refuse(field_, f"{given!r} is not a list of names")
        if strays := [each for each in given if not isinstance(each, str) or not each]:
            raise self.refuse(field_, f"{strays[0]!r} is no name")
        return frozenset(given)

    def strategy_function(self, candidate: StrategyFunction) -> Function:
        """Return a function as the strategy of an expectation."""
        if problem := problem_of_function(candidate):
            raise self.refuse("strategy", problem)
        return Function(candidate)

    def strategy(self, candidate: object) -> Strategy[Any]:
        """Return the instance that a strategy is, or is made of."""
        instance = candidate if isinstance(candidate, Strategy) else self._instance(candidate)
        if absent := missing(instance):
            raise self.refuse("strategy", f"{type(instance).__name__} lacks {', '.join(absent)}")
        return instance

    def _instance(self, candidate: object) -> Strategy[Any]:
        # guard: state-is-no-strategy
        if not isinstance(candidate, type) or not issubclass(candidate, Strategy):
            name = getattr(candidate, "__name__", None) or repr(candidate)
            hint = "give a subclass of Strategy, or `async def name(ctx, trigger)`"
            raise self.refuse("strategy", f"{name} is not a Strategy; {hint}")
        try:
            return candidate()
        except TypeError as error:
            problem = f"cannot be made without arguments ({error}); pass an instance"
            raise self.refuse("strategy", problem, error) from error

    def state_type(self, strategy: Strategy[Any]) -> type:
        """Return the type of the state that a strategy declares."""
        try:
            return state_type(strategy)
        except TypeError as error:
            raise self.refuse("strategy", f"State: {error}", error) from error

    def sources(self, field_: str, on: On) -> Sources:
        """Return what an expectation listens to."""
        try:
            return sources_of(on)
        except TypeError as error:
            raise self.refuse(field_, f"{on!r}: {error}", error) from error
        except (ValueError, BadName) as error:
            raise self.refuse(field_, str(error), error) from error

    def sound(self, field_: str, value: F, problem_of: Callable[[F], str | None]) -> F:
        """Return a value with which `problem_of` finds nothing wrong."""
        if problem := problem_of(value):  # guard: limit-is-a-number
            raise self.refuse(field_, problem)
        return value

    def escalation(self, field_: str, escalation: Escalations) -> Escalations:
        """Return what findings become as they grow older."""
        checked = self.sound(field_, escalation, problem_of_escalation)
        return {class_: tuple(steps) for class_, steps in checked.items()}

    def seconds(self, field_: str, value: float, *, most: float) -> float:
        """Return a number of seconds; 0 is none."""
        given: object = value
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        if not is_number or not 0 <= value <= most:
            hint = "a number of seconds, such as 3 or 0.5"
            raise self.refuse(field_, f"{value!r} is not {hint}, up to {most:,}")
        return float(value)

    def park_seconds(self, field_: str, value: float, *, most: float) -> float:
        """Return a number of seconds over 0."""
        if not self.seconds(field_, value, most=most):
            raise self.refuse(field_, "0 would park nothing; use at least a second")
        return float(value)

    def whole_seconds(self, field_: str, value: int, *, most: int) -> int:
        """Return a whole number of seconds, as the server counts them; 0 is none."""
        if not is_whole(value) or not 0 <= value <= most:
            hint = f"{value!r} is not a whole number of seconds, such as 60, up to {most:,}"
            raise self.refuse(field_, hint)
        return value

    def whole(self, field_: str, value: int, *, least: int, most: int) -> int:
        """Return a whole number from `least` to `most`."""
        if not is_whole(value) or not least <= value <= most:
            raise self.refuse(field_, f"{value!r} is not a whole number from {least:,} to {most:,}")
        return value

    def share(self, field_: str, value: float) -> float:
        """Return a share as a number from 0 to 1."""
        given: object = value
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        if not is_number or not 0 <= value <= 1:
            raise self.refuse(field_, f"{value!r} is not a share: a number from 0 to 1")
        return value

    def choice(self, field_: str, value: F, known: Sequence[object]) -> F:
        """Return a value that is one of those `known`."""
        if value not in known:
            raise self.refuse(field_, f"{value!r} is not one of {', '.join(map(str, known))}")
        return value

    def count(self, field_: str, value: int, *, most: int) -> int:
        """Return a whole number from 1 to `most`."""
        return self.whole(field_, value, least=1, most=most)

    def label(self, field_: str, value: str, *, most_bytes: int = LABEL_BYTES_MAX) -> str:
        """Return a text of at most `most_bytes`: by default to be stored with every episode."""
        if not isinstance(value, str):
            raise self.refuse(field_, f"{value!r} is not text")
        try:
            size_bytes = len(value.encode())
        except UnicodeEncodeError as error:
            raise self.refuse(field_, f"{value!r} is not valid Unicode text", error) from error
        if size_bytes > most_bytes:
            raise self.refuse(field_, f"{size_bytes:,} bytes, the limit is {most_bytes:,}")
        return value

    def labels(self, field_: str, given: Sequence[str], *, most: int) -> tuple[str, ...]:
        """Return texts as of `label`, at most as many as `most`."""
        listed: object = given
        if isinstance(listed, str) or not isinstance(listed, Sequence):
            raise self.refuse(field_, f"{given!r} is not a list of texts")
        if len(given) > most:
            raise self.refuse(field_, f"{len(given)} of them, the limit is {most}")
        return tuple(self.label(field_, each) for each in given)

    def path(self, field_: str, value: str) -> str:
        """Return a path into the payload, or an empty one for none."""
        checked = self.label(field_, value)
        if checked and (problem := problem_of_path(checked)):  # guard: bad-path-told-at-declaration
            raise self.refuse(field_, problem)
        return checked

    def switch(self, field_: str, value: object) -> bool:
        """Return True or False, and nothing that only looks like it."""
        if not isinstance(value, bool):
            raise self.refuse(field_, f"{value!r} is not True or False")
        return value

    def on_exhausted(
        self, field_: str, value: OnExhausted | None
    ) -> PartialResult | RequestApproval | None:
        """Return something to call, or what people are asked, or None."""
        if value == "ask":
            return approval({})
        if value is None or callable(value):
            return value
        if not isinstance(value, RequestApproval):
            raise self.refuse(field_, f'{value!r} is not a function, "ask" or approval(…)')
        if value.plan != {} and (problem := problem_of_grant(value.plan)):
            raise self.refuse(field_, f"plan: {problem}")
        if value.on_expiry is not OnExpiry.DENY:
            problem = f"on_expiry={value.on_expiry.value!r}: what nobody grants in time is denied"
            raise self.refuse(field_, problem)
        return value

    def callback(self, field_: str, value: F | None) -> F | None:
        """Return something to call, or None."""
        if value is not None and not callable(value):
            raise self.refuse(field_, f"{value!r} is not a function")
        return value


def kept_of(retention: Retention) -> dict[str, int]:
    """Return what is kept for how long, in seconds; what is not named is kept for ever.

    `ValueError`: a time is none, or out of its bounds; the message names its field.
    """
    kept: dict[str, int] = {}
    for what in RetentionField:
        given = getattr(retention, what.value)
        if given is not None:
            kept[what.value] = _seconds(what, given)
    if retention.done is not None and retention.failed is None:  # guard: failures-kept-longer
        kept[RetentionField.FAILED.value] = min(
            FAILED_TIMES * kept[RetentionField.DONE.value], KEPT_S_MAX
        )
    return kept


def kept_told(retention: Retention) -> dict[str, str]:
    """Return what is kept for how long, for people."""
    return {what: _days(seconds) for what, seconds in kept_of(retention).items()}


def _seconds(what: RetentionField, given: object) -> int:
    try:
        seconds = seconds_of(given, least_s=KEPT_S_MIN, most_s=KEPT_S_MAX)
    except ValueError as error:
        raise ValueError(f"{what.value}={error}") from error
    return round(seconds)


def problem_of_retention(retention: object) -> str | None:
    """Return why what a stack keeps cannot be kept so, or None."""
    if not isinstance(retention, Retention):
        return f"{retention!r} is not a Retention(done=…, …)"
    try:
        kept = kept_of(retention)
    except ValueError as error:
        return str(error)
    return _problem_of_journal(kept)


def problem_of_actors_retention(retention: object) -> str | None:
    """Return why what an actor keeps cannot be kept so, or None."""
    if not isinstance(retention, Retention):
        return f"{retention!r} is not a Retention(done=…, …)"
    of_actors = {each.value for each in OF_ACTORS}
    for name in msgspec.structs.asdict(retention):
        # guard: stack-keeps-its-streams
        if getattr(retention, name) is not None and name not in of_actors:
            return f"{name}: is for the whole stack; write it into [retention] of vigil.toml"
    try:
        kept_of(retention)
    except ValueError as error:
        return str(error)
    return None


def _problem_of_journal(kept: Mapping[str, int]) -> str | None:
    """Return why; a stored event whose episode is no longer known would open that again."""
    journal_s, events_s = (
        kept.get(RetentionField.JOURNAL),
        kept.get(RetentionField.EVENTS, EVENTS_S),
    )
    if journal_s is not None and journal_s < events_s:  # guard: journal-outlives-events
        return (
            f"journal={_days(journal_s)}: an event that is kept for longer, {_days(events_s)},"
            " could open its episode again; keep the journal at least as long as events"
        )
    archive_s = kept.get(RetentionField.ARCHIVE)
    # guard: archive-outlives-journal
    if archive_s is not None and (journal_s is None or archive_s < journal_s):
        kept_told = "for ever" if journal_s is None else f"for {_days(journal_s)}"
        return (
            f"archive={_days(archive_s)}: the journal, of which it is made, is kept {kept_told};"
            " keep the archive at least as long"
        )
    return None


def _days(seconds: int) -> str:
    days, rest = divmod(seconds, 86_400)
    return f"{seconds}s" if rest else f"{days}d"
