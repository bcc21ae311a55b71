"""Reports how large files and functions are. It judges nothing: a reader does.

Run from the repository root: python tests/tidy/sizes.py
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGES = ("streams", "engine", "projections", "vigil")
SHOWN = 10


class Sized(NamedTuple):
    """Something with a number of lines."""

    lines: int
    name: str


def files() -> Iterator[Path]:
    """Yield every module of the product."""
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))


def functions(path: Path) -> Iterator[Sized]:
    """Yield the functions of one module, by the lines of their bodies without docstrings."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            yield Sized(lines, f"{path.relative_to(ROOT).as_posix()}:{node.lineno} {node.name}")


def percentile(sizes: Sequence[Sized], percent: int) -> int:
    """Return how many lines `percent` of a hundred do not exceed."""
    ordered = sorted(size.lines for size in sizes)
    return ordered[(len(ordered) - 1) * percent // 100]


def show(what: str, sizes: Sequence[Sized]) -> None:
    """Print one table."""
    print(f"{what}: {len(sizes)}, p50 {percentile(sizes, 50)}, p90 {percentile(sizes, 90)} lines")
    for size in sorted(sizes, reverse=True)[:SHOWN]:
        print(f"  {size.lines:5}  {size.name}")


def main() -> None:
    """Print the largest files and functions, and what is usual."""
    paths = list(files())
    show(
        "files",
        [Sized(len(p.read_text().splitlines()), p.relative_to(ROOT).as_posix()) for p in paths],
    )
    show("function bodies", [size for path in paths for size in functions(path) if size.lines])


if __name__ == "__main__":
    main()
