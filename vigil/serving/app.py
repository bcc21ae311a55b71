"""Finds the app that a node runs: `module:attribute`, looked up in the current folder."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Final

import structlog

from engine.adapters.secret import missing_variables
from engine.agents.model import Model
from engine.app.app import App
from engine.errors import EngineError
from engine.functions.names import (
    equal_agents,
    misspelt_names,
    unknown_names,
    unlimited_answers,
    unpriced_models,
)
from engine.functions.side_effects import overlapping
from engine.functions.source import unreplayable
from engine.usercode.call import hint_at
from engine.usercode.leavable import NOT_THE_USERS
from vigil.errors import Mistake, near_hint
from vigil.public import shadowing_in

log = structlog.get_logger("vigil.node")

EXTRAS: Final = {"pydantic_ai": "agents", "mcp": "mcp"}
"""Package → the extra that brings it."""


def load(name: str, *, option: str = "--app") -> App:
    """Return the app called `name`, such as `watch:app`; `option` says in errors who named it.

    Raises `Mistake` if there is none, or as `find` does.
    """
    said = f"{option} {name}".strip()
    found = find(name, option=option)
    if not isinstance(found, App):
        module_name, _, attribute = name.partition(":")
        module = sys.modules[module_name]
        what = f"{type(found).__name__!r}, not an App"
        place = f"{attribute!r} in {module.__file__}"
        raise Mistake(f"{said}: {place} is of the type {what}; {_apps_in(module)}")
    return found


def find(name: str, *, option: str) -> object:
    """Return what is called `name`, such as `watch:app`; `option` says in errors who named it.

    Raises `Mistake` if there is none, if the folder has a module that hides one of our packages, or
    for whatever the module raises: that names the user's line.
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
        raise Mistake(f"{said}: there is no {attribute!r} in {place}; {_apps_in(module)}")
    found: object = getattr(module, attribute)
    return found


def load_file(file: str, *, option: str) -> App:
    """Return the only app in a Python file, or after `:` that of a name, such as `rule.py:app`.

    Raises `Mistake` as `load` does, and if there are several.
    """
    path, _, attribute = file.partition(":")
    folder, name = Path(path).resolve().parent, Path(path).stem
    if not Path(path).is_file():
        raise Mistake(f"{option} {file}: there is no such file")
    # A name that hides no module of Python's.
    spec = importlib.util.spec_from_file_location(f"vigil_file_{name}", path)
    if spec is None or spec.loader is None:
        raise Mistake(f"{option} {file}: it is no file of Python")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))  # It may import its neighbours.
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Dataclasses look for the names of their annotations there.
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise Mistake(f"{option} {file}: {_told(error)}") from error
    apps = {key: each for key, each in vars(module).items() if isinstance(each, App)}
    if attribute:
        apps = {key: each for key, each in apps.items() if key == attribute}
    if len({id(each) for each in apps.values()}) != 1:
        there = f"it has {', '.join(apps)}; say which, as {path}:NAME" if apps else "no App in it"
        raise Mistake(f"{option} {file}: {there}")
    return next(iter(apps.values()))


def tell_found(app: App) -> None:
    """Log what `vigil check` finds in the strategies of `app`, each with its line."""
    for what, found in (
        ("this cannot work", unknown_names(app) | unlimited_answers(app) | unpriced_models(app)),
        ("a replay cannot repeat this", unreplayable(app)),
        ("one approval may stand for this more than once", overlapping(app)),
        ("this may be misspelt", misspelt_names(app)),
        ("two agents have one name", equal_agents(app)),
    ):
        for each, place in found.items():
            log.warning(
                what,
                at=each.place,
                found=each.found,
                instead=each.instead,
                expectation=".".join(filter(None, place)),
            )


def tell_missing_secrets(app: App) -> None:
    """Log which variables of `env` this node lacks, each with the output that needs it."""
    for name, route in app.outputs.items():
        for variable in missing_variables(route.output_adapter):
            log.warning("an output cannot be delivered here", output=name, not_set=variable)


def check_models(app: App) -> None:
    """Raise `Mistake` if a model of `app` cannot be asked on this machine, before anybody asks."""
    asked = {"the app": app.synthesizer}
    for id_, actor in app.actors.items():
        asked[f"actor {id_!r}"] = actor.synthesizer
        for name, each in actor.expectations.items():
            asked[f"actor {id_!r}, expectation {name!r}"] = each.synthesizer
    for place, synthesizer in asked.items():
        if isinstance(synthesizer, Model) and (problem := synthesizer.problem()):
            raise Mistake(f"{place}: synthesizer: {problem}")


def _module(name: str, *, said: str, sought_in: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            problem = f"no module named {error.name!r} in {sought_in} or on Python's path"
            meant = near_hint(error.name, (each.stem for each in Path(sought_in).glob("*.py")))
            told = "; ".join(filter(None, (problem, meant)))
            raise Mistake(f"{said}: {told}") from error
        extra = EXTRAS.get(error.name or "", "")
        remedy = f"; pip install 'vigil-engine[{extra}]'" if extra else ""
        what = f"{error.name!r}, which is not installed{remedy}"
        raise Mistake(f"{said}: it imports {what}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise Mistake(f"{said}: {_told(error)}") from error


def _apps_in(module: ModuleType) -> str:
    """Return which apps a module has, in words."""
    names = [name for name, each in vars(module).items() if isinstance(each, App)]
    return f"its app is {' or '.join(names)}" if names else "it has no App"


def _told(error: BaseException) -> str:
    """Return in one line what a module of the user raised, and where."""
    is_ours = isinstance(error, EngineError)  # They say what is wrong, and what to do.
    what = f"{error}" if is_ours else f"{type(error).__name__}: {error}".removesuffix(": ")
    if isinstance(error, SyntaxError):
        what, place = f"{type(error).__name__}: {error.msg}", f"{error.filename}:{error.lineno}"
    else:
        place = _line_of(error)
        what = "; ".join(filter(None, (what, hint_at(error))))
    return " ".join(f"{_short(place)}: {what}".removeprefix(": ").split())


def _line_of(error: BaseException) -> str:
    """Return the innermost line of the user's own files that `error` went through; or nothing."""
    places = [
        f"{frame.filename}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)  # guard: users-line-told
        if not frame.filename.startswith(NOT_THE_USERS)
    ]
    return places[-1] if places else ""


def _short(place: str) -> str:
    return place.removeprefix(f"{Path.cwd()}/")
