"""`Patience` of `tests/acceptance/cluster.py`: how long tests wait for a number of something."""

from __future__ import annotations

from collections.abc import Mapping

from tests.acceptance.cluster import Patience

MOST_S = 10.0


def given_up_at(seen: Mapping[float, int | None], *, since_growth: bool) -> float | None:
    """Return when it was given up, of the times at which numbers were seen."""
    patience = Patience(MOST_S, since_growth=since_growth, began_s=0.0)
    over = (at_s for at_s, number in seen.items() if patience.is_over(number, now_s=at_s))
    return next(over, None)


def test_what_grows_slowly_is_waited_for_however_long_it_takes_in_all():
    seen = {at_s: int(at_s) for at_s in (0.0, 9.0, 18.0, 27.0, 36.0)}
    assert given_up_at(seen, since_growth=True) is None
    assert given_up_at(seen, since_growth=False) == 18.0


def test_what_stands_still_is_given_up_though_much_had_come():
    assert given_up_at({1.0: 9_999, 10.0: 9_999, 11.0: 9_999}, since_growth=True) == 11.0


def test_what_never_begins_is_given_up():
    assert given_up_at({1.0: 0, 9.0: 0, 10.0: 0}, since_growth=True) == 10.0


def test_a_number_that_nobody_knows_or_that_fell_has_not_grown():
    seen = {1.0: 5, 4.0: None, 6.0: 3, 8.0: 5, 11.0: 5}
    assert given_up_at(seen, since_growth=True) == 11.0
