"""One mechanism for each job, and no constructor that is a web.

What is counted here was brought down on purpose: a number may fall, and then the table follows it.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.tidy.test_tidy import code_of, name_of, packaged, report, tree_of

MOST = {  # Folder and text → the places that may have it.
    ("engine/", "async def serve("): 3,  # A service, and a tool of the engine twice.
    ("engine/", "source.receive("): 2,  # engine/runtime/consumer.py: shared, and in order.
    ("engine/", "watch.receive("): 1,  # engine/runtime/watch.py
    ("vigil/", "asyncio.run("): 3,  # vigil/asking/connect.py, pytest's plugin, a test's process.
}

FILES_MOST = {  # Folder and text → the files that may have it.
    ("engine/", "log.append("): 2,  # engine/runtime/store.py, and the pipelined writer of episodes.
}

COLLABORATORS_MAX = 5

MORE_COLLABORATORS = {  # Classes that are handed more. A number may fall, and no line may be added.
    ("engine/execution/steps.py", "StepExecutor"): 6,
    ("engine/findings/apply.py", "FindingApplier"): 6,
    ("engine/node/supervisor.py", "NodeParts"): 6,
    ("engine/runtime/context.py", "NodeContext"): 12,
}

BOUND_METHODS = {  # Files whose classes hand methods of their own to what they make: how many.
    "engine/functions/run.py": 3,
    "engine/lanes/intake.py": 1,
    "engine/lanes/scheduler.py": 1,
    "engine/triggers/events.py": 1,
    "engine/triggers/timers.py": 1,
}

DECLARED = ("engine/app/", "engine/adapters/", "engine/toolbox/")
"""What users make, from as much as they want to say."""

VALUES = {
    "str", "int", "float", "bool", "bytes", "object", "None", "datetime", "timedelta", "Mapping",
    "Sequence", "Collection", "Iterable", "dict", "list", "set", "tuple", "frozenset", "deque",
    "Counter", "defaultdict", "Final", "Any", "asyncio", "Literal",
}  # fmt: skip
"""What is no collaborator, besides the product's data: values, and what holds values."""

DATA_BASES = {"Struct", "Enum", "StrEnum", "IntEnum", "NamedTuple", "Exception"}


@pytest.mark.parametrize(("folder", "text"), MOST)
def test_a_mechanism_has_as_many_places_as_it_needs(folder, text):
    counts = {name_of(each): code_of(each).count(text) for each in within(folder)}
    assert sum(counts.values()) <= MOST[folder, text], {k: v for k, v in counts.items() if v}


@pytest.mark.parametrize(("folder", "text"), FILES_MOST)
def test_a_mechanism_has_as_many_files_as_it_needs(folder, text):
    having = [name_of(each) for each in within(folder) if text in code_of(each)]
    assert len(having) <= FILES_MOST[folder, text], having


def test_a_class_name_is_unique_in_the_product():
    homes = Counter(each.name for each in classes() if not each.name.startswith("_"))
    report([f"{name}: {count} classes" for name, count in homes.items() if count > 1])


def test_no_constructor_is_a_web():
    counts = {
        (name_of(path), each.name): len(collaborators(each))
        for path in within("engine/")
        if not name_of(path).startswith(DECLARED)
        for each in ast.walk(tree_of(path))
        if isinstance(each, ast.ClassDef) and each.name not in data()
    }
    assert {k: n for k, n in counts.items() if n > COLLABORATORS_MAX} == MORE_COLLABORATORS


def test_no_class_hands_methods_of_its_own_to_what_it_makes():
    counts = Counter(name_of(path) for path in within("engine/") for _ in handed_out(path))
    assert dict(counts) == BOUND_METHODS


def handed_out(path: Path) -> Iterator[ast.Attribute]:
    """Yield where a class of a file gives a bound method to the constructor of another one."""
    for each in ast.walk(tree_of(path)):
        if isinstance(each, ast.ClassDef):
            own = methods(each)
            for call in ast.walk(each):
                if isinstance(call, ast.Call) and makes_something(call):
                    yield from (given for given in arguments(call) if is_own(given, own))


def makes_something(call: ast.Call) -> bool:
    """Return whether what is called has the name of a class."""
    name = ast.unparse(call.func).partition("[")[0].rpartition(".")[2]
    return name.lstrip("_")[:1].isupper()


def arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def is_own(given: ast.expr, own: frozenset[str]) -> bool:
    return (
        isinstance(given, ast.Attribute)
        and ast.unparse(given.value) == "self"
        and given.attr in own
    )


def methods(each: ast.ClassDef) -> frozenset[str]:
    """Return the methods of a class, and of those of the product that it inherits from."""
    found = {
        item.name
        for item in each.body
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)
        if not any("property" in ast.unparse(line) for line in item.decorator_list)
    }
    bases = [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in each.bases]
    parents = [parent for base in bases if base != each.name for parent in by_name().get(base, ())]
    return frozenset(found.union(*map(methods, parents)))


@cache
def by_name() -> dict[str, list[ast.ClassDef]]:
    found: dict[str, list[ast.ClassDef]] = {}
    for each in classes():
        found.setdefault(each.name, []).append(each)
    return found


def within(folder: str) -> list[Path]:
    return [path for path in packaged() if name_of(path).startswith(folder)]


def classes() -> Iterator[ast.ClassDef]:
    for path in packaged():
        yield from (each for each in ast.walk(tree_of(path)) if isinstance(each, ast.ClassDef))


@cache
def data() -> frozenset[str]:
    """Return the names of classes that are data: structs and the like, and dataclasses of data."""
    found, before = {*VALUES, *DATA_BASES}, 0
    while len(found) > before:
        before = len(found)
        found |= {each.name for each in classes() if is_data(each, found)}
    return frozenset(found)


def is_data(each: ast.ClassDef, known: set[str]) -> bool:
    bases = {word for base in each.bases for word in words_in(base)}
    if any(isinstance(item, ast.AsyncFunctionDef) for item in each.body) or "Protocol" in bases:
        return False
    if bases & known:
        return True
    return is_dataclass(each) and all(words <= known for words in own_fields(each).values())


def is_dataclass(each: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(line) for line in each.decorator_list)


def own_fields(each: ast.ClassDef) -> dict[str, set[str]]:
    """Return what a caller hands to a dataclass, without what it inherits: name → words of type."""
    fields = (item for item in each.body if isinstance(item, ast.AnnAssign))
    return {
        ast.unparse(item.target): words_in(item.annotation)
        for item in fields
        if item.value is None or "init=False" not in ast.unparse(item.value)
        if not ast.unparse(item.target).startswith("_")
    }


def taken(each: ast.ClassDef) -> dict[str, set[str]]:
    """Return what a class takes when it is made: name → words of type."""
    for item in each.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            args = [*item.args.args, *item.args.kwonlyargs]
            return {arg.arg: words_in(arg.annotation) for arg in args if arg.annotation}
    return own_fields(each) if is_dataclass(each) else {}


def collaborators(each: ast.ClassDef) -> list[str]:
    """Return what a class is handed that is neither a value nor data of the product."""
    return [name for name, words in taken(each).items() if not words <= data()]


def words_in(annotation: ast.expr | None) -> set[str]:
    """Return the names in an annotation, each by its last part."""
    text = ast.unparse(annotation) if annotation is not None else ""
    return {word.rpartition(".")[2] for word in re.findall(r"[A-Za-z_][\w.]*", text)}
