"""Inputs: what steps of a workflow are told, as data instead of functions. Pure.

    input:     {client: trigger.client, hit: prior.screen.hit, owners: [prior.rate.owner, ann]}
    when:      {prior.screen.hit: true, trigger.amount: {gte: 10}}
    for_each:  prior.rate.owners

A text that is `trigger` or `item`, or begins with `trigger.`, `prior.` or `item.`, is a path: what
is there takes its place, or null. Everything else is what it is, and so is the whole of
`{value: …}`. So what a step is told depends on nothing but the definition and what is recorded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from engine.conditions import conditions_of
from engine.filters import Filter, filter_of, misfit
from engine.paths import ABSENT, value_at
from engine.strict import shown
from engine.workflows.step import Prior
from streams.json import JsonObject
from streams.triggers import Trigger

DEPTH_MAX: Final = 32
"""Most objects and lists within each other in an input."""

PATHS_MAX: Final = 100
"""Most paths in one input, for each may lead to a whole payload."""

STATIC: Final = "value"
"""The only key of an object that stands for what is under it, as it is."""

_PATH: Final = re.compile(r"trigger|item|(trigger|prior|item)\..*", re.DOTALL)


@dataclass(frozen=True)
class FilledInput:
    """The input of a step: what is said, with what its paths lead to."""

    said: JsonObject | str
    """An object of fields, or the path to a whole one."""

    def __call__(self, trigger: Trigger, prior: Prior) -> JsonObject:
        """Return the input.

        Raises:
            TypeError: there is no object at the only path.
        """
        return _object(self.said, _seen(trigger, prior))


@dataclass(frozen=True)
class Condition:
    """Whether a step runs: all that is wanted must be there."""

    wanted: Filter

    def __call__(self, trigger: Trigger, prior: Prior) -> bool:
        """Return whether it does."""
        return misfit(self.wanted, _seen(trigger, prior)) is None


@dataclass(frozen=True)
class Items:
    """What a step fans out over, and what it is told of each item."""

    path: str
    said: JsonObject | str | None = None
    """The input for each item, which is `item` in it; None: the item is all."""

    def __call__(self, trigger: Trigger, prior: Prior) -> Sequence[Any]:
        """Return the items, or their inputs.

        Raises:
            TypeError: there is no list at the path, or no object at the only path of an input.
        """
        seen = _seen(trigger, prior)
        items = _found(self.path, seen)
        if not isinstance(items, list):
            raise TypeError(f"{self.path}: {shown(items)} is not a list")
        if self.said is None:
            return items
        return [_object(self.said, {**seen, "item": item}) for item in items]


def is_path(said: object) -> TypeGuard[str]:
    """Return whether a value stands for what it leads to."""
    return isinstance(said, str) and _PATH.fullmatch(said) is not None


def condition_of(when: Mapping[str, object]) -> Condition:
    """Return the condition that is spelled as a filter over paths.

    Raises:
        ValueError: a path leads nowhere, or what is wanted there cannot work.
    """
    return Condition(filter_of({path: conditions_of(each) for path, each in when.items()}))


def paths_in(said: object) -> Sequence[tuple[str, str]]:
    """Return every path of an input, and where in it that stands.

    Raises:
        ValueError: it is no input.
    """
    if not isinstance(said, dict):
        if not is_path(said):
            raise ValueError(f"write an object of fields, or one path, not {shown(said)}")
        return [("", said)]
    paths = [one for key, each in said.items() for one in _paths(each, key, depth=1)]
    if len(paths) > PATHS_MAX:
        raise ValueError(f"{len(paths):,} paths, the limit is {PATHS_MAX}")
    return paths


def _paths(said: object, place: str, *, depth: int) -> Iterator[tuple[str, str]]:
    if depth > DEPTH_MAX:
        raise ValueError(f"more than {DEPTH_MAX} objects and lists within each other")
    if is_path(said):
        yield place, said
    for key, each in _parts(said):
        yield from _paths(each, f"{place}.{key}", depth=depth + 1)


def _parts(said: object) -> Sequence[tuple[object, object]]:
    """Return what a value that is no path is made of, by key or index."""
    match said:
        case dict() if not _is_static(said):
            return list(said.items())
        case list():
            return list(enumerate(said))
        case _:
            return ()


def _is_static(said: Mapping[str, object]) -> bool:
    return said.keys() == {STATIC}


def _seen(trigger: Trigger, prior: Prior) -> JsonObject:
    return {"trigger": trigger.payload, "prior": prior}


def _object(said: JsonObject | str, seen: JsonObject) -> JsonObject:
    if isinstance(said, dict):
        return {key: _filled(each, seen) for key, each in said.items()}
    found = _found(said, seen)
    if not isinstance(found, dict):
        raise TypeError(f"{said}: {shown(found)} is not an object")
    return found


def _filled(said: object, seen: JsonObject) -> object:
    """Return a value with what its paths lead to."""
    if is_path(said):
        return _found(said, seen)
    match said:
        case dict() if _is_static(said):
            return said[STATIC]
        case dict():
            return {key: _filled(each, seen) for key, each in said.items()}
        case list():
            return [_filled(each, seen) for each in said]
        case _:
            return said


def _found(path: str, seen: JsonObject) -> object:
    found = value_at(seen, path)
    return None if found is ABSENT else found
