"""The current revision of a definition, as nodes watch it. Pure.

The journal is the truth: each definition is an aggregate, and its newest commit is copied into a
bucket, so that a starting node finds all definitions at once and a running one gets each change.
"""

from __future__ import annotations

from typing import Final

import msgspec

from streams.json import NOTHING, UNDECODABLE
from streams.keys import DEFINITIONS
from streams.model.events.definitions import DefinitionKind
from streams.tokens import name

ID_KINDS: Final = {
    DefinitionKind.AGENT: "actor",
    DefinitionKind.WORKFLOW: "workflow",
}


class RegisteredDefinition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A definition as one commit of its journal left it."""

    kind: DefinitionKind
    id: str
    revision: int
    """Of the one that was applied last."""
    seq: int
    """Of the commit, for people: another layout of the journal gives it another one."""
    body: msgspec.Raw = NOTHING
    """The definition, in its canonical form; nothing if it is disabled."""

    @property
    def holds(self) -> bool:
        """Whether it is in force, and not disabled."""
        return self.body != NOTHING

    def is_newer_than(self, other: RegisteredDefinition) -> bool:
        """Return whether this is what became of the same definition after `other`.

        Each application is one revision more, and only disabling comes in between.
        """
        return (self.revision, not self.holds) > (other.revision, not other.holds)


def definition_id(kind: DefinitionKind, id_: str) -> str:
    """Return the key of a definition's aggregate; raise `BadName` if `id_` is no name."""
    return f"{kind.value}.{name(id_, of=ID_KINDS[kind])}"


def definition_key(kind: DefinitionKind, id_: str) -> str:
    """Return the registry's key of a definition; raise `BadName` if `id_` is no name."""
    return f"{DEFINITIONS}.{definition_id(kind, id_)}"


def encode_registered(edition: RegisteredDefinition) -> bytes:
    """Return `edition` as the registry keeps it."""
    return msgspec.json.encode(edition)


def decode_registered(data: bytes) -> RegisteredDefinition | None:
    """Return what the registry keeps as `data`; None if this version cannot read it."""
    try:
        return _decoder.decode(data)
    except UNDECODABLE:
        return None


_decoder: Final = msgspec.json.Decoder(RegisteredDefinition)
