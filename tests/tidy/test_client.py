"""Commands are built on the client, and call nothing below it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.tidy.test_tidy import ROOT, tree_of

BESIDE = {
    "archive": "it reads and writes segments where the settings of this machine say they are",
    "backup": "it works on servers and files, and makes a stack that no client can connect to yet",
    "check": "it checks an app file, and asks no stack",
    "console": "it serves the console, which is built on the client",
    "layout": "it works on the streams of a stopped stack, to which no client connects",
    "mcp": "it asks the servers of an app, and no stack",
    "serve": "it serves nodes",
}
"""Files of `vigil/commands` that are not built on the client, and why."""

MAY = (
    "vigil.client", "vigil.commands", "vigil.errors", "vigil.options", "vigil.printing",
    "vigil.settings", "vigil.version", "streams.clock", "streams.json", "streams.model",
    "streams.ports.domain_events",
)  # fmt: skip
"""What they may import of ours: the client, what prints, and plain data."""

TARGET = "vigil.ports"
"""It has the type of what asks for approval."""

ALSO = {
    "__init__": ("vigil.flags", "vigil.plain_values"),
    "actors": ("vigil.asking.refusals", "vigil.asking.stack"),
    "answer": (TARGET,),
    "choice": ("vigil.asking.approval_requests",),
    "definitions": ("vigil.serving.app",),
    "events": ("vigil.asking.refusals", "vigil.serving.rules"),
    "fire": ("engine.app.checks", "engine.app.tools", "engine.validation"),
    "inbox": ("engine.errors",),
    "lab": ("engine.operations.lab_verdict", "vigil.asking.lab", "vigil.serving.app"),
    "login": ("vigil.logins",),
    "mode": ("vigil.asking.stack",),
    "outputs": (TARGET,),
    "projections": ("vigil.serving.own_projection",),
    "publish": ("vigil.asking.listening",),
    "workflows": (TARGET, "engine.app.tools", "vigil.asking.rows", "vigil.asking.stack"),
}
"""File → what it may import besides: what checks or words what was typed or found, and loads the
app file that a person names. None of it asks a stack: `ASKS` is never imported."""

ASKS = ("ask", "connected", "pooled", "request", "run", "with_ports")
"""What connects to a stack."""

RUNS = ("vigil/commands/call.py", "vigil.asking.connect")
"""Who makes the event loop that a client is on, and by what."""


FILES = sorted((ROOT / "vigil" / "commands").rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_command_calls_nothing_below_the_client(path: Path):
    if path.stem in BESIDE:
        return
    assert [each for each in imported(path) if not is_allowed(path, each)] == []
    if path.name != "call.py":
        assert names_imported(path).isdisjoint(ASKS)


def test_what_is_not_built_on_the_client_is_there():
    there = {path.stem for path in FILES}
    assert {*BESIDE, *ALSO} <= there


def names_imported(path: Path) -> set[str]:
    """Return what a file imports by name, for more than its annotations."""
    found = (node for node in walked(tree_of(path)) if isinstance(node, ast.ImportFrom))
    return {each.name for node in found for each in node.names}


def imported(path: Path) -> list[str]:
    """Return the modules of ours that a file imports, for more than its annotations."""
    found = (node for node in walked(tree_of(path)) if isinstance(node, ast.ImportFrom))
    ours = ("engine", "projections", "streams", "vigil")
    return [str(each.module) for each in found if str(each.module).startswith(ours)]


def walked(node: ast.AST) -> list[ast.AST]:
    """Return the nodes below `node`, without what only type checkers see."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return []
    return [node, *(each for child in ast.iter_child_nodes(node) for each in walked(child))]


def is_allowed(path: Path, module: str) -> bool:
    if (path.relative_to(ROOT).as_posix(), module) == RUNS:
        return True
    if module in ALSO.get(path.stem, ()):
        return True
    return module == "vigil" or any(module == may or module.startswith(f"{may}.") for may in MAY)
