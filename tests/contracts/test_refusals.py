"""What every `Refusals` promises."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from streams.errors import BadName
from streams.model.refusals import AgainstCooldown, AgainstFilter, Refusal
from streams.ports.refusals import KEPT_MAX, PAGE_MAX

AT = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)


def refusal(number=0, *, actor="monitor", expectation="disk", **more):
    said = {
        "event_id": f"x{number}",
        "event": "disk.measured",
        "actor": actor,
        "expectation": expectation,
        "at": AT,
        "node": "n1",
        "reason": "filter",
    }
    return Refusal(**{**said, **more})


async def ids(ports, *, actor=""):
    """Return the ids of the events of all refusals that are kept, the oldest first."""
    found, seq = [], 0
    while page := await ports.refusals.after(seq, actor=actor):
        found += [each.refusal.event_id for each in page]
        seq = page[-1].seq
    return found


async def test_a_refusal_comes_back_as_it_was_stored(ports):
    stored = [
        refusal(against=AgainstFilter(path="a.b", wanted={"gt": 90}, found=[1, None, "x"])),
        refusal(against=AgainstCooldown(episode_id="e1", until=AT), subject="web-1"),
    ]

    await ports.refusals.store(stored)

    assert await ports.refusals.newest("monitor", "disk") == stored[::-1]


async def test_nothing_is_stored_of_nothing(ports):
    await ports.refusals.store([])

    assert await ports.refusals.newest("monitor", "disk") == []
    assert await ports.refusals.after(0) == []


async def test_each_expectation_has_its_own(ports):
    await ports.refusals.store(
        [refusal(1), refusal(2, expectation="memory"), refusal(3, actor="other")]
    )

    assert [each.event_id for each in await ports.refusals.newest("monitor", "memory")] == ["x2"]
    assert await ids(ports, actor="monitor") == ["x1", "x2"]
    assert await ids(ports) == ["x1", "x2", "x3"]


async def test_the_newest_of_each_expectation_are_kept(ports):
    await ports.refusals.store([refusal(0, expectation="quiet")])
    await ports.refusals.store([refusal(number) for number in range(KEPT_MAX + 50)])

    newest = await ports.refusals.newest("monitor", "disk")

    assert [each.event_id for each in newest] == [f"x{n}" for n in range(KEPT_MAX + 49, 49, -1)]
    assert len(await ports.refusals.newest("monitor", "quiet")) == 1


async def test_many_are_read_page_by_page(ports):
    names = [f"e{number}" for number in range(PAGE_MAX // KEPT_MAX + 1)]
    stored = [refusal(n, expectation=name) for name in names for n in range(KEPT_MAX)]
    await ports.refusals.store(stored)

    assert len(await ports.refusals.after(0)) == PAGE_MAX
    assert await ids(ports) == [each.event_id for each in stored]


async def test_the_newest_sequence_is_that_of_the_last_one(ports):
    assert await ports.refusals.newest_seq() == 0
    await ports.refusals.store([refusal(number) for number in range(3)])

    assert await ports.refusals.newest_seq() == 3 == (await ports.refusals.after(0))[-1].seq


async def test_what_can_be_no_name_is_refused(ports):
    with pytest.raises(BadName):
        await ports.refusals.newest("a.b", "disk")
