"""Whatever a page tells its reader to write, run or ask can be done, in that order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import README, blocks, pages
from tests.docs.reader import Reader

FIRST_ACTOR: Final = "docs/guides/first-actor.md"

SHARED: Final = [page for page in pages() if page not in {README, FIRST_ACTOR} and blocks(page)]
"""Pages with something to do, which are read in the folder where the README's `vigil up` runs."""


@contextmanager
def put_away(reader: Reader) -> Iterator[Reader]:
    """Stop in order what the reader has started, and leave nothing running in any case."""
    try:
        yield reader
        reader.stop()
    finally:
        reader.end()


@pytest.fixture(scope="session")
def readme(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """A reader who has done what the README says, and left `vigil up` running."""
    with put_away(Reader(tmp_path_factory.mktemp("readme"))) as reader:
        reader.read(README)
        yield reader


def test_the_readme_can_be_followed(readme: Reader):
    assert blocks(README, "python")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", SHARED)
def test_a_page_can_be_followed(readme: Reader, page: str):
    with put_away(readme.beside()) as reader:
        reader.read(page)


def test_the_first_actor_can_be_made_from_an_empty_folder(tmp_path: Path):
    with put_away(Reader(tmp_path)) as reader:
        reader.read(FIRST_ACTOR)


def test_the_guide_begins_with_the_actor_of_the_readme():
    assert blocks(FIRST_ACTOR, "python")[0].text == blocks(README, "python")[0].text
