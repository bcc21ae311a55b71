"""A state on its way to the journal and back."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

import msgspec
import pytest
from pydantic import BaseModel

from engine import validation
from engine.errors import Unencodable
from tests.spec import EPOCH


class AsStruct(msgspec.Struct):
    host: str
    seen: list[int] = []
    since: datetime | None = None


@dataclass
class AsDataclass:
    host: str
    seen: list[int] = field(default_factory=list)
    since: datetime | None = None


class AsModel(BaseModel):
    host: str
    seen: list[int] = []
    since: datetime | None = None


@pytest.mark.parametrize("kind", [AsStruct, AsDataclass, AsModel])
def test_a_state_comes_back_as_it_was(kind):
    kept = kind(host="münchen-1", seen=[1, 2], since=EPOCH)
    assert (
        validation.decode(validation.encode(kept, what="state"), type_=kind, what="state") == kept
    )


def test_a_dict_comes_back_as_it_was():
    kept = {"host": "web-1", "seen": [1, 2.5, None, True], "deep": {"a": []}}
    assert (
        validation.decode(validation.encode(kept, what="state"), type_=dict, what="state") == kept
    )


def test_equal_states_are_equal_bytes():
    assert validation.encode({"b": 1, "a": 2}, what="x") == validation.encode(
        {"a": 2, "b": 1}, what="x"
    )


class Circle:
    def __init__(self):
        self.me: list[object] = []
        self.me.append(self.me)


@dataclass
class Load:
    average: float


NAN = float("nan")


@pytest.mark.parametrize("value", [NAN, {"load": [NAN]}, Load(NAN), {"deep": Load(-NAN)}])
def test_a_number_that_is_not_finite_is_refused_and_not_kept_as_null(value):
    with pytest.raises(Unencodable, match=r"^plan: .*a number that is not finite"):
        validation.encode(value, what="plan")


@pytest.mark.parametrize("value", [object(), {"f": print}, Circle().me, "\ud800", {1j: 2}])
def test_what_json_cannot_say_is_refused_by_name(value):
    with pytest.raises(Unencodable, match=r"^arguments: "):
        validation.encode(value, what="arguments")


def test_a_state_over_the_limit_is_refused_with_its_size():
    fits = "x" * (validation.KEPT_BYTES_MAX - 2)
    assert validation.encode(fits, what="state")
    with pytest.raises(Unencodable, match=r"^state: 262,145 bytes, the limit is 262,144; keep it"):
        validation.encode(fits + "x", what="state")


@pytest.mark.parametrize("kind", [AsStruct, AsDataclass, AsModel])
@pytest.mark.parametrize("kept", [{}, {"host": 7}, [], None])
def test_a_state_whose_shape_has_changed_is_refused(kind, kept):
    with pytest.raises(Unencodable, match=f"^state does not fit {kind.__name__}: "):
        validation.decode(validation.encode(kept, what="state"), type_=kind, what="state")
