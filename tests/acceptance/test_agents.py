"""Agents on nodes that die: a server of models and the tools' own ledger say what was done.

`tests/testing/test_agents.py` and `tests/engine/agents/test_model.py` have a node die at many
moments of an agent, and `tests/engine/spending/test_every_crash.py` of one that spends.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Final

import nats
import pytest
from nats.aio.msg import Msg

from engine.app.dedupe import episode_id, event_key
from engine.operations.decide_request import ApprovalTarget, decide_request
from streams.jetstream import connect
from streams.model.events import EpisodeBlocked
from streams.subjects import Stack
from tests.acceptance.agentic import PER_DAY_USD, PRICE
from tests.acceptance.cluster import READY_MAX_S, Cluster, NodeProcess, wait_until
from tests.size import is_full
from vigil.testing import AskedTool, ModelRequest, ModelServer, TextAnswer, ToolCallsAnswer

pytestmark = pytest.mark.nightly

APP: Final = "tests.acceptance.agentic:app"
NODES: Final = ("n1", "n2")
EACH: Final = is_full("agents")
ENDS_S_MAX: Final = 90.0
ASKED: Final = 5
"""How many requests the two agents of an episode make."""

DONE: Final = 7
"""How many calls their tools write down, beside the one that runs an agent."""

SAID: Final = (
    "cpu is high; disk is high, says the expert; web is up; net is high; io is high; swap is high;"
    " load is high"
)
"""What the agent finds out in the end."""


def answer(request: ModelRequest) -> ToolCallsAnswer | TextAnswer:
    """Answer as the model of each agent does, by what it has been told so far."""
    told = [str(each["text"]) for each in request.messages if each["role"] == "tool"]
    question = next(str(each["text"]) for each in request.messages if each["role"] == "user")
    names = {str(each["name"]) for each in request.tools}
    if names == {"measure"}:
        return told_or(told, f"{'; '.join(told)}, says the expert", ("measure", {"what": "disk"}))
    match len(told):
        case 0:
            calls = [
                AskedTool("measure", {"what": "cpu"}),
                AskedTool("ask_expert", {"question": question}),
                AskedTool("restart", {"service": "web"}),
            ]
        case 3:
            calls = [AskedTool("measure", {"what": each}) for each in ("net", "io", "swap", "load")]
        case _:
            return TextAnswer("; ".join(told))
    return ToolCallsAnswer(tuple(calls))


def told_or(told: list[str], text: str, call: tuple[str, dict[str, str]]):
    return TextAnswer(text) if told else ToolCallsAnswer((AskedTool(*call),))


@pytest.fixture
async def models() -> AsyncIterator[ModelServer]:
    async with ModelServer(answer, models=["test-model"]) as server:
        yield server


class Nodes:
    """Two nodes, which die together."""

    def __init__(self, cluster: Cluster, models: ModelServer, ledger: Path) -> None:
        self._cluster = cluster
        self._env = {"MODELS_URL": models.url, "LEDGER": str(ledger)}
        self.running: list[NodeProcess] = []

    async def start(self) -> None:
        self.running = [self._cluster.launch(name, app=APP, **self._env) for name in NODES]
        for node in self.running:
            await wait_until(node.is_up, f"{node.name} is up", most_s=READY_MAX_S)

    def kill(self) -> None:
        for node in self.running:
            node.kill()


def episode_of(event: str) -> str:
    return episode_id(
        stack="vigil", actor="monitor", expectation="healthy", dedupe_key=event_key(event)
    )


class Watched:
    """The commits of one episode: all nodes die after one of them, and its request is approved."""

    def __init__(self, nodes: Nodes, *, kill_at: int) -> None:
        self._nodes, self._kill_at = nodes, kill_at
        self.seen, self.has_killed, self.asked = 0, False, asyncio.Event()

    async def on_commit(self, message: Msg) -> None:
        self.seen += 1
        if b'"episode.blocked@1"' in message.data:
            self.asked.set()
        if self.seen == self._kill_at:
            self._nodes.kill()
            self.has_killed = True


ENDED: Final = "select 1 from episodes where dedupe_key = 'event:{}' and status = 'done'"


async def play(cluster: Cluster, nodes: Nodes, event: str, *, kill_at: int = 0) -> int:
    """Have an episode run, kill all nodes after its commit `kill_at`; return how many it has."""
    watched = Watched(nodes, kill_at=kill_at)
    client = await nats.connect(cluster.nats_url)
    try:
        await client.subscribe(Stack().episode(episode_of(event)), cb=watched.on_commit)
        await client.flush()
        await cluster.publish("alarm", {event: {}})
        approving = asyncio.create_task(approve(cluster, event, watched.asked))
        if kill_at:
            killed = f"commit {kill_at} of {event}"
            await wait_until(lambda: watched.has_killed, killed, most_s=READY_MAX_S)
            await nodes.start()
        await approving
        await cluster.wait_rows(ENDED.format(event), 1, most_s=ENDS_S_MAX)
        return watched.seen
    finally:
        await client.close()


async def approve(cluster: Cluster, event: str, asked: asyncio.Event) -> None:
    await asked.wait()
    async with connect(cluster.nats_url, stack=Stack()) as ports:
        records = await ports.log.read(ports.stack.episode(episode_of(event)))
        events = [each for record in records for each in record.commit.events]
        blocks = [each for each in events if isinstance(each, EpisodeBlocked)]
        assert blocks[-1].approval is not None
        target = ApprovalTarget("episode", episode_of(event))
        hash_ = blocks[-1].approval.plan_hash
        await decide_request(ports, target, "approve", plan_hash=hash_, by="ann")


def lines(ledger: Path) -> list[str]:
    return ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else []


@pytest.mark.timeout(1_800 if EACH else 300)
async def test_a_model_and_tools_are_asked_once_whenever_all_nodes_die(
    cluster: Cluster, models: ModelServer, tmp_path: Path
):
    ledger = tmp_path / "ledger"
    nodes = Nodes(cluster, models, ledger)
    await nodes.start()
    commits = await play(cluster, nodes, "calm")
    calm = models.usage
    assert len(models.calls) == ASKED
    assert len(lines(ledger)) == DONE
    assert commits > 10

    points = range(1, commits) if EACH else (commits // 2, commits - 2)
    for times, number in enumerate(points, start=2):
        event = f"killed{number}"
        await play(cluster, nodes, event, kill_at=number)
        assert len(models.calls) == times * ASKED, event
        assert all(each.request.idempotency_key for each in models.calls)
        assert models.usage.input_tokens == times * calm.input_tokens, event
        keys = Counter(lines(ledger))
        assert len(keys) == times * DONE, event
    ends = await cluster.query("select summary, cost_usd from episodes")
    assert {row["summary"] for row in ends} == {SAID}
    assert len({row["cost_usd"] for row in ends}) == 1


@pytest.mark.timeout(300)
async def test_an_actors_day_costs_what_it_may_whatever_nodes_die(
    cluster: Cluster, models: ModelServer, tmp_path: Path
):
    episodes = 200 if EACH else 60
    nodes = Nodes(cluster, models, tmp_path / "ledger")
    await nodes.start()
    await cluster.publish("question", {f"q{n}": {"text": f"why {n}?"} for n in range(episodes)})
    for _ in range(2):
        before = len(models.calls)
        goes_on = lambda before=before: len(models.calls) > before + 5  # noqa: E731
        await wait_until(goes_on, "requests are made", most_s=READY_MAX_S)
        nodes.kill()
        await nodes.start()
    ended = "select 1 from episodes where status in ('done', 'failed')"
    await cluster.wait_rows(ended, episodes, most_s=150)

    used = models.usage
    million = Decimal(1_000_000)
    counted = (
        used.input_tokens * PRICE.input_per_million + used.output_tokens * PRICE.output_per_million
    ) / million
    (row,) = await cluster.query("select sum(cost_usd) as usd from episode_steps")
    assert row["usd"] == counted
    assert Decimal(0) < counted <= Decimal(PER_DAY_USD)
    failed = await cluster.query(
        "select distinct error_class from episodes where status = 'failed'"
    )
    assert [row["error_class"] for row in failed] == ["budget_exceeded"]
