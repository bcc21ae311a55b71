"""What strategies and programs learn about findings, by key."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from engine.app.actions import converge, tool_call
from engine.app.findings import clear_finding, raise_finding
from engine.app.strategy import ConvergeResult, Strategy
from engine.findings.apply import FindingApplier
from engine.findings.index import FindingIndex
from engine.findings.store import FindingReader
from engine.runtime.store import Turns
from streams.errors import BadName
from streams.memory import memory_ports
from streams.model.findings import FindingStatus
from streams.model.triggers import Mode, Overrides
from streams.tokens import TOKEN_BYTES_MAX
from tests.engine.stage import CLOCK, Scripted, app_of, opening, play
from tests.simulation.time import SimClock, simulate
from vigil.ports import findings_of

disk = raise_finding("disk", class_="full", severity="high")


async def carry_out(ports, *intents, clock=CLOCK, id_="x0"):
    app = app_of(Scripted())
    applier = FindingApplier(ports, app.actors, clock, Turns())
    await applier.apply(intents, opened=opening(app, id_=id_), attempt=1)


async def test_a_finding_is_read_as_the_journal_has_it(ports):
    assert await findings_of(ports).get("disk") is None
    await carry_out(ports, disk)
    active = await findings_of(ports).get("disk")
    await carry_out(ports, clear_finding("disk"), id_="x1")
    ended = await findings_of(ports).get("disk")

    assert (active.status, active.severity) == (FindingStatus.ACTIVE, "high")
    assert ended.status is FindingStatus.CLEARED


async def test_a_key_that_no_finding_can_have_is_refused(ports):
    with pytest.raises(BadName):
        await findings_of(ports).get("")


async def test_of_a_key_that_a_dry_run_cannot_keep_anything_under_it_sees_what_is_meant(ports):
    overrides = Overrides(persist_findings="dry_run")
    dry = replace(opening(app_of(Scripted())), mode=Mode.DRY_RUN, overrides=overrides)
    finder, long = (
        FindingReader(FindingIndex(ports.log, ports.stack), CLOCK, dry),
        "k" * TOKEN_BYTES_MAX,
    )
    await carry_out(ports, raise_finding(long, class_="full"))
    assert (await finder.get(long)).finding_key == long
    with pytest.raises(BadName):
        await finder.get("")


def test_a_finding_is_recent_for_a_while_after_its_last_change():
    async def work():
        clock = SimClock()
        ports = memory_ports(clock=clock)
        finder = FindingReader(FindingIndex(ports.log, ports.stack), clock)
        await carry_out(ports, disk, clock=clock)
        await asyncio.sleep(600)
        seen = [await finder.recent("disk", within) for within in (599, "10m", "1h")]
        return [each is not None for each in seen], await finder.recent("other", "1h")

    assert simulate(work()) == ([False, True, True], None)


class Asks(Strategy):
    """Asks about a finding wherever it may."""

    def __init__(self):
        self.seen = {}

    async def init(self, episode, trigger):
        self.seen["init"] = await episode.findings.get("disk")
        return {}

    def next_step(self, state, ctx):
        return tool_call("disk", "look") if ctx.turn == 1 else converge()

    async def converge(self, state, ctx):
        self.seen["converge"] = await ctx.findings.recent("disk", "1h")
        return ConvergeResult()


async def test_a_strategy_asks_in_init_in_tools_and_in_converge(ports):
    await carry_out(ports, disk)
    asks = Asks()

    async def look(args, ctx):
        asks.seen["tool"] = await ctx.findings.get("disk")

    life = await play(asks, ports=ports, tools={"disk": look})
    assert life.end.status == "done"
    assert {place: each.severity for place, each in asks.seen.items()} == {
        "init": "high",
        "tool": "high",
        "converge": "high",
    }


class AsksTooSoon(Asks):
    """Asks where a replay might be told something else."""

    async def next_step(self, state, ctx):
        await ctx.findings.recent("disk", "1h")


async def test_a_strategy_that_asks_in_next_step_is_told_where_it_may(ports):
    life = await play(AsksTooSoon(), ports=ports)
    assert life.end.error_class == "crash"
    assert "findings can be read in init, converge, tools" in life.end.error_detail
