"""Checks of plain values that several features share: strict models, durations and paths. Pure.

A `Strict` model knows no fields but its own and converts no types ("5" is not 5). Its errors are
one line: `rules.1.severity: write one of 'low', 'medium', 'high' or 'critical', not 'bad'`.

A duration is a number of seconds, a timedelta, or a text such as `1h30m`: whole numbers with units,
the largest of `w`, `d`, `h`, `m`, `s`, `ms` first and each at most once. A text needs a unit.

A path is words joined by dots: `disk.used` is `used` in the object under `disk`. At each level a
key that is literally the rest of the path wins, so keys may contain dots; otherwise the path is cut
at its first dot. Lists are not searched.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from itertools import islice
from typing import Annotated, Any, Final, TypeAlias, TypeVar
from uuid import UUID

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from engine.errors import BadDefinition, BadRequest, Unencodable
from streams.errors import BadName
from streams.json import JsonObject, exact, place_of_problem
from streams.model.findings import Severity
from streams.tokens import name as checked_name

KEPT_BYTES_MAX: Final = 256 * 1024
"""Largest state, argument, result or evidence that the journal keeps. The object store has larger
results of tools."""


DOUBLINGS_MAX: Final = 32
"""More doublings than this would only overflow: every pause has reached its longest by then."""

_DIGEST_BYTES: Final = 8


Duration: TypeAlias = float | str | timedelta
"""How a duration may be written."""

_UNITS_MS: Final[Mapping[str, int]] = {
    "w": 604_800_000,
    "d": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1_000,
    "ms": 1,
}

_HOUR_S: Final = 3_600
"""Whoever may say no less thinks in days."""

_TEXT: Final = re.compile("".join(rf"(?:([0-9]{{1,12}}){unit})?" for unit in _UNITS_MS))


BY_CHARS_MAX: Final = 200
"""Longest name of who asks, in characters; every episode keeps it."""

HASH_CHARS: Final = 64

REASON_CHARS_MAX: Final = 4_000
"""Longest reason, in characters."""


PATH_CHARS_MAX: Final = 512
"""Longest path, in characters. As long as a subject key, which is one."""


NAMES_MAX: Final = 12
"""Most names that are told where none is like the given one."""

SHOWN_CHARS_MAX: Final = 80
"""Most of a value that an error shows."""

_TAG: Final = re.compile(r"\(\w+\)")

_UNKNOWN: Final = "unknown_field"

_WRONG: Final = "wrong_field"

_WANTED: Final[Mapping[str, str]] = {
    "string_type": "a text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "decimal_parsing": "a number",
    "decimal_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "too_short": "at least one",
    "string_too_short": "a text that is not empty",
}
"""What pydantic calls an error → what to write."""

M = TypeVar("M", bound="Strict")

T = TypeVar("T")

# JSON has neither: a list and a text stand for them. What is in a list is as strict as ever.
Listed: TypeAlias = Annotated[tuple[T, ...], Field(strict=False)]
"""Any number of values."""

Graded: TypeAlias = Annotated[Severity, Field(strict=False)]
"""A severity."""


def encode(value: object, *, what: str, bytes_max: int | None = KEPT_BYTES_MAX) -> msgspec.Raw:
    """Return `value`, also a struct, dataclass or model, as JSON; or raise `Unencodable`.

    `bytes_max`: how long it may be; None: as long as it is.
    """
    try:
        plain = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
        encoded = exact(plain)  # guard: infinite-not-kept-as-null
    except (TypeError, ValueError) as error:
        where = "" if isinstance(value, BaseModel) else place_of_problem(value)
        problem = f"JSON has no such value at {where}" if where else f"{error}"
        raise Unencodable(f"{what}: {problem}") from error
    size_bytes = len(memoryview(encoded))
    if bytes_max is not None and size_bytes > bytes_max:
        raise Unencodable(
            f"{what}: {size_bytes:,} bytes, the limit is {bytes_max:,};"
            " keep it elsewhere and hand on a reference"
        )
    return encoded


def decode(encoded: msgspec.Raw, *, type_: type, what: str) -> Any:  # noqa: ANN401 - the user's
    """Return the state in `encoded`; `Unencodable`: its shape has changed since."""
    try:
        if issubclass(type_, BaseModel):
            return type_.model_validate_json(bytes(encoded))
        return msgspec.json.decode(encoded, type=type_)
    except (msgspec.MsgspecError, ValidationError, TypeError) as error:
        raise Unencodable(f"{what} does not fit {type_.__name__}: {error}") from error


def problem_of_count(field: str, value: object, *, most: int) -> str | None:
    """Return why `value` is no whole number from 1 to `most`, for people, or None."""
    if is_whole(value) and isinstance(value, int) and 1 <= value <= most:
        return None
    return f"{field}: {value!r} is not a whole number from 1 to {most:,}"


def problem_of_number(field: str, value: object, *, most: float) -> str | None:
    """Return why `value` is no number over 0 and up to `most`, for people, or None."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and isinstance(value, int | float) and 0 < value <= most:
        return None
    return f"{field}: {value!r} is not a number over 0 and up to {most:,g}"


