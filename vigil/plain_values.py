"""Values of the command line without pydantic, which takes longer to import than most commands run.

typer 0.29 builds an adapter for every parameter, typed or not. Plain values need none; any other
goes typer's own way, so that its error is typer's. With another typer nothing here has an effect.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final

NOT_PLAIN: Final = object()
"""Returned for a value that typer itself must look at."""


def use_plain_values(command: Any) -> None:  # noqa: ANN401 - of typer's own click
    """Have the parameters of `command`, and of those within it, take plain values as they are."""
    for parameter in command.params:
        descriptor = getattr(parameter, "type_descriptor", None)
        convert = None if descriptor is None else _converter(descriptor)
        if convert is not None and getattr(parameter, "_runtime_param", 0) is None:
            parameter._runtime_param = _Plain(convert, descriptor)  # noqa: SLF001 - see above
    for child in getattr(command, "commands", {}).values():
        use_plain_values(child)


class _Plain:
    """Replaces typer's `RuntimeParam`."""

    def __init__(self, convert: Callable[[Any], object], descriptor: Any) -> None:  # noqa: ANN401 - any type
        self._convert, self._descriptor = convert, descriptor

    def coerce(self, value: Any, param: Any, ctx: Any) -> object:  # noqa: ANN401 - as typer calls it
        is_several = param.multiple or param.nargs == -1
        if value is None:
            return () if is_several else None
        values = [self._convert(each) for each in (value if is_several else [value])]
        if NOT_PLAIN in values or (is_several and isinstance(value, str)):
            from typer._coercion import build_runtime_param

            return build_runtime_param(self._descriptor).coerce(value, param, ctx)
        return values if is_several else values[0]


def _converter(descriptor: Any) -> Callable[[Any], object] | None:  # noqa: ANN401 - any type
    of, info = descriptor.annotation, descriptor.parameter_info
    if descriptor.is_list:
        (of,) = of.__args__
    if info.parser is not None or getattr(info, "clamp", False) or not isinstance(of, type):
        return None
    if of in (str, bool):
        return lambda value: value if isinstance(value, of) else NOT_PLAIN
    if of in (int, float):
        return lambda value: _number(of, value, info.min, info.max)
    if issubclass(of, Enum):
        return lambda value: next((e for e in of if value in (e, e.value)), NOT_PLAIN)
    return None


def _number(of: Any, value: Any, least: float | None, most: float | None) -> object:  # noqa: ANN401 - any type
    try:
        number = of(value)
    except ValueError:
        return NOT_PLAIN
    fits = (least is None or number >= least) and (most is None or number <= most)
    return number if fits else NOT_PLAIN
