"""Conditions as files spell them: what `engine.filters` asks of a value, as data. Pure.

    {"disk.used": {"gt": 90, "lte": 100}, "state": ["new", "paid"], "test": {"exists": false}}

A value alone must be equal, a list holds the values that are allowed, and an object holds
operators, all of which must hold. So what is to be equal to an object is spelled with `eq`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from engine import filters
from engine.filters import Condition


def _pair(value: object) -> Condition:
    if not isinstance(value, list) or len(value) != len(("low", "high")):
        raise ValueError(f"write [low, high], not {value!r}")
    return filters.between(value[0], value[1])


def _values(value: object) -> Condition:
    if not isinstance(value, list) or not value:
        raise ValueError(f"write a list of values, not {value!r}")
    return filters.in_(*value)


def _presence(value: object) -> Condition:
    if isinstance(value, bool):
        return filters.exists() if value else filters.missing()
    raise ValueError(f"write true or false, not {value!r}")


OPERATORS: Final[Mapping[str, Callable[..., Condition]]] = {
    "eq": filters.in_,
    "neq": filters.ne,
    "gt": filters.gt,
    "gte": filters.ge,
    "lt": filters.lt,
    "lte": filters.le,
    "in": _values,
    "between": _pair,
    "exists": _presence,
}
"""How a file spells a condition → what makes it of a value."""


def operators_of(spelled: object) -> Mapping[str, object]:
    """Return what is asked of a value as operators: a value alone is `eq`, a list is `in`."""
    match spelled:
        case dict():
            return spelled
        case list():
            return {"in": spelled}
        case _:
            return {"eq": spelled}


def condition_of(operator: str, value: object) -> Condition:
    """Return the condition that one operator makes of a value.

    Raises:
        ValueError: there is no such operator, or it cannot work with this value.
    """
    make = OPERATORS.get(operator)
    if make is None:
        raise ValueError(f"there is no {operator!r}; write one of {', '.join(OPERATORS)}")
    try:
        return make(value)
    except ValueError as error:
        raise ValueError(f"{operator}: {error}") from error


def conditions_of(spelled: object) -> Condition:
    """Return the one condition that is `spelled`.

    Raises:
        ValueError: it cannot work.
    """
    operators = operators_of(spelled)
    if not operators:
        raise ValueError(f"write an operator, such as {{eq: 1}}; {', '.join(OPERATORS)}")
    made = [condition_of(operator, value) for operator, value in operators.items()]
    return made[0] if len(made) == 1 else filters.all_of(*made)
