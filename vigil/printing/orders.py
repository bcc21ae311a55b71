"""Orders in words."""

from __future__ import annotations

from collections.abc import Mapping

from engine.orders.order import ERASED
from streams.keys import HOLDS
from streams.tokens import decode_token


def order_in_words(row: Mapping[str, object]) -> str:
    """Return what was ordered, and of what if no other column of a list says it.

    Args:
        row: with the `change` and the `order_key` of an order.
    """
    words = str(row["change"]).replace("_", " ")
    first, _, about = str(row["order_key"]).partition(".")
    if first == ERASED:
        return f"{words}: {about}"
    if first == HOLDS:
        kind, _, held = about.partition(".")
        return f"{words}: {kind} {decode_token(held)}"
    return words
