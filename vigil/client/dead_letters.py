"""Dead letters: what could not be done, and what people decide about it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from projections.postgres import reader
from projections.records import DeadLetterRecord, DeadLetterSummary, record_of
from streams.layout import Kind
from streams.model.outputs import OutputStatus
from vigil.asking.rows import ID_NAMES_MAX, not_found, require, why_none_of
from vigil.client.connections import Connections
from vigil.client.page import LETTER_STATUSES, Page, check_asked, page_of
from vigil.errors import Mistake

if TYPE_CHECKING:
    from projections.postgres.query_result import Row
    from vigil.asking.requests import CommandOutcome

WAITING: Final = "waiting"

ID_CHARS: Final = 36
"""Characters of an id of an episode."""


GONE_ON: Final = "its output has gone on"
"""Why the dead letter of an output that is no longer failed is of no use."""


@dataclass(frozen=True)
class DeadLetterCalls:
    """Calls about dead letters: `client.dead_letters`.

    The letter of an episode may be named by so much of its key that it is one, as
    `episode.3f2a9c1e`: the rows tell. A beginning that fits several is a `Mistake`.
    """

    _connections: Connections

    async def find(self, key: str) -> str:
        """Return the key of a dead letter whose key alone begins so; a whole one is not looked up.

        Raises:
            Mistake: it is the beginning of several.
            NotFound: there is no such dead letter.
        """
        if not _is_beginning(key):
            return key
        stack = self._connections.stack
        async with self._connections.rows() as pool:
            found = await reader.list_letter_keys(
                pool, stack, beginning=key.lower(), limit=ID_NAMES_MAX + 1
            )
        if not found:
            raise not_found("dead letter", key, stack)
        if len(found) > 1:  # guard: ambiguous-key-refused
            raise Mistake(f"{key!r} begins the keys of several dead letters: {_named(found)}")
        return found[0]

    async def list(
        self, *, status: str | None = WAITING, limit: int = 50
    ) -> Page[DeadLetterSummary]:
        """Return dead letters, the latest first.

        Args:
            status: `waiting`, `requeued` or `discarded`; None: any.

        Raises:
            Mistake: there is no such `status`.
        """
        check_asked(status=status, statuses=LETTER_STATUSES, limit=limit)
        async with self._connections.rows() as pool:
            stack = self._connections.stack
            rows = await reader.list_dead_letters(pool, stack, status=status, limit=limit)
            return page_of(rows, DeadLetterSummary, why_none=await why_none_of(pool, stack, rows))

    async def get(self, key: str) -> DeadLetterRecord:
        """Return one dead letter.

        Raises:
            NotFound: the rows have no dead letter of this key.
        """
        return record_of(await self.describe(key), DeadLetterRecord)

    async def describe(self, key: str) -> Row:
        """Return the same with every column, and `what_to_do`: the command that settles it.

        Raises:
            NotFound: the rows have no dead letter of this key.
        """
        whole = await self.find(key)
        async with self._connections.rows() as pool:
            stack = self._connections.stack
            found = await reader.show_dead_letter(pool, stack, whole)
            row = require(found, "dead letter", key, stack)
            return row | {"what_to_do": what_to_do(row)}

    async def requeue(self, *keys: str, by: str | None = None) -> Sequence[CommandOutcome]:
        """Try again what they are about, and return what became of each.

        An event is published again, for an episode that failed another one is opened, a command is
        sent again. A dead letter that is settled, or that there is not, is refused.

        Raises:
            Mistake: a key is the beginning of several.
            NotFound: no dead letter has a key that begins so.
        """
        from vigil.asking import dead_letters

        name, whole = self._connections.who(by), [await self.find(key) for key in keys]
        async with self._connections.log() as ports:
            return await dead_letters.requeue(ports, whole, by=name, clock=self._connections.clock)

    async def discard(
        self, *keys: str, reason: str, by: str | None = None
    ) -> Sequence[CommandOutcome]:
        """Discard dead letters, which stay in the table, and return what became of each.

        One that is settled, or that there is not, is refused.

        Raises:
            Mistake: a key is the beginning of several.
            NotFound: no dead letter has a key that begins so.
        """
        from vigil.asking import dead_letters

        name, clock = self._connections.who(by), self._connections.clock
        whole = [await self.find(key) for key in keys]
        async with self._connections.log() as ports:
            return await dead_letters.discard(ports, whole, by=name, reason=reason, clock=clock)


def _is_beginning(key: str) -> bool:
    """Return whether it can be the beginning of the key of an episode's letter, and no whole one.

    No other key is long, and one may be the beginning of another.
    """
    kind, _, id_ = key.partition(".")
    return kind == Kind.EPISODE and 0 < len(id_) < ID_CHARS  # guard: whole-key-needs-no-rows


def _named(keys: Sequence[str]) -> str:
    more = ", …" if len(keys) > ID_NAMES_MAX else ""
    return f"{', '.join(keys[:ID_NAMES_MAX])}{more}"


def what_to_do(row: Row) -> str | None:
    """Return the command that settles a dead letter; None: it is settled.

    It tries again what the letter is about, unless that has gone on by now and would be refused.
    """
    from engine.errors import OUTCOME_UNKNOWN

    if row["status"] != WAITING:
        return None
    letter = argument(str(row["letter_key"]))
    if row["reason"] == OUTCOME_UNKNOWN:
        return f"vigil episodes settle {row['episode_id']}"
    if row["output_key"] is None:
        return f"vigil dead requeue {letter}"
    if row["output_status"] in (None, OutputStatus.FAILED):  # guard: gone-on-letter-discarded
        return f"vigil outputs retry {argument(str(row['output_key']))}"
    return f"vigil dead discard --reason {shlex.quote(GONE_ON)} {letter}"


def argument(text: str) -> str:
    """Return `text` as the last argument of a command line, and never one of its options."""
    return f"{'-- ' if text.startswith('-') else ''}{shlex.quote(text)}"
