"""The pages hang together: links lead somewhere, words mean one thing, decisions are listed."""

from __future__ import annotations

import re
from functools import cache
from pathlib import PurePosixPath
from posixpath import normpath

from tests.docs.pages import ROOT, blocks, pages, rows, text_of

LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"(?m)^#+ (.+)$")


def prose(page: str) -> str:
    """Return `page` without its blocks of code."""
    return re.sub(r"(?ms)^```.*?^```", "", text_of(page))


@cache
def anchors(page: str) -> set[str]:
    """Return what GitHub makes of the page's headings."""
    headings = (heading.lower() for heading in HEADING.findall(prose(page)))
    return {re.sub(r"[^\w -]", "", heading).replace(" ", "-") for heading in headings}


def test_every_link_leads_somewhere():
    links = [(page, link) for page in pages() for link in LINK.findall(prose(page))]

    assert [each for each in links if "://" not in each[1] and not leads_somewhere(*each)] == []


def leads_somewhere(page: str, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = normpath(PurePosixPath(page).parent / path) if path else page
    if not (ROOT / target).exists():
        return False
    return not anchor or anchor in anchors(target)


def test_every_block_says_what_it_is():
    unsaid = [block.place for page in pages() for block in blocks(page) if not block.language]

    assert unsaid == []


def test_the_readme_leads_to_every_guide():
    guides = [page for page in pages() if page.startswith("docs/guides/")]
    reachable = {
        normpath(PurePosixPath(page).parent / link.partition("#")[0])
        for page in ("README.md", *guides)
        for link in LINK.findall(prose(page))
    }

    assert [guide for guide in guides if guide not in reachable] == []


def test_the_glossary_defines_each_word_once_and_in_order():
    words = [word.strip("*") for word, _ in rows(text_of("docs/GLOSSARY.md"))]

    assert words == sorted(set(words), key=str.lower)


def test_the_index_of_decisions_is_complete():
    listed = re.findall(r"\[(\d+)\]\((\1-[\w-]+\.md)\)", text_of("docs/adr/README.md"))
    decisions = sorted(path.name for path in (ROOT / "docs" / "adr").glob("[0-9]*.md"))

    assert [name for _, name in listed] == decisions