def backoff_s(tries: int, *, first_s: float, most_s: float) -> float:
    """Return the pause after the `tries`-th failure, from 1: it doubles, up to `most_s`."""
    return min(first_s * 2.0 ** min(tries - 1, DOUBLINGS_MAX), most_s)


def jittered_s(pause_s: float, *, seed: str) -> float:
    """Return half to all of `pause_s`, fixed by `seed`, so that rivals do not retry together."""
    digest = hashlib.blake2b(seed.encode(), digest_size=_DIGEST_BYTES).digest()
    share = int.from_bytes(digest) / (1 << 8 * _DIGEST_BYTES)
    return pause_s * (1 + share) / 2


def finite(value: object) -> float | None:
    """Return `value` as a float if it is a finite number, and else None."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


def is_whole(value: object) -> bool:
    """Return whether `value` is a whole number; `True`, an `int` to Python, is none."""
    return isinstance(value, int) and not isinstance(value, bool)


def seconds_of(value: object, *, least_s: float, most_s: float) -> float:
    """Return the seconds of a `Duration`; `ValueError`: it is none, or out of bounds."""
    seconds = _seconds(value)
    if seconds is None:
        like = "'12h' or '30d'" if least_s >= _HOUR_S else "90, '15m' or '1h30m'"
        raise ValueError(f"{value!r} is not a duration; write {like}")
    if not least_s <= seconds <= most_s:
        is_long = least_s >= _HOUR_S and not isinstance(value, str)
        said = f"{value} s" if is_long else repr(value)
        raise ValueError(f"{said} is not from {_spelled(least_s)} to {_spelled(most_s)} long")
    return float(seconds)


def _seconds(value: object) -> float | None:
    match value:
        case bool():
            return None
        case float() if not math.isfinite(value):
            return None
        case int() | float():
            return value
        case timedelta():
            return value.total_seconds()
        case str() if value and (match := _TEXT.fullmatch(value)):
            numbers = zip(match.groups("0"), _UNITS_MS.values(), strict=True)
            return sum(int(number) * unit_ms for number, unit_ms in numbers) / 1000
        case _:
            return None


def _spelled(seconds: float) -> str:
    ms = round(seconds * 1000)
    unit = next(unit for unit, unit_ms in _UNITS_MS.items() if ms % unit_ms == 0)
    return f"{ms // _UNITS_MS[unit]:,}{unit}"


def check_name(field: str, value: str) -> None:
    """Raise `BadRequest` unless `value` can name an actor or an expectation."""
    try:
        checked_name(value, of=field)
    except (BadName, TypeError) as error:
        problem = f"{value!r} is not a name; use 1 to 64 of A-Z a-z 0-9 _ -"
        raise BadRequest(field=field, problem=problem) from error


def check_id(field: str, value: str) -> None:
    """Raise `BadRequest` unless `value` is an episode's id as the engine writes it."""
    try:
        is_id = str(UUID(value)) == value
    except (ValueError, TypeError, AttributeError):
        is_id = False
    if not is_id:
        problem = f"{value!r} is not the id of an episode, 36 of 0-9 a-f -"
        raise BadRequest(field=field, problem=problem)


def check_switch(field: str, *, value: bool) -> None:
    """Raise `BadRequest` unless `value` is a `bool`."""
    if not isinstance(value, bool):
        raise BadRequest(field=field, problem=f"{value!r} is not True or False")


def check_text(field: str, value: object, *, least: int, most: int) -> None:
    """Raise `BadRequest` unless `value` is text of `least` to `most` characters."""
    if not isinstance(value, str):
        raise BadRequest(field=field, problem=f"{value!r} is not text")
    if not least <= len(value) <= most:
        problem = f"{len(value):,} characters, not {least} to {most:,}"
        raise BadRequest(field=field, problem=problem)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(field=field, problem=f"{value!r} is not valid Unicode text") from error


def check_hash(field: str, value: object) -> None:
    """Raise `BadRequest` unless `value` has the length of a plan's hash, SHA-256 in hex."""
    check_text(field, value, least=HASH_CHARS, most=HASH_CHARS)


def check_cause(by: object, reason: object = "", *, most: int = REASON_CHARS_MAX) -> None:
    """Raise `BadRequest` unless `by` names who asks for a change, and `reason` is text."""
    check_text("by", by, least=1, most=BY_CHARS_MAX)
    check_text("reason", reason, least=0, most=most)


