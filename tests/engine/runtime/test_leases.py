"""How a node keeps its leases, and how it notices that it has lost one."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from engine.app.actions import observe, tool_call
from engine.app.checks import Breaker
from engine.runtime.leases import Keeper
from streams.clock import SystemClock
from streams.errors import Unavailable
from streams.keys import episode_claim
from streams.memory.fake_leases import FakeLeases
from streams.model.events import EndStatus, EpisodeStarted
from tests.engine.stage import (
    CLOCK,
    LEASE_TTL_S,
    WAIT_S,
    Counter,
    Scripted,
    app_of,
    eventually,
    leave,
    life,
    lived,
    open_episode,
    running,
    write,
)

KEY = "episode.worker.e1"


class Shaky(FakeLeases):
    """Leases of a server that can be away."""

    away = False
    renewals = 0

    async def renew(self, lease):
        self.renewals += 1
        self._need_server("renew")
        return await super().renew(lease)

    async def complete(self, lease):
        self._need_server("complete")
        await super().complete(lease)

    async def fail(self, lease, *, error):
        self._need_server("fail")
        await super().fail(lease, error=error)

    def _need_server(self, operation):
        if self.away:
            raise Unavailable(operation, detail="away")


@pytest.fixture
def leases():
    return Shaky(CLOCK, ttl_s=LEASE_TTL_S)


@pytest.fixture
async def keeper(leases):
    keeper = Keeper(leases, holder="n1", clock=CLOCK)
    beating = asyncio.create_task(keeper.beat())
    yield keeper
    beating.cancel()
    await asyncio.gather(beating, return_exceptions=True)


@asynccontextmanager
async def watching(leases):
    async with leases.watch() as watch:

        async def changed(state):
            async with asyncio.timeout(WAIT_S):
                while True:
                    for change in await watch.receive(most=1, wait_s=WAIT_S):
                        if change.state == state and change.key.startswith("episode."):
                            return change

        yield changed


async def test_a_lease_is_renewed_at_every_third_of_its_life(keeper, leases):
    held = await keeper.acquire(KEY, on_lost=lambda: None)
    first_s = held.lease.trusted_until_s
    await eventually(lambda: leases.renewals == 3)
    last_s = held.lease.trusted_until_s

    assert last_s - first_s == pytest.approx(LEASE_TTL_S, rel=0.4)
    assert await leases.acquire(KEY, holder="n2") is None


async def test_the_revision_of_an_answer_is_known_before_its_change_is_heard_of(keeper):
    """A node that stood still knows at once that what lapsed meanwhile is older than its lease."""
    held = await keeper.acquire(KEY, on_lost=lambda: None)
    first = held.lease.revision
    assert keeper.freed.revision == first
    await eventually(lambda: held.lease.revision > first)
    assert keeper.freed.revision == held.lease.revision


async def test_a_key_that_someone_has_is_not_acquired(keeper, leases):
    await leases.acquire(KEY, holder="n2")
    assert await keeper.acquire(KEY, on_lost=lambda: None) is None


async def test_a_completed_lease_is_free_at_once_and_leaves_no_marker(keeper, leases):
    held = await keeper.acquire(KEY, on_lost=lambda: None)
    await keeper.complete(held)
    assert list(await leases.reclaim_expired()) == []
    assert await leases.acquire(KEY, holder="n2")


async def test_a_failed_lease_is_free_at_once_and_watchers_see_why(keeper, leases):
    held = await keeper.acquire(KEY, on_lost=lambda: None)
    async with watching(leases) as changed:
        await keeper.fail(held, error="broken")
        assert (await changed("failed")).error == "broken"
    assert await leases.acquire(KEY, holder="n2")


class SlowToAnswer(FakeLeases):
    """Leases of a server that stores a renewal and takes its time to say so."""

    def __init__(self):
        super().__init__(CLOCK, ttl_s=LEASE_TTL_S)
        self.stored, self.answers = asyncio.Event(), asyncio.Event()

    async def renew(self, lease):
        renewed = await super().renew(lease)
        self.stored.set()
        await self.answers.wait()
        return renewed


async def test_a_lease_that_is_being_renewed_is_given_up_at_its_new_revision():
    """I9."""
    leases = SlowToAnswer()
    keeper = Keeper(leases, holder="n1", clock=CLOCK)
    held = await keeper.acquire(KEY, on_lost=lambda: None)
    beating = asyncio.create_task(keeper.beat())
    await asyncio.wait_for(leases.stored.wait(), WAIT_S)
    completing = asyncio.create_task(keeper.complete(held))
    await asyncio.sleep(0)
    leases.answers.set()
    await completing
    beating.cancel()
    assert await leases.acquire(KEY, holder="n2")


@pytest.mark.parametrize("ending", ["complete", "fail"])
async def test_a_lease_that_cannot_be_given_up_lapses(keeper, leases, ending):
    held = await keeper.acquire(KEY, on_lost=lambda: None)
    leases.away = True
    await (keeper.complete(held) if ending == "complete" else keeper.fail(held, error="broken"))
    async with watching(leases) as changed:
        await changed("expired")
    assert leases.renewals == 0


async def test_the_attempt_goes_with_the_claim(keeper):
    held = await keeper.acquire(KEY, attempt=3, on_lost=lambda: None)
    assert held.lease.attempt == 3


async def test_a_forgotten_lease_lapses(keeper, leases):
    held = await keeper.acquire(KEY, on_lost=lambda: None)
    keeper.forget(held)
    async with watching(leases) as changed:
        await changed("expired")
    assert leases.renewals == 0


async def test_a_lease_that_was_taken_over_is_lost_at_the_next_beat(keeper, leases):
    lost = asyncio.Event()
    held = await keeper.acquire(KEY, on_lost=lost.set)
    with capture_logs() as logs:
        leases.set_busy(KEY)
        await asyncio.wait_for(lost.wait(), WAIT_S)
    assert held.lost
    (told,) = [line for line in logs if line["event"] == "claim_lost"]
    assert told["key"] == KEY
    assert "no longer ours" in told["why"]


async def test_a_server_that_is_away_for_a_moment_costs_no_lease(keeper, leases):
    lost = asyncio.Event()
    held = await keeper.acquire(KEY, on_lost=lost.set)
    leases.away = True
    await eventually(lambda: leases.renewals == 1)
    leases.away = False
    await eventually(lambda: leases.renewals == 4)
    assert not lost.is_set()
    assert not held.lost


async def test_a_lease_that_cannot_be_renewed_is_lost_before_it_lapses(keeper, leases):
    lost = asyncio.Event()
    held = await keeper.acquire(KEY, on_lost=lost.set)
    leases.away = True
    await asyncio.wait_for(lost.wait(), WAIT_S)
    assert held.lost
    assert CLOCK.monotonic_s() <= held.lease.trusted_until_s + LEASE_TTL_S / 10


async def test_losing_a_lease_stops_the_episode_at_once_and_another_claim_finishes_it(ports):
    """I2."""
    tool = Counter(open_=False)
    app = app_of(Scripted(tool_call("slow", "wait"), observe("end")), tools={"slow": tool})
    leases = FakeLeases(CLOCK, ttl_s=LEASE_TTL_S)
    ports = replace(ports, leases=leases)
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await tool.called.wait()
        await eventually(lambda: episode_claim("worker", id_) in leases.claimed())
        leases.lapse(episode_claim("worker", id_))
        await eventually(lambda: len(tool.calls) == 2)
        tool.gate.set()
        life = await lived(ports, id_)

    assert [one.attempt for one in life.of(EpisodeStarted)] == [1, 2]
    assert life.end.status is EndStatus.DONE


async def test_a_node_that_takes_over_from_itself_stops_what_it_did_before():
    """I2: it was frozen past its lease, and pulled the call for recovery before it noticed."""
    leases = FakeLeases(CLOCK, ttl_s=LEASE_TTL_S)
    keeper, lost = Keeper(leases, holder="n1", clock=CLOCK), []
    await keeper.acquire("k", on_lost=lambda: lost.append("first"))
    leases.lapse("k")
    second = await keeper.acquire("k", on_lost=lambda: lost.append("second"))
    assert second is not None
    assert lost == ["first"]


async def test_a_claim_is_for_the_attempt_that_the_journal_counts_to(ports):
    tool = Counter(open_=False)
    app = app_of(Scripted(tool_call("tool", "a")), tools={"tool": tool})
    await leave(ports, app)
    async with watching(ports.leases) as changed, running(app, ports):
        assert (await changed("claimed")).claim.attempt == 2
        tool.gate.set()


async def test_the_claim_of_an_episode_that_fails_says_why(ports):
    strategy = Scripted(tool_call("tool", "a"))
    strategy.converge = lambda state, ctx: 1 / 0
    app = app_of(strategy, tools={"tool": Counter()}, breaker=Breaker(threshold=3))
    async with watching(ports.leases) as changed, running(app, ports):
        id_ = await open_episode(ports, app)
        failed = await changed("failed")
    end = (await life(ports, id_)).end
    assert end.status is EndStatus.FAILED
    assert failed.error == f"{end.error_class}: {end.error_detail}"


async def test_the_claim_of_an_episode_that_ends_well_is_done(ports):
    strategy, breaker = Scripted(tool_call("tool", "a")), Breaker(threshold=3)
    app = app_of(strategy, tools={"tool": Counter()}, breaker=breaker)
    async with watching(ports.leases) as changed, running(app, ports):
        await open_episode(ports, app)
        assert (await changed("done")).error == ""


async def test_a_node_that_was_overtaken_says_that_it_lost_the_claim(ports):
    """I2."""
    tool = Counter(open_=False)
    app = app_of(Scripted(tool_call("slow", "wait"), observe("end")), tools={"slow": tool})
    with capture_logs() as logs:
        async with running(app, ports):
            id_ = await open_episode(ports, app)
            await tool.called.wait()
            rival = await ports.leases.acquire(episode_claim("worker", id_), holder="rival")
            started = EpisodeStarted(node="rival", attempt=2, claim_revision=rival.revision)
            await write(ports, id_, started)
            tool.gate.set()
            await lived(ports, id_)
    (told,) = [line for line in logs if line["event"] == "claim_lost"]
    assert told["key"] == episode_claim("worker", id_)
    assert "another node has it" in told["why"]


class LateAnswer(FakeLeases):
    """Leases of a server whose first answer arrives when what it grants has lapsed."""

    granted: list[int]

    async def acquire(self, key, *, holder, attempt=1):
        lease = await super().acquire(key, holder=holder, attempt=attempt)
        if lease is None:
            return None
        self.granted.append(lease.revision)
        if len(self.granted) == 1:
            async with self.watch(after=lease.revision) as watch:
                await watch.receive(most=1, wait_s=WAIT_S)
        return lease


async def test_a_claim_that_cannot_be_trusted_any_more_puts_up_no_fence(ports):
    """I2."""
    leases = LateAnswer(CLOCK, ttl_s=LEASE_TTL_S)
    leases.granted = []
    ports = replace(ports, leases=leases)
    app = app_of(Scripted(tool_call("tool", "a")), tools={"tool": Counter()})
    async with running(app, ports):
        life_ = await lived(ports, await open_episode(ports, app))

    (started,) = life_.of(EpisodeStarted)
    assert started.claim_revision in leases.granted[1:]


MEASURED = """
import asyncio, json

