"""The operations of the JSON API as the reference lists them, and what ends a request otherwise."""

from __future__ import annotations

import msgspec

from vigil.web.api.operation import AnyOperation
from vigil.web.api.problems import KINDS
from vigil.web.api.table import OPERATIONS


def api_operations() -> str:
    """Return a table of the operations of each part."""
    parts: dict[str, list[AnyOperation]] = {}
    for each in OPERATIONS:
        parts.setdefault(each.name.partition(".")[0], []).append(each)
    return "\n\n".join(f"### {_titled(name)}\n\n{_table(each)}" for name, each in parts.items())


def _titled(name: str) -> str:
    return f"API: {name.replace('_', ' ')}"


def _table(operations: list[AnyOperation]) -> str:
    lines = ["| request | does | takes | role | scope |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([*lines, *(f"| {' | '.join(_row(each))} |" for each in operations)])


def _row(operation: AnyOperation) -> tuple[str, ...]:
    role = f"{operation.role}, a person" if operation.of_people else operation.role.value
    return (
        f"`{operation.method} {operation.path}`",
        operation.does,
        _fields(operation),
        role,
        f"`{operation.scope}`",
    )


def _fields(operation: AnyOperation) -> str:
    """Return the fields that are not in the path; those with a default in brackets."""
    in_path = {each[1:-1] for each in operation.words if each.startswith("{")}
    said = []
    for each in msgspec.structs.fields(operation.asks):
        if each.name in in_path:
            continue
        name = "the body" if each.name == operation.whole else f"`{each.name}`"
        name = "`Idempotency-Key`" if each.name == operation.key and operation.whole else name
        said.append(name if each.required else f"[{name}]")
    return ", ".join(said)


def api_problems() -> str:
    """Return a table of what ends a request otherwise."""
    lines = ["| `type` | status | means |", "| --- | --- | --- |"]
    return "\n".join(
        [*lines, *(f"| `{each.urn}` | {each.status} | {each.title} |" for each in KINDS)]
    )
