"""Where in a payload a value is: the one rule for paths. Pure.

A path is words joined by dots: `disk.used` is `used` in the object under `disk`. At each level a
key that is literally the rest of the path wins, so that keys with dots in them can be named, too;
otherwise the path is cut at its first dot. Lists are not looked into.
"""

from __future__ import annotations

from typing import Final

import msgspec

from streams.json import JsonObject

ABSENT: Final = msgspec.UNSET
"""What stands where there is nothing; JSON's `null` is something."""

PATH_CHARS_MAX: Final = 512
"""Longest path, in characters. As long as a subject key, which is one."""


def value_at(payload: JsonObject, path: str) -> object:
    """Return the value at `path`, or `ABSENT`."""
    level: object = payload
    rest = path
    while isinstance(level, dict):
        if rest in level:
            return level[rest]
        word, dot, rest = rest.partition(".")
        level = level.get(word) if dot else ABSENT
    return ABSENT


def problem_of_path(path: object) -> str | None:
    """Return why `path` leads nowhere, or None."""
    if not isinstance(path, str):
        return f"{path!r} is not text"
    if len(path) > PATH_CHARS_MAX:
        return f"a path of {len(path):,} characters, the limit is {PATH_CHARS_MAX}"
    if not all(path.split(".")):
        return f"{path!r} is not a path; use words joined by dots, such as 'disk.used'"
    return None
