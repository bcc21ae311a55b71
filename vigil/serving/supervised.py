"""Keeps the servers of `vigil up` running: one that dies is started again, once.

A thread of its own looks at them, since the kernel ends a server with the thread that started it,
and the main thread has the nodes. It ends the program, with the reason in one line, if a server
dies again soon, or somebody removes the folder in which they store their data.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import SubprocessError
from typing import Final, NoReturn, Protocol

import structlog

from projections.errors import ProjectionError
from streams.clock import SystemClock
from streams.errors import StreamError
from vigil.errors import EXIT_TROUBLE, VigilError, one_line
from vigil.serving.servers import Servers, told_if_long

LOOK_S: Final = 0.5
"""Between two looks at the servers and the folder, in seconds."""

AGAIN_S: Final = 600.0
"""A server that dies twice within so many seconds is not started a third time."""

log = structlog.get_logger("vigil.servers")

_CLOCK: Final = SystemClock()


class _Server(Protocol):
    @property
    def ended(self) -> str | None: ...

    def restart(self) -> None: ...

    def stop(self) -> None: ...


@contextmanager
def supervised(servers: Servers, folder: Path, *, clean: Callable[[], None]) -> Iterator[None]:
    """Keep `servers`, which store their data in `folder`, running meanwhile; stop them in the end.

    `clean` is called before the program is ended because they cannot go on.
    """
    watch = _Watch(servers, folder, clean)
    thread = threading.Thread(target=watch.run, name="own servers", daemon=True)
    thread.start()
    try:
        yield
    finally:
        watch.is_over.set()
        thread.join()


class _Watch:
    def __init__(self, servers: Servers, folder: Path, clean: Callable[[], None]) -> None:
        self.is_over = threading.Event()
        self._folder, self._clean, self._servers = folder, clean, servers
        self._named: dict[str, _Server] = {"NATS": servers.nats, "Postgres": servers.postgres}
        root = folder.resolve()  # The program may go to another folder.
        self._inodes = {each: _inode(each) for each in (root, root / "nats", root / "postgres")}
        self._died_s: dict[str, float] = {}

    def run(self) -> None:
        """Look until it is over, then stop the servers: their parent is this thread by now."""
        while not self.is_over.wait(LOOK_S):
            self._look()
        for name, server in self._named.items():
            with told_if_long(f"the {name} server to stop"):
                server.stop()

    def _look(self) -> None:
        for path, inode in self._inodes.items():
            if _has_gone(path, inode):  # guard: removed-folder-ends-up
                self._end(
                    f"{self._folder} was removed, or a part of it, while `vigil up` ran: what was"
                    " stored there is lost; remove the rest, and start again"
                )
        for name, server in self._named.items():
            if (how := server.ended) is not None:
                self._restart(name, server, how)

    def _restart(self, name: str, server: _Server, how: str) -> None:
        now_s, before_s = _CLOCK.monotonic_s(), self._died_s.get(name)
        self._died_s[name] = now_s
        where = self._folder / name.lower() / f"{name.lower()}.log"
        if before_s is not None and now_s - before_s < AGAIN_S:  # guard: dead-twice-ends-up
            self._end(f"the {name} server has ended again ({how}); its log is {where}")
        log.warning("a server has ended; it is started again, once", server=name, ended=how)
        try:
            server.restart()
        except (StreamError, ProjectionError, VigilError, OSError, SubprocessError) as error:
            self._end(f"the {name} server has ended ({how}) and does not start: {one_line(error)}")
        log.info("the server runs again", server=name)

    def _end(self, why: str) -> NoReturn:
        """End the program as a crash does: nothing is lost, and the next start goes on at once."""
        sys.stdout.flush()
        print(f"vigil: {why}", file=sys.stderr, flush=True)
        self._clean()
        self._servers.kill()
        os._exit(EXIT_TROUBLE)


def _inode(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _has_gone(path: Path, inode: tuple[int, int]) -> bool:
    """Return whether nothing, or something else, stands there; not if nobody can say."""
    try:
        return _inode(path) != inode
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
