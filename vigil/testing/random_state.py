"""States that a type allows, by chance: for tests of migrations.

check_migrations(desk.expectations["close"], {1: random_states(StateOfVersion1)})
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import inspect

STATES: Final = 100
"""How many states there are by default."""

ITEMS_MAX: Final = 3
"""Most items of a list, and most keys of a dict, unless the type asks for more."""

TEXT_CHARS_MAX: Final = 12
"""Longest text, in characters, unless the type asks for more."""

DEPTH_MAX: Final = 5
"""From here on a type that has itself in it becomes as short as it can be."""

NUMBER_MAX: Final = 1_000
"""Largest number by default, and the smallest below 0; sometimes it is `LARGE`."""

LARGE: Final = 2**53 - 1
"""The largest whole number that every reader of JSON reads as it is."""

LARGE_SHARE: Final = 0.1

_CHARS: Final = f"{string.ascii_letters}{string.digits} ._-äß漢🙂\n"
"""Those in texts: some are more than a byte, and one is more than a character of UTF-16."""

_EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)

_YEAR_S: Final = 365 * 86_400

_Maker = Callable[[Random, Any, int], object]


def random_states(type_: type, *, count: int = STATES, seed: int = 0) -> Sequence[object]:
    """Return `count` values of `type_` as JSON has them; the same seed returns the same ones.

    `type_` is what a strategy of an older version had as its state: a `msgspec.Struct`, a
    dataclass, a TypedDict or plain types, in each other. Bounds that `msgspec.Meta` gives to
    numbers, texts and lists are kept; a pattern cannot be.

    Raises `TypeError` if there is a type in it of which nothing can be made by chance.
    """
    info, chance = inspect.type_info(type_), Random(seed)  # noqa: S311 - it hides nothing
    made = [_made(chance, info, 0) for _ in range(count)]
    for each in made:
        msgspec.convert(each, type_, strict=False)
    return made


def _made(chance: Random, info: inspect.Type, depth: int) -> object:
    make = _MAKERS.get(type(info))
    if make is None:
        raise TypeError(f"nothing can be made by chance of {info}; write such states yourself")
    return make(chance, info, depth)


def _int(chance: Random, info: inspect.IntType, _: int) -> int:
    least = -NUMBER_MAX if info.ge is None else info.ge
    least = least if info.gt is None else info.gt + 1
    most = max(NUMBER_MAX, least) if info.le is None else info.le
    most = most if info.lt is None else info.lt - 1
    if (info.le, info.lt, info.multiple_of) == (None, None, None):
        most = LARGE if chance.random() < LARGE_SHARE else most
    step = info.multiple_of or 1
    return chance.randint(-(-least // step), most // step) * step


def _float(chance: Random, info: inspect.FloatType, _: int) -> float:
    least = next((each for each in (info.ge, info.gt) if each is not None), -NUMBER_MAX)
    most = next((each for each in (info.le, info.lt) if each is not None), least + 2 * NUMBER_MAX)
    # Never an end of the range: it may be open.
    return least + (most - least) * (0.001 + 0.998 * chance.random())


def _text(chance: Random, info: inspect.StrType, _: int) -> str:
    least, most = _length(info, TEXT_CHARS_MAX)
    return "".join(chance.choices(_CHARS, k=chance.randint(least, most)))


def _length(info: Any, usual: int) -> tuple[int, int]:  # noqa: ANN401 - of texts and lists
    least = info.min_length or 0
    return least, max(least, usual) if info.max_length is None else info.max_length


def _count(chance: Random, info: Any, depth: int) -> int:  # noqa: ANN401 - as above
    least, most = _length(info, ITEMS_MAX)
    return least if depth >= DEPTH_MAX else chance.randint(least, min(most, least + ITEMS_MAX))


def _list(chance: Random, info: Any, depth: int) -> object:  # noqa: ANN401 - as above
    return [_made(chance, info.item_type, depth + 1) for _ in range(_count(chance, info, depth))]


def _tuple(chance: Random, info: inspect.TupleType, depth: int) -> object:
    return [_made(chance, each, depth + 1) for each in info.item_types]


def _dict(chance: Random, info: inspect.DictType, depth: int) -> object:
    return {
        _key(_made(chance, info.key_type, depth + 1)): _made(chance, info.value_type, depth + 1)
        for _ in range(_count(chance, info, depth))
    }


def _key(made: object) -> str:
    return made if isinstance(made, str) else str(made)


def _union(chance: Random, info: inspect.UnionType, depth: int) -> object:
    types = list(info.types)
    if depth >= DEPTH_MAX:
        types = [each for each in types if type(each) in _ENDING] or types
    return _made(chance, chance.choice(types), depth)


def _struct(chance: Random, info: Any, depth: int) -> object:  # noqa: ANN401 - and dataclasses
    said: dict[str, object] = {}
    if isinstance(info, inspect.StructType) and info.tag is not None:
        said[info.tag_field or "type"] = info.tag
    for each in info.fields:
        # What may be left out is, half of the time: a journal has no defaults.
        if each.required or (depth < DEPTH_MAX and chance.random() < 1 / 2):
            said[each.encode_name] = _made(chance, each.type, depth + 1)
    return said


def _time(chance: Random, info: inspect.DateTimeType, _: int) -> str:
    at = _EPOCH + timedelta(seconds=chance.randint(-_YEAR_S, _YEAR_S))
    return (at.replace(tzinfo=None) if info.tz is False else at).isoformat()


def _anything(chance: Random, _: inspect.AnyType, depth: int) -> object:
    plain: list[object] = [None, True, False, 0, -1, 0.5, "", "text"]
    whole: list[object] = [[], {}, ["text", None], {"key": 1}]
    return chance.choice(plain if depth >= DEPTH_MAX else plain + whole)


_ENDING: Final = frozenset(
    {
        inspect.NoneType, inspect.BoolType, inspect.IntType, inspect.FloatType, inspect.StrType,
        inspect.EnumType, inspect.LiteralType, inspect.DateTimeType,
    }
)  # fmt: skip
"""Types that have no others in them."""

_MAKERS: Final[Mapping[type, _Maker]] = {
    inspect.AnyType: _anything,
    inspect.BoolType: lambda chance, _, __: chance.random() < 1 / 2,
    inspect.DataclassType: _struct,
    inspect.DateTimeType: _time,
    inspect.DateType: lambda chance, _, __: (
        (_EPOCH + timedelta(days=chance.randint(-NUMBER_MAX, NUMBER_MAX))).date().isoformat()
    ),
    inspect.DictType: _dict,
    inspect.EnumType: lambda chance, info, _: chance.choice(list(info.cls)).value,
    inspect.FloatType: _float,
    inspect.FrozenSetType: _list,
    inspect.IntType: _int,
    inspect.ListType: _list,
    inspect.LiteralType: lambda chance, info, _: chance.choice(info.values),
    inspect.NoneType: lambda *_: None,
    inspect.SetType: _list,
    inspect.StrType: _text,
    inspect.StructType: _struct,
    inspect.TupleType: _tuple,
    inspect.TypedDictType: _struct,
    inspect.UUIDType: lambda chance, _, __: str(UUID(int=chance.getrandbits(128), version=4)),
    inspect.UnionType: _union,
    inspect.VarTupleType: _list,
}
