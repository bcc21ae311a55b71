"""Tables are made anew under full load, before the eyes of readers.

VIGIL_TEST_SIZE=full does so with a million events, and
`python bench/rebuild_under_load.py` prints how fast it goes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from bench.rebuild_under_load import measure
from tests.size import size

EPISODES: Final = size("rebuilt", short=1_000, full=250_000)


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
async def test_readers_see_no_wrong_and_no_missing_row_while_all_rows_change_places(tmp_path: Path):
    line = await measure(tmp_path, EPISODES)

    assert line["told"] == [], line
