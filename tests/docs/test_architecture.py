"""The architecture page says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.life import diagram

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ARCHITECTURE.md").read_text()


def test_the_diagram_is_drawn_from_the_table_of_transitions():
    drawn = PAGE.partition("<!-- begin life -->\n")[2].partition("\n<!-- end life -->")[0]

    assert drawn == diagram(), "write it anew: python -m tests.docs.facts"


def test_every_file_it_names_is_there():
    named = re.findall(r"`((?:streams|engine|projections|tests|vigil)/[\w/]+(?:\.py)?)/?`", PAGE)

    assert len(named) > 10
    assert [path for path in named if not (ROOT / path).exists()] == []
