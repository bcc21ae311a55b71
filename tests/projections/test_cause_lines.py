"""The one line of an error's detail that short views show; the tables have the same."""

from __future__ import annotations

import pytest

from engine.errors import EpisodeFailed, cause_line
from engine.usercode.call import call
from projections.postgres.reader import run_sql

STATUS = (
    "HTTPStatusError: Server error '503 Service Unavailable' for url 'http://x/'\n"
    "For more information check: https://httpstatuses.com/503"
)


def fails():
    try:
        {}["disk"]
    except KeyError as error:
        raise ValueError("bad\nworse") from error


async def raised():
    with pytest.raises(EpisodeFailed) as failed:
        await call(fails)
    return failed.value.detail


CUT = 'rest of a line\n  File "a.py", line 3, in b\n    b()\nKeyError: 1 (c.py:5, in d)\n'

LINES = {
    "": "",
    "timed out after 3 s": "timed out after 3 s",
    STATUS: "HTTPStatusError: Server error '503 Service Unavailable' for url 'http://x/'",
    CUT: "KeyError: 1 (c.py:5, in d)",
    "mail: crash: Traceback:\n  File 'x'\nKeyError: k\n": "KeyError: k",
}


@pytest.mark.parametrize("detail", LINES)
async def test_a_detail_is_told_by_its_first_line_or_by_what_a_traceback_ends_in(detail, pool):
    assert cause_line(detail) == LINES[detail]
    assert (await run_sql(pool, "SELECT cause_line($1)", detail)).rows[0][0] == LINES[detail]


async def test_of_a_chain_of_errors_the_last_one_is_told(pool):
    detail = await raised()
    assert cause_line(detail) == "ValueError: bad"
    assert (await run_sql(pool, "SELECT cause_line($1)", detail)).rows[0][0] == "ValueError: bad"
