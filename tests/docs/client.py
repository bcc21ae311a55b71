"""The calls of a client as the reference lists them, from their signatures and docstrings."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator

from tests.client.synced import CLIENT, calls, groups, read


def client_calls() -> str:
    """Return a part for the client itself, and one for each group of calls."""
    front = read(CLIENT)
    client = front.classes()["Client"]
    parts = [part("client", client)]
    for name, type_, _ in groups(client):
        parts.append(part(f"client.{name}", read(front.homes()[type_]).classes()[type_]))
    return "\n\n".join(parts)


def part(name: str, owner: ast.ClassDef) -> str:
    lines = ["| call | does | raises |", "| --- | --- | --- |"]
    lines += [f"| {' | '.join(row_of(call))} |" for call in calls(owner)]
    return "\n".join([f"### `{name}`", "", *lines])


def row_of(call: ast.AsyncFunctionDef) -> tuple[str, str, str]:
    """Return the signature of a call, what it does, and what it raises."""
    doc = inspect.cleandoc(ast.get_docstring(call) or "")
    said, _, raised = doc.partition("Raises:")
    does, _, args = said.partition("Args:")
    words = [" ".join(does.split())]
    words += [f"`{name}`: {text}." for name, text in entries(args)]
    errors = "; ".join(f"`{name}`: {text}" for name, text in entries(raised))
    return f"`{call.name}({names(call.args)})`", " ".join(words), errors


def names(arguments: ast.arguments) -> str:
    """Return the names of arguments; those with a default are in brackets."""
    plain = arguments.args[1:]
    required = len(plain) - len(arguments.defaults)
    said = [each.arg if at < required else f"[{each.arg}]" for at, each in enumerate(plain)]
    said += [f"*{arguments.vararg.arg}"] if arguments.vararg else []
    for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        said.append(f"{each.arg}=" if default is None else f"[{each.arg}=]")
    return ", ".join(said)


def entries(section: str) -> Iterator[tuple[str, str]]:
    """Yield the names of a section of a docstring, and what is said of each."""
    text = inspect.cleandoc(f"\n{section}")
    for name, said in re.findall(r"(?ms)^(\w+): (.*?)(?=^\w+: |\Z|\n\n)", text):
        yield name, " ".join(said.split()).rstrip(".")
