"""Versions of a strategy's state, and the way from an old one to the current one. Pure.

State is kept at checkpoints and may outlive the code that kept it. A schema numbers the
state's shape; every change of shape is a new version and a migration from the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from engine.errors import Unencodable
from streams.json import JsonObject, raw, unraw

Migration: TypeAlias = Callable[[JsonObject], JsonObject]


@dataclass(frozen=True)
class StateSchema:
    """The current version of a state, and how to reach it from older ones."""

    version: int = 1
    migrations: Mapping[int, Migration] = field(default_factory=dict)
    """Version n → what makes a state of n, as JSON, one of n + 1."""

    def problem(self) -> str | None:
        """Return what is wrong with this schema, or None."""
        if self.version < 1:
            return f"version {self.version!r}: count from 1"
        for version in range(1, self.version):
            if version not in self.migrations:
                return f"no migration from version {version} to {version + 1}"
        strays = sorted(version for version in self.migrations if version >= self.version)
        return (
            f"migrations from {strays}: they lead past version {self.version}" if strays else None
        )


def migrate(state: msgspec.Raw, schema: StateSchema, *, version: int) -> msgspec.Raw:
    """Return `state`, kept at `version`, in the current shape.

    Raises:
        Unencodable: a migration returned something that JSON cannot say.
    """
    for step in range(version, schema.version):
        try:
            state = raw(schema.migrations[step](unraw(state)))
        except TypeError as error:
            raise Unencodable(f"state, migrated from version {step}: {error}") from error
    return state
