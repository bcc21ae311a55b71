"""A process that dies at any moment, and is replaced, changes nothing that matters.

Each scenario is played once for every chance to die: before or after each request that leaves the
process, be it the look at a cooldown, the arming of a timer, the opening, or the answer for the
message. What was not answered for comes again after 10 s, and an episode is recovered after 30 s,
so scenarios leave time for that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import pytest

from engine.app.checks import Breaker
from engine.app.triggers import event, every
from tests.gates.place import Doom
from tests.gates.scenario import Ask, Deed, Offer, Publish, Scenario
from tests.gates.stage import play_simulated
from tests.moments import moments

SETTLED_S: Final = 100.0
"""How long after its last deed a scenario goes on: a death at its worst moment costs less."""

CHANCES_MIN: Final = 30
"""Fewer chances to die than any scenario has, so that the tests cannot pass idly."""

LATE_S: Final = 45.0
"""When whatever died over the first events has been made good: after redelivery and lease."""

Claim = Callable[[Sequence[str]], bool]
"""Says of what opened episodes, in order, whether it is as it must be."""


def story(name: str, *happens: tuple[float, Deed], until_s: float = SETTLED_S, **rest) -> Scenario:
    return Scenario(name=name, happens=happens, until_s=until_s, opened=(), counted={}, **rest)


def is_exactly(*causes: str) -> Claim:
    return lambda opened: sorted(opened) == sorted(causes)


def in_order(*causes: str) -> Claim:
    return lambda opened: list(opened) == list(causes)


def is_one_of(*causes: str) -> Claim:
    return lambda opened: len(opened) == 1 and opened[0] in causes


def ends_with(cause: str) -> Claim:
    """Nothing opens twice, and the newest event does so last."""
    return lambda opened: opened[-1:] == [cause] and len(set(opened)) == len(opened)


STORIES: Final = (
    (
        story("events", (1.0, Publish("e1")), (2.0, Publish("e2"))),
        is_exactly("e1", "e2"),
    ),
    (
        story(
            "a feed",
            (1.0, Offer("1")),
            (2.0, Offer("2")),
            declared={"on": event(stream="FEED", start="all")},
            stream="FEED",
        ),
        is_exactly("1", "2"),
    ),
    (
        story("fires by hand", (1.0, Ask("k1")), (1.5, Ask("k2", due_s=3.0)), (2.0, Ask("k1"))),
        is_exactly("fire k1", "fire k2"),
    ),
    (
        story(
            "a cooldown",
            (1.0, Publish("e1")),
            (1.5, Publish("e2")),
            (LATE_S, Publish("e3")),
            declared={"cooldown_s": 3600},
            nodes=("n1", "n2"),
        ),
        is_one_of("e1", "e2"),
    ),
    (
        story("calm after one event", (1.0, Publish("e1")), declared={"debounce_s": 3}),
        is_exactly("e1"),
    ),
    (
        story(
            "calm after a burst",
            (1.0, Publish("e1")),
            (1.5, Publish("e2")),
            (2.0, Publish("e3")),
            declared={"debounce_s": 3},
        ),
        ends_with("e3"),
    ),
    (
        story(
            "calm after a burst that is calmer than any crash",
            (1.0, Publish("e1")),
            (1.5, Publish("e2")),
            (2.0, Publish("e3")),
            declared={"debounce_s": 15},
            nodes=("n1", "n2"),
        ),
        is_exactly("e3"),
    ),
    (
        story(
            "a breaker",
            (1.0, Publish("e1", {"fails": True})),
            (LATE_S, Publish("e2")),
            declared={"breaker": Breaker(threshold=1, half_open_after_s=3600)},
        ),
        is_exactly("e1"),
    ),
    (
        story(
            "a probe",
            (1.0, Publish("e1", {"fails": True})),
            (LATE_S, Publish("probe")),
            (2 * LATE_S, Publish("e2")),
            declared={"breaker": Breaker(threshold=1, half_open_after_s=5)},
            until_s=2 * LATE_S + SETTLED_S,
        ),
        is_exactly("e1", "probe", "e2"),
    ),
    (
        story(
            "a schedule that catches up with all",
            declared={"on": every("50s", catch_up="all")},
            until_s=170.0,
        ),
        is_exactly("tick+50", "tick+100", "tick+150"),
    ),
    (
        story(
            "turns of one key, some of which end at once",
            (1.0, Publish("e1", {"host": "a"})),
            (1.0, Publish("e2", {"host": "a", "takes_s": 1})),
            (1.5, Publish("e3", {"host": "a"})),
            (LATE_S, Publish("e4", {"host": "a"})),
            declared={"concurrency_key": "host"},
            nodes=("n1", "n2"),
        ),
        in_order("e1", "e2", "e3", "e4"),
    ),
)


@pytest.mark.parametrize(("scenario", "holds"), STORIES, ids=lambda each: getattr(each, "name", ""))
def test_whenever_a_process_dies_it_is_as_if_nothing_had_happened(scenario, holds, tally):
    undisturbed = Doom()
    assert problems(scenario, holds, tally, undisturbed) == []
    assert undisturbed.chances >= CHANCES_MIN
    found = []
    for fatal in moments(undisturbed.chances):
        found += problems(scenario, holds, tally, Doom(fatal))
    assert found == []


def problems(scenario: Scenario, holds: Claim, tally, doom: Doom) -> list[str]:
    """Return what is wrong when `scenario` is played and a process dies as `doom` says."""
    played = play_simulated(scenario, tally, doom=doom)
    opened = [each.by for each in played.opened]
    found = [] if holds(opened) else [f"death {doom.fatal}: opened by {opened}"]
    if played.ended != len(opened):
        found.append(f"death {doom.fatal}: {played.ended} ends of {len(opened)} episodes")
    return [*found, *(f"death {doom.fatal}: dead letter {each}" for each in played.letters)]
