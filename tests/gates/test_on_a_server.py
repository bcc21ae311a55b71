"""The shortest scenarios, on a real server: together, for each takes as long as it says.

`VIGIL_TEST_SIZE=served` plays all that are short.

What does not happen as the table says while the machine was too slow for its times says nothing,
so it is played again, alone. How late an episode is opened is then no question, but it is never
opened early.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from itertools import count
from typing import Final

import pytest

from streams.embedded import EmbeddedNats
from tests.gates.scenario import Played, Scenario, differences
from tests.gates.stage import play_served
from tests.gates.table import SCENARIOS
from tests.gates.tally import Tally
from tests.size import is_full

LASTS_S_MAX: Final = math.inf if is_full("served") else 3.0

SHORT: Final = sorted(
    (each for each in SCENARIOS if each.is_short and each.until_s <= LASTS_S_MAX),
    key=lambda each: each.until_s,
    reverse=True,
)
"""Those that take longest begin first, so that all are over soonest."""

PLAYED_TOGETHER: Final = 10
"""Scenarios at a time: more would make a small machine slow."""

LATE_S_MAX: Final = 0.05
"""How late a deed, an answer or a node's start may be in a playing that always counts: the times of
the table leave room for eight such answers one after the other."""

NUMBERS: Final = count(1)
"""Each playing has a stack of its own."""

ALONE_MAX: Final = 20
"""Most playings of a scenario alone."""


@pytest.fixture(scope="module")
def played(nats: EmbeddedNats, tally: Tally) -> Mapping[str, Played]:
    """What came of every short scenario."""

    async def play_all() -> Mapping[str, Played]:
        room = asyncio.Semaphore(PLAYED_TOGETHER)
        together = await asyncio.gather(*(_play(each, nats.url, tally, room) for each in SHORT))
        found = dict(zip((each.name for each in SHORT), together, strict=True))
        for scenario in SHORT:
            for _ in range(ALONE_MAX):
                if _counts(scenario, found[scenario.name]):
                    break
                found[scenario.name] = await _play(scenario, nats.url, tally, room)
        return found

    return asyncio.run(play_all())


async def _play(scenario: Scenario, url: str, tally: Tally, room: asyncio.Semaphore) -> Played:
    async with room:
        return await play_served(scenario, tally, url=url, stack=f"gates-{next(NUMBERS)}")


def _counts(scenario: Scenario, played: Played) -> bool:
    """Return whether it went as the table says, or the machine was in time."""
    return not _differences(scenario, played) or played.late_s <= LATE_S_MAX


def _differences(scenario: Scenario, played: Played) -> list[str]:
    found = differences(scenario, played, late_s_max=math.inf)
    if list(played.letters) != list(scenario.letters):
        found.append(f"dead letters {list(played.letters)}, not {list(scenario.letters)}")
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("scenario", SHORT, ids=lambda each: each.name)
def test_it_happens_as_the_table_says(scenario, played):
    assert _differences(scenario, played[scenario.name]) == []
