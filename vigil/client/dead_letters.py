"""Dead letters: what could not be done, and what people decide about it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final
from uuid import UUID

from projections.postgres import reader
from projections.records import DeadLetterRecord, DeadLetterSummary, record_of
from streams.layout import Kind
from streams.model.outputs import OutputStatus
from vigil.asking.rows import ID_NAMES_MAX, not_found, require
from vigil.client.connections import Connections
from vigil.client.page import LETTER_STATUSES, Page, PagedList, checked_one_of
from vigil.errors import Mistake

if TYPE_CHECKING:
    from projections.postgres.query_result import Row
    from projections.postgres.reader import OneOrMore
    from vigil.asking.requests import CommandOutcome

LETTERS: Final = PagedList(
    "dead letters",
    DeadLetterSummary,
    reader.list_dead_letters,
    {"lettered_at": datetime, "letter_key": str},
)

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
        if key in found:  # guard: whole-key-wins
            return key
        if len(found) > 1:  # guard: ambiguous-key-refused
            raise Mistake(f"{key!r} begins the keys of several dead letters: {_named(found)}")
        return found[0]

    async def list(
        self,
        *,
        status: OneOrMore | None = WAITING,
        actor: OneOrMore | None = None,
        after: str | None = None,
        reverse: bool = False,
        limit: int = 50,
    ) -> Page[DeadLetterSummary]:
        """Return dead letters, the latest first.

        Args:
            status: `waiting`, `requeued` or `discarded`, or several of them; None: any.
            actor: one, or several.
            after: the `next` of a page: what follows it. Or a key: what the list has after that
                dead letter.
            reverse: from the other end of the list: the first comes first.

        Raises:
            Mistake: there is no such `status`.
            NotFound: there is no dead letter of the key `after`.
        """
        status = checked_one_of("status", status, LETTER_STATUSES)
        return await LETTERS.page(
            self._connections,
            after=after,
            limit=limit,
            row_of=self._row,
            status=status,
            actor=actor,
            reverse=reverse,
        )

    async def count(self, *, actor: OneOrMore | None = None) -> Mapping[str, int]:
        """Return status → how many of the dead letters that fit have it."""
        async with self._connections.rows() as pool:
            return await reader.count_dead_letters(pool, self._connections.stack, actor=actor)

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

    async def _row(self, key: UUID | str) -> Row:
        return await self.describe(str(key))

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
    """Return whether it can be the beginning of the key of an episode's letter.

    No other key is long, and one may be the beginning of another. A key of a message of a stream
    that is called `episode` looks as such a beginning does.
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
