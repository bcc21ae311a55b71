"""Recorded journals as a gate: what runs when a change is deployed must be able to go on."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from engine.app.app import App
from engine.errors import EngineError
from engine.operations.replay import load, replay

SUFFIX: Final = ".jsonl"
"""Of the files of recorded journals."""


async def replay_histories(folder: str | Path, app: App) -> int:
    """Replay every journal in `folder` with `app`, and return how many there are.

    They are files `*.jsonl`, as `vigil.histories.record` makes them. Nothing outside is called.

    Raises `AssertionError`, which names each file that cannot be replayed and why, or if `folder`
    has none.
    """
    journals = _read(Path(folder))
    assert journals, f"there is no recorded journal, no *{SUFFIX}, in {folder}"
    checked = {name: await problem_of(data, app) for name, data in journals.items()}
    problems = [f"{name}: {why}" for name, why in checked.items() if why]
    if problems:
        told = "\n".join(["these could not go on with the code of today:", *problems])
        raise AssertionError(told)
    return len(journals)


def _read(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.glob(f"*{SUFFIX}"))}


async def problem_of(journal: bytes, app: App) -> str:
    """Return why an episode cannot be replayed from `journal`; empty: it can."""
    try:
        await replay(load(journal), app)
    except EngineError as error:
        return f"{type(error).__name__}: {error}"
    return ""
