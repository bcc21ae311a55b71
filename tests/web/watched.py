"""A console that 1,000 watch while an event a second happens: `python -m tests.web.watched`.

It prints the share of a core and the memory of the console's process, and how late its pages are.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

import httpx
import psutil

from projections.embedded import EmbeddedPostgres
from streams.embedded import EmbeddedNats
from tests.vigil.program import Vigil
from vigil.client import SyncClient

PAGES: Final = ("/", "/episodes", "/findings", "/inbox", "/episodes?status=done")
"""What is watched, in turn."""

SECRET: Final = re.compile(r"(http://[^/]+)/link\?secret=(\S+)")


async def watch(client: httpx.AsyncClient, path: str, heard: list[float]) -> None:
    """Watch a page, and note when it told of something."""
    headers = {"accept": "text/event-stream"}
    async with client.stream("GET", path, headers=headers) as answer:
        answer.raise_for_status()
        async for line in answer.aiter_lines():
            if line.startswith("id:"):
                heard.append(time.monotonic())  # noqa: PERF401 - it is read meanwhile


async def measured(
    address: str, secret: str, pid: int, command: Vigil, asked: argparse.Namespace
) -> None:
    """Open the pages, have events happen, and print what that took."""
    limits = httpx.Limits(max_connections=asked.pages + 8)
    heard: list[float] = []
    async with httpx.AsyncClient(base_url=address, limits=limits, timeout=60) as client:
        ours = {"sec-fetch-site": "same-origin"}
        await client.post("/link", data={"secret": secret}, headers=ours)
        watching = [
            asyncio.create_task(watch(client, PAGES[number % len(PAGES)], heard))
            for number in range(asked.pages)
        ]
        await asyncio.sleep(10)
        process = psutil.Process(pid)
        before, began = process.cpu_times(), time.monotonic()
        heard.clear()
        times: list[float] = []
        for number in range(asked.seconds):
            await asyncio.to_thread(publish, command, number)
            asked_at = time.monotonic()
            (await client.get("/episodes")).raise_for_status()
            times.append(time.monotonic() - asked_at)
            await asyncio.sleep(max(0.0, began + number + 1 - time.monotonic()))
        took = time.monotonic() - began
        after = process.cpu_times()
        spent = after.user + after.system - before.user - before.system
        print(
            f"{asked.pages} pages, {asked.seconds} events in {took:.0f} s: "
            f"{spent / took:.1%} of a core, {process.memory_info().rss / 2**20:.0f} MB, "
            f"{len(heard) / took:.0f} updates/s, "
            f"a list beside it {statistics.median(times) * 1_000:.0f} ms at the median, "
            f"{max(times) * 1_000:.0f} ms at most"
        )
        for each in watching:
            each.cancel()
        await asyncio.gather(*watching, return_exceptions=True)


_CLIENTS: dict[int, SyncClient] = {}


def publish(command: Vigil, number: int) -> None:
    """Have one event happen."""
    client = _CLIENTS.setdefault(0, SyncClient(**where(command), by="bench"))
    client.publish("price.changed", {"sku": f"sku-{number}"})


def where(command: Vigil) -> dict[str, str]:
    """Return where the servers are."""
    environ = command.environ
    return {"nats_url": environ["VIGIL_NATS_URL"], "postgres_dsn": environ["VIGIL_POSTGRES_DSN"]}


def main() -> None:
    """Run servers, a node and a console, and measure it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=1_000)
    parser.add_argument("--seconds", type=int, default=30)
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as at,
        EmbeddedNats(Path(at) / "nats") as nats,
        EmbeddedPostgres(Path(at) / "postgres") as postgres,
    ):
        command = Vigil(Path(at), VIGIL_NATS_URL=nats.url, VIGIL_POSTGRES_DSN=postgres.dsn)
        with (
            command.running("node", "--app", "tests.web.world:app", "--node-name", "bench-1"),
            SyncClient(**where(command), by="bench", create_stack=True) as client,
        ):
            client.nodes.wait_ready("prices", timeout_s=60)
            publish(command, 0)
            with command.running("console", "--port", "0") as console:
                console.wait_said("Console ")
                found = SECRET.search(console.said)
                assert found is not None, console.said
                asyncio.run(measured(found[1], found[2], console.process.pid, command, asked))


if __name__ == "__main__":
    main()
