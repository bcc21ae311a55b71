"""A file system of a few megabytes, to fill: a temporary one, in a namespace of our own.

Nobody but the process that holds the namespace has it mounted, and it is gone with that process.
Others reach it through `/proc`. It takes no rights but that of making a namespace.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from streams.child import Child, NotReady

MOUNTS: Final = 'mount -t tmpfs -o size="$1" none "$2" && touch "$2/mounted" && exec sleep infinity'
NAMESPACE: Final = ("unshare", "--user", "--map-root-user", "--mount")
READY_S_MAX: Final = 5.0
STOP_S_MAX: Final = 5.0
FILLER: Final = "filler"
CHUNK_BYTES: Final = 64 * 1024


class SmallDisk:
    """A file system that can be filled to the last byte."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self) -> None:
        """Take all the room that is left."""
        with (self.path / FILLER).open("wb", buffering=0) as filler:
            for size in (CHUNK_BYTES, 1):
                try:
                    while filler.write(b"\0" * size):
                        pass
                except OSError:
                    continue

    def empty(self) -> None:
        """Give that room back."""
        (self.path / FILLER).unlink()


def can_mount() -> bool:
    """Return whether this machine lets us make such a file system."""
    if shutil.which(NAMESPACE[0]) is None:
        return False
    return subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0


@contextmanager
def small_disk(directory: Path, *, megabytes: int) -> Iterator[SmallDisk]:
    """Yield a file system with so much room, as long as the context is open."""
    mounted = directory / "mounted"
    mounted.mkdir(parents=True)
    holder = Child.start(
        [*NAMESPACE, "sh", "-c", MOUNTS, "sh", f"{megabytes}m", str(mounted)],
        log=directory / "mount.log",
    )
    path = Path(f"/proc/{holder.pid}/root{mounted}")
    try:
        holder.wait_ready(
            lambda: (path / "mounted").exists() or None, within_s=READY_S_MAX, stop_s=STOP_S_MAX
        )
    except NotReady as error:
        raise AssertionError(f"nobody may mount here: {error}") from error
    try:
        yield SmallDisk(path)
    finally:
        holder.stop(signal.SIGKILL, within_s=STOP_S_MAX)
