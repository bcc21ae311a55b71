"""Finds the app that a node runs: `module:attribute`, looked up in the current folder."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

from engine.app.app import App
from engine.errors import BadAdapter, BadDefinition, DeclarationError
from vigil.errors import Mistake
from vigil.public import shadowing_in


def load(name: str, *, option: str = "--app") -> App:
    """Return the app called `name`, such as `watch:app`; `option` says in errors who named it.

    Raises `Mistake` if there is none, or the folder has a module that hides one of our packages.
    What the module itself raises shows its traceback.
    """
    said = f"{option} {name}".strip()
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise Mistake(f"{said}: write module:attribute, such as watch:app")
    folder = str(Path.cwd())
    if problem := shadowing_in(folder):
        raise Mistake(problem)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module = _module(module_name, said=said, sought_in=folder)
    if not hasattr(module, attribute):
        place = f"{module_name}, which is {module.__file__}"
        raise Mistake(f"{said}: there is no {attribute!r} in {place}")
    found = getattr(module, attribute)
    if not isinstance(found, App):
        what = f"a {type(found).__name__}, not an App"
        raise Mistake(f"{said}: {attribute!r} in {module.__file__} is {what}")
    return found


def _module(name: str, *, said: str, sought_in: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (DeclarationError, BadDefinition, BadAdapter) as error:
        raise Mistake(f"{said}: {error}") from error
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise Mistake(
                f"{said}: no module named {error.name!r} in {sought_in} or on Python's path"
            ) from error
        raise Mistake(f"{said}: it imports {error.name!r}, which is not installed") from error
