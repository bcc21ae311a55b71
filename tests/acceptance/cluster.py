"""Servers and node processes for one test, and what a client can ask of them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

import asyncpg
import nats as nats_client

from projections.embedded import EmbeddedPostgres
from streams.embedded import EmbeddedNats

ROOT: Final = Path(__file__).parents[2]
APP: Final = "tests.acceptance.app:app"
POLL_S: Final = 0.1
READY_MAX_S: Final = 30.0
STOP_MAX_S: Final = 40.0


class NodeProcess:
    """One `vigil node` in a process of its own."""

    def __init__(self, name: str, *, url: str, dsn: str, directory: Path, **env: str) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        with self.log.open("wb") as log:
            self._process = self._launch(url, dsn, log, env)

    def _launch(
        self, url: str, dsn: str, log: BinaryIO, env: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "console", "node", "--app", APP],
            cwd=ROOT,
            env={
                **os.environ,
                "VIGIL_NATS_URL": url,
                "VIGIL_POSTGRES_DSN": dsn,
                "VIGIL_NODE": self.name,
                "VIGIL_LOG": "json",
                **env,
            },
            stdout=subprocess.DEVNULL,
            stderr=log,
        )

    def logged(self) -> str:
        return self.log.read_text()

    def is_up(self) -> bool:
        assert self._process.poll() is None, f"{self.name} ended:\n{self.logged()[-3000:]}"
        return '"node up"' in self.logged()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_MAX_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise


class Cluster:
    """A NATS server that syncs every message, a Postgres, and nodes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.nats = EmbeddedNats(directory / "nats")
        self.postgres = EmbeddedPostgres(directory / "postgres")
        self.nodes: list[NodeProcess] = []

    async def __aenter__(self) -> Self:
        self.nats.__enter__()
        self.postgres.__enter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.nodes:
            node.kill()
        self.postgres.__exit__(None, None, None)
        self.nats.__exit__(None, None, None)

    async def start(self, name: str, **env: str) -> NodeProcess:
        node = NodeProcess(
            name, url=self.nats.url, dsn=self.postgres.dsn, directory=self.directory, **env
        )
        self.nodes.append(node)
        await wait_until(node.is_up, f"{name} is up", most_s=READY_MAX_S)
        return node

    async def publish(
        self,
        name: str,
        payloads: Mapping[str, Any],
        *,
        id_header: str = "Nats-Msg-Id",
    ) -> None:
        """Publish id → payload with plain nats-py, many at a time. Bytes go out as they are."""
        client = await nats_client.connect(self.nats.url)
        try:
            room = asyncio.Semaphore(200)

            async def one(id_: str, payload: Any) -> None:
                data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
                async with room:
                    await client.jetstream().publish(
                        f"vigil.event.{name}", data, headers={id_header: id_}
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

    async def wait_rows(self, sql: str, count: int, *, most_s: float) -> None:
        """Wait until `select count(*)` over `sql` is `count`, while Postgres may come and go."""
        seen: Any = None
        deadline_s = time.monotonic() + most_s
        while time.monotonic() < deadline_s:
            try:
                seen = (await self.query(f"select count(*) from ({sql}) counted"))[0][0]
            except (OSError, asyncpg.PostgresError) as error:
                seen = error
            if seen == count:
                return
            await asyncio.sleep(POLL_S)
        logs = "\n".join(node.logged()[-2000:] for node in self.nodes)
        raise AssertionError(f"{sql}: {seen} rows after {most_s} s, not {count}\n{logs}")


async def wait_until(holds: Callable[[], bool], what: str, *, most_s: float) -> None:
    deadline_s = time.monotonic() + most_s
    while not holds():
        assert time.monotonic() < deadline_s, f"not within {most_s} s: {what}"
        await asyncio.sleep(POLL_S)
