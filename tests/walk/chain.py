"""The longest chain of imports in the engine: how much must be read to have read one file whole."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.walk.trace import ENGINE


def longest_chain() -> tuple[str, ...]:
    """Return the modules of the longest chain, each imported by the one before it.

    Counted is what a module imports as it is loaded, from the module that the line names. A package
    is the module of its `__init__.py`, and only counts where a line names nothing below it.
    """
    modules = {_name(path): path for path in sorted(ENGINE.rglob("*.py"))}
    imports = {
        name: sorted(set(_imported(path, name, modules)) - {name}) for name, path in modules.items()
    }

    @cache
    def below(name: str) -> tuple[str, ...]:
        return (name, *max((below(each) for each in imports[name]), key=len, default=()))

    return max((below(name) for name in modules), key=len)


def _name(path: Path) -> str:
    parts = path.relative_to(ENGINE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(path: Path, name: str, modules: dict[str, Path]) -> Iterator[str]:
    for node in _loaded(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in modules)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name} imports by a relative name"
            for each in node.names:
                inner = f"{node.module}.{each.name}"
                yield from [known for known in (inner, node.module) if known in modules][:1]


def _loaded(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what runs when a module is loaded: no function's body, and nothing for types alone."""
    for each in ast.iter_child_nodes(node):
        is_for_types = isinstance(each, ast.If) and "TYPE_CHECKING" in ast.unparse(each.test)
        if not is_for_types and not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            yield each
            yield from _loaded(each)
