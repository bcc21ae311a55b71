"""What is said as data, read whole or refused in one line. Pure.

    rules.1.severity: write one of 'low', 'medium', 'high' or 'critical', not 'bad'

Every model of templates and definitions is a `Strict`: it knows no fields but its own, and takes
no value of another type for one of the right type, such as "5" for 5.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from engine.errors import BadDefinition
from streams.findings import Severity
from streams.json import exact

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
    """Return `data`, any JSON value, as a `model`.

    Raises:
        BadDefinition: it is none; the error names the first field that is wrong, and what to write.
    """
    try:
        plain = as_json(data)
    except (TypeError, ValueError) as error:
        raise BadDefinition("", f"JSON cannot say it: {error}") from error
    try:
        return model.model_validate(plain)
    except ValidationError as error:
        raise _in_one_line(error.errors(include_url=False)[0]) from error


def as_json(value: object) -> Any:  # noqa: ANN401 - the shape is the user's
    """Return what JSON makes of `value`; the keys of an object stay in their order.

    Raises:
        TypeError, ValueError: JSON cannot say it.
    """
    exact(value)
    return msgspec.json.decode(msgspec.json.encode(value))


def tag(kind: str) -> str:
    """Return what tells pydantic one kind of a value from another, and stands in no path."""
    return f"({kind})"


def wrong(field: str, problem: str) -> PydanticCustomError:
    """Return the error that says what is wrong with a field, for whoever looks at several."""
    return PydanticCustomError(_WRONG, "{problem}", {"field": field, "problem": problem})


def _meant(stray: str, known: Sequence[str]) -> str:
    """Return which field may have been meant, as the beginning of a sentence; empty: none."""
    near = get_close_matches(stray, known, n=1)
    return f"did you mean {near[0]}? Or " if near else ""


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
    """Return a value as an error shows it: on one line, and not all of it if it is long."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[: SHOWN_CHARS_MAX - 1]}…"
