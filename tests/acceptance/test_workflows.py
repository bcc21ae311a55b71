"""Workflows on real servers and processes of which some are killed: all end, and nothing twice.

10 instances of 50 steps by default. `make workflows` has 200.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest

from engine.workflows.instance import fold_instance
from streams.jetstream import connect
from streams.json import unraw
from streams.model.events import StepBegun, StepEnded, WorkflowFinished
from streams.model.workflows import WorkflowStatus
from streams.subjects import Stack
from tests.acceptance.cluster import Cluster
from tests.acceptance.flowing import WIDTH
from tests.size import size

pytestmark = pytest.mark.nightly

APP: Final = "tests.acceptance.flowing:app"
INSTANCES: Final = size("instances", short=10, full=200)
STEPS: Final = WIDTH + 2
ENDED: Final = "select 1 from workflow_instances where status = 'done'"
STEPS_DONE: Final = "select 1 from workflow_steps where status = 'done'"
ENDED_S_MAX: Final = 60.0 + INSTANCES * 2


async def check_instances(cluster: Cluster) -> None:
    """Fold every instance's journal: each step was done once, with what those before it brought."""
    rows = await cluster.query("select instance_id from workflow_instances")
    async with connect(cluster.nats_url, stack=Stack()) as ports:
        for row in rows:
            records = await ports.log.read(ports.stack.workflow(str(row["instance_id"])))
            events = [event for record in records for event in record.commit.events]
            assert fold_instance(records).status is WorkflowStatus.DONE
            for kind, count in ((StepBegun, STEPS), (StepEnded, STEPS), (WorkflowFinished, 1)):
                assert sum(isinstance(each, kind) for each in events) == count
            begun = Counter(each.step for each in events if isinstance(each, StepBegun))
            assert set(begun.values()) == {1}
            (last,) = [e for e in events if isinstance(e, StepEnded) and e.step == "last"]
            assert unraw(last.result) == 1 + 2 * WIDTH


async def test_all_instances_end_and_no_step_runs_twice_though_nodes_are_killed(cluster: Cluster):
    for name in ("n1", "n2", "n3"):
        await cluster.start(name, app=APP, VIGIL_LEASE_S="3")
    batches = {f"b{number}": {"batch": f"b{number}"} for number in range(INSTANCES)}
    await cluster.publish("batch.ready", batches)

    first, second, third = cluster.nodes
    await cluster.wait_at_least(STEPS_DONE, INSTANCES * STEPS // 5, most_s=ENDED_S_MAX)
    first.kill()
    await cluster.start("n4", app=APP, VIGIL_LEASE_S="3")
    await cluster.wait_at_least(STEPS_DONE, INSTANCES * STEPS // 2, most_s=ENDED_S_MAX)
    second.kill()

    await cluster.wait_rows(ENDED, INSTANCES, most_s=ENDED_S_MAX)
    await check_instances(cluster)
    # Every attempt has one episode, and nothing else has any.
    await cluster.wait_rows("select 1 from episodes", INSTANCES * STEPS, most_s=ENDED_S_MAX)
    assert [node.stop() for node in (third, cluster.nodes[3])] == [0, 0]
