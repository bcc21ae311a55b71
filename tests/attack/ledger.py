"""What the code of users did, as files that outlive any process: the outside world of the attack.

Each order has a file of its own with one line for each call of a tool and each delivery. A line is
on disk before the call goes on.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

FOLDER: Final = "ATTACK_LEDGER"
"""Variable that holds the ledger's folder."""

NODE: Final = "VIGIL_NODE"

NONCE_BYTES: Final = 6
_NONCE: Final = re.compile(f"[0-9a-f]{{{2 * NONCE_BYTES}}}")

RECEIPTS: Final = "receipts"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a tool, or one delivery."""

    what: str
    """The tool, or the adapter."""
    tag: str
    """Which of the calls of its episode it is."""
    key: str
    """The idempotency key that it got."""
    nonce: str
    """What it brought back; empty: it failed."""
    seen: tuple[str, ...] = ()
    """Nonces of earlier calls, as the episode has them."""
    node: str
    at_s: float
    """When it began, in seconds since 1970."""


_entry: Final = msgspec.json.Decoder(Entry)


def note(order: str, *, what: str, tag: str, key: str, nonce: str, seen: Sequence[str] = ()) -> str:
    """Write down a call, and return its nonce."""
    entry = Entry(
        what=what,
        tag=tag,
        key=key,
        nonce=nonce,
        seen=tuple(seen),
        node=os.environ.get(NODE, ""),
        at_s=time.time(),
    )
    with _file(_folder(), order).open("ab", buffering=0) as file:
        file.write(msgspec.json.encode(entry) + b"\n")
        os.fsync(file.fileno())
    return nonce


def receipt_of(key: str) -> str:
    """Return the one nonce that belongs to an idempotency key, whoever asks first."""
    folder = _folder() / RECEIPTS
    folder.mkdir(exist_ok=True)
    ours, receipt = folder / secrets.token_hex(), folder / key.replace(":", "-")
    ours.write_text(nonce())
    try:
        receipt.hardlink_to(ours)
    except FileExistsError:
        pass
    finally:
        ours.unlink()
    return receipt.read_text()


def nonce() -> str:
    """Return a value that nobody can know who has not been told."""
    return secrets.token_hex(NONCE_BYTES)


def is_nonce(value: object) -> bool:
    return isinstance(value, str) and _NONCE.fullmatch(value) is not None


def entries(folder: Path, order: str) -> Sequence[Entry]:
    """Return what was done for an order, oldest first; a line that a kill cut off is left out."""
    file = _file(folder, order)
    lines = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
    return [_entry.decode(line) for line in lines]


def _folder() -> Path:
    return Path(os.environ[FOLDER])


def _file(folder: Path, order: str) -> Path:
    return folder / f"{order}.jsonl"
