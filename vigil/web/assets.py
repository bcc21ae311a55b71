"""The files that pages need, each at an address that has its content in it: kept for a year."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final, NamedTuple

FOLDER: Final = "/static"

TYPES: Final[Mapping[str, str]] = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "woff2": "font/woff2",
}

NAMES: Final = ("console.css", "console.js", "icon.svg", "inter.woff2")

KEPT: Final = "public, max-age=31536000, immutable"


class Asset(NamedTuple):
    """A file that pages need."""

    content: bytes
    media_type: str


@cache
def digest() -> str:
    """Return what tells this release of the files from every other one."""
    return sha256(b"".join(_read(name) for name in NAMES)).hexdigest()[:12]


@cache
def addresses() -> Mapping[str, str]:
    """Return the name of each file → its address; as they name each other, one folder has all."""
    return {name: f"{FOLDER}/{digest()}/{name}" for name in NAMES}


def asset(name: str) -> Asset | None:
    """Return a file; None: there is no such one."""
    if name not in NAMES:
        return None
    return Asset(_read(name), TYPES[name.rpartition(".")[2]])


@cache
def _read(name: str) -> bytes:
    return files(__package__).joinpath("static", name).read_bytes()
