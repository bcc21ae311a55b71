"""What users copy from the docs imports the public names, and nothing of what is behind them."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import README, pages, text_of

FOR_USERS = [page for page in pages() if page == README or page.startswith("docs/guides/")]
INTERNAL = re.compile(r"^\s*(?:from|import) (?:engine|streams|projections)\b.*$", re.MULTILINE)


@pytest.mark.parametrize("page", FOR_USERS)
def test_examples_import_from_vigil_alone(page):
    assert INTERNAL.findall(text_of(page)) == []
