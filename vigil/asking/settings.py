"""What the settings of this folder ask of a stack."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from engine.app.checks import kept_of
from vigil.settings import retention_in


def kept_times(path: Path) -> Mapping[str, int] | None:
    """Return what `[retention]` keeps for how long, in seconds; None: there is no such table."""
    kept = retention_in(path)
    return None if kept is None else kept_of(kept)
