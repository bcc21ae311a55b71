"""The conditions of an event filter: on values of the payload, by path. Pure.

Definitions spell them as JSON:

    {"disk.used": {"gt": 90, "lte": 100}, "state": ["new", "paid"], "test": {"exists": false}}

A plain value must be equal, a list has the allowed values, and an object has operators that must
all match; to compare with an object, use `eq`. A `Misfit` has one of three classes: `filter` (the
value does not fit, as expected), `filter_key_missing` (check the path) and `filter_type` (for
example text compared with a number: check the type).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from engine.validation import problem_of_path
from streams.json import ABSENT, JsonObject, raw, value_at

Scalar: TypeAlias = int | float | str
"""Values that have an order: numbers among themselves, and texts by code point."""

Order: TypeAlias = Literal["gt", "ge", "lt", "le"]

_ORDERS: Final[Mapping[Order, Callable[[Any, Any], bool]]] = {
    "gt": operator.gt,
    "ge": operator.ge,
    "lt": operator.lt,
    "le": operator.le,
}

_SPELLED: Final[Mapping[Order, str]] = {"gt": "gt", "ge": "gte", "lt": "lt", "le": "lte"}

MisfitReason: TypeAlias = Literal["filter", "filter_key_missing", "filter_type"]


_SCALARS: Final = "with a finite number or with text"


class OneOf(msgspec.Struct, frozen=True):
    """The value is one of these. Equality is a `OneOf` with one value."""

    values: tuple[object, ...]


class Other(msgspec.Struct, frozen=True):
    """There is a value, and it differs from this one."""

    than: object


class Compared(msgspec.Struct, frozen=True):
    """The value is above or below a bound."""

    how: Order
    bound: Scalar


class Between(msgspec.Struct, frozen=True):
    """The value lies between two bounds, bounds included."""

    low: Scalar
    high: Scalar


class Exists(msgspec.Struct, frozen=True):
    """There is a value, or there is none."""

    wanted: bool


class AllOf(msgspec.Struct, frozen=True):
    """The value fits every one of these."""

    conditions: tuple[Condition, ...]


Condition: TypeAlias = OneOf | Other | Compared | Between | Exists | AllOf

Filter: TypeAlias = Mapping[str, Condition]
"""Path → the condition on its value."""


class Misfit(msgspec.Struct, frozen=True):
    """Why a payload does not fit, and where."""

    reason: MisfitReason
    path: str
    condition: Condition
    found: object
    """The payload's value there, or `ABSENT`."""


def gt(bound: Scalar) -> Condition:
    """Return the condition that a value is greater than `bound`: a number, or a text."""
    return Compared("gt", bound)


def ge(bound: Scalar) -> Condition:
    """Return the condition that a value is `bound` or greater: a number, or a text."""
    return Compared("ge", bound)


def lt(bound: Scalar) -> Condition:
    """Return the condition that a value is less than `bound`: a number, or a text."""
    return Compared("lt", bound)


def le(bound: Scalar) -> Condition:
    """Return the condition that a value is `bound` or less: a number, or a text."""
    return Compared("le", bound)


def between(low: Scalar, high: Scalar) -> Condition:
    """Return the condition that a value is `low`, `high` or anything between them."""
    return Between(low, high)


def ne(value: object) -> Condition:
    """Return the condition that there is a value other than `value`, of any type."""
    return Other(value)


def in_(*values: object) -> Condition:
    """Return the condition that a value is one of `values`: at least one, lists among them."""
    return OneOf(values)


def exists() -> Condition:
    """Return the condition that there is a value; `null` is one."""
    return Exists(wanted=True)


def missing() -> Condition:
    """Return the condition that there is no value; `null` is one."""
    return Exists(wanted=False)


def all_of(*conditions: object) -> Condition:
    """Return the condition that a value fits all of `conditions`, checked in this order."""
    return AllOf(tuple(map(condition_of, conditions)))


def condition_of(wanted: object) -> Condition:
    """Return the condition for `wanted`: a condition, the allowed values, or one value."""
    match wanted:
        case OneOf() | Other() | Compared() | Between() | Exists() | AllOf():
            return wanted
        case list() | tuple() | set() | frozenset():
            return OneOf(tuple(wanted))
        case _:
            return OneOf((wanted,))


def filter_of(wanted: Mapping[str, object]) -> Filter:
    """Return `wanted` as a filter; `ValueError`: a path or a condition cannot work."""
    if not isinstance(wanted, Mapping):
        raise ValueError(f"filter: {wanted!r} is not a dict of path: value")  # noqa: TRY004 - as for its value
    conditions = {path: condition_of(value) for path, value in wanted.items()}
    for path, condition in conditions.items():
        if problem := problem_of_path(path):
            raise ValueError(f"filter: {problem}")
        if problem := _problem_of(condition):
            raise ValueError(f"filter: {path!r}: {problem}")
    return conditions


def misfit(wanted: Filter, payload: JsonObject) -> Misfit | None:
    """Return the first reason why `payload` does not fit `wanted`; None if it fits."""
    for path, condition in wanted.items():
        found = value_at(payload, path)
        reason = _reason(condition, found)
        if reason is not None:
            return Misfit(reason, path, condition, found)
    return None


