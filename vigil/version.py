"""Which version of Vigil this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Final

_DISTRIBUTION: Final = "vigil-engine"


def vigil_version() -> str:
    """Return the version of the installed package, or `unknown` when it runs uninstalled."""
    try:
        return version(_DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown (not installed)"
