"""What tests of an app need: `FakeLeases`, leases that a test makes busy, or lapse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from vigil.public import public

if TYPE_CHECKING:
    from engine.testing import FakeLeases

__all__ = ["FakeLeases"]

_HOMES: Final = {"engine.testing": "FakeLeases"}

if not TYPE_CHECKING:
    __getattr__, __dir__ = public(__name__, _HOMES)
