"""States by chance: of every type that a state may have, and the same ones each time."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, TypedDict
from uuid import UUID

import msgspec
import pytest

from engine.app.actor import Actor
from engine.app.context import StateSchema
from engine.app.strategy import Strategy
from engine.app.triggers import event
from vigil.testing import check_migrations, random_states


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Said(TypedDict):
    by: str


@dataclass
class Note:
    text: str
    at: datetime | None = None


class Inner(msgspec.Struct, tag="inner"):
    next: Inner | None = None


class Everything(msgspec.Struct, forbid_unknown_fields=True):
    flag: bool
    number: int
    few: Annotated[int, msgspec.Meta(ge=1, le=3)]
    share: Annotated[float, msgspec.Meta(gt=0, lt=1)]
    text: str
    code: Annotated[str, msgspec.Meta(min_length=2, max_length=2)]
    colour: Colour
    kind: Literal["a", "b"]
    pair: tuple[int, str]
    items: list[Inner]
    seen: set[int]
    pairs: dict[str, list[float]]
    notes: tuple[Note, ...]
    said: Said
    day: date
    id: UUID
    any: Any
    maybe: int | None = None
    renamed: str = msgspec.field(default="", name="reNamed")


def test_every_state_is_one_of_its_type_and_plain_json():
    states = random_states(Everything)
    assert len(states) == 100
    for each in states:
        read = msgspec.json.decode(json.dumps(each).encode(), type=Everything, strict=False)
        assert 1 <= read.few <= 3
        assert len(read.code) == 2


def test_what_may_be_left_out_is_at_times():
    assert {"maybe" in each for each in random_states(Everything)} == {True, False}
    assert {"reNamed" in each for each in random_states(Everything)} == {True, False}


def test_the_same_seed_makes_the_same_states_and_another_one_others():
    assert random_states(Everything, count=5) == random_states(Everything, count=5)
    assert random_states(Everything, count=5) != random_states(Everything, count=5, seed=1)


def test_of_what_nothing_can_be_made_the_type_is_named():
    class Odd(msgspec.Struct):
        data: bytes

    with pytest.raises(TypeError, match="BytesType"):
        random_states(Odd)


class Close(Strategy):
    class State(msgspec.Struct):
        by: str
        tries: int

    def init(self, episode, trigger):
        return self.State(by="", tries=0)

    def next_step(self, state, ctx):
        raise NotImplementedError

    def converge(self, state, ctx):
        raise NotImplementedError


class Version1(msgspec.Struct):
    by: str | None
    tries: list[str]


def declared(migration):
    desk = Actor("desk")
    schema = StateSchema(version=2, migrations={1: migration})
    desk.expect("close", Close, on=event("a.b"), state_schema=schema)
    return desk.expectations["close"]


def test_a_migration_that_keeps_what_it_was_given_holds_for_random_state():
    good = declared(lambda state: {"by": state["by"] or "", "tries": len(state["tries"])})
    check_migrations(good, {1: random_states(Version1)})


def test_a_migration_that_forgot_a_rare_value_is_found():
    forgets = declared(lambda state: {"by": state["by"], "tries": len(state["tries"])})
    check_migrations(forgets, {1: [{"by": "ann", "tries": []}]})
    with pytest.raises(AssertionError, match="a state of version 1 does not fit State"):
        check_migrations(forgets, {1: random_states(Version1)})
