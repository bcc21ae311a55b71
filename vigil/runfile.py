"""`.vigil/run.toml`: how other terminals find the servers that run in this folder.

`vigil up` and `vigil demo` write it, wherever `--dir` is, and remove it when they stop; settings
fall back to it. That of a killed process is ignored: it names the process.
"""

from __future__ import annotations

import fcntl
import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from vigil.errors import Trouble

FOLDER: Final = Path(".vigil")
NAME: Final = "run.toml"
PATH: Final = FOLDER / NAME
_LOCK: Final = "run.lock"

_HEAD: Final = "# Written by vigil for other terminals, removed when it stops.\n"


@contextmanager
def locked(*folders: Path) -> Iterator[None]:
    """Be the only one who runs servers in `folders`, made when missing; else raise `Trouble`."""
    different = {folder.resolve(): folder for folder in folders}
    with ExitStack() as stack:
        for folder in different.values():
            folder.mkdir(parents=True, exist_ok=True)
            if not stack.enter_context(file_lock(folder / _LOCK)):
                raise Trouble(
                    f"another `vigil up` or `vigil demo` runs in {folder}; stop it, or go elsewhere"
                )
        yield


@contextmanager
def file_lock(path: Path) -> Iterator[bool]:
    """Lock the file at `path`, and yield whether nobody else does."""
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False  # guard: neighbour-node-names
        else:
            yield True


@contextmanager
def announced(folder: Path, settings: Mapping[str, str]) -> Iterator[None]:
    """Let other terminals find what runs in `folder`."""
    path = folder / NAME
    # JSON's strings and integers are TOML's as well.
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in settings.items()]
    partial = path.with_suffix(".partial")
    partial.write_text("".join([_HEAD, f"pid = {os.getpid()}\n", *lines]), encoding="utf-8")
    partial.replace(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def remove() -> None:
    """Tell other terminals that nothing runs in this folder any more."""
    PATH.unlink(missing_ok=True)


def read(path: Path) -> Mapping[str, object]:
    """Return the settings in the run file at `path`; none if nobody runs."""
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, tomllib.TOMLDecodeError):
        return {}
    pid = said.pop("pid", 0)
    return said if isinstance(pid, int) and pid and lives(pid) else {}


def lives(pid: int) -> bool:
    """Return whether a process of this machine has this id: also one that is stopped."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
