"""What strategies and programs learn about active findings by subject, actor and class."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from engine.app.findings import clear_finding, raise_finding
from engine.app.strategy import ConvergeResult
from engine.findings import index
from engine.findings.apply import FindingApplier
from engine.findings.index import FindingIndex
from engine.findings.store import FindingReader
from engine.runtime.store import Turns
from streams.errors import Unavailable
from streams.jetstream import LinkSettings, connect
from streams.layout import Stream
from streams.memory import memory_ports
from streams.model.triggers import Mode, Overrides
from streams.subjects import Stack
from tests.engine.findings.test_reader import carry_out
from tests.engine.stage import CLOCK, Scripted, app_of, opening, play
from tests.simulation.time import SimClock, simulate
from vigil.ports import findings_of


def disk_of(host: str, **said):
    said = {"class_": "full", "severity": "high", **said}
    return raise_finding(f"disk:{host}", subject=("host", host), **said)


def keys(findings) -> list[str]:
    return [each.finding_key for each in findings]


async def test_active_findings_are_found_by_subject_class_and_actor(ports):
    await carry_out(
        ports,
        disk_of("web-1"),
        disk_of("web-2"),
        raise_finding("load:web-1", class_="busy", subject=("host", "web-1")),
        raise_finding("job:7", class_="late", subject=("job", "7")),
    )
    findings = findings_of(ports)

    assert keys(await findings.active(subject=("host", "web-1"))) == ["disk:web-1", "load:web-1"]
    assert len(await findings.active(subject=("host", None))) == 3
    assert keys(await findings.active(subject=("host", "web-1"), class_="busy")) == ["load:web-1"]
    assert len(await findings.active(actor="worker")) == 4
    assert await findings.active(actor="another") == []
    assert await findings.active(subject=("job", "web-1")) == []


async def test_what_has_ended_is_not_among_them_until_it_is_raised_again(ports):
    findings = findings_of(ports)
    seen = []
    for id_, intent in (
        ("x0", disk_of("web-1")),
        ("x1", clear_finding("disk:web-1")),
        ("x2", disk_of("web-1")),
    ):
        await carry_out(ports, intent, id_=id_)
        seen.append([each.raise_no for each in await findings.active()])

    assert seen == [[1], [], [2]]


def test_the_most_severe_come_first_and_of_these_the_newest():
    async def work():
        clock = SimClock()
        ports = memory_ports(clock=clock)
        for id_, severity in (("a", "low"), ("b", "high"), ("c", "high"), ("d", "critical")):
            await carry_out(ports, disk_of(id_, severity=severity), clock=clock, id_=id_)
            await asyncio.sleep(1)
        findings = findings_of(ports)
        return keys(await findings.active()), keys(await findings.active(limit=2))

    found, first_two = simulate(work())
    assert found == ["disk:d", "disk:c", "disk:b", "disk:a"]
    assert first_two == found[:2]


async def test_the_worst_of_many_are_found_while_other_tasks_run(ports, monkeypatch):
    severities = ["low", "critical", "medium", "high", "low", "low", "low", "low"]
    await carry_out(ports, *(disk_of(f"{n}", severity=s) for n, s in enumerate(severities)))
    monkeypatch.setattr(index, "LOOKED_AT_ONCE", 2)
    findings, turns = findings_of(ports), []
    await findings.active()

    async def other_work():
        while True:
            turns.append(len(turns))
            await asyncio.sleep(0)

    other = asyncio.create_task(other_work())
    found = await findings.active(limit=3)
    other.cancel()
    assert [each.severity for each in found] == ["critical", "high", "medium"]
    assert len(turns) >= len(severities) / 2


async def test_they_come_without_evidence_and_with_a_short_summary(ports):
    await carry_out(ports, disk_of("web-1", summary="x" * 600, evidence={"used": 0.99}))
    [found] = await findings_of(ports).active()
    whole = await findings_of(ports).get("disk:web-1")

    assert (len(found.summary), found.evidence) == (500, None)
    assert (len(whole.summary), whole.evidence) == (600, {"used": 0.99})


async def test_no_more_than_fifty_come_unless_asked_for(ports):
    await carry_out(ports, *(disk_of(f"web-{n}") for n in range(60)))
    findings = findings_of(ports)

    assert len(await findings.active()) == 50
    assert len(await findings.active(limit=100)) == 60


@pytest.mark.parametrize(
    "wanted",
    [
        {"limit": 0},
        {"limit": 101},
        {"limit": "5"},
        {"subject": "web-1"},
        {"subject": ("host",)},
        {"subject": (None, "web-1")},
        {"actor": 1},
        {"class_": ["full"]},
    ],
)
async def test_an_impossible_question_is_refused(ports, wanted):
    with pytest.raises(ValueError, match=next(iter(wanted))):
        await findings_of(ports).active(**wanted)


async def test_a_dry_run_that_stores_findings_sees_its_own_instead_of_live_ones(ports):
    overrides = Overrides(persist_findings="try")
    dry = replace(opening(app_of(Scripted())), mode=Mode.DRY_RUN, overrides=overrides)
    shared = FindingIndex(ports.log, ports.stack)
    live, tried = FindingReader(shared, CLOCK), FindingReader(shared, CLOCK, dry)
    applier = FindingApplier(ports, app_of(Scripted()).actors, CLOCK, Turns())
    await carry_out(ports, disk_of("web-1"), disk_of("web-2"))
    apart = replace(disk_of("web-1", severity="low"), finding_key="try:disk:web-1")
    await applier.apply([apart], opened=dry, attempt=1)

    assert [each.severity for each in await live.active()] == ["high", "high"]
    assert [(each.finding_key, each.severity) for each in await tried.active(actor="worker")] == [
        ("disk:web-2", "high"),
        ("disk:web-1", "low"),
    ]

    ended = replace(clear_finding("disk:web-1"), finding_key="try:disk:web-1")
    await applier.apply([ended], opened=replace(dry, episode_id="another"), attempt=1)
    assert keys(await tried.active()) == ["disk:web-2"]
    assert len(await live.active()) == 2


class CountingLog:
    """A log that counts what is followed, and may have lost what it should have."""

    def __init__(self, log, *, is_silent: bool = False):
        self.log, self.is_silent, self.followed = log, is_silent, []

    def __getattr__(self, name):
        return getattr(self.log, name)

    async def head(self, stream, *, partition):
        return await self.log.head(stream, partition=partition) + self.is_silent

    def follow(self, stream, *, after, partition):
        self.followed.append(after)
        return self.log.follow(stream, after=after, partition=partition)


async def test_only_what_is_new_is_read(ports):
    log = CountingLog(ports.log)
    findings = FindingReader(FindingIndex(log, ports.stack), CLOCK)
    await carry_out(ports, disk_of("web-1"))
    await asyncio.gather(*(findings.active() for _ in range(5)))
    head = await ports.log.head(Stream.STATE)
    await carry_out(ports, disk_of("web-2"), id_="x1")

    assert len(await findings.active()) == 2
    assert log.followed == [0, head]


def test_what_should_be_there_and_does_not_come_is_not_waited_for_without_end():
    async def work():
        clock = SimClock()
        ports = memory_ports(clock=clock)
        log = CountingLog(ports.log, is_silent=True)
        with pytest.raises(Unavailable, match="nothing came"):
            await FindingReader(FindingIndex(log, ports.stack), clock).active()

    simulate(work())


async def test_a_strategy_reads_them_in_init_in_tools_and_in_converge(ports):
    seen = {}

    class Asks(Scripted):
        async def init(self, episode, trigger):
            seen["init"] = keys(await episode.findings.active(class_="full"))
            return super().init(episode, trigger)

        async def converge(self, state, ctx):
            seen["converge"] = keys(await ctx.findings.active(subject=("host", "web-1")))
            return ConvergeResult()

    await carry_out(ports, disk_of("web-1"))
    await play(Asks(), ports=ports)
    assert seen == {"init": ["disk:web-1"], "converge": ["disk:web-1"]}


@pytest.mark.parametrize("partitions", [1, 3])
async def test_on_a_server_an_answer_has_all_that_was_stored_before(nats, stack, partitions):
    stack = Stack(stack.name, partitions=partitions)
    settings = LinkSettings(partitions=partitions)
    async with connect(nats.url, stack=stack, settings=settings) as ports:
        findings = findings_of(ports)
        for number in range(5):
            await carry_out(ports, disk_of(f"web-{number}"), id_=f"x{number}")
            assert len(await findings.active()) == number + 1
        await carry_out(ports, clear_finding("disk:web-0"), id_="end")
        assert len(await findings.active(subject=("host", None))) == 4