KEYS_MAX: Final = 1_000
"""Most keys of a payload that a misspelt one is compared with."""


def paths_beside(payload: JsonObject, path: str) -> list[str]:
    """Return the paths that `payload` has where `path` leads nowhere: those beside what it lacks.

    The first `KEYS_MAX` of them, each up to `PATH_CHARS_MAX` characters.
    """
    level, before, rest = payload, "", path
    while True:
        word, dot, rest = rest.partition(".")
        below = level.get(word)
        if not (dot and isinstance(below, dict)):
            return [f"{before}{key}"[:PATH_CHARS_MAX] for key in islice(level, KEYS_MAX)]
        level, before = below, f"{before}{word}."


def problem_of_path(path: object) -> str | None:
    """Return why `path` leads nowhere, or None."""
    if not isinstance(path, str):
        return f"{path!r} is not text"
    if len(path) > PATH_CHARS_MAX:
        return f"a path of {len(path):,} characters, the limit is {PATH_CHARS_MAX}"
    if not all(path.split(".")):
        return f"{path!r} is not a path; use words joined by dots, such as 'disk.used'"
    return None


class Strict(BaseModel):
    """A model that refuses what it does not know."""

    model_config = ConfigDict(
        strict=True, frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True
    )

    @model_validator(mode="before")
    @classmethod
    def _knows_every_field(cls, data: object) -> object:
        known = [field.alias or name for name, field in cls.model_fields.items()]
        strays = [key for key in data if key not in known] if isinstance(data, Mapping) else []
        if strays:
            raise PydanticCustomError(
                _UNKNOWN,
                "there is no such field; {meant}write one of {known}",
                {
                    "field": str(strays[0]),
                    "meant": _meant(str(strays[0]), known),
                    "known": ", ".join(known),
                },
            )
        return data


def parsed(model: type[M], data: object) -> M:
    """Return `data` as a `model`; `BadDefinition` names the first wrong field."""
    try:
        plain = as_json(data)
    except (TypeError, ValueError) as error:
        raise BadDefinition("", f"JSON cannot say it: {error}") from error
    try:
        return model.model_validate(plain)
    except ValidationError as error:
        raise _in_one_line(error.errors(include_url=False)[0]) from error


def as_json(value: object) -> Any:  # noqa: ANN401 - the shape is the user's
    """Return what JSON makes of `value`, keys in order; `TypeError` or `ValueError`: it is none."""
    exact(value)
    return msgspec.json.decode(msgspec.json.encode(value))  # guard: definition-read-in-order


def tag(kind: str) -> str:
    """Return a tag that tells pydantic the kinds of a value apart; paths in errors omit it."""
    return f"({kind})"


def wrong(field: str, problem: str) -> PydanticCustomError:
    """Return the error for `field`, from a validator that checks several."""
    return PydanticCustomError(_WRONG, "{problem}", {"field": field, "problem": problem})


def near(given: str, there: Iterable[str]) -> str:
    """Return which of the names `there` is like `given`, or else all of them if they are few.

    One that begins with what is given is nearer than any that is spelled alike.
    """
    names = list(there)
    begun = [each for each in names if given and each.startswith(given)]
    if like := get_close_matches(given, begun, n=1, cutoff=0) or get_close_matches(
        given, names, n=1
    ):
        return f"did you mean {like[0]}?"
    return f"known: {', '.join(names)}" if 0 < len(names) <= NAMES_MAX else ""


def _meant(stray: str, known: Sequence[str]) -> str:
    """Return a hint at a similar field, as the beginning of a sentence; empty: none is."""
    like = get_close_matches(stray, known, n=1)
    return f"did you mean {like[0]}? Or " if like else ""


def _in_one_line(error: ErrorDetails) -> BadDefinition:
    context: Mapping[str, Any] = error.get("ctx", {})
    place = [str(each) for each in error["loc"] if not _TAG.fullmatch(str(each))]
    path = ".".join([*place, context["field"]] if "field" in context else place)
    match error["type"]:
        case "unknown_field" | "wrong_field":
            return BadDefinition(path, error["msg"])
        case "missing":
            return BadDefinition(path, "write it; there is no default")
        case "value_error":
            return BadDefinition(path, str(context["error"]))
        case "too_long":
            most = context["max_length"]
            return BadDefinition(path, f"write at most {most}, not {len(error['input'])}")
        case "string_too_long":
            wanted = f"at most {context['max_length']} characters"
        case "literal_error" | "enum":
            wanted = context["expected"]
        case type_:
            wanted = _WANTED.get(type_, error["msg"])
    return BadDefinition(path, f"write {wanted}, not {shown(error['input'])}")


def shown(value: object) -> str:
    """Return `value` as an error shows it: on one line, cut at `SHOWN_CHARS_MAX`."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[: SHOWN_CHARS_MAX - 1]}…"
