"""How the advisor looks at the machine it runs on: two tools that read and change nothing."""

from __future__ import annotations

import asyncio
import os
import platform
import time
from pathlib import Path
from typing import Any, Final

import psutil

from vigil import CallContext, ToolFailed

SHOWN_MAX: Final = 20

SAMPLE_S: Final = 0.3

WALK_S_MAX: Final = 3.0


async def top_processes(args: dict[str, Any], ctx: CallContext) -> dict[str, Any]:
    """Return the processes that use most, as fractions of the memory or of one processor.

    `args`: `host`; `by`: `memory` or `cpu`; `most`. Raises `ToolFailed`: `other_host`, `bad_args`.
    """
    _only_here(args["host"])
    field = {"memory": "memory_percent", "cpu": "cpu_percent"}.get(args["by"])
    if field is None:
        raise ToolFailed("bad_args", f"by={args['by']!r} is neither 'memory' nor 'cpu'")
    if field == "cpu_percent":  # Use is counted from one look to the next.
        await asyncio.to_thread(_processes, field)
        await asyncio.sleep(SAMPLE_S)
    return _answer(await asyncio.to_thread(_processes, field), args["most"], complete=True)


async def largest_directories(args: dict[str, Any], ctx: CallContext) -> dict[str, Any]:
    """Return the folders in a folder that use most, in bytes on the same disk."""
    _only_here(args["host"])
    sizes, complete = await asyncio.to_thread(_directories, Path(args["path"]))
    return _answer(sizes, args["most"], complete=complete)


def _only_here(host: str) -> None:
    if host != platform.node():
        raise ToolFailed("other_host", f"this is {platform.node()}; {host} is not to be seen")


def _answer(sizes: dict[str, float], most: int, *, complete: bool) -> dict[str, Any]:
    ordered = sorted(sizes.items(), key=lambda one: -one[1])[: min(most, SHOWN_MAX)]
    largest = [{"name": name, "size": size} for name, size in ordered if size]
    return {"largest": largest, "complete": complete}


def _processes(field: str) -> dict[str, float]:
    return {
        f"{process.info['name']} ({process.pid})": round((process.info[field] or 0.0) / 100, 4)
        for process in psutil.process_iter(["name", field])
    }


def _directories(path: Path) -> tuple[dict[str, float], bool]:
    """Return the size of each folder in `path`, and whether every one was seen to its end."""
    device = path.stat().st_dev
    children = [child.path for child in _entries(path) if child.is_dir(follow_symlinks=False)]
    share_s = WALK_S_MAX / max(len(children), 1)
    sizes, complete = {}, True
    for child in children:
        sizes[child], whole = _size(child, device=device, until_s=time.monotonic() + share_s)
        complete = complete and whole
    return sizes, complete


def _size(folder: str, *, device: int, until_s: float) -> tuple[float, bool]:
    """Return the bytes under `folder` on `device`, and whether there was time for all of them."""
    total, waiting = 0, [folder]
    while waiting:
        if time.monotonic() >= until_s:
            return total, False
        for entry in _entries(waiting.pop()):
            try:
                stat = entry.stat(follow_symlinks=False)
            except OSError:  # It is gone again.
                continue
            if stat.st_dev == device:
                total += stat.st_size
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    return total, True


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    """Return what is in `folder`; nothing where we may not look."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []
