"""One cluster with a ledger, for a test that ends a node in a chosen moment of a call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from streams.jetstream import connect
from streams.layout import Kind
from streams.model.events import EpisodeFinished
from streams.ports.all import Ports
from streams.ports.log import Recorded
from streams.subjects import Stack
from tests.acceptance.agreement import journal
from tests.acceptance.cluster import Cluster, NodeProcess, wait_until
from tests.chaos import app as chaos_app
from tests.chaos import ledger

APP: Final = "tests.chaos.app:app"
WAIT_S_MAX: Final = 30.0

LOOK_S: Final = 0.1
"""How soon a node that has died is started again."""


@dataclass(frozen=True)
class Stage:
    """Nodes of the chaos app that a test starts, and what they have done."""

    cluster: Cluster
    ports: Ports
    entries: Path
    settings: dict[str, str]

    async def start(self, name: str, **settings: str) -> NodeProcess:
        return await self.cluster.start(name, app=APP, **self.settings, **settings)

    async def start_two(self, **settings: str) -> dict[str, NodeProcess]:
        """Start two nodes and return them by name. Which one gets an episode is chance."""
        return {name: await self.start(name, **settings) for name in ("n1", "n2")}

    async def publish(self, expectation: str) -> None:
        """Wake one episode."""
        await self.ports.domain_events.publish(f"order.{expectation}", {"order": "o1"}, id="e1")

    def calls(self) -> list[ledger.Call]:
        """Return every call that the outside got."""
        return [
            call for calls in ledger.Entries.read(self.entries).calls.values() for call in calls
        ]

    async def wait_called(self, times: int = 1) -> str:
        """Wait until the outside was called so often, and return which node did it last."""
        await wait_until(lambda: len(self.calls()) >= times, "a call", most_s=WAIT_S_MAX)
        return self.calls()[-1].node

    async def life(self) -> Sequence[Recorded]:
        """Return the life of the one episode there is."""
        lives = await journal(self.cluster.nats_url)
        (life,) = (life for (kind, _), life in lives.items() if kind is Kind.EPISODE)
        return life

    async def wait_finished(self) -> EpisodeFinished:
        """Wait until an episode ends, and return how it did."""
        async with self.ports.log.follow() as follower:
            while records := await follower.receive(most=500, wait_s=WAIT_S_MAX):
                for event in (event for record in records for event in record.commit.events):
                    if isinstance(event, EpisodeFinished):
                        return event
        raise AssertionError("\n".join(node.logged()[-2000:] for node in self.cluster.nodes))


@asynccontextmanager
async def opened(
    directory: Path, *, answer_s: float, nats_url: str = "", **settings: str
) -> AsyncIterator[Stage]:
    """Yield a stage whose outside takes `answer_s` to answer, with a server of its own or not."""
    entries = directory / "ledger"
    with ledger.running(entries, answer_s=answer_s) as port:
        async with (
            Cluster(directory, nats_url=nats_url) as cluster,
            connect(cluster.nats_url, stack=Stack()) as ports,
        ):
            yield Stage(cluster, ports, entries, {chaos_app.LEDGER: str(port), **settings})


@asynccontextmanager
async def kept_going(
    cluster: Cluster, names: tuple[str, ...], *, app: str, **settings: str
) -> AsyncIterator[None]:
    """Nodes that are started again as soon as they have died, as a supervisor does."""
    env = {"VIGIL_LEASE_S": "2", "VIGIL_GRACE_S": "1", **settings}
    running: dict[str, NodeProcess] = {
        name: await cluster.start(name, app=app, **env) for name in names
    }

    async def keep() -> None:
        while True:
            for name, node in running.items():
                if not node.is_running:
                    running[name] = cluster.launch(name, app=app, **env)
            await asyncio.sleep(LOOK_S)

    keeping = asyncio.create_task(keep())
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
