"""How long a receiver asks to wait."""

from __future__ import annotations

import pytest

from engine.adapters.http import RETRY_AFTER_S_MAX, retry_after_s
from tests.engine.adapters.conftest import NOW


@pytest.mark.parametrize(
    ("said", "wait_s"),
    [
        ("120", 120),
        (" 0 ", 0),
        ("9" * 400, RETRY_AFTER_S_MAX),
        ("Tue, 01 Jan 2030 00:01:30 GMT", 90),
        ("Tue, 01 Jan 2030 02:01:30 +0200", 90),
        ("Tue, 01 Jan 2030 00:01:30 -0000", 90),
        ("Mon, 31 Dec 2029 23:59:00 GMT", 0),
        ("Tue, 01 Jan 2040 00:00:00 GMT", RETRY_AFTER_S_MAX),
        ("Tue, 01 Jan 99999999999999999999 00:00:00 GMT", None),
        ("-5", None),
        ("1.5", None),
        ("²", None),
        ("soon", None),
        ("", None),
    ],
)
def test_a_wait_is_said_in_seconds_or_as_a_date(said, wait_s):
    assert retry_after_s(said, now=NOW) == wait_s
