"""Definitions: actors and workflows as data, applied to the running stack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from engine.app.app import App
from engine.definitions import difference
from engine.definitions.store import DefinitionChange
from engine.definitions.text import FORMATS, Format, Written, write
from engine.validation import REASON_CHARS_MAX, check_text
from projections.postgres.reader import list_definition_changes
from projections.records import RowRecord, record_of
from streams.json import JsonObject
from streams.model.definitions import ID_KINDS, RegisteredDefinition
from streams.model.events.definitions import DefinitionKind
from vigil.asking import stack as stacks
from vigil.asking.definitions import changes
from vigil.asking.definitions.changes import (
    AppliedDefinition,
    CurrentDefinition,
    DefinitionEntry,
    Withdrawal,
)
from vigil.asking.definitions.drafts import Draft, drafts_of
from vigil.asking.stack import Rollout
from vigil.client.connections import Connections
from vigil.client.page import check_time
from vigil.errors import Mistake, told
from vigil.settings import ROLLOUT_S

_KINDS: Final = {said: kind for kind, said in ID_KINDS.items()}


class DefinitionMoment(RowRecord, frozen=True, kw_only=True):
    """A moment at which a definition was applied or disabled."""

    kind: str
    """`agent` or `workflow`."""
    definition_id: str
    change: str
    """`applied` or `disabled`."""
    revision: int
    at: datetime
    person: str


@dataclass(frozen=True)
class DefinitionCalls:
    """Calls about definitions: `client.definitions`. A `kind` is `actor` or `workflow`."""

    _connections: Connections

    async def apply(
        self,
        *sources: str | Path | JsonObject,
        kind: str | None = None,
        form: Format | None = None,
        app: App | None = None,
        if_revision: int | None = None,
        dry_run: bool = False,
        reason: str = "",
        by: str | None = None,
        on_applied: Callable[[AppliedDefinition], None] | None = None,
    ) -> Sequence[AppliedDefinition]:
        """Apply definitions: nodes run them within moments, and open episodes go on as they began.

        All are checked together before any is applied, actors before workflows.

        Args:
            sources: definitions as data, or names of files with such and of folders with files;
                `-` is the standard input.
            kind: what they must be; None: of both kinds.
            form: `yaml`, `json` or `toml`, of files; None: as their names tell.
            app: what nodes run, which must have what they name; None: only what no app can have is
                refused, and the rest is told as `unchecked`.
            if_revision: only if this is still the revision of the one that is applied; 0: only if
                it was never defined.
            dry_run: return what would change, and change nothing.
            on_applied: is called for each, so that what was applied is known if a later one fails.

        Raises:
            Mistake: a definition cannot work; nothing is applied.
            Trouble: a file cannot be read, a node has one in its code, or others have changed one
                meanwhile: those before that one are applied.
        """
        name = self._connections.who(by)
        with told():
            check_text("reason", reason, least=0, most=REASON_CHARS_MAX)
        drafts = _drafts(sources, None if kind is None else _kind(kind), _format(form))
        if if_revision is not None and len(drafts) > 1:
            raise Mistake("if_revision: it is about one definition, and these are several")
        async with self._connections.log() as ports:
            if dry_run:
                return await changes.preview(ports, drafts, app=app, seen=if_revision)
            return await changes.apply(
                ports,
                drafts,
                app=app,
                by=name,
                reason=reason,
                seen=if_revision,
                say=on_applied or (lambda _: None),
            )

    async def wait_rollout(
        self, applied: Sequence[AppliedDefinition], *, timeout_s: float = ROLLOUT_S
    ) -> Sequence[Rollout]:
        """Return what nodes make of each that was applied, once all of them have said so.

        A node that has not after `timeout_s` is `silent`.
        """
        async with self._connections.log() as ports:
            return await changes.wait_rollout(ports, applied, timeout_s=timeout_s)

    async def disable(
        self,
        kind: str,
        id: str,
        *,
        if_revision: int | None = None,
        reason: str = "",
        by: str | None = None,
    ) -> DefinitionChange:
        """Disable a definition until it is applied again. Open episodes go on, new events wait.

        Args:
            if_revision: only if this is still its revision.

        Raises:
            NotFound: nobody has ever defined it.
            Trouble: others have changed it since `if_revision`.
        """
        name, wanted = self._connections.who(by), _kind(kind)
        async with self._connections.log() as ports:
            await changes.read_current(ports, wanted, id)
            return await changes.disable(
                ports, wanted, id, by=name, reason=reason, seen=if_revision
            )

    async def wait_withdrawal(
        self, kind: str, id: str, *, timeout_s: float = ROLLOUT_S
    ) -> Withdrawal:
        """Return which nodes still use what was disabled, once none does or the time is over."""
        wanted = _kind(kind)
        async with self._connections.log() as ports:
            return await changes.wait_withdrawal(ports, wanted, id, timeout_s=timeout_s)

    async def list(self, *, kind: str | None = None) -> Sequence[RegisteredDefinition]:
        """Return what was ever defined, each at its newest revision, in the order of kind and id.

        What is disabled has no `body`, and does not hold.
        """
        wanted = None if kind is None else _kind(kind)
        async with self._connections.log(is_reading=True) as ports:
            found = await stacks.read_definitions(ports)
        return [each for each in found if wanted in {None, each.kind}]

    async def get(self, kind: str, id: str) -> CurrentDefinition:
        """Return a definition as its journal has it, and the workflows that need it.

        Raises:
            NotFound: nobody has ever defined it.
        """
        wanted = _kind(kind)
        async with self._connections.log(is_reading=True) as ports:
            return await changes.read_current(ports, wanted, id)

    async def read(self, kind: str, id: str, *, revision: int | None = None) -> JsonObject:
        """Return a definition as data that can be applied again.

        Args:
            revision: which; None: the one that was applied last, also if it is disabled now.

        Raises:
            NotFound: nobody has ever defined it, or it has no such revision.
        """
        wanted = _kind(kind)
        async with self._connections.log(is_reading=True) as ports:
            return await changes.body_of(ports, wanted, id, revision=revision)

    async def text(
        self, kind: str, id: str, *, revision: int | None = None, form: Written = "yaml"
    ) -> str:
        """Return the same as the text of a file, in `yaml` or `json`."""
        with told():
            return write(await self.read(kind, id, revision=revision), form)

    async def diff(
        self, kind: str, id: str, *, since: int, revision: int | None = None
    ) -> Sequence[str]:
        """Return what differs between two revisions of a definition, in lines for people.

        Args:
            since: the earlier one.
            revision: the later one; None: the one that was applied last.

        Raises:
            NotFound: nobody has ever defined it, or it has no such revision.
        """
        before = await self.read(kind, id, revision=since)
        return difference(before, await self.read(kind, id, revision=revision))

    async def changes(self, *, since: datetime) -> Sequence[DefinitionMoment]:
        """Return when definitions were applied or disabled since then, in order; of the rows.

        Raises:
            Mistake: a time has no time zone.
        """
        check_time("since", since)
        async with self._connections.rows() as pool:
            rows = await list_definition_changes(pool, self._connections.stack, since=since)
        return [record_of(each, DefinitionMoment) for each in rows]

    async def history(self, kind: str, id: str) -> Sequence[DefinitionEntry]:
        """Return the changes of a definition, oldest first, with what each has changed.

        Raises:
            NotFound: nobody has ever defined it.
        """
        wanted = _kind(kind)
        async with self._connections.log(is_reading=True) as ports:
            return await changes.changes_of(ports, wanted, id)


def _kind(text: str) -> DefinitionKind:
    if text not in _KINDS:
        raise Mistake(f"kind: {text!r} is not one of {', '.join(_KINDS)}")
    return _KINDS[text]


def _format(text: Format | None) -> Format | None:
    if text not in {None, *FORMATS}:
        raise Mistake(f"form: {text!r} is not one of {', '.join(FORMATS)}")
    return text


def _drafts(
    sources: Sequence[str | Path | JsonObject], kind: DefinitionKind | None, form: Format | None
) -> Sequence[Draft]:
    """Return what `sources` define, actors before workflows; the same name twice is a mistake."""
    if not sources:
        raise Mistake("give at least one definition")
    files = [str(each) for each in sources if isinstance(each, str | Path)]
    given = {
        f"definition {number}": each
        for number, each in enumerate(sources, 1)
        if not isinstance(each, str | Path)
    }
    return drafts_of(kind, files, form, given=given)