def spelled(condition: Condition) -> object:
    """Return a condition as definitions spell it, for people.

    Of several with the same operator, which no definition can spell, it has a list as `all`.
    """
    match condition:
        case OneOf(values=(value,)) if not isinstance(value, dict | list):
            return value
        case OneOf(values=(value,)):
            return {"eq": value}
        case OneOf(values=values):
            return list(values)
        case Other(than=value):
            return {"neq": value}
        case Compared(how=how, bound=bound):
            return {_SPELLED[how]: bound}
        case Between(low=low, high=high):
            return {"between": [low, high]}
        case Exists(wanted=wanted):
            return {"exists": wanted}
        case AllOf(conditions=conditions):
            return _all_spelled([operators_of(spelled(each)) for each in conditions])


def _all_spelled(spelled_: Sequence[Mapping[str, object]]) -> object:
    merged = {name: value for each in spelled_ for name, value in each.items()}
    return merged if len(merged) == sum(map(len, spelled_)) else {"all": list(spelled_)}


def _reason(condition: Condition, found: object) -> MisfitReason | None:
    match condition:
        case Exists(wanted=wanted):
            return None if wanted == (found is not ABSENT) else "filter"
        case AllOf(conditions=conditions):
            reasons = (_reason(each, found) for each in conditions)
            return next((reason for reason in reasons if reason), None)
        case _ if found is ABSENT:
            return "filter_key_missing"
        case OneOf(values=values):
            return None if any(is_same(found, value) for value in values) else "filter"
        case Other(than=value):
            return "filter" if is_same(found, value) else None
        case Compared(how=how, bound=bound):
            return _outside(found, (how, bound))
        case Between(low=low, high=high):
            return _outside(found, ("ge", low), ("le", high))


def _outside(found: object, *bounds: tuple[Order, Scalar]) -> MisfitReason | None:
    # guard: text-and-numbers-incomparable
    if any(_kind(found) != _kind(bound) for _, bound in bounds):
        return "filter_type"
    fits = all(_ORDERS[how](found, bound) for how, bound in bounds)
    return None if fits else "filter"


def is_same(one: object, other: object) -> bool:
    """Return whether two JSON values are the same; unlike Python's, JSON's `true` is not 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    # guard: true-is-not-one
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _kind(value: object) -> str:
    """Return the kind of values that this one can be compared with; empty if it has no order."""
    if isinstance(value, str):
        return "text"
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else ""


def _problem_of(condition: Condition) -> str | None:
    match condition:
        case OneOf(values=()):  # guard: choice-has-values
            return "no value is one of none; name some, or ask for missing()"
        case OneOf(values=values):
            return next(filter(None, map(_problem_of_value, values)), None)
        case Other(than=value):
            return _problem_of_value(value)
        case Compared(how=how, bound=bound):
            return None if _is_bound(bound) else f"{how}({bound!r}): compare {_SCALARS}"
        case Between(low=low, high=high):
            return _problem_of_range(low, high)
        case Exists():
            return None
        case AllOf(conditions=()):
            return "all_of() needs a condition"
        case AllOf(conditions=conditions):
            return next(filter(None, map(_problem_of, conditions)), None)


def _problem_of_range(low: Scalar, high: Scalar) -> str | None:
    if not (_is_bound(low) and _is_bound(high)) or _kind(low) != _kind(high):
        return f"between({low!r}, {high!r}): give two finite numbers or two texts"
    if _ORDERS["gt"](low, high):
        return f"between({low!r}, {high!r}): nothing lies there; swap them"
    return None


def _problem_of_value(value: object) -> str | None:
    # guard: filter-is-json
    return None if _is_json(value) else f"{value!r} is neither JSON nor a condition like gt(90)"


def _is_bound(value: object) -> bool:
    return bool(_kind(value)) and _is_json(value)


def _is_json(value: object) -> bool:
    try:
        return bool(msgspec.json.decode(raw(value)) == value)
    except (TypeError, ValueError):
        return False


def _pair(value: object) -> Condition:
    if not isinstance(value, list) or len(value) != len(("low", "high")):
        raise ValueError(f"write [low, high], not {value!r}")
    return between(value[0], value[1])


def _values(value: object) -> Condition:
    if not isinstance(value, list) or not value:
        raise ValueError(f"write a list of values, not {value!r}")
    return in_(*value)


def _presence(value: object) -> Condition:
    if isinstance(value, bool):
        return exists() if value else missing()
    raise ValueError(f"write true or false, not {value!r}")


OPERATORS: Final[Mapping[str, Callable[..., Condition]]] = {
    "eq": in_,
    "neq": ne,
    "gt": gt,
    "gte": ge,
    "lt": lt,
    "lte": le,
    "in": _values,
    "between": _pair,
    "exists": _presence,
}
"""Operator in a definition → the function that makes the condition."""


def operators_of(spelled: object) -> Mapping[str, object]:
    """Return a spelled condition as operators: a plain value is `eq`, a list is `in`."""
    match spelled:
        case dict():
            return spelled
        case list():
            return {"in": spelled}
        case _:
            return {"eq": spelled}


def operator_condition(operator: str, value: object) -> Condition:
    """Return the condition for one operator and its value, or raise `ValueError`."""
    make = OPERATORS.get(operator)
    if make is None:
        raise ValueError(f"there is no {operator!r}; write one of {', '.join(OPERATORS)}")
    try:
        return make(value)
    except ValueError as error:
        raise ValueError(f"{operator}: {error}") from error


def conditions_of(spelled: object) -> Condition:
    """Return the condition that a definition spells as `spelled`, or raise `ValueError`."""
    operators = operators_of(spelled)
    if not operators:
        raise ValueError(f"write an operator, such as {{eq: 1}}; {', '.join(OPERATORS)}")
    made = [operator_condition(operator, value) for operator, value in operators.items()]
    return made[0] if len(made) == 1 else all_of(*made)
