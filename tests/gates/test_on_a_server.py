"""The short scenarios, on a real server: together, for each takes as long as it says.

A machine that is too slow for the times of a scenario says nothing about it, so that one is played
again; how late an episode is opened is then no question, but it is never opened early.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Final

import pytest

from streams.embedded import EmbeddedNats
from tests.gates.scenario import Played, Scenario, differences
from tests.gates.stage import play_served
from tests.gates.table import SCENARIOS
from tests.gates.tally import Tally

SHORT: Final = sorted(
    (each for each in SCENARIOS if each.is_short), key=lambda each: each.until_s, reverse=True
)
"""Those that take longest begin first, so that all are over soonest."""

PLAYED_TOGETHER: Final = 10
"""Scenarios at a time: more would make a small machine slow."""

LATE_S_MAX: Final = 0.15
"""How late a deed may come in a playing that counts: the times of the table leave room for it."""

TRIES_MAX: Final = 4


@pytest.fixture(scope="module")
def played(nats: EmbeddedNats, tally: Tally) -> Mapping[str, Played]:
    """What came of every short scenario."""

    async def play_all() -> Mapping[str, Played]:
        room = asyncio.Semaphore(PLAYED_TOGETHER)
        found = await asyncio.gather(*(_play(each, nats.url, tally, room) for each in SHORT))
        return {scenario.name: each for scenario, each in zip(SHORT, found, strict=True)}

    return asyncio.run(play_all())


async def _play(scenario: Scenario, url: str, tally: Tally, room: asyncio.Semaphore) -> Played:
    """Play `scenario` until the machine was in time."""
    for tries in range(1, TRIES_MAX + 1):
        async with room:
            stack = f"gates-{SHORT.index(scenario)}-{tries}"
            played = await play_served(scenario, tally, url=url, stack=stack)
        if played.late_s <= LATE_S_MAX:
            return played
    raise AssertionError(f"{TRIES_MAX} times the machine was up to {played.late_s:.1f} s late")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scenario", SHORT, ids=lambda each: each.name)
def test_it_happens_as_the_table_says(scenario, played):
    found = played[scenario.name]
    assert differences(scenario, found, late_s_max=math.inf) == []
    assert list(found.letters) == list(scenario.letters)
