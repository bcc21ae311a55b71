"""Which subjects a pattern covers, as the server has it."""

from __future__ import annotations

import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

from streams.tokens import matches

WORDS = st.lists(st.sampled_from(["a", "b", "orders", "placed"]), min_size=1, max_size=4)


@pytest.mark.parametrize(
    ("pattern", "subject", "fits"),
    [
        ("orders.placed", "orders.placed", True),
        ("orders.placed", "orders.paid", False),
        ("orders.placed", "orders", False),
        ("orders.placed", "orders.placed.eu", False),
        ("orders.*", "orders.placed", True),
        ("orders.*", "orders", False),
        ("orders.*", "orders.placed.eu", False),
        ("*.placed", "orders.placed", True),
        ("*.*", "orders.placed", True),
        ("orders.*.eu", "orders.placed.eu", True),
        ("orders.*.eu", "orders.placed.us", False),
        ("orders.>", "orders.placed", True),
        ("orders.>", "orders.placed.eu", True),
        ("orders.>", "orders", False),
        ("orders.>", "ordersplaced.eu", False),
        ("*.>", "orders.placed", True),
        ("*.>", "orders", False),
        (">", "orders", True),
        (">", "orders.placed.eu", True),
        ("or*", "orders", False),
        ("orders.placed", "Orders.placed", False),
    ],
)
def test_a_star_is_one_word_and_what_comes_last_is_any_more(pattern, subject, fits):
    assert matches(pattern, subject) == fits


@forall(WORDS, st.integers(0, 3))
def test_a_subject_fits_itself_and_whatever_leaves_words_open(words, place):
    place %= len(words)
    starred = [*words[:place], "*", *words[place + 1 :]]
    for pattern in (words, starred, [*words[:place], ">"]):
        assert matches(".".join(pattern), ".".join(words))
