"""Public names that are imported when they are first used (PEP 562).

Where a user's own folder or module is called as a package of ours, `shadowing` tells in one line.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.machinery import PathFinder
from os import listdir
from os.path import dirname, join, realpath
from typing import Final

ROOT: Final = dirname(dirname(realpath(__file__)))
"""The folder that has this package and the ones that it needs."""

PACKAGES: Final = ("engine", "streams", "projections")


def public(
    module: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for `module`; `homes`: module → its public names."""
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def get(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        if problem := shadowing():
            raise ImportError(problem)
        found: object = getattr(import_module(home_of[name]), name)
        sys.modules[module].__dict__[name] = found
        return found

    return get, lambda: sorted({*sys.modules[module].__dict__, *home_of})


def shadowing() -> str:
    """Return what hides a package of ours, and what to do about it; empty: nothing does."""
    for name in PACKAGES:
        place = _place_of(name)
        if place is not None and dirname(realpath(place)) != ROOT:
            return _problem(name, place)
    return ""


def shadowing_in(folder: str) -> str:
    """Return what in `folder` would hide a package of ours, and what to do; empty: nothing."""
    if realpath(folder) == ROOT:
        return ""
    for name in (*PACKAGES, "vigil"):  # guard: own-vigil-file-told
        spec = PathFinder.find_spec(name, [folder])
        if spec is None:
            continue
        place = join(folder, name)
        is_file = spec.origin is not None and not spec.submodule_search_locations
        if is_file:
            place = f"{place}.py"
        if spec.origin is not None or any(each.endswith(".py") for each in listdir(place)):
            return _problem(name, place)
    return ""


def _problem(name: str, place: str) -> str:
    return (
        f"{place} hides Vigil's own package {name!r}: rename it, such as to my_{name}, move it into"
        " a package of your own, or run from a folder that has nothing of that name"
    )


def _place_of(name: str) -> str | None:
    loaded = sys.modules.get(name)
    spec = loaded.__spec__ if loaded is not None else PathFinder.find_spec(name)
    if spec is None:
        return None
    folders = list(spec.submodule_search_locations or ())
    return folders[0] if folders else spec.origin
