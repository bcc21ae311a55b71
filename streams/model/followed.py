"""How far the reactor of a stream is, as its key in the gates says it."""

from __future__ import annotations

from typing import NamedTuple


class Followed(NamedTuple):
    """Up to where what follows from a stream was carried out."""

    seq: int = 0
    """The commit; 0: none."""
    covered_from: int = 0
    """The oldest start of an episode that had no claim of its own and had not ended by then.
    Whoever leads next reads from there to know of it. 0: there was none."""


def encode_followed(followed: Followed) -> bytes:
    """Return the value of the key: the sequence, and a second one if there is one."""
    rest = f" {followed.covered_from}" if followed.covered_from else ""
    return f"{followed.seq}{rest}".encode()


def decode_followed(value: bytes | None) -> Followed:
    """Return what a value says; None: nothing was followed."""
    return Followed(*map(int, (value or b"0").split()))
