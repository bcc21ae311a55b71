"""What people make of calls that they are asked about. Pure."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from engine.secrets import HIDDEN
from engine.validation import ABSENT


def restored(edited: object, asked: object) -> Any:  # noqa: ANN401 - any JSON value
    """Return `edited` with the values of `asked` where people were shown that one is hidden.

    Raises `LookupError` if there is none at that place.
    """
    match edited:
        case str() if edited == HIDDEN:
            if asked is ABSENT:
                raise LookupError(HIDDEN)
            return asked
        case dict():
            named = asked if isinstance(asked, dict) else {}
            return {name: restored(each, named.get(name, ABSENT)) for name, each in edited.items()}
        case list():
            listed = asked if isinstance(asked, list) else []
            pairs = zip_longest(edited, listed[: len(edited)], fillvalue=ABSENT)
            return [restored(each, before) for each, before in pairs]
        case _:
            return edited
