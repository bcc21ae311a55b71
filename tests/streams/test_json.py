"""JSON that passes through: equal values are equal bytes, and what JSON cannot say is refused."""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.json import NOTHING, UNDECODABLE, exact, place_of_problem, raw, unraw

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


@given(VALUES)
def test_what_goes_in_comes_out(value):
    assert unraw(raw(value)) == value


@given(st.dictionaries(st.text(), SCALARS))
def test_equal_values_are_equal_bytes(value):
    backwards = dict(reversed(value.items()))
    assert bytes(raw(value)) == bytes(raw(backwards))


def test_keys_are_sorted_at_every_level():
    assert bytes(raw({"b": {"d": 1, "c": 2}, "a": 3})) == b'{"a":3,"b":{"c":2,"d":1}}'


@given(VALUES)
def test_what_json_can_say_is_said_exactly(value):
    assert exact(value) == raw(value)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("shape", [lambda x: x, lambda x: {"a": [None, (1, x)]}, lambda x: {x}])
def test_a_number_that_is_not_finite_is_refused_and_not_said_as_null(shape, number):
    with pytest.raises(ValueError, match="not finite"):
        exact(shape(number))


class Load(msgspec.Struct):
    average: float
    seen: msgspec.Raw = NOTHING


def test_a_number_that_is_not_finite_is_found_in_a_struct_too():
    with pytest.raises(ValueError, match="not finite"):
        exact([Load(math.nan)])
    assert bytes(exact(Load(0.5))) == b'{"average":0.5,"seen":null}'


def test_nothing_is_null():
    assert unraw(NOTHING) is None
    assert bytes(raw(None)) == bytes(NOTHING)


def test_raw_json_stays_as_it_is():
    assert bytes(raw({"a": msgspec.Raw(b'{"z":1,"b":2}')})) == b'{"a":{"z":1,"b":2}}'


@pytest.mark.parametrize("value", [object(), {"a": iter([1])}, {(1, 2): 3}, 1j])
def test_what_json_cannot_say_is_refused(value):
    with pytest.raises((TypeError, ValueError)):
        raw(value)


def test_a_value_that_holds_itself_is_refused():
    value = {}
    value["self"] = value
    with pytest.raises(ValueError, match="recursion"):
        raw(value)


def test_text_that_is_no_unicode_is_refused():
    with pytest.raises(ValueError, match="surrogates"):
        raw("\ud800")


@dataclass
class Rack:
    loads: list[Load]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (Load(1j), "$.average: an instance of complex"),
        (
            {"rack": Rack([Load(0.5), Load(math.inf)])},
            "$.rack.loads[1].average: inf, a number that",
        ),
        (["\ud800"], "$[0]: text that is no Unicode"),
        (Rack, "$: an instance of type"),
    ],
)
def test_what_json_cannot_say_is_found_where_it_is(value, problem):
    assert place_of_problem(value).startswith(problem)


def test_nothing_is_found_in_what_json_can_say():
    assert place_of_problem({"rack": Rack([Load(0.5)]), "name": "a", "n": 1}) == ""


@pytest.mark.parametrize("data", [b"", b"what?", b'"\xff"', b"[" * 20_000, b"1" * 6_000, b"1e999"])
def test_hostile_bytes_raise_nothing_but_what_decoders_expect(data):
    with pytest.raises(UNDECODABLE):
        msgspec.json.decode(data)
