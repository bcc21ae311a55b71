"""What payload fits a filter, and how one that does not is told from one that cannot."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum

import pytest

from engine.app.conditions import (
    all_of,
    between,
    conditions_of,
    exists,
    filter_of,
    ge,
    gt,
    in_,
    le,
    lt,
    misfit,
    missing,
    ne,
    spelled,
)


class Mount(StrEnum):
    ROOT = "/"


def fits(condition, value):
    return misfit(filter_of({"it": condition}), {"it": value})


def place(unfit):
    """Return what class of misfit it is, and where; None: it fits."""
    return unfit and (unfit.reason, unfit.path)


@pytest.mark.parametrize(
    ("wanted", "payload"),
    [
        ({"mount": "/"}, {"mount": "/"}),
        ({"mount": ["/", "/var"]}, {"mount": "/var"}),
        ({"mount": ("/", "/var")}, {"mount": "/"}),
        ({"level": {1, 2}}, {"level": 2}),
        ({"level": frozenset({1, 2})}, {"level": 2}),
        ({"mount": None}, {"mount": None}),
        ({"mount": {"a": 1}}, {"mount": {"a": 1}}),
        ({"mount": Mount.ROOT}, {"mount": "/"}),
        ({"level": 1}, {"level": 1.0}),
        ({"mount": "/", "level": 1}, {"mount": "/", "level": 1, "more": True}),
        ({"disk.used": gt(0.9), "disk.mount": "/"}, {"disk": {"used": 0.95, "mount": "/"}}),
        ({"disk.used": gt(0.9)}, {"disk.used": 0.95}),
        ({}, {}),
    ],
)
def test_a_payload_with_all_that_is_wanted_fits(wanted, payload):
    assert misfit(filter_of(wanted), payload) is None


@pytest.mark.parametrize(
    ("wanted", "payload", "path"),
    [
        ({"mount": "/"}, {"mount": "/var"}, "mount"),
        ({"mount": ["/", "/var"]}, {"mount": "/home"}, "mount"),
        ({"mount": "/"}, {"mount": None}, "mount"),
        ({"mount": "/"}, {"mount": ["/"]}, "mount"),
        ({"mount": "/", "level": 1}, {"mount": "/", "level": 2}, "level"),
        ({"disk.mount": "/"}, {"disk": {"mount": "/var"}}, "disk.mount"),
    ],
)
def test_a_value_that_is_not_as_wanted_is_told_by_its_path(wanted, payload, path):
    assert place(misfit(filter_of(wanted), payload)) == ("filter", path)


@pytest.mark.parametrize(
    "wanted", [None, "/", ["/"], gt(1), between(1, 2), ne(1), in_("/"), all_of(gt(1), lt(3))]
)
def test_a_value_that_is_not_there_is_told_apart(wanted):
    payload = {"disks": {"mount": "/"}}
    assert place(misfit(filter_of({"disk.mount": wanted}), payload)) == (
        "filter_key_missing",
        "disk.mount",
    )


@pytest.mark.parametrize(
    ("condition", "inside", "outside"),
    [
        (gt(90), [90.1, 91, 2**70], [90, 90.0, -5]),
        (ge(90), [90, 90.0, 91], [89.9]),
        (lt(90), [89, 89.9, -(2**70)], [90, 91]),
        (le(90), [90, 90.0, 1], [90.1]),
        (between(1, 3), [1, 2.5, 3], [0.9, 3.1]),
        (between(2, 2), [2, 2.0], [1, 3]),
        (gt("2030-01-01"), ["2030-01-02", "2031"], ["2030-01-01", "2029-12-31", ""]),
        (between("a", "c"), ["a", "b", "c"], ["ca", "A"]),
        (in_("a", 1, None), ["a", 1, 1.0, None], ["b", 2, [], {}]),
        (in_([1, 2]), [[1, 2]], [1, [1], [2, 1]]),
        (in_([]), [[]], [None, 0, [1]]),
        (ne("a"), ["b", 1, None, ["a"]], ["a"]),
        (all_of(gt(1), le(3)), [2, 3], [1, 4]),
        (all_of(gt(1), ne(2), [2, 3]), [3], [1, 2, 4]),
        (exists(), [1, "", None, False], []),
    ],
)
def test_a_condition_has_an_inside_and_an_outside(condition, inside, outside):
    assert [fits(condition, value) for value in inside] == [None] * len(inside)
    assert [place(fits(condition, value)) for value in outside] == [("filter", "it")] * len(outside)


@pytest.mark.parametrize(
    ("condition", "value"),
    [
        (gt(90), "91"),
        (gt(0), True),
        (le(0), False),
        (lt(90), None),
        (ge(90), [91]),
        (le(90), {"used": 1}),
        (gt("2030"), 2031),
        (between(1, 3), "2"),
        (between("1", "3"), 2),
        (all_of(exists(), gt(1)), "2"),
    ],
)
def test_text_and_numbers_do_not_compare_and_that_is_told_apart(condition, value):
    assert place(fits(condition, value)) == ("filter_type", "it")


@pytest.mark.parametrize(
    ("wanted", "value"),
    [
        (1, True),
        (True, 1),
        (0, False),
        ([1, 2], [True, 2]),
        ({"a": {"b": 1}}, {"a": {"b": True}}),
        ({"a": [0]}, {"a": [False]}),
    ],
)
def test_true_is_not_1_however_deep(wanted, value):
    assert place(fits(in_(wanted), value)) == ("filter", "it")
    assert fits(ne(wanted), value) is None


@pytest.mark.parametrize(
    ("condition", "payload", "expected"),
    [
        (missing(), {}, None),
        (missing(), {"disk": {"used": 1}}, None),
        (missing(), {"disk": {"error": None}}, ("filter", "disk.error")),
        (exists(), {"disk": {"error": None}}, None),
        (exists(), {"disk": {}}, ("filter", "disk.error")),
    ],
)
def test_null_is_something_and_absence_can_be_asked_for(condition, payload, expected):
    assert place(misfit(filter_of({"disk.error": condition}), payload)) == expected


def test_the_first_misfit_is_the_one_that_is_told():
    wanted = filter_of({"a": 1, "b": gt(2), "c": 3})
    assert place(misfit(wanted, {"a": 1, "b": "x"})) == ("filter_type", "b")
    assert place(misfit(wanted, {"a": 0, "b": "x"})) == ("filter", "a")


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        ("mount", "filter: 'mount' is not a dict of path: value"),
        ({"": 1}, "filter: '' is not a path"),
        ({7: 1}, "filter: 7 is not text"),
        ({"disk..used": 1}, "filter: 'disk..used' is not a path; use words joined by dots"),
        ({"it": gt}, "filter: 'it': <function gt"),
        ({"it": gt}, "is neither JSON nor a condition like gt(90)"),
        ({"it": object()}, "is neither JSON nor a condition"),
        ({"it": [gt(1), 3]}, "is neither JSON nor a condition"),
        ({"it": datetime(2030, 1, 1, tzinfo=UTC)}, "is neither JSON nor a condition"),
        ({"it": Decimal(1)}, "is neither JSON nor a condition"),
        ({"it": b"x"}, "is neither JSON nor a condition"),
        ({"it": math.nan}, "filter: 'it': nan is neither JSON nor"),
        ({"it": "\ud800"}, "is neither JSON nor a condition"),
        ({"it": {1: 2}}, "filter: 'it': {1: 2} is neither JSON nor"),
        ({"it": ne({1})}, "filter: 'it': {1} is neither JSON nor"),
        ({"it": in_((1, 2))}, "(1, 2) is neither JSON nor"),
        ({"it": []}, "filter: 'it': no value is one of none; name some, or ask for missing()"),
        ({"it": in_()}, "no value is one of none"),
        ({"it": all_of(gt(1), set())}, "no value is one of none"),
        ({"it": gt(True)}, "filter: 'it': gt(True): compare with a finite number or with text"),
        ({"it": ge(None)}, "ge(None): compare with a finite number or with text"),
        ({"it": lt([1])}, "lt([1]): compare with"),
        ({"it": le(math.inf)}, "le(inf): compare with a finite number"),
        ({"it": between(1, "3")}, "between(1, '3'): give two finite numbers or two texts"),
        ({"it": between(None, None)}, "between(None, None): give two finite"),
        ({"it": between(0, math.nan)}, "between(0, nan): give two finite"),
        ({"it": between(3, 1)}, "between(3, 1): nothing lies there; swap them"),
        ({"it": all_of()}, "filter: 'it': all_of() needs a condition"),
        ({"it": all_of(gt(1), lt(None))}, "lt(None): compare with"),
    ],
)
def test_a_filter_that_cannot_work_is_refused_with_its_path(wanted, problem):
    with pytest.raises(ValueError, match="filter") as refused:
        filter_of(wanted)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    "wanted",
    [
        "/",
        ["/", "/var"],
        {"gt": 90},
        {"gt": 1, "lte": 3},
        {"between": [1, 3]},
        {"neq": "a"},
        {"exists": True},
        {"exists": False},
        {"eq": [1, 2]},
        {"eq": {"a": 1}},
    ],
)
def test_a_condition_is_told_as_definitions_spell_it(wanted):
    assert spelled(conditions_of(wanted)) == wanted


def test_several_of_one_operator_are_told_one_by_one():
    assert spelled(all_of(ne(1), ne(2))) == {"all": [{"neq": 1}, {"neq": 2}]}
