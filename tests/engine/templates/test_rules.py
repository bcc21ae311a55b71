"""What a rule asks of what was observed, and which rule decides."""

from __future__ import annotations

import pytest

from engine.errors import BadDefinition
from engine.templates.rules import (
    PATTERN_CHARS_MAX,
    SEARCHED_CHARS_MAX,
    Rule,
    first_fit,
)
from engine.validation import parsed

OBSERVED = {
    "disk": {"used": 97, "mount": "/var", "flags": ["ro", 1, None]},
    "up": True,
    "name": "web-1",
    "count": 0,
    "nothing": None,
    "long": "x" * (SEARCHED_CHARS_MAX + 1),
}


def rule(when, class_="found"):
    return parsed(Rule, {"when": when, "class": class_})


@pytest.mark.parametrize(
    "when",
    [
        {"disk.used": {"gt": 96}},
        {"disk.used": {"gte": 97, "lt": 98}},
        {"disk.used": {"lte": 97.0}},
        {"disk.used": {"eq": 97}},
        {"disk.used": 97},
        {"disk.used": {"between": [90, 100]}},
        {"disk.mount": ["/", "/var"]},
        {"disk.mount": {"in": ["/", "/var"]}},
        {"disk.mount": {"neq": "/"}},
        {"disk.mount": {"not_in": ["/", "/home"]}},
        {"disk.mount": {"contains": "va"}},
        {"disk.flags": {"contains": "ro"}},
        {"disk.flags": {"contains": None}},
        {"disk": {"eq": OBSERVED["disk"]}},
        {"name": {"matches": "^web-[0-9]+$"}},
        {"name": {"matches": "eb"}},
        {"name": {"gte": "web"}},
        {"nothing": {"exists": True}},
        {"absent": {"exists": False}},
        {"up": True, "count": 0},
    ],
)
def test_a_rule_fits_when_all_that_it_asks_holds(when):
    assert rule(when).fits(OBSERVED)


@pytest.mark.parametrize(
    "when",
    [
        {"disk.used": {"gt": 97}},
        {"disk.used": {"lt": "98"}},
        {"disk.used": {"gte": 97, "lte": 96}},
        {"up": {"gte": 1}},
        {"up": 1},
        {"count": False},
        {"name": {"gt": 1}},
        {"disk.used": {"contains": 9}},
        {"disk.used": {"matches": "97"}},
        {"disk.mount": {"contains": 1}},
        {"disk.flags": {"contains": True}},
        {"disk": {"contains": "used"}},
        {"disk.mount": {"not_in": ["/var"]}},
        {"absent": {"neq": 1}},
        {"absent": {"not_in": [1]}},
        {"absent": {"lt": 1}},
        {"nothing": {"lt": 1}},
        {"up": True, "count": 1},
    ],
)
def test_a_value_that_is_absent_or_of_another_type_fits_nothing(when):
    assert not rule(when).fits(OBSERVED)


def test_a_pattern_is_not_looked_for_in_a_text_without_end():
    assert not rule({"long": {"matches": "x"}}).fits(OBSERVED)


def test_the_first_rule_that_fits_decides():
    rules = [rule({"disk.used": {"gt": 98}}), rule({"up": True}), rule({"count": 0})]
    assert first_fit(rules, OBSERVED) == 1
    assert first_fit(rules[:1], OBSERVED) is None


@pytest.mark.parametrize(
    ("when", "path", "problem"),
    [
        ({}, "when", "at least one"),
        ({"a": {}}, "when", "'a': write an operator"),
        ({"a": {"ge": 1}}, "when", "there is no 'ge'; write one of eq, neq"),
        ({"a..b": 1}, "when", "'a..b' is not a path"),
        ({"a": {"gt": True}}, "when", "'a': gt"),
        ({"a": {"gt": [1]}}, "when", "'a': gt"),
        ({"a": {"between": [2, 1]}}, "when", "swap them"),
        ({"a": {"between": 1}}, "when", "write \\[low, high\\]"),
        ({"a": {"in": []}}, "when", "in: write a list of values"),
        ({"a": {"not_in": "x"}}, "when", "not_in: write a list of values"),
        ({"a": {"exists": 1}}, "when", "exists: write true or false"),
        ({"a": {"matches": "("}}, "when", "matches"),
        ({"a": {"matches": 5}}, "when", "a regular expression of 1 to 200"),
        ({"a": {"matches": "x" * (PATTERN_CHARS_MAX + 1)}}, "when", "of 1 to 200"),
        ({"a": {"matches": "(a+)+$"}}, "when", "repeats a group"),
        ({"a": {"matches": "(a|b){2,}"}}, "when", "repeats a group"),
    ],
)
def test_a_rule_that_cannot_work_says_where_and_what_to_write(when, path, problem):
    with pytest.raises(BadDefinition, match=problem) as refused:
        rule(when)
    assert refused.value.path == path
