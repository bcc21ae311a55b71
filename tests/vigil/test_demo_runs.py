"""The host monitor on a node: from a measurement to advice, and back to silence."""

from __future__ import annotations

import asyncio
import contextlib
import platform
from collections.abc import AsyncIterator

from engine.node.node import Node
from streams.clock import SystemClock
from streams.memory import MemoryPorts, memory_ports
from streams.model.findings import FindingStatus
from vigil.demo.app import app
from vigil.demo.publisher import DISK_MEASURED

WAIT_S_MAX = 20.0
LOOK_S = 0.02


@contextlib.asynccontextmanager
async def running_node() -> AsyncIterator[MemoryPorts]:
    ports = memory_ports(clock=SystemClock())
    for actor in app.actors.values():  # From here on, what is published is kept for its gate.
        await (await ports.domain_events.open(actor.id, actor.event_names())).close()
    node = Node(app, ports, name="n1", grace_s=5.0)
    running = asyncio.create_task(node.run())
    try:
        yield ports
    finally:
        node.stop()
        assert await running, "the node stops cleanly"


async def finding(ports: MemoryPorts, key: str, status: FindingStatus):
    """Wait until the finding called `key` has `status`, and return it."""
    async with asyncio.timeout(WAIT_S_MAX):
        while True:
            last = await ports.log.last(ports.stack.finding(key))
            if last and (found := last.commit.events[-1].finding).status is status:
                return found
            await asyncio.sleep(LOOK_S)


async def measured(ports: MemoryPorts, mount: str, used_fraction: float, *, event_id: str) -> None:
    payload = {"host": platform.node(), "mount": mount, "used_fraction": used_fraction}
    await ports.domain_events.publish(DISK_MEASURED, payload, id=event_id)


async def test_a_full_disk_leads_to_advice_and_a_healthy_one_takes_it_back(tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "file").write_bytes(b"x" * 100_000)
    key = f"disk:{platform.node()}:{tmp_path}"

    async with running_node() as ports:
        await measured(ports, str(tmp_path), 0.93, event_id="full")
        found = await finding(ports, key, FindingStatus.ACTIVE)
        advice = await finding(ports, f"advice:{key}", FindingStatus.ACTIVE)
        await measured(ports, str(tmp_path), 0.01, event_id="healthy")
        await finding(ports, key, FindingStatus.CLEARED)
        await finding(ports, f"advice:{key}", FindingStatus.CLEARED)

    assert found.severity == "high"
    assert advice.caused_by_key == key
    assert f"{tmp_path / 'cache'} holds the most" in advice.summary
