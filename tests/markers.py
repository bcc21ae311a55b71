"""The markers of guards in the source, and the places that they mark.

`# guard: lease-before-fence` (in SQL `-- guard: …`) stands at the end of the guarded line, or on a
line of its own right above it. It marks the largest piece of code that begins on that line: a
statement, or one operand, argument, element, entry, decorator or clause of a longer one.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Final, TypeAlias

ROOT: Final = Path(__file__).parents[1]
MARKED: Final = ("streams", "engine", "projections", "vigil", "bench")

MARKER: Final = re.compile(r"(?:#|--) guard: (?P<names>.+?)\s*$")
NAME: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")

LEADING: Final = frozenset(
    {"and", "or", "if", "else", "for", "async", "case", "in", "@", "**", "("}
)
"""Tokens after which the piece of code begins, on a line of its own."""

SPACE: Final = frozenset(
    {tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.NEWLINE}
)


class BadRow(Exception):
    """A row of the table of mutants, or a marker, that does not do what it says."""


@dataclass(frozen=True)
class Marked:
    """Where a marker stands."""

    path: Path
    line: int
    """The line that is marked, from 1; not always the one with the marker."""


@dataclass(frozen=True)
class Entry:
    """An entry of a dict display: the only piece of code that is not one node."""

    dict: ast.Dict
    index: int

    @property
    def key(self) -> ast.expr | None:
        """Its key; None: `**` of another dict."""
        return self.dict.keys[self.index]

    @property
    def value(self) -> ast.expr:
        """Its value."""
        return self.dict.values[self.index]


Piece: TypeAlias = ast.AST | Entry


class Source:
    """A Python file, parsed, with what is asked of it to find a piece of code."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)

    @cached_property
    def parents(self) -> Mapping[ast.AST, ast.AST]:
        """The node that each node is a child of."""
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @cached_property
    def first_tokens(self) -> Mapping[int, Sequence[tokenize.TokenInfo]]:
        """The first tokens of each line that has code."""
        found: dict[int, list[tokenize.TokenInfo]] = {}
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type not in SPACE:
                found.setdefault(token.start[0], []).append(token)
        return found

    @cached_property
    def _starts(self) -> Mapping[tuple[int, int], Sequence[ast.AST]]:
        """The nodes that begin at a place, the largest first."""
        found: dict[tuple[int, int], list[ast.AST]] = {}
        for node in ast.walk(self.tree):  # Breadth first: parents before their children.
            if (line := getattr(node, "lineno", None)) is not None:
                found.setdefault((line, getattr(node, "col_offset", 0)), []).append(node)
        return found

    def piece_at(self, line: int) -> Piece:
        """Return the largest piece of code that begins on `line`.

        Raises:
            BadRow: None begins there.
        """
        for token in self.first_tokens.get(line, ())[:3]:
            at = (line, len(token.line[: token.start[1]].encode()))
            if nodes := self._starts.get(at):
                return self._whole(nodes[0])
            if token.string not in LEADING:
                break
        raise BadRow(f"no piece of code begins on line {line}")

    def _whole(self, node: ast.AST) -> Piece:
        """Return the clause or entry that `node` is the first part of, or `node`."""
        parent = self.parents.get(node)
        if isinstance(parent, ast.match_case) and node is parent.pattern:
            return parent
        if isinstance(parent, ast.comprehension) and node is parent.target:
            return parent
        if isinstance(parent, ast.Dict):
            for index, (key, value) in enumerate(zip(parent.keys, parent.values, strict=True)):
                if node is (value if key is None else key):
                    return Entry(parent, index)
        return node


@cache
def markers() -> Mapping[str, Sequence[Marked]]:
    """Return where each marker stands: at one place, or the table of mutants is at fault."""
    found: dict[str, list[Marked]] = {}
    for top in MARKED:
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix in {".py", ".sql"}:
                for name, line in markers_in(path.read_text(), path.suffix):
                    found.setdefault(name, []).append(Marked(path, line))
    return found


def markers_in(text: str, suffix: str) -> Iterator[tuple[str, int]]:
    """Yield the name and the marked line of each marker in the text of a file."""
    if "guard: " not in text:
        return
    lines = text.splitlines()
    for number, comment in _comments(text, suffix):
        if match := MARKER.match(comment):
            alone = lines[number - 1].strip() == comment.strip()
            marked = _next_code(lines, number) if alone else number
            for name in match["names"].split(","):
                yield name.strip(), marked


def _comments(text: str, suffix: str) -> Iterator[tuple[int, str]]:
    """Yield the comments, with their lines."""
    if suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
    else:
        for number, line in enumerate(text.splitlines(), 1):
            if (at := line.find("-- guard: ")) >= 0:
                yield number, line[at:]


def _next_code(lines: Sequence[str], number: int) -> int:
    """Return the number of the first line after `number` that is more than a comment."""
    return next(
        at
        for at, line in enumerate(lines[number:], number + 1)
        if line.strip() and not line.lstrip().startswith(("#", "--"))
    )


def only(name: str) -> Marked:
    """Return where the marker called `name` stands.

    Raises:
        BadRow: Nowhere, or at several places.
    """
    places = markers().get(name, ())
    if len(places) != 1:
        at = ", ".join(f"{each.path.relative_to(ROOT)}:{each.line}" for each in places)
        raise BadRow(f"{name}: {f'stands at several places: {at}' if at else 'stands nowhere'}")
    return places[0]
