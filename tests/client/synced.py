"""Writes `vigil/client/sync.py` from the client: each call once more, for code that does not wait.

To write it anew: python -m tests.client.synced
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.docs.pages import ROOT

CLIENT: Final = "vigil.client.client"
FILE: Final = ROOT / "vigil" / "client" / "sync.py"

HEAD: Final = '''"""`SyncClient`: a stack, for programs that do not wait. Generated from `Client`.

Each call is the one of the same name, run on an event loop in a thread of the client's own.
To write this file anew: python -m tests.client.synced
"""

from __future__ import annotations
'''

CLASS: Final = '''
class SyncClient:
    """The calls of `Client`, for programs that do not wait. Use it with `with`.

        with SyncClient(stack="shop", by="ann") as client:
            client.publish("probe.failed", {{"service": "pay"}})

    Settings and errors are those of `Client`. Threads may share one.
    """

    def __init__({init}) -> None:
        """Read the settings; nothing is connected yet. Raises `Mistake` as `Client` does."""
        self._client = Client({given})
        self._thread = LoopThread()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, and end the thread: no call can be made after that."""
        if self._thread.has_ended:
            return
        try:
            self._thread.run(self._client.close())
        finally:
            self._thread.close()

    @property
    def stack(self) -> Stack:
        """The stack, as its settings name it."""
        return self._client.stack
'''

OWN: Final = frozenset({"close", "publish_lines"})
"""What the twin does in its own way, or has no use for: what it is given comes without waiting."""

ALWAYS: Final = (
    ("typing", "Self"),
    ("typing", "TYPE_CHECKING"),
    ("functools", "cached_property"),
    (CLIENT, "Client"),
    ("vigil.client.thread", "LoopThread"),
    ("collections.abc", "Iterator"),
)
"""What the file needs in any case while it runs: home and name."""


@dataclass(frozen=True)
class Module:
    """A file of the client."""

    name: str
    tree: ast.Module

    def classes(self) -> dict[str, ast.ClassDef]:
        """Return its classes by name."""
        return {each.name: each for each in self.tree.body if isinstance(each, ast.ClassDef)}

    def homes(self) -> dict[str, str]:
        """Return name → the import that brings it, of all names that stand in this file."""
        found = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                found |= {each.asname or each.name: str(node.module) for each in node.names}
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                found[node.name] = self.name
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found[node.target.id] = self.name
        return found


def read(name: str) -> Module:
    path = ROOT.joinpath(*name.split(".")).with_suffix(".py")
    return Module(name, ast.parse(path.read_text()))


def calls(owner: ast.ClassDef) -> Iterator[ast.AsyncFunctionDef]:
    """Yield the calls of a class that others make."""
    for each in owner.body:
        if isinstance(each, ast.AsyncFunctionDef) and each.name[0] != "_" and each.name not in OWN:
            yield each


def groups(client: ast.ClassDef) -> Iterator[tuple[str, str, str]]:
    """Yield the attributes of the client that have calls: name, class and docstring."""
    for each in client.body:
        if isinstance(each, ast.FunctionDef) and each.returns is not None:
            by = [ast.unparse(decorator) for decorator in each.decorator_list]
            if by == ["cached_property"]:
                yield each.name, ast.unparse(each.returns), ast.get_docstring(each) or ""


def twin_of(call: ast.AsyncFunctionDef, on: str, runner: str) -> str:
    """Return the source of the same call, without waiting."""
    arguments = call.args
    passed = [each.arg for each in arguments.args[1:]]
    passed += [f"*{arguments.vararg.arg}"] if arguments.vararg else []
    passed += [f"{each.arg}={each.arg}" for each in arguments.kwonlyargs]
    returned = ast.unparse(call.returns) if call.returns else "None"
    is_iterator = returned.startswith("AsyncIterator[")
    verb = "iterate" if is_iterator else "run"
    doc = ast.get_docstring(call, clean=False)
    return (
        f"    def {call.name}({ast.unparse(arguments)})"
        f" -> {returned.removeprefix('Async')}:\n"
        f'        """{doc}"""\n'
        f"        return {runner}.{verb}({on}.{call.name}({', '.join(passed)}))\n"
    )


def names_in(call: ast.AsyncFunctionDef) -> Iterator[tuple[str, bool]]:
    """Yield the names in a call's signature, and whether they are needed while it runs."""
    arguments = call.args
    defaults = [each for each in (*arguments.defaults, *arguments.kw_defaults) if each]
    for each in defaults:
        yield from ((node.id, True) for node in ast.walk(each) if isinstance(node, ast.Name))
    for node in ast.walk(ast.Tuple([arguments, *([call.returns] if call.returns else [])])):
        if isinstance(node, ast.Name):
            yield node.id, False


class Imports:
    """What the file imports, and from where."""

    def __init__(self) -> None:
        self.needed: dict[tuple[str, str], bool] = {("streams.subjects", "Stack"): False}
        """Home and name → whether it is needed while the program runs."""

    def note(self, module: Module, call: ast.AsyncFunctionDef) -> None:
        """Note what the signature of a call names."""
        homes = module.homes()
        for name, is_run in names_in(call):
            if name in homes and name != "AsyncIterator":
                key = (homes[name], name)
                self.needed[key] = self.needed.get(key, False) or is_run

    def text(self) -> str:
        """Return the lines."""
        needed = self.needed | dict.fromkeys(ALWAYS, True)
        now = [f"from {home} import {name}" for (home, name), is_run in needed.items() if is_run]
        later = [
            f"    from {home} import {name}" for (home, name), run in needed.items() if not run
        ]
        return "\n".join([HEAD, *now, "", "if TYPE_CHECKING:", *later, ""])


def twin_class(module: Module, type_: str, imports: Imports) -> str:
    """Return the source of the twin of a class of calls."""
    lines = [
        f"class Sync{type_}:",
        f'    """The calls of `{type_}`, for programs that do not wait."""\n',
        f"    def __init__(self, calls: {type_}, thread: LoopThread) -> None:",
        "        self._calls, self._thread = calls, thread\n",
    ]
    for call in calls(module.classes()[type_]):
        imports.note(module, call)
        lines.append(twin_of(call, "self._calls", "self._thread"))
    imports.needed[module.name, type_] = False
    return "\n".join(lines)


def text() -> str:
    """Return what the file must hold."""
    front, imports, classes = read(CLIENT), Imports(), list[str]()
    client = front.classes()["Client"]
    init = next(each for each in client.body if getattr(each, "name", "") == "__init__")
    assert isinstance(init, ast.FunctionDef)
    given = ", ".join(f"{each.arg}={each.arg}" for each in init.args.kwonlyargs)
    own = CLASS.format(init=ast.unparse(init.args), given=given)
    for call in calls(client):
        imports.note(front, call)
        own += "\n" + twin_of(call, "self._client", "self._thread")
    for name, type_, doc in groups(client):
        own += (
            f"\n    @cached_property\n    def {name}(self) -> Sync{type_}:\n"
            f'        """{doc}"""\n        return Sync{type_}(self._client.{name}, self._thread)\n'
        )
        classes.append(twin_class(read(front.homes()[type_]), type_, imports))
    return formatted("\n\n".join([imports.text(), own, *classes]))


def formatted(source: str) -> str:
    """Return `source` as the formatter has it, imports in order."""
    for words in (
        ["check", "--select", "I", "--fix", "--quiet", "--stdin-filename", str(FILE), "-"],
        ["format", "--quiet", "--stdin-filename", str(FILE), "-"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *words],
            input=source,
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        )
        source = done.stdout
    return source


if __name__ == "__main__":
    Path(FILE).write_text(text())
