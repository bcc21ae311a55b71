"""What is written: the pages of the documentation, and the blocks of code in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
README: Final = "README.md"
REFERENCE: Final = "docs/reference.md"

_FENCE: Final = re.compile(r"```(\w*)\s*")


class Block(NamedTuple):
    """A block of code, and where it stands."""

    place: str
    """`page:line`, for messages."""
    language: str
    text: str
    is_glued: bool
    """Nothing but empty lines lie between it and the block before."""


def pages() -> list[str]:
    """Return the name of every page."""
    found = sorted((ROOT / "docs").rglob("*.md"))
    return [README, *(path.relative_to(ROOT).as_posix() for path in found)]


@cache
def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, *languages: str) -> list[Block]:
    """Return the blocks of `page` in order: those in `languages`, or all of them."""
    return [block for block in _blocks(page) if block.language in languages or not languages]


def _blocks(page: str) -> Iterator[Block]:
    language, lines, place, is_glued = None, [], "", False
    for number, line in enumerate(text_of(page).splitlines(), start=1):
        fence = _FENCE.fullmatch(line.strip())
        if fence and language is None:
            language, lines, place = fence[1], [], f"{page}:{number}"
        elif fence:
            yield Block(place, language or "", "".join(lines), is_glued)
            language, is_glued = None, True
        elif language is not None:
            lines.append(f"{line}\n")
        elif line.strip():
            is_glued = False
    assert language is None, f"{place}: this block has no end"


def section(page: str, heading: str) -> str:
    """Return what stands under `heading`, up to the next one of its level or above."""
    level = len(heading) - len(heading.lstrip("#"))
    start = rf"(?ms)^{re.escape(heading)}\n(.*?)(?=^#{{1,{level}}} |\Z)"
    found = re.search(start, text_of(page))
    assert found, f"{page} has no heading {heading!r}"
    return found[1]


def rows(text: str) -> list[list[str]]:
    """Return the cells of every table row in `text`, heads and rulers left out."""
    lines = [line.strip() for line in text.splitlines()]
    table = [line[1:-1] for line in lines if line.startswith("|") and line.endswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)] for line in table]
    rulers = [index for index, row in enumerate(cells) if set("".join(row)) <= set(" -:")]
    return [
        row for index, row in enumerate(cells) if index not in {*rulers, *(r - 1 for r in rulers)}
    ]