from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))

from engine.runtime.leases import Keeper
from streams.clock import SystemClock
from tests.engine.runtime.test_leases import Shaky

async def main():
    leases = Shaky(ttl_s=0.3)
    keeper = Keeper(leases, holder="n1", clock=SystemClock())
    beating = asyncio.create_task(keeper.beat())
    await keeper.complete(await keeper.acquire("completed", on_lost=int))
    await keeper.fail(await keeper.acquire("failed", on_lost=int), error="broken")
    leases.set_busy("stolen")
    assert await keeper.acquire("stolen", on_lost=int) is None
    leases.lapse("stolen")
    lost = asyncio.Event()
    await keeper.acquire("stolen", on_lost=lost.set)
    while not leases.renewals:
        await asyncio.sleep(0)
    leases.away = True
    await lost.wait()
    beating.cancel()

asyncio.run(main())
print(json.dumps({
    metric.name: {
        point.attributes["outcome"]: getattr(point, "count", None) or point.value
        for point in metric.data.data_points
    }
    for resource in reader.get_metrics_data().resource_metrics
    for scope in resource.scope_metrics
    for metric in scope.metrics
}))
"""


def test_whatever_becomes_of_a_lease_is_counted():
    done = subprocess.run(
        [sys.executable, "-c", MEASURED], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout.splitlines()[-1])
    assert measured["vigil.lease.acquire.duration"] == {"acquired": 2, "busy": 1, "steal": 1}
    counted = measured["vigil.leases"]
    assert counted.pop("renew_failed") >= 1
    assert counted.pop("renewed") >= 1
    once = {"busy": 1, "steal": 1, "completed": 1, "failed": 1, "lost": 1}
    assert counted == {"acquired": 2, **once}


class Blocked(SystemClock):
    """A clock on whose loop something blocks: every sleep ends this much too late."""

    def __init__(self, late_s):
        self.late_s, self.passed_s = late_s, 0.0
        self.beats = 0

    def monotonic_s(self):
        return self.passed_s

    async def sleep(self, seconds):
        self.passed_s += seconds + self.late_s
        self.beats += 1
        await asyncio.sleep(0)


@pytest.mark.parametrize(("late_s", "warns"), [(0.45, False), (0.55, True)])
async def test_a_beat_that_is_late_by_more_than_half_a_lease_says_what_is_wrong(late_s, warns):
    clock = Blocked(late_s * LEASE_TTL_S)
    keeper = Keeper(FakeLeases(clock, ttl_s=LEASE_TTL_S), holder="n1", clock=clock)
    with capture_logs() as logs:
        beating = asyncio.create_task(keeper.beat())
        await eventually(lambda: clock.beats > 1)
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
    said = [line["event"] for line in logs]
    assert any("the event loop was blocked for 0.6 s: " in each for each in said) == warns, said
    assert bool(said) == warns
