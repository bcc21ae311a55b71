"""What `vigil doctor` says of the reactors."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from engine.cluster.nodes import NodeInfo, encoded
from engine.reactor.leader import Leader, Leadership
from streams.keys import node_key, published_key
from streams.layout import Stream
from streams.memory import memory_ports
from streams.model.modes import NodeMode
from tests.engine.reactor import journals as given
from tests.simulation.time import SimClock, simulate
from vigil.asking.repairs.diagnosis import LAG_MAX, look_at_reactor

SINCE = datetime(2030, 1, 1, tzinfo=UTC)


def entry(node: str) -> bytes:
    full = NodeMode.FULL
    return encoded(
        NodeInfo(name=node, host="h", pid=1, since=SINCE, mode=full, setting=full, lease_s=10)
    )


async def looked(*, commits: int, position: int, node: str = ""):
    ports = memory_ports(stack=given.STACK, clock=SimClock())
    for number in range(commits):
        await ports.log.append(
            given.STACK.episode(f"e{number}"), given.recorded("s", 1, given.OPENED).commit, after=0
        )
    await ports.gates.put(published_key("journal"), str(position).encode())
    if node:
        assert await Leadership(ports.gates, "journal", Leader(node, SINCE)).take(after=0)
        await ports.gates.put(node_key(node), entry(node))
    return await look_at_reactor(ports, Stream.JOURNAL, 0)


@pytest.mark.parametrize(
    ("commits", "position", "node", "status", "says"),
    [
        (0, 0, "", "ok", "at 0 of 0"),
        (3, 3, "", "ok", "at 3 of 3"),
        (3, 3, "n1", "ok", "at 3 of 3, on node n1"),
        (3, 1, "n1", "ok", "at 1 of 3, on node n1"),
        (3, 1, "", "problem", "stands still at 1 of 3"),
        (3, 4, "n1", "problem", "at 4 of 3, on node n1: the stream is not the one"),
    ],
)
def test_how_far_a_reactor_is_and_where(commits, position, node, status, says):
    check = simulate(looked(commits=commits, position=position, node=node))
    assert (check.what, check.status) == ("reactor journal", status)
    assert check.says.startswith(says)
    assert bool(check.remedy) is (status == "problem")


def test_one_that_is_far_behind_is_a_problem():
    check = simulate(looked(commits=LAG_MAX + 2, position=1, node="n1"))
    assert (check.status, check.says.partition(",")[0]) == ("problem", "10")
