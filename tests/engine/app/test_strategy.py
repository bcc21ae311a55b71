"""What type a strategy keeps its state in, and what it must override."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest
from pydantic import BaseModel

from engine.app.strategy import (
    Abort,
    ConvergeResult,
    StepTaken,
    Strategy,
    abort,
    missing,
    retry,
    state_type,
)
from engine.app.tools import Failure
from streams.model.events import StepKind


class AsStruct(msgspec.Struct):
    n: int = 0


@dataclass
class AsDataclass:
    n: int = 0


class AsModel(BaseModel):
    n: int = 0


@pytest.mark.parametrize("kind", [AsStruct, AsDataclass, AsModel, dict])
def test_the_declared_state_counts(kind):
    declaring = type("Declaring", (Strategy,), {"State": kind})
    assert state_type(declaring()) is kind


@pytest.mark.parametrize("kind", [AsStruct, AsDataclass, AsModel, dict, dict[str, int]])
def test_the_annotation_of_init_counts_where_nothing_is_declared(kind):
    class Annotated(Strategy):
        def init(self, episode, trigger):
            raise NotImplementedError

    Annotated.init.__annotations__["return"] = kind
    assert state_type(Annotated()) is (dict if kind == dict[str, int] else kind)


def test_an_async_init_is_read_the_same():
    class Later(Strategy):
        async def init(self, episode, trigger) -> AsStruct:
            return AsStruct()

    assert state_type(Later()) is AsStruct


def test_a_strategy_that_says_nothing_keeps_a_dict():
    class Silent(Strategy):
        def init(self, episode, trigger):
            return {}

    class Unseen(Strategy):
        def init(self, episode, trigger) -> OnlyForTypeCheckers:  # noqa: F821 - the point of it
            return {}

    assert state_type(Silent()) is dict
    assert state_type(Unseen()) is dict


@pytest.mark.parametrize("kind", [int, list, str, "AsStruct", object])
def test_a_state_that_cannot_be_kept_is_refused(kind):
    with pytest.raises(TypeError, match=r"cannot be kept; use a msgspec\.Struct, a dataclass"):
        state_type(type("Bad", (Strategy,), {"State": kind})())


class Whole(Strategy):
    def init(self, episode, trigger):
        return {}

    def next_step(self, state, ctx):
        raise NotImplementedError

    def converge(self, state, ctx):
        return ConvergeResult()


def test_three_callbacks_must_be_there():
    assert missing(Strategy()) == ["init", "next_step", "converge"]
    assert missing(Whole()) == []


STEP = StepTaken(step_no=1, kind=StepKind.OBSERVATION, tool="", action=None)


def test_by_default_a_result_is_ignored_and_a_failure_ends_the_episode():
    assert Whole().handle_result({"n": 1}, STEP, "anything") == {"n": 1}
    assert Whole().handle_result({}, STEP, Failure("quota", "tomorrow")) == Abort(
        "quota", "tomorrow"
    )


def test_retry_and_abort_are_data():
    assert retry({"n": 1}).state == {"n": 1}
    assert abort("nope", "why") == Abort("nope", "why")
