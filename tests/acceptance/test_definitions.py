"""Definitions on real servers and processes: changed while episodes run, and disabled for a while.

Whatever happens to nodes meanwhile, an episode ends as the revision says that it was opened under.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

import pytest

from engine.cluster.members import live_nodes
from engine.cluster.nodes import ActorInfo
from engine.definitions.store import apply_definition, disable_definition
from engine.episodes.episode import Status, fold
from streams.jetstream import connect
from streams.layout import Kind
from streams.model.events import DefinitionKind, EpisodeConverged, EpisodeFinished
from streams.ports.all import Ports
from streams.subjects import Stack
from tests.acceptance.agreement import Lives, journal, steps_of
from tests.acceptance.cluster import Cluster
from tests.acceptance.defined import ACTOR, EVENT, ROOM, definition, text_of_step

pytestmark = pytest.mark.nightly

APP: Final = "tests.acceptance.defined:app"
LEASE_S: Final = "3"
MOST_S: Final = 60.0
LOOK_S: Final = 0.05

NODES: Final = ("n1", "n2", "n3")
OLD: Final = range(100)
"""Orders that are placed under the first revision."""

NEW: Final = range(100, 200)
"""Orders that are placed under the second."""

SLOW: Final = range(30)
"""Orders that nobody has looked at yet when a node dies, ten on one of three nodes at least."""

ENDED_BEFORE_DEATH: Final = 50

WORDS: Final = {1: "first", 2: "second"}
"""What episodes say, by the revision that they were opened under."""

OPENED: Final = "select 1 from episodes where definition_revision = {revision}"
RUNNING: Final = "select 1 from episodes where status = 'running'"
QUEUED: Final = "select 1 from episodes where status = 'queued'"
DONE: Final = "select 1 from episodes where status = 'done'"
BUSIEST: Final = (
    "select node from episodes where status = 'running' and subject_id = any($1)"
    " group by node order by count(*) desc limit 1"
)
TAKEN_OVER: Final = (
    "select subject_id from episodes where attempts > 1 and node <> $1 and subject_id = any($2)"
)
ROWS: Final = "select definition_revision, summary, count(*) from episodes group by 1, 2"
HISTORY: Final = "select revision, change, person, reason from definition_history order by at"
STANDS: Final = "select revision, is_enabled, applied_by, disabled_by from agent_definitions"


@pytest.fixture
async def ports(cluster: Cluster) -> AsyncIterator[Ports]:
    async with connect(cluster.nats_url, stack=Stack()) as ports:
        # A node may be seen to run an actor a moment before the queue of its events is there.
        await (await ports.domain_events.open(ACTOR, [EVENT])).close()
        yield ports


async def start(cluster: Cluster, *names: str) -> None:
    for name in names:
        await cluster.start(name, app=APP, VIGIL_LEASE_S=LEASE_S)


async def apply(ports: Ports, word: str, *, by: str) -> int:
    """Apply the actor anew, wait until all nodes run it, and return its revision."""
    change = await apply_definition(
        ports, DefinitionKind.AGENT, ACTOR, definition(word), by=by, reason=f"{word} of all"
    )
    revision = change.registered.revision
    await wait_revisions(ports, lambda seen: set(seen.values()) == {revision})
    return revision


async def disable(ports: Ports, *, by: str) -> None:
    """Disable the actor, and wait until no node has it."""
    await disable_definition(ports, DefinitionKind.AGENT, ACTOR, by=by)
    await wait_revisions(ports, lambda seen: set(seen.values()) == {None})


async def wait_revisions(ports: Ports, holds: Callable[[Mapping[str, int | None]], bool]) -> None:
    """Wait until what the nodes that are up run the actor as is so."""
    async with asyncio.timeout(MOST_S):
        while True:
            nodes = await live_nodes(ports.gates)
            if nodes and holds({each.name: revision_in(each.actors.get(ACTOR)) for each in nodes}):
                return
            await asyncio.sleep(LOOK_S)


def revision_in(info: ActorInfo | None) -> int | None:
    return None if info is None else info.revision


async def place(cluster: Cluster, numbers: Iterable[int], *, until: Path) -> None:
    """Publish orders whose episodes go on only when the file `until` is there."""
    payloads = {f"e{n}": {"order": order(n), "until": str(until)} for n in numbers}
    await cluster.publish(EVENT, payloads)


def order(number: int) -> str:
    return f"o{number}"


def check_lives(lives: Lives, *, new: AbstractSet[str]) -> None:
    """Fold every episode: it has ended once, as the revision says that its order came under."""
    seen = []
    for (kind, _), life in lives.items():
        if kind is not Kind.EPISODE:
            continue
        episode = fold(life)
        assert episode.opened
        assert episode.converged
        seen.append(episode.opened.trigger.event_id)
        events = [type(event) for record in life for event in record.commit.events]
        assert (events.count(EpisodeConverged), events.count(EpisodeFinished)) == (1, 1)
        assert episode.status is Status.DONE
        assert len(steps_of(life)) == 1
        assert episode.opened.revision == 1 + (episode.opened.trigger.entity_id in new)
        assert episode.converged.summary == text_of_step(WORDS[episode.opened.revision])
    assert sorted(seen) == sorted(f"e{n}" for n in (*OLD, *NEW)), "one episode for each order"


async def test_an_actor_changes_while_a_hundred_of_its_episodes_run_and_a_node_dies(
    cluster: Cluster, ports: Ports, tmp_path: Path
):
    quick, slow = tmp_path / "quick", tmp_path / "slow"
    await start(cluster, *NODES)
    assert await apply(ports, "first", by="ada") == 1
    await place(cluster, SLOW, until=slow)
    await cluster.wait_rows(RUNNING, len(SLOW), most_s=MOST_S)
    await place(cluster, OLD[len(SLOW) :], until=quick)
    await cluster.wait_rows(OPENED.format(revision=1), len(OLD), most_s=MOST_S)
    await cluster.wait_rows(RUNNING, len(NODES) * ROOM, most_s=MOST_S)

    assert await apply(ports, "second", by="bob") == 2
    await place(cluster, NEW, until=quick)
    await cluster.wait_rows(OPENED.format(revision=2), len(NEW), most_s=MOST_S)
    quick.touch()
    await cluster.wait_at_least(DONE, ENDED_BEFORE_DEATH, most_s=MOST_S)
    waiting = [order(n) for n in SLOW]
    ((dead,),) = await cluster.query(BUSIEST, waiting)
    next(node for node in cluster.nodes if node.name == dead).kill()
    await start(cluster, "n4")  # It has never known the first revision.
    slow.touch()
    await cluster.wait_rows(DONE, len(OLD) + len(NEW), most_s=MOST_S)

    lives = await journal(cluster.nats_url)
    check_lives(lives, new={order(n) for n in NEW})
    assert await cluster.differences(lives) == []
    assert len(await cluster.query(TAKEN_OVER, dead, waiting)) >= len(SLOW) // len(NODES)
    assert {tuple(row) for row in await cluster.query(ROWS)} == {
        (1, text_of_step("first"), len(OLD)),
        (2, text_of_step("second"), len(NEW)),
    }
    assert [tuple(row) for row in await cluster.query(STANDS)] == [(2, True, "bob", None)]
    assert [tuple(row) for row in await cluster.query(HISTORY)] == [
        (1, "applied", "ada", "first of all"),
        (2, "applied", "bob", "second of all"),
    ]
    assert [node.stop() for node in cluster.nodes if node.name != dead] == [0, 0, 0]


async def test_what_comes_while_an_actor_is_disabled_waits_until_it_is_applied_again(
    cluster: Cluster, ports: Ports, tmp_path: Path
):
    gate = tmp_path / "gate"
    running, queued, late = range(ROOM), range(ROOM, ROOM + 5), range(ROOM + 5, ROOM + 10)
    await start(cluster, "n1")
    await apply(ports, "first", by="ada")
    await place(cluster, running, until=gate)
    await cluster.wait_rows(RUNNING, len(running), most_s=MOST_S)
    await place(cluster, queued, until=gate)
    await cluster.wait_rows(QUEUED, len(queued), most_s=MOST_S)

    await disable(ports, by="cyd")
    await place(cluster, late, until=gate)
    gate.touch()
    # What is open goes on as it began; what has come since opens nothing.
    await cluster.wait_rows(DONE, len(running) + len(queued), most_s=MOST_S)
    assert [tuple(row) for row in await cluster.query(STANDS)] == [(1, False, "ada", "cyd")]
    assert cluster.nodes[0].stop() == 0
    await start(cluster, "n2")

    assert await apply(ports, "second", by="ada") == 2
    await cluster.wait_rows(DONE, len(running) + len(queued) + len(late), most_s=MOST_S)
    assert {tuple(row) for row in await cluster.query(ROWS)} == {
        (1, text_of_step("first"), len(running) + len(queued)),
        (2, text_of_step("second"), len(late)),
    }
    assert [tuple(row)[:3] for row in await cluster.query(HISTORY)] == [
        (1, "applied", "ada"),
        (1, "disabled", "cyd"),
        (2, "applied", "ada"),
    ]
    assert cluster.nodes[1].stop() == 0
