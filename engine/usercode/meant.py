"""What the user has meant by a call that cannot work, or by a name that does not exist.

Python says what is wrong, and leaves out what there is. Where a newer version of it suggests a name
itself, nothing is added.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import traceback
from difflib import get_close_matches
from functools import partial
from types import FrameType, TracebackType
from typing import Final

from engine.validation import near

_UNEXPECTED: Final = re.compile(r"[Uu]nexpected keyword argument '(\w+)'$")

_TOO_MANY: Final = re.compile(
    r"takes .*positional arguments? but .* given$|^Extra positional arguments"
)

_NOT_AWAITED: Final = re.compile(r"can't be used in 'await' expression$")

_BY_NAME: Final = frozenset(
    {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
)


INSTEAD: Final = "INSTEAD"
"""The attribute of a class of ours that has what to write instead of a name that it lacks."""


def meant(error: BaseException) -> str:
    """Return what to write instead, such as `did you mean turns?`; empty: that is not known."""
    said = str(error)
    if isinstance(error, TypeError) and (found := _UNEXPECTED.search(said)):
        return near(found[1], _arguments(_called(error.__traceback__)))
    if isinstance(error, TypeError) and _TOO_MANY.search(said):
        return "give them by name" if _arguments(_called(error.__traceback__)) else ""
    if isinstance(error, TypeError) and _NOT_AWAITED.search(said):  # guard: needless-await-told
        return "leave out `await`: the value is there at once"
    if type(error) is AttributeError and error.obj is not None:
        # guard: instead-of-attribute-told
        if instead := getattr(type(error.obj), INSTEAD, {}).get(error.name):
            return f"write {instead}"
        there = [name for name in dir(error.obj) if not name.startswith("_")]
        like = get_close_matches(str(error.name), there, n=1)
        return f"did you mean {like[0]}?" if like and "Did you mean" not in said else ""
    return ""


def _arguments(called: object) -> list[str]:
    """Return the arguments that `called` takes by name."""
    if isinstance(called, partial):  # guard: pending-call-arguments
        called = called.func
    if not callable(called):
        return []
    try:
        parameters = inspect.signature(called).parameters.values()
    except (TypeError, ValueError):
        return []
    return [each.name for each in parameters if each.kind in _BY_NAME]


def _called(trace: TracebackType | None) -> object:
    """Return what was called where an error was raised, by the source; None: it is not known."""
    if trace is None:
        return None
    while trace.tb_next is not None:
        trace = trace.tb_next
    (place,) = traceback.extract_tb(trace)
    lines = [linecache.getline(place.filename, each) for each in _lines_of(place)]
    if not lines or place.colno is None or place.end_colno is None:
        return None
    lines[-1] = lines[-1].encode()[: place.end_colno].decode(errors="replace")
    lines[0] = lines[0].encode()[place.colno :].decode(errors="replace")
    try:
        call = ast.parse(f"({''.join(lines)})", mode="eval").body
    except SyntaxError:
        return None
    return _value(call.func, trace.tb_frame) if isinstance(call, ast.Call) else None


def _lines_of(place: traceback.FrameSummary) -> range:
    first = place.lineno or 0
    return range(first, (place.end_lineno or first) + 1)


def _value(node: ast.expr, frame: FrameType) -> object:
    """Return what a name, or an attribute of one, means in `frame`; None: it means nothing."""
    match node:
        case ast.Name(id=name):
            return {**frame.f_builtins, **frame.f_globals, **frame.f_locals}.get(name)
        case ast.Attribute(value=inner, attr=attr):
            owner = _value(inner, frame)
            return None if owner is None else inspect.getattr_static(owner, attr, None)
        case _:
            return None
