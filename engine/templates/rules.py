"""Rules that classify gathered facts; the first whose conditions are all met decides. Pure.

    {"when": {"disk.used": {"gte": 95}}, "class": "disk_full", "severity": "critical"}

Conditions are those of filters (see `engine.app.conditions`) and three more. An absent value fits
only `exists: false`, and a number is compared with numbers only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
from pydantic import Field, PrivateAttr, field_validator

from engine.app import conditions
from engine.app.conditions import (
    OPERATORS,
    Condition,
    filter_of,
    is_same,
    operator_condition,
    operators_of,
)
from engine.validation import Graded, Strict
from streams.json import JsonObject, value_at
from streams.model.findings import Severity

RULES_MAX: Final = 100
"""Most rules of one template."""

CONDITIONS_MAX: Final = 100
"""Most conditions of one rule."""

PATTERN_CHARS_MAX: Final = 200
"""Longest regular expression, in characters."""

SEARCHED_CHARS_MAX: Final = 4_000
"""Longest text that a regular expression is matched against; a longer one does not fit."""

CLASS_CHARS_MAX: Final = 128
"""Longest class, in characters."""

_REPEATED_GROUP: Final = re.compile(r"(?<!\\)\)[*+{]")


class NoneOf(msgspec.Struct, frozen=True):
    """There is a value, and it differs from all of these."""

    values: tuple[object, ...]


class Contains(msgspec.Struct, frozen=True):
    """A text that contains this one, or a list with such an item."""

    item: object


class Matches(msgspec.Struct, frozen=True):
    """A text in which a regular expression is found."""

    pattern: re.Pattern[str]


Test: TypeAlias = Condition | NoneOf | Contains | Matches
"""A condition on the value at one path."""


class Rule(Strict):
    """A class, and the conditions for it."""

    when: dict[str, object] = Field(min_length=1, max_length=CONDITIONS_MAX)
    """Path into the gathered facts → conditions."""
    class_: str = Field(alias="class", min_length=1, max_length=CLASS_CHARS_MAX)
    severity: Graded = Severity.MEDIUM

    _tests: tuple[tuple[str, Test], ...] = PrivateAttr(default=())

    @field_validator("when")
    @classmethod
    def _can_be_asked(cls, when: dict[str, object]) -> dict[str, object]:
        tests_of(when)
        return when

    def model_post_init(self, _: object) -> None:
        """Compile the conditions once."""
        self._tests = tests_of(self.when)

    def fits(self, observed: JsonObject) -> bool:
        """Return whether all conditions are met."""
        return all(_holds(test, path, observed) for path, test in self._tests)


def first_fit(rules: Sequence[Rule], observed: JsonObject) -> int | None:
    """Return the index of the first of `rules` that fits, or None."""
    return next((index for index, rule in enumerate(rules) if rule.fits(observed)), None)


def tests_of(when: Mapping[str, object]) -> tuple[tuple[str, Test], ...]:
    """Return a rule's conditions by path; a `ValueError` names one that cannot work."""
    return tuple(
        (path, _test(path, operator, value))
        for path, spelled in when.items()
        for operator, value in _asked(path, spelled).items()
    )


def _asked(path: str, spelled: object) -> Mapping[str, object]:
    operators = operators_of(spelled)
    if not operators:
        raise ValueError(f"{path!r}: write an operator, such as {{gte: 90}}")
    return operators


def _test(path: str, operator: str, value: object) -> Test:
    try:
        if operator in OPERATORS:
            return filter_of({path: operator_condition(operator, value)})[path]
        match operator:
            case "not_in":
                return _none_of(value)
            case "contains":
                return Contains(value)
            case "matches":
                return Matches(_pattern(value))
            case _:
                pass
    except ValueError as error:
        raise ValueError(_placed(path, str(error))) from error
    known = ", ".join((*OPERATORS, "not_in", "contains", "matches"))
    raise ValueError(f"{path!r}: there is no {operator!r}; write one of {known}")


def _placed(path: str, problem: str) -> str:
    said = problem.removeprefix("filter: ")
    return said if said.startswith(repr(path)) else f"{path!r}: {said}"


def _none_of(value: object) -> NoneOf:
    if not isinstance(value, list) or not value:
        raise ValueError(f"not_in: write a list of values, not {value!r}")
    return NoneOf(tuple(value))


def _pattern(value: object) -> re.Pattern[str]:
    if not isinstance(value, str) or not 1 <= len(value) <= PATTERN_CHARS_MAX:
        raise ValueError(
            f"matches: write a regular expression of 1 to {PATTERN_CHARS_MAX} characters"
        )
    # What is repeated within what is repeated may take longer than anybody waits.
    if _REPEATED_GROUP.search(value):  # guard: template-pattern-bounded
        raise ValueError(f"matches: {value!r} repeats a group; write it without")
    try:
        return re.compile(value)
    except re.error as error:
        raise ValueError(f"matches: {value!r}: {error}") from error


def _holds(test: Test, path: str, observed: JsonObject) -> bool:
    found = value_at(observed, path)
    match test:
        case NoneOf(values=values):
            is_there = conditions.misfit({path: conditions.exists()}, observed) is None
            return is_there and not any(is_same(found, value) for value in values)
        case Contains(item=item):
            return _contains(found, item)
        case Matches(pattern=pattern):
            is_short = isinstance(found, str) and len(found) <= SEARCHED_CHARS_MAX
            return is_short and pattern.search(str(found)) is not None
        case _:
            return conditions.misfit({path: test}, observed) is None


def _contains(found: object, item: object) -> bool:
    if isinstance(found, str):
        return isinstance(item, str) and item in found
    return isinstance(found, list) and any(is_same(each, item) for each in found)
