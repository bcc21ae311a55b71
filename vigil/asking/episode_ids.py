"""Finds the episode that was named: by its id, by the beginning of its id, or as the latest one."""

from __future__ import annotations

from functools import partial
from typing import Final
from uuid import UUID

from projections.postgres.reader import latest_episode, list_episode_ids
from vigil.asking.rows import ask, parse_id
from vigil.errors import Mistake, Trouble
from vigil.settings import Config

NAMED_MAX: Final = 5
"""How many episodes are named, of those whose ids have the same beginning."""

ID_DIGITS: Final = 32
"""Hexadecimal digits of an id."""


def find_episode(config: Config, text: str | None, *, is_latest: bool = False) -> UUID:
    """Return the episode of the id `text`, or whose id alone begins so; or the one opened last.

    A whole id is not looked up. Raises `Mistake` if `text` can be no such id or is of several, and
    `Trouble` if there is no such episode.
    """
    if is_latest:
        if text is not None:  # guard: id-or-latest
            raise Mistake("give an id, or --latest, not both")
        return _latest(config)
    if text is None:
        raise Mistake("which episode? give its id, or --latest")
    digits = text.replace("-", "").lower()
    # guard: no-id-beginning-refused
    if not digits or set(digits) - set("0123456789abcdef") or len(digits) >= ID_DIGITS:
        return parse_id(text)
    return _begun_by(config, text, digits)


def _latest(config: Config) -> UUID:
    found = ask(config, partial(latest_episode, stack=config.stack))
    if found is None:
        raise Trouble(f"there is no episode in stack {config.stack.name}")
    return found


def _begun_by(config: Config, text: str, digits: str) -> UUID:
    first, last = (UUID(digits.ljust(ID_DIGITS, filler)) for filler in "0f")
    ids = partial(list_episode_ids, stack=config.stack, first=first, last=last)
    found = ask(config, partial(ids, limit=NAMED_MAX + 1))
    if not found:
        raise Trouble(
            f"no episode of stack {config.stack.name} has an id that begins with {text!r};"
            " `vigil episodes list` shows those that there are"
        )
    if len(found) > 1:  # guard: ambiguous-id-refused
        more = ", …" if len(found) > NAMED_MAX else ""
        named = ", ".join(str(each) for each in found[:NAMED_MAX])
        raise Mistake(f"{text!r} begins the ids of several episodes: {named}{more}")
    return found[0]
