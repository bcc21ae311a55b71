"""Comparing: what a new definition changes, in lines for people. Pure.

    + expectations.disk.priority: 5
    ~ expectations.disk.cooldown_s: 60 → 120
    - expectations.memory.strategy.ref: "checks:Memory"
    + steps.notify.timeout_s: 60

What is not said is as by default. Objects of a list that all have an id of their own, such as the
steps of a workflow, are compared by it; a line of the list itself has the ids in their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from engine.app.conditions import is_same
from engine.validation import ABSENT
from streams.json import JsonObject

VALUE_CHARS_MAX: Final = 120
"""Most of a value that a line shows."""


def difference(old: JsonObject | None, new: JsonObject | None) -> list[str]:
    """Return what is added (+), changed (~) and taken away (-), in the order of the paths.

    Args:
        old: the definition as it stands, in its canonical form; None: there is none.
        new: as it is to be; None: there will be none.
    """
    before, after = dict(_paths(old)), dict(_paths(new))
    lines = (
        _line(path, before.get(path, ABSENT), after.get(path, ABSENT))
        for path in sorted(before.keys() | after.keys())
    )
    return [line for line in lines if line]


def _paths(definition: JsonObject | None) -> Iterator[tuple[str, object]]:
    return _leaves(definition, "") if definition else iter(())


def _leaves(value: object, path: str) -> Iterator[tuple[str, object]]:
    """Yield every value that holds no others, with its path."""
    match value:
        case dict() if value:
            for key, item in value.items():
                yield from _leaves(item, f"{path}.{key}" if path else key)
        case list() if (by_id := _by_id(value)) is not None:
            yield path, list(by_id)
            yield from _leaves(by_id, path)
        case list() if any(isinstance(item, dict) for item in value):
            for index, item in enumerate(value):
                yield from _leaves(item, f"{path}.{index}")
        case _:
            yield path, value


def _by_id(items: list[object]) -> JsonObject | None:
    """Return the objects of a list by their ids; None: one has none, or another's."""
    by_id: JsonObject = {}
    for item in items:
        match item:
            case {"id": str(id_), **rest} if id_ not in by_id:
                by_id[id_] = rest
            case _:
                return None
    return by_id or None


def _line(path: str, before: object, after: object) -> str:
    if before is ABSENT:
        return f"+ {path}: {_shown(after)}"
    if after is ABSENT:
        return f"- {path}: {_shown(before)}"
    return "" if is_same(before, after) else f"~ {path}: {_shown(before)} → {_shown(after)}"


def _shown(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[: VALUE_CHARS_MAX - 1]}…"
