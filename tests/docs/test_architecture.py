"""The architecture page says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.life import diagram, diagram_of_attempts

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ARCHITECTURE.md").read_text()


@pytest.mark.parametrize(("name", "draw"), [("life", diagram), ("attempt", diagram_of_attempts)])
def test_a_diagram_is_drawn_from_its_table_of_transitions(name, draw):
    drawn = PAGE.partition(f"<!-- begin {name} -->\n")[2].partition(f"\n<!-- end {name} -->")[0]

    assert drawn == draw(), "write it anew: python -m tests.docs.facts"


def test_every_file_it_names_is_there():
    named = re.findall(r"`((?:streams|engine|projections|tests|vigil)/[\w/]+(?:\.py)?)/?`", PAGE)

    assert len(named) > 10
    assert [path for path in named if not (ROOT / path).exists()] == []
