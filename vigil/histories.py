"""Histories: journals of episodes, recorded from a stack and replayed against the app of today.

    replay(load(Path("histories/e1.jsonl").read_bytes()), app)

`lab` runs one with the app of today, asking models anew and nothing else.

Raises `BadHistory` for what cannot be replayed, and `NondeterministicReplay` where the app would
now act in another way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from vigil.public import public

if TYPE_CHECKING:
    from engine.errors import BadHistory, NondeterministicReplay
    from engine.operations.lab import lab
    from engine.operations.lab_verdict import LabVerdict
    from engine.operations.replay import load, record, replay

__all__ = [
    "BadHistory",
    "LabVerdict",
    "NondeterministicReplay",
    "lab",
    "load",
    "record",
    "replay",
]  # fmt: skip

_HOMES: Final = {
    "engine.errors": "BadHistory NondeterministicReplay",
    "engine.operations.lab": "lab",
    "engine.operations.lab_verdict": "LabVerdict",
    "engine.operations.replay": "load record replay",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = public(__name__, _HOMES)
