"""Two stacks in one process group: what befalls the nodes of one is nothing to the other."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import psutil
import pytest

from tests.acceptance.cluster import Cluster, NodeProcess, wait_until

pytestmark = pytest.mark.nightly

STACKS: Final = ("orders", "billing")
APP: Final = "tests.acceptance.stacked:app"
EVENTS: Final = 10
"""Published at a time."""

LEASE_S: Final = 2
MOST_S: Final = 30.0
UP_S_MAX: Final = 30.0

RUNNING: Final = (
    "select 1 from episode_steps join episodes using (stack, episode_id)"
    " where stack = '{stack}' and actor_id = 'watcher' and status = 'running'"
)
DONE: Final = (
    "select 1 from episodes where stack = '{stack}' and actor_id = 'watcher' and status = 'done'"
)
HELD: Final = (
    "select dedupe_key, owner_node, attempt, claimed_at from work_claims"
    " where stack = $1 and state = 'claimed' and work_type = 'episode' order by dedupe_key"
)


class Group:
    """The parent of the nodes of both stacks, and what its nodes say."""

    def __init__(self, parent: NodeProcess) -> None:
        self.parent = parent

    def times_up(self, node: str) -> int:
        said = [(line["event"], line["node"]) for line in self.parent.events()]
        return said.count(("node up", node))

    def pid_of(self, node: str) -> int:
        for child in psutil.Process(self.parent.pid).children():
            words = child.cmdline()
            if "--node-name" in words and words[words.index("--node-name") + 1] == node:
                return child.pid
        raise AssertionError(f"{node} does not run")


async def started(cluster: Cluster) -> Group:
    group = Group(
        cluster.launch("n", "--stacks", ",".join(STACKS), app=APP, VIGIL_LEASE_S=str(LEASE_S))
    )
    for stack in STACKS:
        await wait_until(lambda s=stack: group.times_up(f"n-{s}") == 1, stack, most_s=UP_S_MAX)
    return group


async def publish(cluster: Cluster, stack: str, *, first: int, until: Path) -> None:
    numbers = range(first, first + EVENTS)
    orders = {f"e{n}": {"order": f"{stack}-{n}", "until": str(until)} for n in numbers}
    await cluster.publish("order.placed", orders, stack=stack)


async def rows_that_name(cluster: Cluster, word: str, *, stack: str) -> list[str]:
    """Return the tables of which a row of `stack` has `word` in it."""
    tables = await cluster.query(
        "select table_name from information_schema.columns"
        " where table_schema = 'vigil' and column_name = 'stack'"
    )
    named = []
    for (table,) in tables:
        sql = f"select 1 from {table} t where stack = $1 and t::text like $2 limit 1"  # noqa: S608
        if await cluster.query(sql, stack, f"%{word}%"):
            named.append(table)
    return named


async def attempts(cluster: Cluster, stack: str) -> set[tuple[str, int]]:
    rows = await cluster.query(
        "select node, attempts from episodes where stack = $1 and actor_id = 'watcher'", stack
    )
    return {(row["node"], row["attempts"]) for row in rows}


async def test_a_node_that_is_killed_is_missed_in_its_own_stack_alone(
    cluster: Cluster, tmp_path: Path
):
    gates = {stack: tmp_path / f"{stack}.open" for stack in STACKS}
    group = await started(cluster)
    for stack in STACKS:
        await publish(cluster, stack, first=0, until=gates[stack])
        await cluster.wait_rows(RUNNING.format(stack=stack), EVENTS, most_s=MOST_S)
    claimed = "select 1 from work_claims where stack = 'billing' and work_type = 'episode'"
    await cluster.wait_rows(f"{claimed} and state = 'claimed'", EVENTS, most_s=MOST_S)
    held = await cluster.query(HELD, "billing")
    unhurt = group.pid_of("n-billing")
    assert len(held) == EVENTS

    psutil.Process(group.pid_of("n-orders")).kill()
    nothing = tmp_path / "nothing-to-wait-for"
    nothing.touch()
    await publish(cluster, "billing", first=EVENTS, until=nothing)
    await cluster.wait_rows(DONE.format(stack="billing"), EVENTS, most_s=MOST_S)
    await wait_until(lambda: group.times_up("n-orders") == 2, "n-orders", most_s=UP_S_MAX)
    gates["orders"].touch()
    await cluster.wait_rows(DONE.format(stack="orders"), EVENTS, most_s=MOST_S)

    # Nobody has touched what runs in the other stack: not its leases, not its node.
    assert await cluster.query(HELD, "billing") == held
    assert group.pid_of("n-billing") == unhurt
    gates["billing"].touch()
    await cluster.wait_rows(DONE.format(stack="billing"), 2 * EVENTS, most_s=MOST_S)
    assert await attempts(cluster, "billing") == {("n-billing", 1)}
    assert await attempts(cluster, "orders") == {("n-orders", 2)}

    # An actor that names its stacks is nowhere else, and no row says a word of another stack.
    clerks = await cluster.query("select distinct stack from episodes where actor_id = 'clerk'")
    assert [row["stack"] for row in clerks] == ["orders"]
    assert await rows_that_name(cluster, "billing", stack="orders") == []
    assert await rows_that_name(cluster, "orders", stack="billing") == []
    assert await rows_that_name(cluster, "orders", stack="orders") != []
    assert group.parent.stop() == 0
