"""40 children of three actors on three nodes, all of which are killed after a commit of the parent.

After the first, one in the middle and the last but one by default;
`VIGIL_TEST_SIZE=children` kills after each of them, one after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import nats
import pytest
from nats.aio.msg import Msg

from engine.app.dedupe import episode_id, event_key
from engine.episodes.episode import fold
from streams.jetstream import connect
from streams.model.events import EndStatus, EpisodeFinished, EpisodeOpened, StepRecorded
from streams.subjects import Stack
from tests.acceptance.cluster import READY_MAX_S, Cluster, NodeProcess, wait_until
from tests.acceptance.parental import CHILD_TURNS, CHILDREN, WORKERS
from tests.size import is_full

pytestmark = pytest.mark.nightly

APP: Final = "tests.acceptance.parental:app"
NODES: Final = ("n1", "n2", "n3")
EACH: Final = is_full("children")
ENDS_S_MAX: Final = 90.0
"""Longest from the death of all nodes until the parent has ended: what they had comes again after
10 s, and what then waits for a lease after 10 s more."""
ENDED: Final = "select 1 from episodes where dedupe_key = 'event:{}' and status = 'done'"
TREE: Final = """
    select child.status, child.actor_id from episodes as child
    join episodes as parent on parent.episode_id = child.parent_id
    where parent.dedupe_key = 'event:{}' and child.status = 'done'
"""


def parent_of(event: str) -> str:
    return episode_id(
        stack="vigil", actor="boss", expectation="divide", dedupe_key=event_key(event)
    )


class Killer:
    """Kills all nodes when the journal of a parent gets a certain commit."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.running: list[NodeProcess] = []

    async def start(self) -> None:
        self.running = [self._cluster.launch(name, app=APP) for name in NODES]
        for node in self.running:
            await wait_until(node.is_up, f"{node.name} is up", most_s=READY_MAX_S)

    async def play(self, event: str, *, kill_at: int = 0) -> int:
        """Have a parent run, and kill all nodes after its commit `kill_at`; return how many it has.

        It may have fewer: ends that are seen at the same time share a commit.
        """
        seen, has_killed, has_ended = 0, False, False

        async def on_commit(message: Msg) -> None:
            nonlocal seen, has_killed, has_ended
            seen += 1
            has_ended = b'"episode.finished@1"' in message.data
            if seen == kill_at:
                has_killed = True
                for node in self.running:
                    node.kill()

        client = await nats.connect(self._cluster.nats_url)
        try:
            await client.subscribe(Stack().episode(parent_of(event)), cb=on_commit)
            await client.flush()
            await self._cluster.publish("work.wanted", {event: {"why": event}})
            if kill_at:
                what = f"commit {kill_at} of {event}, or its end"
                await wait_until(lambda: has_killed or has_ended, what, most_s=READY_MAX_S)
                if has_killed:
                    await self.start()
            await self._cluster.wait_rows(ENDED.format(event), 1, most_s=ENDS_S_MAX)
            return seen
        finally:
            await client.close()


async def problems(cluster: Cluster, event: str) -> list[str]:
    """Return what is wrong with a parent that has ended, and with its children."""
    parent_id, found = parent_of(event), []
    async with connect(cluster.nats_url, stack=Stack()) as ports:
        records = await ports.log.read(ports.stack.episode(parent_id))
        parent = fold(records)
        events = [each for record in records for each in record.commit.events]
        steps = [each for each in events if isinstance(each, StepRecorded) and each.child]
        ids = [each.child.episode_id for each in steps if each.child]
        lives = [await ports.log.read(ports.stack.episode(id_)) for id_ in ids]
    if len(ids) != CHILDREN or len(set(ids)) != CHILDREN:
        found.append(f"{len(ids)} ends of {len(set(ids))} children")
    for id_, life in zip(ids, lives, strict=True):
        kinds = Counter(type(each) for record in life for each in record.commit.events)
        if (kinds[EpisodeOpened], kinds[EpisodeFinished]) != (1, 1):
            found.append(f"child {id_}: {kinds}")
        if fold(life).steps_recorded != CHILD_TURNS - 1:
            found.append(f"child {id_}: {fold(life).steps_recorded} steps")
    finished = parent.finished
    assert finished is not None, "it has ended"
    # Its first call, the calls of its children, what those used, and its conclusion.
    turns = 1 + CHILDREN * (1 + CHILD_TURNS) + 1
    if (finished.status, finished.turns_used) != (EndStatus.DONE, turns):
        found.append(f"{finished.status}, {finished.turns_used} turns, not {turns}")
    converged = parent.converged
    if converged is None or bytes(converged.result) != str(sum(range(CHILDREN))).encode():
        found.append(f"result {converged and bytes(converged.result)!r}")
    return found


def points(commits: int) -> Sequence[int]:
    if EACH:
        return range(1, commits + 1)
    return sorted({1, commits // 2, commits - 1})


@pytest.mark.timeout(3_600 if EACH else 300)
async def test_each_child_is_once_and_ends_once_whenever_all_nodes_die(cluster: Cluster):
    killer = Killer(cluster)
    await killer.start()
    commits = await killer.play("calm")
    assert await problems(cluster, "calm") == []
    assert commits > 3

    for number in points(commits):
        event = f"killed{number}"
        await killer.play(event, kill_at=number)
        assert {event: await problems(cluster, event)} == {event: []}
        await cluster.wait_rows(TREE.format(event), CHILDREN, most_s=30)

    everything = await cluster.query("select actor_id, parent_id is null as is_root from episodes")
    roots = [row for row in everything if row["is_root"]]
    assert len(everything) == len(roots) * (1 + CHILDREN)
    assert {row["actor_id"] for row in everything} == {"boss", *WORKERS}
