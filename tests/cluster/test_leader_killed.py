"""I4 and I5 on three servers, when the one that leads is killed in the middle of it all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from streams.jetstream import LinkSettings, connect
from streams.layout import Stream
from streams.ports.domain_events import DomainEvents
from streams.ports.log import EventLog
from streams.subjects import Stack
from tests.acceptance.agreement import journal
from tests.acceptance.cluster import Cluster
from tests.cluster.three import Three
from tests.contracts.samples import commit

pytestmark = pytest.mark.nightly

AGGREGATES: Final = 40
COMMITS: Final = 60
"""Of each aggregate. All together take about 1 s without any accident."""

KILL_AT: Final = AGGREGATES * COMMITS // 3
"""Commits stored when the leader is killed; it is back for the last third."""

EPISODES: Final = 300
REPLICAS: Final = 3


async def test_an_acknowledged_commit_survives_its_leader_and_is_there_once(
    three: Three, stack: Stack
):
    settings = LinkSettings(replicas=REPLICAS)
    async with connect(three.url, stack=stack, settings=settings) as ports:
        journal_name = stack.stream(Stream.JOURNAL)
        assert (await three.stream(journal_name)).config.num_replicas == REPLICAS
        subjects = [stack.episode(f"e{number}") for number in range(AGGREGATES)]
        appending = [asyncio.create_task(_chain(ports.log, subject)) for subject in subjects]
        await _wait_head(ports.log, KILL_AT)
        leader = await three.leader_of(journal_name)
        leader.kill()
        await _wait_head(ports.log, 2 * KILL_AT)
        leader.restart()
        acknowledged = await asyncio.gather(*appending)

        for subject, seqs in zip(subjects, acknowledged, strict=True):
            records = await ports.log.read(subject)
            assert [record.seq for record in records] == seqs
            assert [record.commit.id for record in records] == _ids(subject)
        assert await ports.log.head() == AGGREGATES * COMMITS


async def _chain(log: EventLog, subject: str) -> Sequence[int]:
    """Append commit after commit to one aggregate, and return where each went."""
    seqs = [0]
    for id_ in _ids(subject):
        seqs.append(await log.append(subject, commit(id_), after=seqs[-1]))
    assert all(earlier < later for earlier, later in pairwise(seqs))
    return seqs[1:]


def _ids(subject: str) -> list[str]:
    return [f"{subject}/{number}" for number in range(COMMITS)]


async def _wait_head(log: EventLog, seq: int) -> None:
    """Wait until the journal has got as far as `seq`."""
    async with log.follow() as follower:
        reached = 0
        while reached < seq:
            records = await follower.receive(most=500, wait_s=30.0)
            assert records, f"the journal stands still at {reached}"
            reached = records[-1].seq


async def test_nodes_go_on_when_the_leader_of_the_journal_is_killed(three: Three, tmp_path: Path):
    stack, settings = Stack(), LinkSettings(replicas=REPLICAS)
    async with (
        Cluster(tmp_path, nats_url=three.url) as cluster,
        connect(three.url, stack=stack, settings=settings) as ports,
    ):
        nodes = [await cluster.start(name, VIGIL_REPLICAS=str(REPLICAS)) for name in ("n1", "n2")]
        done = "select 1 from episodes where status = 'done'"
        await _place(ports.domain_events, range(EPISODES // 2))
        await cluster.wait_rows(f"{done} limit 1", 1, most_s=30)
        leader = await three.leader_of(stack.stream(Stream.JOURNAL))
        leader.kill()
        await _place(ports.domain_events, range(EPISODES // 2, EPISODES))
        leader.restart()
        await cluster.wait_rows(done, EPISODES, most_s=80)

        assert len(await cluster.query("select 1 from episodes")) == EPISODES
        assert await cluster.differences(await journal(three.url)) == []
        assert [node.stop() for node in nodes] == [0, 0]


async def _place(world: DomainEvents, numbers: Iterable[int]) -> None:
    """Publish an event for each number; each waits for a leader if there is none."""
    async with asyncio.TaskGroup() as group:
        for n in numbers:
            payload = {"order": f"o{n}", "late_days": n % 3}
            group.create_task(world.publish("order.placed", payload, id=f"e{n}"))
