"""Servers and node processes for one test, and what a client can ask of them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import asyncpg
import nats as nats_client

from projections.embedded import EmbeddedPostgres
from streams.embedded import EmbeddedNats
from tests.acceptance.agreement import Lives, differences
from tests.databases import Database
from tests.vigil.warm import WarmProgram

ROOT: Final = Path(__file__).parents[2]
APP: Final = "tests.acceptance.app:app"
POLL_S: Final = 0.1
READY_MAX_S: Final = 30.0
STOP_MAX_S: Final = 40.0


class NodeProcess:
    """One `vigil node` in a process of its own."""

    def __init__(
        self,
        name: str,
        *,
        app: str,
        log: Path,
        env: Mapping[str, str],
        arguments: Sequence[str] = (),
        folder: Path = ROOT,
    ) -> None:
        """Start it.

        Args:
            name: the node's.
            app: what it runs, as `module:attribute`.
            log: where its log lines go, and those of nodes that it starts.
            env: its settings, and whatever else its app wants to know.
            arguments: what else is typed.
            folder: where that is typed; its `vigil.toml` has more settings.
        """
        self.name = name
        self.log = log
        log.touch()
        self._process = WarmProgram(
            ["node", "--app", app, *arguments],
            folder=folder,
            environ={**os.environ, "VIGIL_NODE": name, "VIGIL_LOG": "json", **env},
            log=log,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def logged(self) -> str:
        return self.log.read_text()

    def events(self) -> list[dict[str, Any]]:
        """Return its log lines so far; the last may still be on its way."""
        lines = self.logged().rpartition("\n")[0].splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def says(self, event: str) -> bool:
        return any(line["event"] == event for line in self.events())

    def is_up(self) -> bool:
        assert self._process.poll() is None, f"{self.name} ended:\n{self.logged()[-3000:]}"
        return self.says("node up")

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        """Stop it where it stands; its connections stay open."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """Return its exit code, once it has ended by itself."""
        try:
            return self._process.wait(STOP_MAX_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def stop(self) -> int:
        if self._process.poll() is None:
            self.signal(signal.SIGTERM)
        return self.wait()


class Cluster:
    """A NATS server that syncs every message, a Postgres, and nodes.

    With the URL of others' NATS servers, or a database of another Postgres, it uses those, and
    leaves its own alone. Nodes run in `folder`.
    """

    def __init__(
        self,
        directory: Path,
        *,
        nats_url: str = "",
        database: Database | None = None,
        folder: Path = ROOT,
    ) -> None:
        self.directory = directory
        self.nats = EmbeddedNats(directory / "nats")
        self.postgres = database or EmbeddedPostgres(directory / "postgres")
        self.nodes: list[NodeProcess] = []
        self._others_url, self.folder = nats_url, folder

    @property
    def nats_url(self) -> str:
        """Where clients connect."""
        return self._others_url or self.nats.url

    async def __aenter__(self) -> Self:
        if not self._others_url:
            self.nats.__enter__()
        if isinstance(self.postgres, EmbeddedPostgres):
            self.postgres.__enter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.nodes:
            node.kill()
        if isinstance(self.postgres, EmbeddedPostgres):
            self.postgres.__exit__(None, None, None)
        self.nats.__exit__(None, None, None)

    async def start(
        self,
        name: str,
        *arguments: str,
        app: str = APP,
        url: str | None = None,
        **env: str,
    ) -> NodeProcess:
        """Start a node, which reaches the server at `url` if not directly, and wait for it."""
        node = self.launch(name, *arguments, app=app, url=url, **env)
        await wait_until(node.is_up, f"{name} is up", most_s=READY_MAX_S)
        return node

    def launch(
        self,
        name: str,
        *arguments: str,
        app: str = APP,
        url: str | None = None,
        **env: str,
    ) -> NodeProcess:
        """Start a node and do not wait for it."""
        servers = {
            "VIGIL_NATS_URL": url or self.nats_url,
            "VIGIL_POSTGRES_DSN": self.postgres.dsn,
        }
        log = self.directory / f"{name}.{len(self.nodes)}.log"
        settings = {**servers, **env}
        node = NodeProcess(
            name, app=app, log=log, env=settings, arguments=arguments, folder=self.folder
        )
        self.nodes.append(node)
        return node

    async def publish(
        self,
        name: str,
        payloads: Mapping[str, Any],
        *,
        id_header: str = "Nats-Msg-Id",
        stack: str = "vigil",
    ) -> None:
        """Publish id → payload with plain nats-py, many at a time. Bytes go out as they are."""
        client = await nats_client.connect(self.nats_url.split(","))
        try:
            room = asyncio.Semaphore(200)

            async def one(id_: str, payload: Any) -> None:
                data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
                async with room:
                    await client.jetstream().publish(
                        f"{stack}.event.{name}", data, headers={id_header: id_}
                    )

            await asyncio.gather(*(one(id_, payload) for id_, payload in payloads.items()))
        finally:
            await client.close()

    async def query(self, sql: str, *args: object) -> list[asyncpg.Record]:
        connection = await asyncpg.connect(self.postgres.dsn)
        try:
            await connection.execute("set search_path to vigil")
            return await connection.fetch(sql, *args)
        finally:
            await connection.close()

    async def differences(self, lives: Lives) -> list[str]:
        """Return every place where a table and the journal do not agree, in words."""
        connection = await asyncpg.connect(self.postgres.dsn)
        try:
            return await differences(connection, lives)
        finally:
            await connection.close()

    async def wait_agreement(self, lives: Lives, *, most_s: float) -> list[str]:
        """Return no places once all tables agree with the journal, or those where they do not.

        Each stream has a feed of its own, and one may be ahead of another.
        """
        deadline_s = time.monotonic() + most_s
        while True:
            found = await self.differences(lives)
            if not found or time.monotonic() > deadline_s:
                return found
            await asyncio.sleep(0.1)

    async def wait_rows(
        self, sql: str, count: int, *, most_s: float, since_growth: bool = False
    ) -> None:
        """Wait until `select count(*)` over `sql` is `count`, while Postgres may come and go.

        It may take `most_s` in all, or since the number last grew (see `Patience`).
        """
        patience = Patience(most_s, since_growth=since_growth, began_s=time.monotonic())
        await self._wait_count(sql, lambda seen: seen == count, f"not {count}", patience)

    async def wait_at_least(
        self, sql: str, count: int, *, most_s: float, since_growth: bool = False
    ) -> None:
        """Wait until `select count(*)` over `sql` is `count` or more, as `wait_rows` does."""
        patience = Patience(most_s, since_growth=since_growth, began_s=time.monotonic())
        await self._wait_count(sql, lambda seen: seen >= count, f"under {count}", patience)

    async def _wait_count(
        self, sql: str, holds: Callable[[int], bool], why_not: str, patience: Patience
    ) -> None:
        seen: Any = None
        is_over = False
        while not is_over:
            try:
                counting = f"select count(*) from ({sql}) counted"  # noqa: S608 - our own words
                seen = (await self.query(counting))[0][0]
            except (OSError, asyncpg.PostgresError) as error:
                seen = error
            if isinstance(seen, int) and holds(seen):
                return
            await asyncio.sleep(POLL_S)
            number = seen if isinstance(seen, int) else None
            is_over = patience.is_over(number, now_s=time.monotonic())
        logs = "\n".join(node.logged()[-2000:] for node in self.nodes)
        raise AssertionError(f"{sql}: {seen} rows {patience}, {why_not}\n{logs}")


@dataclass
class Patience:
    """How long to wait for a number of something.

    A limit of the whole time says how fast it has to go, so it depends on what else the machine
    does. One since the number last grew says only that it has to go on.
    """

    most_s: float
    since_growth: bool = field(kw_only=True)
    began_s: float = field(kw_only=True)
    _most: int = 0

    def is_over(self, seen: int | None, *, now_s: float) -> bool:
        """Return whether to give up, now that `seen` is the number; None: nobody knows it."""
        if self.since_growth and seen is not None and seen > self._most:
            self._most, self.began_s = seen, now_s
        return now_s - self.began_s >= self.most_s

    def __str__(self) -> str:
        after = f"after {self.most_s} s"
        return f"{after} without any more" if self.since_growth else after


async def wait_until(holds: Callable[[], bool], what: str, *, most_s: float) -> None:
    deadline_s = time.monotonic() + most_s
    while not holds():
        assert time.monotonic() < deadline_s, f"not within {most_s} s: {what}"
        await asyncio.sleep(POLL_S)
